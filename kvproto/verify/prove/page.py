"""docs/prove.md, written from the claims and from what came of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from kvproto.verify.claims import ends, open_lemmas, rooms, routes
from kvproto.verify.framework.claims import Claims, sentence
from kvproto.verify.framework.draw.tables import table_md
from kvproto.verify.prove import keys, lease, ring
from kvproto.verify.prove.runs import INVARIANT, TABLES, Proof

HEAD = """\
# Proofs without bounds

<!-- made by `kvproto prove --page docs/prove.md` -->

[The checker](checker.md) goes through everything that can happen in small worlds. `kvproto prove` takes the tables
one by one and proves what holds in *every* run, of any length, with any number of ranks, rooms, chunks, writers and
regions. It runs the very step that ranks run, compiled from the same rows, on terms of a solver (z3; `pip install
'kvproto[prove]'`).

```sh
kvproto prove --jobs 2           # all of it
kvproto prove decode_grant       # one table, after a row was changed
kvproto mutate --tables --file decode_grant --operator loosen    # its guards taken out: which proof breaks
```

## What is guaranteed, and what is not

A table's *invariant* stands beside its rows ([kvproto/verify/claims](../kvproto/verify/claims)), in their
vocabulary: plain functions of the value. A *witness* remembers what the machine has done and seen: what is in flight,
who holds what. For each state and event three things are proved: the initial value satisfies the invariant, every row
that can fire keeps it, and every effect satisfies what is *promised* of it. Masks are sets of any size; a time is any
number. No row raises, or leaves a value of the wrong type (S10, of these steps). A step changes only the room, chunk,
peer and link of its event (S9). Peers that break the protocol are outside of these proofs, except where a row handles
them: `kvproto fuzz` and the hostile worlds test them.

Of liveness (L1 to L5) each step's contribution is proved: which timer restarts, what is counted, who is told to stop,
and in which order regions become usable. That every room ends is not proved. Handlers, codec, layouts and kernels are
tested, not proved. Unproved lemmas are listed by name below.

What is not proved is shown as a *counterexample to induction*: state, witness, event, row, and what comes of it. The
run that leads there may or may not exist. In the first case the row is wrong; else the invariant has to say more. An
answer within seconds is what makes this usable while a row is being written.
"""


def page(proofs: Sequence[Proof]) -> str:
    """The page; `proofs` are of all that there is."""
    parts = [HEAD, "## What is proved\n", _table(proofs), ""]
    for claims in TABLES.values():
        parts += _claims(claims)
    parts += ["## The ring\n", sentence_of(ring.__doc__, 2), "", _lemmas(ring.LEMMAS), ""]
    parts += ["## Leases\n", sentence_of(lease.__doc__, 2), "", _lemmas(lease.LEMMAS), ""]
    parts += ["## The ranks' edge\n", sentence_of(routes.__doc__, 2), ""]
    parts += [table_md(("property", "promised"), [(name, sentence(test)) for name, test in routes.PROMISES]), ""]
    parts += ["## Keys\n", sentence_of(keys.__doc__, 2), "", _lemmas(keys.LEMMAS), ""]
    parts += ["## Between the ends\n", sentence_of(ends.__doc__, 2), "", *_together(ends), ""]
    parts += ["## Between the rooms\n", sentence_of(rooms.__doc__, 2), "", sentence_of(rooms.__doc__, 3), ""]
    beside = [(sentence(move),) for move in rooms.MOVES]
    parts += [*_together(rooms), table_md(("beside the rooms' own steps",), beside)]
    parts += ["## What is not proved, by name\n", _open(), ""]
    return "\n".join(parts)


def sentence_of(text: str | None, paragraph: int) -> str:
    """A paragraph of a docstring."""
    paragraphs = (text or "").split("\n\n")
    return paragraphs[paragraph - 1]


def _table(proofs: Sequence[Proof]) -> str:
    rows = []
    for proof in proofs:
        counts = ", ".join(f"{name} {count}" for name, count in sorted(proof.proved.items()) if name != INVARIANT)
        kept = proof.proved.get(INVARIANT, 0)
        verdict = f"**{len(proof.failures)} not proved**" if proof.failures else counts
        rows.append((f"`{proof.name}`", str(proof.pairs), str(proof.ways), str(kept), verdict, f"{proof.seconds:.1f}"))
    head = ("of", "pairs or lemmas", "ways through them", "times the invariant is kept", "promises kept", "seconds")
    return table_md(head, rows) + "\n\nSeconds of one core; how many of each property are obligations, one a way."


def _claims(claims: Claims[Any, Any]) -> Iterator[str]:
    yield f"### {claims.table.name}\n"
    waits = [claims.waits_] if claims.waits_ is not None else []
    promised = [(claim.name, claim.text) for claim in (*claims.promises_, *waits)]
    yield table_md(("property", "promised"), promised) + "\n"
    if claims.assumptions:
        assumed = [(_events(claim.about), claim.text, claim.paid) for claim in claims.assumptions]
        yield table_md(("when", "assumed", "guaranteed by"), assumed) + "\n"


def _events(events: tuple[type, ...]) -> str:
    return ", ".join(f"`{event.__name__}`" for event in events)


def _lemmas(lemmas: Sequence[ring.Lemma]) -> str:
    said = [(about, f"`{name}`", (lemma.__doc__ or "").splitlines()[0]) for about, name, lemma in lemmas]
    return table_md(("property", "lemma", "what it says"), said)


def _together(between: Any) -> Iterator[str]:
    yield table_md(("property", "promised"), [(name, sentence(test)) for name, test in between.PROMISES]) + "\n"
    yield table_md(("invariant", ""), [(f"`{fact.__name__}`", sentence(fact)) for fact in between.INVARIANT]) + "\n"
    yield table_md(("assumed", ""), [(f"`{test.__name__}`", sentence(test)) for test in between.ASSUMED])


def _open() -> str:
    rows = [
        (f"`{each.name}`", each.says, each.instead, ", ".join(f"`{world}`" for world in each.worlds))
        for each in open_lemmas.OPEN
    ]
    return table_md(("lemma", "what it says", "instead", "bounded worlds"), rows)


__all__ = ["page"]

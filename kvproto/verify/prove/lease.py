"""Leases, and the time after which a lost link's other end is taken for quiet.

The lease of what was granted is worked out by the send's own rows (`take_grant`, `keep_pages`), on terms.  It runs from
when the request was made that this answers: the answer repeats it (`asked`), so it was sent later.  What comes of the
ring's queue answers no request, but comes only to a writer that has asked (`asked_because_it_said_so`, between the
ends), so after the first request (`first`).  What is posted is posted within the lease (prefill_write: S4), and lands
within the longest write.  All clocks run alike; what they show does not matter.

* `lost-link`: the answer was sent before the link was lost; everything has landed when lease and write have passed
  since the loss, however long the answer was under way, however often the send has asked, and in whatever order
  answers come.
* `no-later`: a rank that answers with a moment yet to come gains nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import z3

from kvproto.protocol import events as ev
from kvproto.protocol.states import PSend as S
from kvproto.protocol.tables.prefill_send import prefill_send
from kvproto.protocol.timing import Timing
from kvproto.verify.prove.proof import PairProof
from kvproto.verify.prove.ring import Lemma, Question, prove
from kvproto.verify.prove.steps import NOW, Pair, machine_of, subjects, walk
from kvproto.verify.prove.values import Maker

NAME = "lease"
#: where an answer with a lease is taken
TAKEN = (
    Pair(S.AWAIT_GRANT, ev.StagingGranted), Pair(S.AWAIT_WRITERS, ev.StagingGranted),
    Pair(S.AWAIT_TURN, ev.StagingGranted),
    Pair(S.AWAIT_PAGES, ev.PagesGranted), Pair(S.AWAIT_PERMIT, ev.PagesGranted),
)  # fmt: skip
LOSS, POSTED, LANDED, QUIET, WRITE = z3.Reals("loss posted landed quiet write")


def _granted() -> Iterator[tuple[Any, list[Any], tuple[Any, Any]]]:
    """Yield each way a send takes an answer: its begin, its facts, the lease's end, and its length."""
    machine = machine_of(prefill_send, Timing())
    for pair in TAKEN:
        for value, event in subjects(Maker(), prefill_send, pair):
            for way in walk(machine, value, event):
                if way.after.lease is value.lease:
                    continue  # it asks anew, and takes nothing
                said = event.asked.term
                if pair.event is ev.StagingGranted:
                    said = z3.If(event.queued.term, value.first.term, said)
                lease = event.lease.term
                yield said, [*way.conditions, *way.facts, lease > 0], (way.after.lease.term, lease)


def lost_link() -> Iterator[Question]:
    """Writes that were granted before a link was lost have landed when the link counts as quiet."""
    answered = z3.Real("answered")
    for said, known, (until, lease) in _granted():
        posts = [POSTED < until, LANDED <= POSTED + WRITE, QUIET >= LOSS + lease + WRITE, WRITE > 0]
        yield Question([*known, *posts, said <= answered, answered <= LOSS], LANDED < QUIET)


def no_later() -> Iterator[Question]:
    """An answer grants at most one lease from now on, whatever it says."""
    for _, known, (until, lease) in _granted():
        yield Question([*known, z3.Real("v.first") <= NOW.term], until <= NOW.term + lease)


LEMMAS: tuple[Lemma, ...] = (("S4", "lost-link", lost_link), ("S4", "no-later", no_later))


def proofs() -> Iterator[PairProof]:
    """Both lemmas."""
    return prove(NAME, LEMMAS)

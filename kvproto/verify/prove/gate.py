"""The gate: of every guard, does a proof break when it is gone?

Each is taken out of the table itself, and the pair that its row decides is proved anew.  A row that moves loses its
guard, and so fires whenever its turn comes; if nothing breaks, and where a row only says no, the row is taken for one
that never fires.  If its own table does not miss it, the two ends together may (`ends`, `rooms`).  What breaks is told
by name.  A guard that no proof misses is there for something else: that a room ends in time, that a word is not said
twice, that a stranger is told.  `UNBROKEN` says for what; one without a reason is a hole in the claims, or a guard
too many.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from kvproto.fsm.errors import ArgumentError
from kvproto.protocol.timing import Timing
from kvproto.verify.check.parallel_search import spread
from kvproto.verify.framework.draw.tables import table_md
from kvproto.verify.framework.table_patching import TablePatch
from kvproto.verify.prove import ends, rooms
from kvproto.verify.prove.proof import PairProof, TableProver
from kvproto.verify.prove.reasons import reason
from kvproto.verify.prove.runs import TABLES
from kvproto.verify.prove.steps import Pair

#: by table: the proof of both ends that it is a side of
TOGETHER: dict[str, Callable[[Pair], PairProof]] = {
    "prefill_send": lambda pair: ends.EndsProver().pair("send", pair),
    "decode_grant": lambda pair: ends.EndsProver().pair("grant", pair),
    "prefill_room": lambda pair: rooms.RoomsProver().pair(rooms.PREFILL, pair),
    "decode_room": lambda pair: rooms.RoomsProver().pair(rooms.DECODE, pair),
}


class Guard(msgspec.Struct, frozen=True):
    """A guard: its table, and its row's place there."""

    table: str
    row: int

    @property
    def name(self) -> str:
        """`table: STATE Event [guard]`; it does not depend on where the row stands."""
        row = TABLES[self.table].table.rows[self.row]
        guard = row.when.__name__ if row.when else ""
        return f"{self.table}: {row.source.name} {row.event.__name__} [{guard}]"


class GuardVerdict(msgspec.Struct, frozen=True):
    """What breaks without it: the names of claims; and where none does, why that is so ("": nobody has said)."""

    name: str
    breaks: tuple[str, ...]
    where: str
    why: str = ""

    @property
    def unexplained(self) -> bool:
        """Nothing breaks, and nobody has said why."""
        return not self.breaks and not self.why


def guards(names: Sequence[str] = ()) -> list[Guard]:
    """The guards of these tables, or of all.  Raises ArgumentError with the names that there are."""
    unknown = sorted(set(names) - set(TABLES))
    if unknown:
        raise ArgumentError(f"no table {unknown[0]!r}: one of {', '.join(TABLES)}")
    return [
        Guard(name, place)
        for name in names or TABLES
        for place, row in enumerate(TABLES[name].table.rows)
        if row.when is not None
    ]


def ask(guard: Guard) -> GuardVerdict:
    """Take it out, and see what breaks."""
    claims = TABLES[guard.table]
    row, name = claims.table.rows[guard.row], guard.name
    pair = Pair(row.source, row.event)
    broken: tuple[str, ...] = ()
    for change in ({"when": None}, {"when": _never}) if row.verb == "row" else ({"when": _never},):
        if not broken:
            with TablePatch() as bench:
                bench.change(claims.table, [row], **change)
                broken = _missed(guard.table, pair)
    return GuardVerdict(name, broken, row.where.rpartition("/")[2], "" if broken else reason(name))


def _never(_value: object, _event: object, _now: float) -> bool:
    return False


def _missed(table: str, pair: Pair) -> tuple[str, ...]:
    broken = _broken(TableProver(TABLES[table], Timing()).prove(pair))
    if not broken and table in TOGETHER:
        broken = _broken(TOGETHER[table](pair))
    return broken


def _broken(proof: PairProof) -> tuple[str, ...]:
    return tuple(dict.fromkeys(f"{failure.claim}: {failure.text}" for failure in proof.failures))


def gate(names: Sequence[str], jobs: int = 1) -> list[GuardVerdict]:
    """Every guard of these tables."""
    return sorted(spread(ask, guards(names), jobs), key=lambda verdict: verdict.name)


def line(verdict: GuardVerdict) -> str:
    """For people."""
    if verdict.breaks:
        more = f" (and {len(verdict.breaks) - 1} more)" if len(verdict.breaks) > 1 else ""
        return f"breaks      {verdict.name}: {verdict.breaks[0]}{more}"
    return f"{'none       ' if verdict.why else 'UNEXPLAINED'} {verdict.name}: {verdict.why or verdict.where}"


def table(found: Sequence[GuardVerdict]) -> str:
    """All of them, as a page: how many of each table, and of each guard what breaks first, or why nothing does."""
    kinds = [(name, [each for each in found if each.name.startswith(f"{name}:")]) for name in TABLES]
    counts = [
        (name, str(len(own)), str(sum(bool(each.breaks) for each in own)), str(sum(bool(each.why) for each in own)))
        for name, own in (*kinds, ("all", found))
    ]
    rows = [(f"`{each.name}`", each.breaks[0] if each.breaks else f"none: {each.why}") for each in found]
    return "\n".join((
        "# Guards, and the proofs that miss them\n", "Made by `kvproto prove --gate --table FILE`.\n",
        table_md(("table", "guards", "break a proof", "break none, for a reason"), counts),
        table_md(("guard", "without it"), rows),
    ))  # fmt: skip


def summary(found: Sequence[GuardVerdict]) -> str:
    """How many, by fate."""
    broken, bad = sum(bool(each.breaks) for each in found), sum(each.unexplained for each in found)
    reasons = len(found) - broken - bad
    return f"{len(found)} guards: {broken} break a proof, {reasons} have a reason not to, {bad} unexplained"

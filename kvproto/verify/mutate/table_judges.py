"""Table judges: ask one judge after the other about a mutant of the tables, the cheapest first.

    lint     what can be said of the rows without running them: milliseconds
    proof    a claim of `kvproto prove` about the pair that is changed does not follow any more: a tenth of a second
    equal    the solver shows that the step is the same on every value and event: nobody can notice
    world    a property fails in a small world in which the row fires, the smallest first
    timed    the same, in worlds in which time has numbers; before the others for what only time can tell
    test     a test fails that runs on the changed tables, in a fork of its nursery (`table_nursery`)

The table of called groups has worlds of its own (`called_groups`), which take seconds together: all of them are asked.

A mutant whose step is the same wherever the proved invariant and its assumptions hold is not taken into worlds, since
all in them keep to the protocol; the tests, some of which do not, are asked all the same.  If they do not notice, it is
`agreed`: nobody who keeps to the protocol can.  What nobody noticed at all survives, and somebody has to say why.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from sys import intern
from typing import Any

import msgspec

from kvproto.endpoint.group_table import decode_group
from kvproto.fsm.routing import Routes
from kvproto.fsm.table import Row, Table
from kvproto.fsm.timing import NamedTimers
from kvproto.fsm.vocabulary import TimerFired
from kvproto.protocol.timing import Timing
from kvproto.verify.check.configs import CONFIGS, SUITES
from kvproto.verify.check.parallel_search import spread
from kvproto.verify.check.search import check, label
from kvproto.verify.claims.sources import SOURCES
from kvproto.verify.framework.claims import Claims
from kvproto.verify.framework.lint import lint, lint_edge
from kvproto.verify.framework.sources import Sources
from kvproto.verify.framework.table_patching import TablePatch
from kvproto.verify.mutate.equal_steps import Reach, StepPair, pair_of
from kvproto.verify.mutate.table_operators import SUBJECTS, TableMutant
from kvproto.verify.mutate.verdicts import AGREED, EQUAL, Verdict
from kvproto.verify.prove import edge
from kvproto.verify.prove.proof import TableProver
from kvproto.verify.prove.runs import TABLES as CLAIMS
from kvproto.verify.prove.runs import TOGETHER
from kvproto.verify.prove.steps import Pair

#: operators that only time can tell
OF_TIME = ("again", "timer", "period")
#: MiB that a search of a protocol's worlds may take
MEMORY = 4096
#: a world that has become so many times as large has no end: something is said, or counted, for ever
MORE = 10
#: the larger worlds that are asked about what only time can tell
LATER = ("timed-link", "timed-pages", "timed-abort", "timed-death")
ASKED = (*SUITES["judges"], *SUITES["timed-small"], *LATER)
#: a table's name, and one of its pairs
TablePair = tuple[str, Pair]
#: a judge of the proofs
Unproved = Callable[[TableMutant, Iterable[TablePair]], str]


class WorldSize(msgspec.Struct, frozen=True):
    """A world searched with the unchanged tables: states, seconds, labels of its firing rows.

    A world in which the row never fires cannot notice, and is not asked.  That is measured once in a run, on all its
    processes, and handed to each judge: it takes a minute of one core.
    """

    name: str
    states: int
    seconds: float
    rows: frozenset[str] = frozenset()

    @property
    def timed(self) -> bool:
        return CONFIGS[self.name].timed

    @property
    def limit(self) -> int:
        """So many states show that it has no end any more."""
        return MORE * self.states + 10_000


def measure(jobs: int, names: Sequence[str] = ASKED) -> tuple[WorldSize, ...]:
    return tuple(sorted(spread(_measured, names, jobs), key=lambda size: size.seconds))


@cache
def _sizes() -> tuple[WorldSize, ...]:
    return measure(1)


def _measured(name: str) -> WorldSize:
    found = check(name, msgspec.structs.replace(CONFIGS[name], live=False))
    return WorldSize(name, found.states, found.cpu_seconds, frozenset(map(intern, found.rows)))


class Effort(msgspec.Struct, frozen=True):
    """The effort of a search.

    Seconds of worlds for one mutant, as they take unchanged; the worlds, if they were measured already; whether the
    steps are compared.
    """

    worlds_s: float = 5.0
    sizes: tuple[WorldSize, ...] = ()
    compares: bool = True


def judge(mutant: TableMutant, effort: Effort, hint: str = "") -> Verdict[TableMutant]:
    """Plant the mutant, and ask all judges but the tests; `hint`: a world that noticed it once, asked
    first.
    """
    begun, of_groups = time.perf_counter(), mutant.table == decode_group.name
    steps = TableSteps(mutant, CLAIMS, Timing(), compares=effort.compares)
    with TablePatch() as bench:
        mutant.plant(bench)
        who, by = steps.looked_at(_groups().GROUPS.sources if of_groups else SOURCES, _unproved)
        if not who and hint in CONFIGS:
            who, by = _played([hint], effort)
        if not who and effort.worlds_s and of_groups:
            who, by = _called()
    if not who and effort.worlds_s and not of_groups:
        if not effort.sizes:
            effort = msgspec.structs.replace(effort, sizes=_sizes())  # of the tables unchanged: not on the bench
        worlds = tuple(_worlds(mutant, effort))
        with TablePatch() as bench:
            mutant.plant(bench)
            who, by = _played(worlds, effort)
    return Verdict(mutant, who, by, round(time.perf_counter() - begun, 2))


class TableSteps:
    """The steps that a mutant changes, as they are before it is planted."""

    def __init__(
        self, mutant: TableMutant, claims: Mapping[str, Claims[Any, Any]], timing: NamedTimers, *, compares: bool = True
    ) -> None:
        """`claims`: of all tables; `compares`: whether it is asked if they stay the same."""
        self.mutant, self.timing = mutant, timing
        pairs = dict.fromkeys((table, pair_of(row)) for table, row in mutant.touched or _begun(mutant))
        rows = {name: claims[name].table.pairs() for name in {table for table, _ in pairs}}
        #: those with the fewest rows first, which are proved soonest
        self.pairs: list[TablePair] = sorted(pairs, key=lambda each: len(rows[each[0]][each[1].state, each[1].event]))
        compared = self.pairs if compares and mutant.compares else []
        self._steps = [StepPair(claims[table], timing, pair) for table, pair in compared]

    def looked_at(self, sources: Sources | None, unproved: Unproved) -> tuple[str, str]:
        """Judge the planted mutant without running anything."""
        if found := self._linted(sources):
            return "lint", found
        if found := unproved(self.mutant, self.pairs):
            return "proof", found
        if self._steps and all(each.unchanged(Reach.ANYTHING) for each in self._steps):
            return EQUAL, "the solver shows it"
        if self._steps and all(each.unchanged(Reach.PROVED) for each in self._steps):
            return AGREED, "equal wherever the proved invariant and assumptions hold"
        return "", ""

    def _linted(self, sources: Sources | None) -> str:
        for name in dict.fromkeys((self.mutant.table, *(table for table, _ in self.pairs))):
            subject = SUBJECTS[name]
            if isinstance(subject, Table):
                found = lint(subject, self.timing, sources)
            else:
                found = lint_edge(sources) if sources is not None else []
            if found:
                return found[0].kind
        return ""


def broken(result: Any) -> str:
    """The property that fails in a world, if any; that it has become so large is noticed, too."""
    if result.ended == "interrupted":
        raise KeyboardInterrupt
    if result.violations:
        return str(result.violations[0].property)
    return "no end" if result.ended == "limit" else ""


def within(worlds: Iterable[WorldSize], seconds: float) -> Iterator[WorldSize]:
    """The first of these worlds, as many as take so long together."""
    for world in worlds:
        seconds -= world.seconds
        if seconds < 0:
            return
        yield world


def _played(worlds: Sequence[str], effort: Effort) -> tuple[str, str]:
    """The first of these worlds in which a property fails."""
    limits = {size.name: size.limit for size in effort.sizes}
    for world in worlds:
        config = CONFIGS[world]
        config = msgspec.structs.replace(config, limit=limits.get(world, config.limit))
        if found := broken(check(world, config)):
            return ("timed" if config.timed else "world"), f"{world}: {found}"
    return "", ""


def _groups() -> Any:
    """Return the worlds of called groups, which load torch: other protocols do without."""
    from kvproto.verify.check import called_groups

    return called_groups


def _called() -> tuple[str, str]:
    """The first world of called groups in which a property fails."""
    for world in _groups().SCENARIOS:
        if found := broken(_groups().CHECKER.search(world, limit=None, memory=MEMORY, report=None)):
            return "world", f"{world}: {found}"
    return "", ""


def _unproved(mutant: TableMutant, pairs: Iterable[TablePair]) -> str:
    """A claim that does not follow any more: of one of these pairs, or of the routes."""
    subject = SUBJECTS[mutant.table]
    if isinstance(subject, Routes):
        return next((failure.claim for failure in edge.proof(subject).failures), "")
    provers: dict[str, TableProver] = {}
    for table, pair in pairs:
        prover = provers.setdefault(table, TableProver(CLAIMS[table], Timing()))
        if claim := prover.fails(pair):
            return claim
    for table, pair in pairs:
        failures = TOGETHER[table](pair).failures if table in TOGETHER else []
        if failures:
            return failures[0].claim
    return ""


def _begun(mutant: TableMutant) -> Iterator[tuple[str, Row]]:
    """The rows with which the time of the changed state begins."""
    subject = SUBJECTS[mutant.table]
    rows = subject.rows if isinstance(subject, Table) and mutant.operator in ("timer", "period") else []
    begins = [row for row in rows if int(row.target) == mutant.place and (row.again or row.source is not row.target)]
    yield from ((mutant.table, row) for row in begins if row.verb == "row")


# ------------------------------------------------------------------------------------------------- worlds
def _worlds(mutant: TableMutant, effort: Effort) -> Iterator[str]:
    """The worlds that can notice it, as many as the effort allows."""
    of_time, untimed = mutant.operator in OF_TIME, mutant.operator not in ("again", "period")
    seen = _touched(mutant)
    able = [size for size in effort.sizes if not seen or seen & size.rows]
    able = [size for size in able if (of_time or size.name not in LATER) and (untimed or size.timed)]
    soonest = sorted(able, key=lambda size: (of_time and not size.timed, size.seconds))
    yield from (size.name for size in within(soonest, effort.worlds_s))


def _touched(mutant: TableMutant) -> set[str]:
    """Labels of rows, one of which has to fire for it to matter; none: nobody knows."""
    subject = SUBJECTS[mutant.table]
    if isinstance(subject, Table) and not mutant.touched:
        return {label(each) for each in subject.rows if _ends_timer(each, mutant)}
    if mutant.operator in ("loosen", "negate", "body"):
        pairs = dict.fromkeys((table, pair_of(row)) for table, row in mutant.touched)
        return {label(each) for table, pair in pairs for each in CLAIMS[table].table.rows if pair_of(each) == pair}
    return {label(row) for _, row in mutant.touched}


def _ends_timer(row: Row, mutant: TableMutant) -> bool:
    return mutant.operator != "body" and int(row.source) == mutant.place and issubclass(row.event, TimerFired)

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
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from kvproto.fsm.routing import Routes
from kvproto.fsm.table import Row, Table
from kvproto.fsm.vocabulary import TimerFired
from kvproto.protocol.timing import Timing
from kvproto.verify.check.called_groups import CHECKER, GROUPS, SCENARIOS
from kvproto.verify.check.configs import CONFIGS
from kvproto.verify.check.search import check, label
from kvproto.verify.claims.sources import SOURCES
from kvproto.verify.framework.lint import lint, lint_edge
from kvproto.verify.framework.table_patching import TablePatch
from kvproto.verify.mutate.equal_steps import Reach, StepPair, pair_of
from kvproto.verify.mutate.table_operators import SUBJECTS, TableMutant
from kvproto.verify.mutate.verdicts import AGREED, EQUAL, Verdict
from kvproto.verify.mutate.world_sizes import LATER, WorldSize, sizes
from kvproto.verify.prove import edge
from kvproto.verify.prove.proof import TableProver
from kvproto.verify.prove.runs import TABLES as CLAIMS
from kvproto.verify.prove.runs import TOGETHER
from kvproto.verify.prove.steps import Pair

#: operators that only time can tell
OF_TIME = ("again", "timer", "period")
#: tables of called groups, and MiB that a search of their worlds may take
OF_GROUPS, MEMORY = {table.name for table in GROUPS.tables}, 4096
#: a world that has become so many times as large has no end: something is said, or counted, for ever
MORE = 10
#: a table's name, and one of its pairs
TablePair = tuple[str, Pair]


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
    begun = time.perf_counter()
    pairs = _pairs(mutant)
    known = effort.compares and mutant.compares
    steps = [StepPair(CLAIMS[table], Timing(), pair) for table, pair in pairs] if known else []
    with TablePatch() as bench:
        mutant.plant(bench)
        who, by = _looked_at(mutant, pairs, steps)
        if not who and hint in CONFIGS:
            who, by = _played([hint], effort)
        if not who and effort.worlds_s and mutant.table in OF_GROUPS:
            who, by = _called()
    if not who and effort.worlds_s and mutant.table not in OF_GROUPS:
        if not effort.sizes:
            effort = msgspec.structs.replace(effort, sizes=sizes())  # of the tables unchanged: not on the bench
        worlds = tuple(_worlds(mutant, effort))
        with TablePatch() as bench:
            mutant.plant(bench)
            who, by = _played(worlds, effort)
    return Verdict(mutant, who, by, round(time.perf_counter() - begun, 2))


def _looked_at(mutant: TableMutant, pairs: Sequence[TablePair], steps: Sequence[StepPair]) -> tuple[str, str]:
    """Judge a mutant without running anything."""
    if found := _linted(mutant, pairs):
        return "lint", found
    if found := _unproved(mutant, pairs):
        return "proof", found
    if steps and all(each.unchanged(Reach.ANYTHING) for each in steps):
        return EQUAL, "the solver shows it"
    if steps and all(each.unchanged(Reach.PROVED) for each in steps):
        return AGREED, "equal wherever the proved invariant and assumptions hold"
    return "", ""


def _played(worlds: Sequence[str], effort: Effort) -> tuple[str, str]:
    """The first of these worlds in which a property fails."""
    states = {size.name: size.states for size in effort.sizes}
    for world in worlds:
        if (broken := _broken(world, states.get(world))) is not None:
            return ("timed" if CONFIGS[world].timed else "world"), f"{world}: {broken}"
    return "", ""


def _called() -> tuple[str, str]:
    """The first world of called groups in which a property fails."""
    for world in SCENARIOS:
        result = CHECKER.search(world, limit=None, memory=MEMORY, report=None)
        if result.ended == "interrupted":
            raise KeyboardInterrupt
        if result.violations:
            return "world", f"{world}: {result.violations[0].property}"
    return "", ""


def _broken(world: str, states: int | None) -> str | None:
    """The property that fails in a world, if any; that it has become so large is noticed, too.

    `states`: so many it has with the tables as they are; None: not known, so the configuration's own limit holds.
    """
    limit = MORE * states + 10_000 if states is not None else CONFIGS[world].limit
    result = check(world, msgspec.structs.replace(CONFIGS[world], limit=limit))
    if result.ended == "interrupted":
        raise KeyboardInterrupt
    if result.ended == "limit":
        return "no end"
    return result.violations[0].property if result.violations else None


def _linted(mutant: TableMutant, pairs: Iterable[TablePair]) -> str:
    for name in dict.fromkeys((mutant.table, *(table for table, _ in pairs))):
        subject, sources = SUBJECTS[name], GROUPS.sources if name in OF_GROUPS else SOURCES
        found = lint_edge(SOURCES) if isinstance(subject, Routes) else lint(subject, Timing(), sources)
        if found:
            return found[0].kind
    return ""


def _unproved(mutant: TableMutant, pairs: Iterable[TablePair]) -> str:
    """A claim that does not follow any more: of one of these pairs, or of the routes."""
    subject = SUBJECTS[mutant.table]
    if isinstance(subject, Routes):
        return next((failure.claim for failure in edge.proof(subject).failures), "")
    provers: dict[str, TableProver] = {}
    for table, pair in pairs:
        prover = provers.setdefault(table, TableProver(CLAIMS[table], Timing()))
        if broken := prover.fails(pair):
            return broken
    for table, pair in pairs:
        failures = TOGETHER[table](pair).failures if table in TOGETHER else []
        if failures:
            return failures[0].claim
    return ""


def _pairs(mutant: TableMutant) -> Sequence[TablePair]:
    """Return the pairs whose steps it changes; those with the fewest rows first, which are proved soonest."""
    pairs = dict.fromkeys((table, pair_of(row)) for table, row in mutant.touched or _begun(mutant))
    rows = {name: CLAIMS[name].table.pairs() for name in {table for table, _ in pairs}}
    return sorted(pairs, key=lambda each: len(rows[each[0]][each[1].state, each[1].event]))


def _begun(mutant: TableMutant) -> Iterator[tuple[str, Row]]:
    """The rows with which the time of the changed state begins."""
    subject = SUBJECTS[mutant.table]
    rows = subject.rows if isinstance(subject, Table) and mutant.operator in ("timer", "period") else []
    begins = [row for row in rows if int(row.target) == mutant.place and (row.again or row.source is not row.target)]
    yield from ((mutant.table, row) for row in begins if row.verb == "row")


# ------------------------------------------------------------------------------------------------- worlds
def _worlds(mutant: TableMutant, effort: Effort) -> Iterator[str]:
    """The worlds that can notice it, as many as the effort allows."""
    of_time, untimed, spent = mutant.operator in OF_TIME, mutant.operator not in ("again", "period"), 0.0
    seen = _touched(mutant)
    able = [size for size in effort.sizes if not seen or seen & size.rows]
    able = [size for size in able if (of_time or size.name not in LATER) and (untimed or size.timed)]
    for size in sorted(able, key=lambda size: (of_time and not size.timed, size.seconds)):
        spent += size.seconds
        if spent > effort.worlds_s:
            return
        yield size.name


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

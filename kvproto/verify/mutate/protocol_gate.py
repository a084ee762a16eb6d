"""Protocol gate: mutants of any protocol's tables and routes, judged by what it names itself.

    lint     what can be said of the rows without running them
    proof    a claim of the protocol about a changed pair does not follow any more, or a step is not sound
    equal    the solver shows that the steps are the same on every value and event: nobody can notice
    world    a property fails in one of its checker's worlds, the smallest first

There are no tests here, as there are for the transfer's own tables (`table_gate`): of another protocol nobody knows
which ones to ask.  Why a mutant need not be noticed is what the protocol's `unnoticed` says of it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import msgspec

from kvproto.fsm.errors import ArgumentError
from kvproto.verify.check.parallel_search import spread
from kvproto.verify.framework.protocol import Protocol, named
from kvproto.verify.framework.table_patching import TablePatch
from kvproto.verify.mutate import table_operators
from kvproto.verify.mutate.table_judges import MEMORY, TablePair, TableSteps, WorldSize, broken, within
from kvproto.verify.mutate.table_operators import OPERATORS, TableMutant, sample, subjects
from kvproto.verify.mutate.verdicts import AGREED, EQUAL, Verdict, kill_table
from kvproto.verify.prove.proof import KeyedProver

JUDGES = ("lint", "proof", "world")
#: states of the largest world that is asked
LARGEST = 20_000
TableVerdict = Verdict[TableMutant]


class KnownReasons(msgspec.Struct, frozen=True):
    """The reasons that a protocol gives, by pattern of mutants' names."""

    unnoticed: Mapping[str, str]

    def reason(self, mutant: TableMutant) -> str:
        """Why nobody has to notice it; empty: nobody has said."""
        return next((why for pattern, why in self.unnoticed.items() if mutant.fits(pattern)), "")


class ProtocolGate:
    """The mutants of the protocol at one place, and what `kvproto mutate` asks of them."""

    OWNER, EFFORT_S = "table", 5.0

    def __init__(self, place: str) -> None:
        self.place, self.protocol = place, named(place, Protocol)
        self.TITLE = f"Mutants of the tables of {self.protocol.name}"
        self.sample = sample

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Mutants have their meaning while the block runs."""
        sources = self.protocol.sources
        with subjects(self.protocol.tables, sources.routes if sources is not None else ()):
            yield

    def load(self, _root: Path) -> KnownReasons:
        """Return the reasons.  ArgumentError: one is of no mutant."""
        known = KnownReasons(self.protocol.explained())
        mutants = table_operators.mutants()
        for pattern in known.unnoticed:
            if not any(each.fits(pattern) for each in mutants):
                raise ArgumentError(f"{self.protocol.unnoticed} explains {pattern!r}, and there is no such mutant")
        return known

    def every(
        self, _root: Path, _known: KnownReasons, tables: Sequence[str] = (), operators: Sequence[str] = ()
    ) -> list[TableMutant]:  # fmt: skip
        """Return the mutants of these tables (all) by these operators (all).  ArgumentError: no such name."""
        return table_operators.mutants(tables, operators)

    def run(
        self, _root: Path, known: KnownReasons, asked: Sequence[TableMutant], effort_s: float, jobs: int,
        tell: Callable[[TableVerdict], None],
    ) -> list[TableVerdict]:  # fmt: skip
        """Try all mutants that nobody has explained."""
        left = [(self.place, mutant, effort_s) for mutant in asked if not known.reason(mutant)]
        found = []
        for verdict in spread(_judged, left, jobs):
            found.append(verdict)
            tell(verdict)
        return sorted(found, key=lambda verdict: verdict.mutant)

    def table(self, known: KnownReasons, found: Sequence[TableVerdict]) -> str:
        """Return two tables in Markdown, by operator and by table: counts by judge, explained, open."""
        return kill_table(known, found, (*JUDGES, EQUAL, AGREED), {"operator": OPERATORS, "table": ()})

    def digest(self, _root: Path, _mutants: Sequence[TableMutant]) -> Callable[[TableMutant], str]:
        """Return the protocol's digest: of one that has changed no verdict counts."""
        said = self.protocol.digest()
        return lambda _mutant: said


@cache
def _worlds(place: str) -> tuple[WorldSize, ...]:
    """The protocol's worlds that are searched to their end, the quickest first."""
    protocol, found = named(place, Protocol), []
    for name in protocol.checked().worlds() if protocol.checker else ():
        result = protocol.checked().search(name, limit=LARGEST, memory=MEMORY, report=None)
        if result.ended == "exhausted" and not result.violations:
            found.append(WorldSize(name, result.states, result.seconds))
    return tuple(sorted(found, key=lambda world: world.seconds))


def _judged(asked: tuple[str, TableMutant, float]) -> TableVerdict:
    """Ask all judges about one mutant; in whatever process this is."""
    place, mutant, effort_s = asked
    gate, begun = ProtocolGate(place), time.perf_counter()
    worlds = _worlds(place) if effort_s else ()
    with gate.at_work():
        try:
            who, by = _noticed(gate.protocol, mutant, worlds, effort_s)
        except Exception as error:  # noqa: BLE001  one mutant that breaks its judge ends no run: it survives
            who, by = "", f"the judge: {type(error).__name__}: {error}"[:200]
    return Verdict(mutant, who, by, round(time.perf_counter() - begun, 2))


def _noticed(protocol: Protocol, mutant: TableMutant, worlds: Sequence[WorldSize], effort_s: float) -> tuple[str, str]:
    claims = protocol.claimed()
    steps = TableSteps(mutant, claims, protocol.timing)

    def unproved(_mutant: TableMutant, pairs: Iterable[TablePair]) -> str:
        found = (KeyedProver(claims[table], protocol.timing).fails(pair) for table, pair in pairs)
        return next(filter(None, found), "")

    with TablePatch() as bench:
        mutant.plant(bench)
        try:
            who, by = steps.looked_at(protocol.sources, unproved)
        except ArgumentError:
            who, by = "", ""  # its values are of kinds that no proof takes: the worlds have to notice
        if who:
            return who, by
        for world in within(worlds, effort_s):
            result = protocol.checked().search(world.name, limit=world.limit, memory=MEMORY, report=None)
            if found := broken(result):
                return "world", f"{world.name}: {found}"
    return "", ""

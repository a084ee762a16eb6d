"""The search: breadth first, so that what it finds is found by the shortest way.

States are numbered in the order in which they are met.  For each the search keeps the state itself, its number and its
parent's; with `live` also the edges that are no faults, for the questions of `liveness`.  A search stops at the first
violation, at its limit, at the memory limit, or when it is interrupted; it then says how far it came.
"""

from __future__ import annotations

import gc
import resource
import sys
import time
from array import array
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Protocol

import msgspec

from kvproto.fsm.table import Row
from kvproto.verify.framework import liveness
from kvproto.verify.framework.story import Counterexample, retrace

MEGABYTE = 1 << 20
#: kinds of what happens: it has a price, a timer ends, or neither
FAULT, TIMER, WORK = 0, 1, 2
LOOK = 4095  #: how often it is looked at the clock, the limits and the memory: a mask of states


class Result(msgspec.Struct):
    """The result of a search; `ended`: exhausted, violation, limit, memory or interrupted."""

    name: str
    states: int = 0
    transitions: int = 0
    depth: int = 0
    seconds: float = 0.0
    states_per_s: int = 0
    #: the same by the process's own time, for machines that others use, too
    cpu_seconds: float = 0.0
    states_per_cpu_s: int = 0
    ended: str = "exhausted"
    megabytes: int = 0
    sights: list[str] = []
    #: rows that fired, as `label` has them
    rows: list[str] = []
    #: which search it was: `native` or `python`
    engine: str = "python"
    violations: list[Any] = []


class Progress(msgspec.Struct):
    """How far a search is."""

    states: int
    transitions: int
    depth: int
    frontier: int
    seconds: float


class Bounds(Protocol):
    """The bounds of a search, beside its space."""

    @property
    def limit(self) -> int:
        """Give up beyond so many states."""

    @property
    def live(self) -> bool:
        """Keep the graph, and ask whether every way ends."""

    @property
    def must(self) -> tuple[str, ...]:
        """Sights that have to be seen."""

    @property
    def never(self) -> tuple[str, ...]:
        """Sights that must not be seen."""


class Space(Protocol):
    """Hashable states, and the steps from one to the next (`kind` says of what kind a step is)."""

    #: (property, what is wrong, event) of every step so far that broke one
    faults: list[tuple[str, str, Any]]
    #: exchanges that take behaviours to behaviours; none: `canonical` is not asked
    swaps: list[Any]

    def initial(self) -> Any:
        """The first state."""

    def successors(self, state: Any) -> tuple[list[Any], list[Any]]:
        """The states that come next, and why; what breaks a property is added to `faults`."""

    def canonical(self, state: Any) -> Any:
        """The least of the states that differ from this one by an exchange."""

    def unrest(self, state: Any) -> tuple[str, str] | None:
        """The property that fails if it stays so, and how; None: it may stay so."""

    def seen(self) -> set[str]:
        """Return the sights that were met on the way."""

    def fired(self) -> Iterable[Row]:
        """The rows that have fired."""


def label(row: Row) -> str:
    """A row's place in the tables: the table's file, state, event and number."""
    return f"{Path(row.file).stem} {row.source.name} {row.event.__name__} {row.index}"


def megabytes() -> int:
    """Memory of this process now (where the system does not tell: at its highest), in MiB."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() // MEGABYTE
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def to_stderr(at: Progress) -> None:
    """One line, written over the last."""
    rate = at.states / max(at.seconds, 1e-9)
    line = f"\r{at.states:>12,} states  {at.depth:>4} deep  {at.frontier:>10,} to do  {rate:>8,.0f}/s"
    line += f"  {megabytes():>6,} MiB"
    sys.stderr.write(line)
    sys.stderr.flush()


class Search:
    """One run over one space."""

    CIRCLE = "from here things can go on for ever although no timer ends"

    def __init__(self, name: str, bounds: Bounds, space: Space, *, memory: int = 12_000) -> None:
        """`memory`: MiB of this process at which the search gives up."""
        self.bounds, self.space, self.memory = bounds, space, memory
        self.result = Result(name)
        self.order: list[Any] = []
        self.number: dict[Any, int] = {}
        self.parent = array("I")
        self.edges = liveness.EdgeRows() if bounds.live else None
        #: the places of states of rest, once ends were judged
        self.rests: list[int] = []

    def close(self) -> None:
        """Give back what the search keeps outside Python: nothing."""

    def tale(self, name: str, text: str, events: list[Any]) -> Counterexample:
        raise NotImplementedError

    def run(self, report: Callable[[Progress], None] | None = None) -> Result:
        begun, used = time.perf_counter(), time.process_time()
        result, space = self.result, self.space
        try:
            first = space.initial()
            if not self._broken(None):
                self._meet(first, 0)
                self._walk(report, begun)
            if not result.violations and result.ended == "exhausted" and self.bounds.live:
                self._judge_ends()
            if not result.violations:
                self._judge_sights()
        except KeyboardInterrupt:
            result.ended = "interrupted"
        result.seconds = time.perf_counter() - begun
        result.states = len(self.order)
        result.states_per_s = int(result.states / max(result.seconds, 1e-9))
        result.cpu_seconds = time.process_time() - used
        result.states_per_cpu_s = int(result.states / max(result.cpu_seconds, 1e-9))
        result.megabytes = megabytes()
        result.sights = sorted(space.seen())
        result.rows = sorted({label(row) for row in space.fired()})
        return result

    def _meet(self, state: Any, parent: int) -> int:
        number = self.number[state] = len(self.order)
        self.order.append(state)
        self.parent.append(parent)
        return number

    def _walk(self, report: Callable[[Progress], None] | None, begun: float) -> None:
        result, order, tick, done, level = self.result, self.order, begun, 0, 1
        while done < len(order) and not result.violations:
            if done == level:
                result.depth, level = result.depth + 1, len(order)
            self._expand(done)
            done += 1
            if not done & LOOK:
                now = time.perf_counter()
                if report is not None and now - tick > 1.0:
                    tick = now
                    report(Progress(len(order), result.transitions, result.depth, len(order) - done, now - begun))
                if len(order) > self.bounds.limit or megabytes() > self.memory:
                    result.ended = "limit" if len(order) > self.bounds.limit else "memory"
                    return

    def _expand(self, at: int) -> None:
        space, edges = self.space, self.edges
        states, why = space.successors(self.order[at])
        self.result.transitions += len(states)
        if space.faults and self._broken(at):
            return
        known, canonical = self.number.get, space.canonical if space.swaps else None
        moves = 0
        for state, event in zip(states, why):  # noqa: B905  # as long by construction, and this is the inner loop
            to = known(state)
            if to is None:
                new = canonical(state) if canonical else state
                to = known(new) if canonical else None
                if to is None:
                    to = self._meet(new, at)
            kind = event.kind
            moves |= kind
            if kind and edges is not None:
                edges.to.append(to)
                edges.timer.append(kind == TIMER)
        if edges is not None:
            edges.close()
        if not moves and (unrest := space.unrest(self.order[at])):
            self._violate(unrest[0], f"nothing can happen any more: {unrest[1]}", at)

    def _broken(self, at: int | None) -> bool:
        if not self.space.faults:
            return False
        name, text, event = self.space.faults[0]
        del self.space.faults[:]
        self.result.ended = "violation"
        self._add_violation(name, text, at, event)
        return True

    def _violate(self, name: str, text: str, at: int) -> None:
        self.result.ended = "violation"
        self._add_violation(name, text, at, None)

    def _add_violation(self, name: str, text: str, at: int | None, event: Any) -> None:
        text, events = retrace(self.space, self._path(at), name, text, event)
        self.result.violations.append(self.tale(name, text, events))

    def _path(self, at: int | None) -> list[Any]:
        path = []
        while at is not None:
            path.append(self.order[at])
            at = self.parent[at] if at else None
        return path[::-1]

    def _judge_ends(self) -> None:
        assert self.edges is not None
        self.rests = [i for i, state in enumerate(self.order) if not self.space.unrest(state)]
        lost = liveness.cannot_reach(self.edges, self.rests, len(self.order))
        if lost is not None:
            name, text = self._reason(lost)
            self._violate(name, text, lost)
            return
        circle = liveness.runs_in_circles(self.edges, len(self.order))
        if circle is not None:
            self._violate("L4", self.CIRCLE, circle)

    def _judge_sights(self) -> None:
        seen = self.space.seen()
        for sight in sorted(set(self.bounds.never) & seen):
            self.result.violations.append(self.tale("sometimes", f"{sight}: seen, and should not be", []))
        if self.result.ended == "exhausted":
            for sight in sorted(set(self.bounds.must) - seen):
                self.result.violations.append(self.tale("sometimes", f"{sight}: never seen", []))
        if self.result.violations:
            self.result.ended = "violation"

    def _reason(self, at: int) -> tuple[str, str]:
        unrest = self.space.unrest(self.order[at])
        assert unrest is not None  # a state of rest reaches itself
        return unrest[0], f"from here on, whatever happens: {unrest[1]}"


def run(search: Search, report: Callable[[Progress], None] | None = None) -> Result:
    """Search without the collector: nothing is freed meanwhile, and looking takes a tenth of the time."""
    collected = gc.isenabled()
    gc.disable()
    try:
        return search.run(report)
    finally:
        search.close()
        vars(search.space).clear()  # what refers to its space would be kept until somebody collects
        if collected:
            gc.enable()

"""Comparison: fires a step three times (rows one by one, generated Python, C) and names what differs.

The rows one by one are what a table means.  The two printers, of Python and of C, start from the rows and share no code
below them, so a fault of either is a difference here.  C has no result where Python raises an error, or leaves a number
that its field cannot hold: then the two agree, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
from msgspec.structs import replace

from kvproto.fsm.machine import Machine, machine_for
from kvproto.fsm.table import Row, Table
from kvproto.fsm.timer_wheel import INFINITY, QUANTUM
from kvproto.fsm.timing import NamedTimers
from kvproto.fsm.vocabulary import TimerFired
from kvproto.verify.framework.native.library import Fired, Library
from kvproto.verify.framework.native.words import MisfitError

#: what a step raises that has no result in C either
NO_RESULT = (ArithmeticError, AssertionError, AttributeError, MemoryError, TypeError, ValueError)


class Comparison:
    """Compares the steps of one compiled file, and counts them."""

    def __init__(self, library: Library) -> None:
        self.library = library
        self.compared = self.without_result = self.beyond = 0
        self._pairs = {id(each.table): each.table.pairs() for each in library.code.tables}
        #: by table (two protocols may name one alike): the rows that have fired
        self._fired: dict[int, set[int]] = {id(each.table): set() for each in library.code.tables}

    def difference(self, table: Table[Any], timing: NamedTimers, value: Any, event: Any, now: float) -> str:
        """Return what differs, by name; "": nothing, or value or event do not fit into their fields."""
        try:
            found = self.library.fire(table, timing, value, event, now)
        except MisfitError:
            self.beyond += 1
            return ""
        self.compared += 1
        told = f"{table.name}: {value.state.name} {type(event).__name__}"
        rows = self._pairs[id(table)].get((value.state, type(event)), [])
        plain = _tried(interpreted, table, rows, timing, value, event, now)
        generated = _tried(_generated, machine_for(table, timing), value, event, now)
        if apart := "; ".join(_apart(plain, generated, "by generated code")):
            return f"{told}: {apart}"
        expected = self._kept(plain)
        if expected is None:
            self.without_result += 1
        elif expected[0] is not None:
            self._fired[id(table)].add(expected[0].index)
        apart = "; ".join(_apart(expected, found, "in C"))
        return f"{told}: {apart}" if apart else ""

    def fired(self, table: Table[Any], row: Row) -> bool:
        """Whether the row has fired, alike each time."""
        return row.index in self._fired[id(table)]

    def unfired(self) -> list[str]:
        """Return the rows that have not fired so far."""
        return [f"{each.table.name}: {row}" for each in self.library.code.tables for row in each.table.rows
                if not self.fired(each.table, row)]  # fmt: skip

    def _kept(self, fired: Fired | None) -> Fired | None:
        """Return a result that fits into its fields."""
        if fired is None:
            return None
        try:
            for each in (fired[1], *fired[2]):
                self.library.words.written(each)
        except MisfitError:
            return None
        return fired


def interpreted(
    table: Table[Any], rows: Iterable[Row], timing: NamedTimers, value: Any, event: Any, now: float
) -> Fired:  # fmt: skip
    """Fire the first of a pair's rows whose guard holds; a refusal's report is left out."""
    row = next((row for row in rows if row.when is None or row.when(value, event, now)), None)
    if row is None or row.verb != "row":
        return row, value, ()
    new = value if row.let is None else row.let(value, event, now)
    if row.target is not row.source or row.again:
        new = replace(new, due=_due(table, timing, row, value, new, now), state=row.target)
    return row, new, tuple(build(new, event) for build in row.do)


def _due(table: Table[Any], timing: NamedTimers, row: Row, value: Any, new: Any, now: float) -> float:
    if row.target not in table.timers:
        return INFINITY
    timer, own, times = timing.named(table.timers[row.target]), table.periods.get(row.target), 0
    if table.tries is not None and row.target is row.source and issubclass(row.event, TimerFired):
        times = table.tries(value) + 1
    seconds = own(new) if own is not None else 0
    if not seconds:
        seconds = timer.after(times) if times and timer.longest > timer.period else timer.period
    return (now + seconds) // QUANTUM * QUANTUM + QUANTUM


def _generated(machine: Machine[Any], value: Any, event: Any, now: float) -> Fired:
    row, new, effects = machine.fire(value, event, now)
    return row, new, effects if row is not None and row.verb == "row" else ()


def _tried(how: Any, *arguments: Any) -> Fired | None:
    try:
        fired: Fired = how(*arguments)
    except NO_RESULT:
        return None
    return fired


def _apart(expected: Fired | None, found: Fired | None, where: str) -> Iterator[str]:
    """Yield what is not as it should be."""
    if expected is None or found is None:
        if expected is not found:
            yield f"{'no' if found is None else 'a'} result {where}"
        return
    if expected[0] is not found[0]:
        yield f"row {found[0]} {where}, not {expected[0]}"
    yield from _fields("new", expected[1], found[1], where)
    if len(expected[2]) != len(found[2]):
        yield f"{len(found[2])} effects {where}, not {len(expected[2])}"
    for one, other in zip(expected[2], found[2], strict=False):
        yield from _fields(type(one).__name__, one, other, where)


def _fields(name: str, expected: Any, found: Any, where: str) -> Iterator[str]:
    if expected == found and type(expected) is type(found):
        return
    if type(expected) is not type(found) or not isinstance(expected, msgspec.Struct):
        yield f"{name} is {found!r} {where}, not {expected!r}"
        return
    for field in expected.__struct_fields__:
        yield from _fields(f"{name}.{field}", getattr(expected, field), getattr(found, field), where)

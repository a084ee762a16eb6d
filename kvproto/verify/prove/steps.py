"""The step of a table, as it runs, on terms.

`TermMachine` is the machine that ranks run, compiled from the same rows by the same code; what it is not asked for is
when a timer ends, which is some later time.  `walk` fires it for one state and event on every value that there can
be, and gives each way through it: under which conditions which row fires, with which value and which effects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Self

import msgspec
import z3

from kvproto.fsm.machine import Machine
from kvproto.fsm.table import Output, Row, Table, Value
from kvproto.fsm.timing import NamedTimers
from kvproto.fsm.vocabulary import Effect, Event, State
from kvproto.verify.framework.claims import OWN
from kvproto.verify.prove.kinds import misfit
from kvproto.verify.prove.terms import Facts, Number, Ways
from kvproto.verify.prove.values import Maker

NOW: Any = Number(z3.Real("now"))


class TimerEnd(float):
    """When a timer ends: some time from now; what is known is whose time it is."""

    def __new__(cls, timer: str) -> Self:
        """`timer`: its name, or `OWN`."""
        found = super().__new__(cls, 0.0)
        found.timer = timer
        return found

    timer: str


class TermMachine(Machine[Any]):
    """A compiled table whose timers end at some time."""

    def given(self, rows: Iterable[Row]) -> dict[str, Any]:
        """Return the row's known facts; of a time only its owner is known."""
        rows, timers = list(rows), self.table.timers
        dues = {f"due{i}": _ends(timers[row.target]) for i, row in enumerate(rows) if row.target in timers}
        return super().given(rows) | dues | {"slot": _ends(OWN)}


def _ends(timer: str) -> Callable[..., TimerEnd]:
    return lambda _now, _times=0: TimerEnd(timer)


class Way(msgspec.Struct):
    """One way through a step; `fault`: what it raised instead of ending."""

    before: Any
    event: Any
    conditions: list[Any]
    facts: Facts
    row: Row | None = None
    after: Any = None
    effects: tuple[Output, ...] = ()
    fault: str = ""


class Pair(msgspec.Struct, frozen=True):
    """A state and an event, and the rows that decide."""

    state: State
    event: type[Event]

    @property
    def name(self) -> str:
        """`STATE Event`."""
        return f"{self.state.name} {self.event.__name__}"


def pairs(table: Table[Any]) -> list[Pair]:
    return [Pair(state, event) for state, event in table.pairs()]


def machine_of(table: Table[Any], timing: NamedTimers) -> TermMachine:
    return TermMachine(table, timing)


def subjects(maker: Maker, table: Table[Any], pair: Pair) -> Iterator[tuple[Any, Any]]:
    """The values in this state, each with the events of this kind."""
    for value in maker.variants(table.value, "v", state=pair.state, due=float("inf")):
        for event in maker.variants(pair.event, "e"):
            yield value, event


def walk(machine: TermMachine, value: Any, event: Any, then: Callable[[Way], None] | None = None) -> Iterator[Way]:
    """Walk every way through the step of this value on this event; call `then` on each way."""
    for way in Ways():
        found = Way(value, event, way.conditions, way.facts)
        try:
            found.row, found.after, found.effects = machine.fire(value, event, NOW)
            _look_at(found)
            if then is not None:
                then(found)
        except (AssertionError, AttributeError, ValueError, ArithmeticError, LookupError, TypeError) as error:
            found.fault = f"{type(error).__name__}: {error}"
        yield found


def _look_at(way: Way) -> None:
    """It leaves a value of the table, effects and events, with what belongs there in each field."""
    if type(way.after) is not type(way.before):
        raise TypeError(f"{way.after!r} is no value of the table")
    for each in (way.after, *way.effects):
        if not isinstance(each, Value | Effect | Event):
            raise TypeError(f"{each!r} is no effect and no event")
        if wrong := misfit(each):
            raise TypeError(wrong)

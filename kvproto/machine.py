"""The step: a table, made fast.

`compile_table` turns rows into a matrix, state by event type, and returns a `Machine` whose `fire` finds the
row, applies it and hands back the new value and the effects.  It is pure: no clock, no I/O, no logging; the same
arguments give the same result, which is what makes the checker's memory of results sound.

A timer ends on the wheel's next slot after its period.  The order within a row: the guard sees the value as it is; `let` makes the new value; state and timer are set;
the effects are built from the *new* value.  A value that nothing changes is returned as it is, the same object.

An event for which a state has no row at all is refused by name.  The lint proves that this cannot happen for
events of the table; it is here so that nothing can stop a rank.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from msgspec.structs import replace

from kvproto.effects import Effect, Report
from kvproto.events import Event
from kvproto.rows import Row, Table, Value
from kvproto.timing import Timer, Timing
from kvproto.wheel import INFINITY, QUANTUM

V = TypeVar("V", bound=Value)
Fired = tuple[Row | None, V, tuple[Effect, ...]]
Apply = Callable[[Any, Event, float], Fired[Any]]
Line = tuple[Callable[..., bool] | None, Apply]
NOTHING: tuple[Effect, ...] = ()


class Machine(Generic[V]):
    """A compiled table."""

    def __init__(self, table: Table[V], timing: Timing) -> None:
        self.table = table
        self.initial: V = table.value(table.initial)
        self.timers: dict[int, Timer] = {s: timing.named(name) for s, name in table.timers.items()}
        #: by state: whether it ends the machine
        self.ends = [state in table.final for state in table.states]
        self.dues = [_due(self.timers.get(state)) for state in table.states]
        self.matrix: list[dict[type[Event], list[Line]]] = [{} for _ in table.states]
        for row in table.rows:
            self.matrix[row.source].setdefault(row.event, []).append((row.when, self._apply(row)))

    def fire(self, value: V, event: Event, now: float) -> Fired[V]:
        """The row that fired, the new value and the effects."""
        for when, apply in self.matrix[value.state].get(type(event), ()):
            if when is None or when(value, event, now):
                return apply(value, event, now)
        return None, value, (Report(f"{self.table.name}: {event} in {value.state.name}", "no row for it"),)

    def step(self, value: V, event: Event, now: float) -> tuple[V, tuple[Effect, ...]]:
        """The new value and the effects."""
        _, new, effects = self.fire(value, event, now)
        return new, effects

    def _apply(self, row: Row) -> Apply:
        """What the row does, once it is known that it fires."""
        if row.verb == "ignore":
            return lambda value, _event, _now: (row, value, NOTHING)
        if row.verb == "refuse":
            name = self.table.name
            return lambda value, event, _now: (row, value, (_report(name, row, value, event),))
        let, build = row.let, _builder(row.do)
        if row.target is row.source and not row.again:
            if let is None:
                return lambda value, event, _now: (row, value, build(value, event))
            return _staying(row, let, build)
        return _moving(row, let, build, self.dues[row.target])


def _staying(row: Row, let: Callable[..., Any], build: Callable[..., tuple[Effect, ...]]) -> Apply:
    def apply(value: Any, event: Event, now: float) -> Fired[Any]:
        new = let(value, event, now)
        return row, new, build(new, event)

    return apply


def _moving(
    row: Row, let: Callable[..., Any] | None, build: Callable[..., tuple[Effect, ...]], due: Callable[[float], float]
) -> Apply:  # fmt: skip
    target = row.target

    def apply(value: Any, event: Event, now: float) -> Fired[Any]:
        new = replace(value if let is None else let(value, event, now), state=target, due=due(now))
        return row, new, build(new, event)

    return apply


def _builder(do: tuple[Callable[..., Effect], ...]) -> Callable[[Any, Event], tuple[Effect, ...]]:
    """Build a row's effects, in their order."""
    if not do:
        return lambda _value, _event: NOTHING
    first, *others = do
    if not others:
        return lambda value, event: (first(value, event),)
    second, *others = others
    if not others:
        return lambda value, event: (first(value, event), second(value, event))
    return lambda value, event: tuple([build(value, event) for build in do])


def _due(timer: Timer | None) -> Callable[[float], float]:
    """When a timer that is started now ends; what is started alike shares one number."""
    if timer is None:
        return lambda _now: INFINITY
    period, last = timer.period, 0.0

    def due(now: float) -> float:
        nonlocal last
        end = (now + period) // QUANTUM * QUANTUM + QUANTUM
        if end != last:
            last = end
        return last

    return due


def _report(name: str, row: Row, value: Value, event: Event) -> Report:
    return Report(f"{name}: {event} in {value.state.name}", row.why)

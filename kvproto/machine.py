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
_Line = tuple[
    Callable[..., bool] | None, Callable[..., Any] | None, Any, float | None,
    tuple[Callable[..., Effect], ...], Row,
]  # fmt: skip
NOTHING: tuple[Effect, ...] = ()


class Machine(Generic[V]):
    """A compiled table."""

    def __init__(self, table: Table[V], timing: Timing) -> None:
        self.table = table
        self.initial: V = table.value(table.initial)
        self.timers: dict[int, Timer] = {s: timing.named(name) for s, name in table.timers.items()}
        #: by state: whether it ends the machine
        self.ends = [state in table.final for state in table.states]
        self.matrix: list[dict[type[Event], list[_Line]]] = [{} for _ in table.states]
        for row in table.rows:
            self.matrix[row.source].setdefault(row.event, []).append(self._line(row))
        self.fire = self._compile()

    def _line(self, row: Row) -> _Line:
        period = None
        if row.target is not row.source or row.again:
            timer = self.timers.get(row.target)
            period = timer.period if timer else INFINITY
        return row.when, row.let, row.target, period, row.do, row

    def step(self, value: V, event: Event, now: float) -> tuple[V, tuple[Effect, ...]]:
        """The new value and the effects."""
        _, new, effects = self.fire(value, event, now)
        return new, effects

    def _compile(self) -> Callable[[V, Event, float], Fired[V]]:
        matrix, name, shared = self.matrix, self.table.name, 0.0

        def fire(value: V, event: Event, now: float) -> Fired[V]:
            nonlocal shared
            for when, let, target, period, do, row in matrix[value.state].get(type(event), ()):
                if when is not None and not when(value, event, now):
                    continue
                if row.verb != "row":
                    return row, value, NOTHING if row.verb == "ignore" else (_report(name, row, value, event),)
                new = value if let is None else let(value, event, now)
                if period is not None:
                    due = INFINITY
                    if period < INFINITY:
                        due = (now + period) // QUANTUM * QUANTUM + QUANTUM
                        if due == shared:
                            due = shared  # the same object: what waits alike shares it
                        shared = due
                    new = replace(new, state=target, due=due)
                if not do:
                    return row, new, NOTHING
                return row, new, tuple([build(new, event) for build in do])
            return None, value, (Report(f"{name}: {event} in {value.state.name}", "no row for it"),)

        return fire


def _report(name: str, row: Row, value: Value, event: Event) -> Report:
    return Report(f"{name}: {event} in {value.state.name}", row.why)

"""The step: a table, made fast.

`Machine` compiles a table: for each pair of state and event the rows become one function, written out as source
and compiled, in which a row is an `if`, three lines and a `return`.  So what runs is what a careful hand would
have written for this pair, and nothing is looked up but the pair itself.  `source_of` shows it.

A step is pure: no clock, no I/O, no logging; the same arguments give the same result, which is what makes the
checker's memory of results sound.  The order within a row: the guard sees the value as it is; `let` makes the new
value; state and timer are set; the effects are built from the *new* value.  A value that nothing changes is
returned as it is, the same object.  A timer ends on the wheel's next slot after its period.

An event for which a state has no row at all is refused by name.  The lint proves that this cannot happen for
events of the table; it is here so that nothing can stop a rank.
"""

from __future__ import annotations

from collections import defaultdict
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
Fire = Callable[[Any, Any, float], Fired[Any]]
Due = Callable[[float], float]


class Machine(Generic[V]):
    """A compiled table."""

    def __init__(self, table: Table[V], timing: Timing) -> None:
        self.table = table
        self.initial: V = table.value(table.initial)
        self.timers: dict[int, Timer] = {s: timing.named(name) for s, name in table.timers.items()}
        #: by state: whether it ends the machine
        self.ends = [state in table.final for state in table.states]
        self._dues = [_due(self.timers.get(state)) for state in table.states]
        pairs: dict[tuple[int, type[Event]], list[Row]] = defaultdict(list)
        for row in table.rows:
            pairs[row.source, row.event].append(row)
        self._rows = pairs
        #: by event, then by state: what to call
        self.steps: dict[type[Event], list[Fire]] = {event: [self._undecided] * len(table.states) for _, event in pairs}
        for (state, event), rows in pairs.items():
            self.steps[event][state] = self._compile(rows)

    def fire(self, value: V, event: Event, now: float) -> Fired[V]:
        """The row that fired, the new value and the effects."""
        try:
            step = self.steps[type(event)][value.state]
        except KeyError:
            return self.undecided(value, event)
        return step(value, event, now)

    def step(self, value: V, event: Event, now: float) -> tuple[V, tuple[Effect, ...]]:
        """The new value and the effects."""
        _, new, effects = self.fire(value, event, now)
        return new, effects

    def undecided(self, value: V, event: Event) -> Fired[V]:
        """What happens where no row decides: nothing, and a report."""
        return None, value, (_report(self.table.name, value, event, "no row for it"),)

    def _undecided(self, value: V, event: Event, _now: float) -> Fired[V]:
        return self.undecided(value, event)

    def source_of(self, state: int, event: type[Event]) -> str:
        """The source of the function for this pair."""
        return _source(self._rows[state, event], self._dues)[0]

    def _compile(self, rows: list[Row]) -> Fire:
        source, names = _source(rows, self._dues)
        names["report"] = lambda value, event, why: (_report(self.table.name, value, event, why),)
        exec(compile(source, f"<{self.table.name} {rows[0].source.name} {rows[0].event.__name__}>", "exec"), names)  # noqa: S102
        fire: Fire = names["fire"]
        return fire


def _source(rows: list[Row], dues: list[Due | None]) -> tuple[str, dict[str, Any]]:
    """The function for one pair, and the names that it uses."""
    names: dict[str, Any] = {"replace": replace, "INFINITY": INFINITY}
    lines = ["def fire(value, event, now):"]
    for i, row in enumerate(rows):
        names |= {f"row{i}": row, f"when{i}": row.when, f"let{i}": row.let, f"target{i}": row.target}
        names |= {f"due{i}": dues[row.target], **{f"do{i}_{k}": f for k, f in enumerate(row.do)}}
        indent = "    "
        if row.when is not None:
            lines.append(f"    if when{i}(value, event, now):")
            indent = "        "
        lines += [indent + line for line in _lines(i, row, timed=dues[row.target] is not None)]
    if rows[-1].when is not None:
        lines.append("    return None, value, report(value, event, 'no row for it')")
    return "\n".join(lines), names


def _lines(i: int, row: Row, *, timed: bool) -> list[str]:
    if row.verb == "ignore":
        return [f"return row{i}, value, ()"]
    if row.verb == "refuse":
        return [f"return row{i}, value, report(value, event, {row.why!r})"]
    new = f"let{i}(value, event, now)" if row.let else "value"
    if row.target is not row.source or row.again:
        due = f"due{i}(now)" if timed else "INFINITY"
        new = f"replace({new}, state=target{i}, due={due})"
    effects = "".join(f"do{i}_{k}(new, event), " for k in range(len(row.do)))
    return [f"new = {new}", f"return row{i}, new, ({effects})"]


def _due(timer: Timer | None) -> Due | None:
    """When a timer that is started now ends; what is started alike shares one number.  None: no timer."""
    if timer is None:
        return None
    period, asked, last = timer.period, -INFINITY, 0.0

    def due(now: float) -> float:
        nonlocal asked, last
        if now != asked:
            asked = now
            end = (now + period) // QUANTUM * QUANTUM + QUANTUM
            if end != last:
                last = end
        return last

    return due


def _report(name: str, value: Value, event: Event, why: str) -> Report:
    return Report(f"{name}: {event} in {value.state.name}", why)

"""The step: a table, made fast.

`Machine` compiles a table: for each pair of state and event the rows become one function, written out as source
and compiled, in which a row is an `if`, a line and a `return`; what guards, changes and effects say stands in it
(`kvproto.fsm.inline`).  So what runs is what a careful hand would have written for this pair, and nothing is looked up
but the pair itself.

A step is pure: no clock, no I/O, no logging; the same arguments give the same result, which is what makes the
checker's memory of results sound.  The order within a row: the guard sees the value as it is; `let` makes the new
value; state and timer are set; the effects are built from the *new* value.  A value that nothing changes is
returned as it is, the same object.  A timer ends on the wheel's next slot after its period.

An event for which a state has no row at all is refused by name.  The lint proves that this cannot happen for
events of the table; it is here so that nothing can stop a rank.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from functools import lru_cache
from types import CodeType
from typing import Any, Generic, TypeVar

from msgspec.structs import replace

from kvproto.fsm.generated import compiled
from kvproto.fsm.inline import expression
from kvproto.fsm.table import Output, Row, Table, Value
from kvproto.fsm.timer_wheel import INFINITY, QUANTUM
from kvproto.fsm.timing import NamedTimers, Timer
from kvproto.fsm.vocabulary import Event, Report

V = TypeVar("V", bound=Value)
Fired = tuple[Row | None, V, tuple[Output, ...]]
Fire = Callable[[Any, Any, float], Fired[Any]]
Due = Callable[[float], float]
#: what a guard or a change is called with, what an effect is built from, and the names that a step gives itself
ASKED, BUILT = ("value", "event", "now"), ("new", "event")
LOCAL = ("value", "event", "now", "new", "fire", "report")


class Machine(Generic[V]):
    """A compiled table."""

    def __init__(self, table: Table[V], timing: NamedTimers) -> None:
        self.table = table
        self.initial: V = table.value(table.initial)
        self.timers: dict[int, Timer] = {s: timing.named(name) for s, name in table.timers.items()}
        #: by state: whether it ends the machine
        self.ends = [state in table.final for state in table.states]
        self._dues = [_due(self.timers.get(state)) for state in table.states]
        self._timed = tuple(due is not None for due in self._dues)
        pairs = table.pairs()
        #: by event, then by state: what to call
        events = dict.fromkeys([*table.events, *(event for _, event in pairs)])
        self.steps: dict[type[Event], list[Fire]] = {event: [self._undecided] * len(table.states) for event in events}
        for (state, event), rows in pairs.items():
            self.steps[event][state] = self._compile(rows)

    def fire(self, value: V, event: Event, now: float) -> Fired[V]:
        """The row that fired, the new value and the effects."""
        try:
            step = self.steps[type(event)][value.state]
        except KeyError:
            return self.undecided(value, event)
        return step(value, event, now)

    def step(self, value: V, event: Event, now: float) -> tuple[V, tuple[Output, ...]]:
        """The new value and the effects."""
        _, new, effects = self.fire(value, event, now)
        return new, effects

    def undecided(self, value: V, event: Event) -> Fired[V]:
        """What happens where no row decides: nothing, and a report."""
        return None, value, (_report(self.table.name, value, event, "no row for it"),)

    def _undecided(self, value: V, event: Event, _now: float) -> Fired[V]:
        return self.undecided(value, event)

    def _compile(self, rows: list[Row]) -> Fire:
        code, names = _code(tuple(rows), self._timed, self.table.name)
        scope = names | {f"due{i}": self._dues[row.target] for i, row in enumerate(rows)}
        scope["report"] = lambda value, event, why: (_report(self.table.name, value, event, why),)
        exec(code, scope)  # noqa: S102
        fire: Fire = scope["fire"]
        return fire


@lru_cache(maxsize=8192)
def _code(rows: tuple[Row, ...], timed: tuple[bool, ...], name: str) -> tuple[CodeType, dict[str, Any]]:
    """The function for one pair, compiled once for all machines of the process."""
    source, names = _source(rows, timed)
    return compiled(source, f"{name} {rows[0].source.name} {rows[0].event.__name__}"), names


def _source(rows: tuple[Row, ...], timed: tuple[bool, ...]) -> tuple[str, dict[str, Any]]:
    """The function for one pair, and the names that it uses."""
    names: dict[str, Any] = {"replace": replace, "INFINITY": INFINITY} | dict.fromkeys(LOCAL, LOCAL)
    lines = ["def fire(value, event, now):"]
    for i, row in enumerate(rows):
        names |= {f"row{i}": row, f"target{i}": row.target}
        indent = "    "
        if row.when is not None:
            lines.append(f"    if {ast.unparse(expression(row.when, ASKED, names))}:")
            indent = "        "
        lines += [indent + line for line in _lines(i, row, names, timed=timed[row.target])]
    if rows[-1].when is not None:
        lines.append("    return None, value, report(value, event, 'no row for it')")
    return "\n".join(lines), names


def _lines(i: int, row: Row, names: dict[str, Any], *, timed: bool) -> list[str]:
    if row.verb == "ignore":
        return [f"return row{i}, value, ()"]
    if row.verb == "refuse":
        return [f"return row{i}, value, report(value, event, {row.why!r})"]
    new = expression(row.let, ASKED, names) if row.let else ast.Name("value")
    if row.target is not row.source or row.again:
        new = _moved(new, f"target{i}", f"due{i}(now)" if timed else "INFINITY")
    effects = "".join(f"{ast.unparse(expression(build, BUILT, names))}, " for build in row.do)
    return [f"new = {ast.unparse(new)}", f"return row{i}, new, ({effects})"]


def _moved(new: ast.expr, state: str, due: str) -> ast.expr:
    """The new value, in its new state, with its timer; if it is made by `replace` anyway, in one go."""
    more = [ast.keyword("state", ast.Name(state)), ast.keyword("due", ast.parse(due, mode="eval").body)]
    match new:
        case ast.Call(func=ast.Name("replace"), args=[ast.Name("value")]):
            return ast.Call(new.func, new.args, [*new.keywords, *more])
    return ast.Call(ast.Name("replace"), [new], more)


def _due(timer: Timer | None) -> Due | None:
    """When a timer that is started now ends; what is started alike shares one number.  None: no timer."""
    if timer is None:
        return None
    period, first, last, end = timer.period, INFINITY, -INFINITY, 0.0

    def due(now: float) -> float:
        nonlocal first, last, end
        if not first < now < last:
            end = (now + period) // QUANTUM * QUANTUM + QUANTUM
            # well within the slot no rounding can change the answer
            first, last = end - QUANTUM - period + QUANTUM / 1024, end - period - QUANTUM / 1024
        return end

    return due


def _report(name: str, value: Value, event: Event, why: str) -> Report:
    return Report(f"{name}: {event} in {value.state.name}", why)

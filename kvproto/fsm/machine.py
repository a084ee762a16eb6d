"""The step: a table, made fast.

`Machine` compiles a table: for each pair of state and event the rows become one function, written out as source
and compiled, in which a row is an `if`, a line and a `return`; what guards, changes and effects say stands in it
(`kvproto.fsm.inline`).  So what runs is what a careful hand would have written for this pair, and nothing is looked up
but the pair itself.

A step is pure: no clock, no I/O, no logging; the same arguments give the same result, which is what makes the
checker's memory of results sound.  The order within a row: the guard sees the value as it is; `let` makes the new
value; state and timer are set; the effects are built from the *new* value.  A value that nothing changes is
returned as it is, the same object.  A timer ends on the wheel's next slot after its period; one that ends again and
again in its state, and has a longest period, waits twice as long each time.

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
from kvproto.fsm.vocabulary import Event, Report, TimerFired

V = TypeVar("V", bound=Value)
Fired = tuple[Row | None, V, tuple[Output, ...]]
Fire = Callable[[Any, Any, float], Fired[Any]]
Due = Callable[..., float]
#: of a value: how often its timer has ended
Tries = Callable[[Any], int] | None
#: of a value, by state: the period of its own that its timer has
Periods = tuple[Callable[[Any], float] | None, ...]
#: what a guard or a change is called with, what an effect is built from, and the names that a step gives itself
ASKED, BUILT = ("value", "event", "now"), ("new", "event")
LOCAL = ("value", "event", "now", "new", "fire", "report", "slot")


class Machine(Generic[V]):
    """A compiled table."""

    def __init__(self, table: Table[V], timing: NamedTimers) -> None:
        self.table, self.made_of = table, parts(table)
        self.initial: V = table.value(table.initial)
        self.timers: dict[int, Timer] = {s: timing.named(name) for s, name in table.timers.items()}
        #: by state: whether it ends the machine
        self.ends = [state in table.final for state in table.states]
        self._dues = [_due(self.timers.get(state)) for state in table.states]
        self._timed = tuple(due is not None for due in self._dues)
        self._periods: Periods = tuple(table.periods.get(state) for state in table.states)
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
        code, names = _code(tuple(rows), self._timed, self.table.name, self.table.tries, self._periods)
        scope = names | {f"due{i}": self._dues[row.target] for i, row in enumerate(rows)}
        scope["slot"] = _slot
        scope["report"] = lambda value, event, why: (_report(self.table.name, value, event, why),)
        exec(code, scope)  # noqa: S102
        fire: Fire = scope["fire"]
        return fire


def parts(table: Table[Any]) -> tuple[object, ...]:
    """What a machine is made of; a patched table has others."""
    return *table.rows, *vars(table).values()


def machine_for(table: Table[V], timing: NamedTimers) -> Machine[V]:
    """The machine of a table as it is now, made once for all drivers of the process that have these timers."""
    return _machine(table, tuple(map(id, parts(table))), timing)


@lru_cache(maxsize=256)
def _machine(table: Table[V], of: tuple[int, ...], timing: NamedTimers) -> Machine[V]:
    del of  # by identity: a machine keeps what it was made of, so nothing else can come to have the same
    return Machine(table, timing)


@lru_cache(maxsize=8192)
def _code(
    rows: tuple[Row, ...], timed: tuple[bool, ...], name: str, tries: Tries, periods: Periods
) -> tuple[CodeType, dict[str, Any]]:  # fmt: skip
    """The function for one pair, compiled once for all machines of the process."""
    source, names = _source(rows, timed, tries, periods)
    return compiled(source, f"{name} {rows[0].source.name} {rows[0].event.__name__}"), names


def _source(
    rows: tuple[Row, ...], timed: tuple[bool, ...], tries: Tries, periods: Periods
) -> tuple[str, dict[str, Any]]:  # fmt: skip
    """The function for one pair, and the names that it uses."""
    names: dict[str, Any] = {"replace": replace, "INFINITY": INFINITY} | dict.fromkeys(LOCAL, LOCAL)
    lines = ["def fire(value, event, now):"]
    for i, row in enumerate(rows):
        names |= {f"row{i}": row, f"target{i}": row.target}
        indent = "    "
        if row.when is not None:
            lines.append(f"    if {ast.unparse(expression(row.when, ASKED, names))}:")
            indent = "        "
        own = periods[row.target] if timed[row.target] else None
        lines += [indent + line for line in _lines(i, row, names, tries, own, timed=timed[row.target])]
    if rows[-1].when is not None:
        lines.append("    return None, value, report(value, event, 'no row for it')")
    return "\n".join(lines), names


def _lines(
    i: int, row: Row, names: dict[str, Any], tries: Tries, own: Callable[[Any], float] | None, *, timed: bool
) -> list[str]:  # fmt: skip
    if row.verb == "ignore":
        return [f"return row{i}, value, ()"]
    if row.verb == "refuse":
        return [f"return row{i}, value, report(value, event, {row.why!r})"]
    new = expression(row.let, ASKED, names) if row.let else ast.Name("value")
    lines = []
    if row.target is not row.source or row.again:
        due = f"due{i}({_since(row, names, tries)})" if timed else "INFINITY"
        if own is not None:
            lines.append(f"new = {ast.unparse(new)}")
            new, period = ast.Name("new"), ast.unparse(expression(own, BUILT[:1], names))
            due = f"slot(now + {period}) if {period} else {due}"
        new = _moved(new, f"target{i}", due)
    effects = "".join(f"{ast.unparse(expression(build, BUILT, names))}, " for build in row.do)
    return [*lines, f"new = {ast.unparse(new)}", f"return row{i}, new, ({effects})"]


def _since(row: Row, names: dict[str, Any], tries: Tries) -> str:
    """What a timer's end is worked out of: the time, and for one that ends where it began, how often it has ended."""
    if tries is None or row.target is not row.source or not issubclass(row.event, TimerFired):
        return "now"
    return f"now, {ast.unparse(expression(tries, ASKED[:1], names))} + 1"


def _moved(new: ast.expr, state: str, due: str) -> ast.expr:
    """The new value, in its new state, with its timer; if it is made by `replace` anyway, in one go."""
    more = [ast.keyword("state", ast.Name(state)), ast.keyword("due", ast.parse(due, mode="eval").body)]
    match new:
        case ast.Call(func=ast.Name("replace"), args=[ast.Name("value")]):
            return ast.Call(new.func, new.args, [*new.keywords, *more])
    return ast.Call(ast.Name("replace"), [new], more)


def _slot(due: float) -> float:
    """The wheel's next slot after this."""
    return due // QUANTUM * QUANTUM + QUANTUM


def _due(timer: Timer | None) -> Due | None:
    """When a timer that is started now ends; what is started alike shares one number.  None: no timer."""
    if timer is None:
        return None
    period, first, last, end = timer.period, INFINITY, -INFINITY, 0.0
    backs_off = timer.longest > period

    def due(now: float, times: int = 0) -> float:
        nonlocal first, last, end
        if times and backs_off:
            return _slot(now + timer.after(times))
        if not first < now < last:
            end = (now + period) // QUANTUM * QUANTUM + QUANTUM
            # well within the slot no rounding can change the answer
            first, last = end - QUANTUM - period + QUANTUM / 1024, end - period - QUANTUM / 1024
        return end

    return due


def _report(name: str, value: Value, event: Event, why: str) -> Report:
    return Report(f"{name}: {event} in {value.state.name}", why)

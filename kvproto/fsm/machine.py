"""Machine: compiles a table into one function for each pair of state and event.

The rows of a pair become generated source, in which a row is an `if`, a line and a `return`; guards, changes and
effects are inlined (`kvproto.fsm.inline`).  So a step runs the code that a careful programmer would write for this
pair, and looks up nothing but the pair.  A driver gets the same rows from the same place (`kvproto.fsm.row_code`),
with its own bookkeeping around them (`kvproto.fsm.machine_code`).

A step is pure: no clock, no I/O, no logging.  The same arguments give the same result, so the checker may cache
results.  The order within a row: the guard sees the old value; `let` makes the new value; state and timer are set; the
effects are built from the *new* value.  An unchanged value is returned as the same object.  A timer ends on the
wheel's next slot after its period.  A timer with a longest period backs off: each repetition in the same state doubles
the period.

If a state has no row for an event, the event is refused by name.  The lint proves that this cannot happen for events
of the table; the code is here so that no message can stop a rank.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property, lru_cache
from types import CodeType
from typing import Any, Generic, TypeVar

from kvproto.fsm.generated import compiled
from kvproto.fsm.row_code import Periods, RowCode, Tries, code_of, function
from kvproto.fsm.table import Output, Row, Table, Value
from kvproto.fsm.timer_wheel import INFINITY, QUANTUM
from kvproto.fsm.timing import NamedTimers, Timer
from kvproto.fsm.vocabulary import Event, Report

V = TypeVar("V", bound=Value)
Fired = tuple[Row | None, V, tuple[Output, ...]]
Fire = Callable[[Any, Any, float], Fired[Any]]
Due = Callable[..., float]
NO_ROW = "no row for it"


class Machine(Generic[V]):
    """A compiled table."""

    def __init__(self, table: Table[V], timing: NamedTimers) -> None:
        self.table, self.made_of = table, parts(table)
        self.initial: V = table.value(table.initial)
        self.timers: dict[int, Timer] = {s: timing.named(name) for s, name in table.timers.items()}
        self._dues = [_due(self.timers.get(state)) for state in table.states]
        self.timed = tuple(due is not None for due in self._dues)
        self.periods: Periods = tuple(table.periods.get(state) for state in table.states)
        #: as they were when the machine was made: what is compiled later is compiled of these
        self.tries, self.pairs = table.tries, table.pairs()

    @cached_property
    def steps(self) -> dict[type[Event], list[Fire]]:
        """By event, then by state: what to call."""
        events = dict.fromkeys([*self.table.events, *(event for _, event in self.pairs)])
        steps: dict[type[Event], list[Fire]] = {event: [self._undecided] * len(self.table.states) for event in events}
        for (state, event), rows in self.pairs.items():
            steps[event][state] = self._compile(rows)
        return steps

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
        """Return the step of an event without a row: no change, and a report."""
        return None, value, (self.report(value, event, NO_ROW),)

    def _undecided(self, value: V, event: Event, _now: float) -> Fired[V]:
        return self.undecided(value, event)

    def _compile(self, rows: list[Row]) -> Fire:
        code, names = _code(tuple(rows), self.timed, self.table.name, self.tries, self.periods)
        scope = names | self.given(rows)
        exec(code, scope)  # noqa: S102
        fire: Fire = scope["fire"]
        return fire

    def given(self, rows: Iterable[Row]) -> dict[str, Any]:
        """Return the names that the code of these rows uses: ends of timers, texts of refusals."""
        dues = {f"due{i}": self._dues[row.target] for i, row in enumerate(rows)}
        return dues | {"slot": _slot, "report": self.report}

    def report(self, value: Value, event: Event, why: str) -> Report:
        """Return the report that this event was refused in this state, and why."""
        return Report(f"{self.table.name}: {event} in {value.state.name}", why)


def parts(table: Table[Any]) -> tuple[object, ...]:
    """Return the parts of a table that a machine is made of; a patched table has others."""
    return *table.rows, *vars(table).values()


def machine_for(table: Table[V], timing: NamedTimers) -> Machine[V]:
    """Return the machine of a table as it is now, shared by all drivers with these timers."""
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
    codes, names = code_of(rows, timed, tries, periods)
    none = f"return None, value, (report(value, event, {NO_ROW!r}),)"
    source = function("def fire(value, event, now):", codes, _returned, none)
    return compiled(source, f"{name} {rows[0].source.name} {rows[0].event.__name__}"), names


def _returned(code: RowCode) -> list[str]:
    """Return the lines that return a row's result."""
    if code.row.verb == "ignore":
        return [f"return row{code.number}, value, ()"]
    if code.row.verb == "refuse":
        return [f"return row{code.number}, value, (report(value, event, {code.row.why!r}),)"]
    effects = "".join(f"{text}, " for text, _ in code.effects)
    return [*code.lines, f"return row{code.number}, new, ({effects})"]


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


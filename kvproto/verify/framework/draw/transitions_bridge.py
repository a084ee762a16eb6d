"""The same rows as a machine of `transitions`, for people who know that library.

Each row becomes a transition: the event's name is the trigger, the guard a condition, change and effects run before the
state is left.  Where several rows share a state and an event, that library, too, takes the first whose conditions
hold.  So it serves as a second opinion on the step: the tests drive both with the same events and compare.

    model = Model(prefill_send, Timing())
    model.fire(SendOpened(room, 0, 1, ready=False), now=0.0)
    model.state, model.value, model.effects

It is some ten times slower than `kvproto.fsm.machine`, and needs `pip install transitions`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from kvproto.fsm.errors import KvprotoError
from kvproto.fsm.table import Output, Row, Table, Value
from kvproto.fsm.timer_wheel import INFINITY
from kvproto.fsm.timing import NamedTimers, Timer
from kvproto.fsm.vocabulary import Event, Report, TimerFired


class BridgeError(KvprotoError, ImportError):
    """`transitions` is not there."""


class Model:
    """A machine's value driven by `transitions`; `diagram` makes it a `GraphMachine` (Mermaid)."""

    def __init__(self, table: Table[Any], timing: NamedTimers, *, diagram: bool = False) -> None:
        self.table = table
        self.timers: dict[Any, Timer] = {state: timing.named(name) for state, name in table.timers.items()}
        self.value: Value = table.value(table.initial)
        self.effects: tuple[Output, ...] = ()
        self.row: Row | None = None
        self.state = table.initial.name
        self.machine: Any = machine_of(table, self, diagram=diagram)

    def fire(
        self, event: Event, now: float, value: Value | None = None
    ) -> tuple[Row | None, Value, tuple[Output, ...]]:
        """One step, from `value` if it is given; the same answer as `Machine.fire`."""
        if value is not None:
            self.value = value
            self.state = value.state.name
        self.row, self.effects = None, ()
        moved = type(event).__name__ in self.machine.events and self._call(type(event).__name__, event, now)
        if not moved:
            name = self.table.states[self.state].name
            self.effects = (Report(f"{self.table.name}: {event} in {name}", "no row for it"),)
        return self.row, self.value, self.effects

    def diagram(self) -> str:
        """The library's own drawing, as Mermaid; only where `diagram` was asked for."""
        return str(self.get_graph().source)  # type: ignore[attr-defined]

    def _call(self, name: str, event: Event, now: float) -> bool:
        called: bool = getattr(self, name)(event, now)
        return called

    def take(self, row: Row, event: Event, now: float) -> None:
        """Apply a row to the value, and record its effects."""
        self.row = row
        if row.verb != "row":
            said = Report(f"{self.table.name}: {event} in {row.source.name}", row.why)
            self.effects = (said,) if row.verb == "refuse" else ()
            return
        tries = self.table.tries if row.target is row.source and isinstance(event, TimerFired) else None
        times = tries(self.value) + 1 if tries is not None else 0
        if row.let is not None:
            self.value = row.let(self.value, event, now)
        if row.target is not row.source or row.again:
            timer = self.timers.get(row.target)
            own = self.table.periods.get(row.target)
            period = own and own(self.value)
            due = now + (period or timer.after(times)) if timer else INFINITY
            self.value = replace(self.value, state=row.target, due=due)
        self.effects = tuple(build(self.value, event) for build in row.do)


def machine_of(table: Table[Any], model: Model, *, diagram: bool = False) -> Any:
    """The `transitions.Machine` (or `GraphMachine`) of a table, bound to the model."""
    try:
        import transitions
        from transitions.extensions import GraphMachine
    except ImportError as error:
        raise BridgeError("the bridge needs the library: pip install transitions") from error
    kind: Any = GraphMachine if diagram else transitions.Machine
    more: dict[str, Any] = {"graph_engine": "mermaid", "show_conditions": True} if diagram else {}
    made = kind(
        model, states=[state.name for state in table.states], initial=table.initial.name, auto_transitions=False,
        ignore_invalid_triggers=True, send_event=False, **more,
    )  # fmt: skip
    for row in table.rows:
        made.add_transition(
            row.event.__name__, row.source.name, None if _stays(row) else row.target.name,
            conditions=[_guard(model, row)] if row.when else None, before=[_trigger(model, row)],
        )  # fmt: skip
    return made


def _stays(row: Row) -> bool:
    return row.verb != "row" or row.target is row.source


def _guard(model: Model, row: Row) -> Callable[[Event, float], bool]:
    when = row.when
    assert when is not None

    def guard(event: Event, now: float) -> bool:
        return when(model.value, event, now)

    guard.__name__ = when.__name__
    return guard


def _trigger(model: Model, row: Row) -> Callable[[Event, float], None]:
    def take(event: Event, now: float) -> None:
        model.take(row, event, now)

    take.__name__ = row.let.__name__ if row.let else row.verb
    return take

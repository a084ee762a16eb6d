"""A compiled machine against the definition of a step, on events at random: row, value, timer and effects agree."""

from __future__ import annotations

import random
from collections.abc import Callable
from enum import Enum
from typing import Any, get_args

import pytest
from msgspec.structs import replace

from kvproto.fsm.machine import NO_ROW, Fired, Machine
from kvproto.fsm.plain_json import hints
from kvproto.fsm.table import Row, Table, Value
from kvproto.fsm.timer_wheel import INFINITY, QUANTUM
from kvproto.fsm.vocabulary import Event, Report, TimerFired
from kvproto.protocol.events import Claim, Terms
from kvproto.protocol.tables import TABLES
from kvproto.protocol.timing import Timing

EVENTS_EACH = 44_000  # seven tables: some quarter of a million
TIMING = Timing()
every_table = pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
TERMS = (
    Terms(1, everyone=1, writes=1, aux=1, chunk_tokens=8, window=1),
    Terms(1, everyone=3, writes=3, aux=2, chunk_tokens=8, window=2),
    Terms(2, everyone=3, writes=1, aux=0, chunk_tokens=8, window=2),
    Terms(1, everyone=1, writes=0, aux=0, chunk_tokens=8, window=1),
)  # fmt: skip


class Dice:
    """Events at random: small numbers, so that they meet; `seed` makes a run repeatable."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def event(self, kind: type[Event]) -> Event:
        return kind(**{name: self.field(name, hint) for name, hint in hints(kind).items()})

    def field(self, name: str, hint: Any) -> Any:
        pick = self.random.choice
        named: dict[str, Callable[[], Any]] = {
            "tokens": lambda: pick([0, 8, 16, 24]), "prefix": lambda: 0, "peer": lambda: pick([0, 1]),
            "chunk": lambda: pick([0, 1, 2]), "writers": lambda: pick([1, 3]), "grant": lambda: pick([0, 1]),
            "tries": lambda: pick([1, 2]), "lease": lambda: pick([0.0, 1e9]), "fault": lambda: pick(["", "", "odd"]),
        }  # fmt: skip
        if name in named:
            return named[name]()
        if hint is Claim:
            return Claim()
        if hint is Terms:
            return pick(TERMS)
        if isinstance(hint, type) and issubclass(hint, Enum):
            return pick(list(hint))
        if hint in (bool, bytes, str, float):
            return {bool: pick([True, False]), bytes: b"data", str: "why", float: 1.0}[hint]
        assert hint is int or int in get_args(hint), (name, hint)
        return pick([1, 2, 3])


def attempt(fire: Callable[[], Fired[Any]]) -> tuple[Any, ...]:
    """The answer, or the exception that a guard raised for an event that cannot be."""
    try:
        return fire()
    except Exception as error:  # noqa: BLE001 - it is compared
        return type(error), str(error)


def defined(table: Table[Any], rows: list[Row], value: Value, event: Event, now: float) -> Fired[Any]:
    """The definition of a step: the first row whose guard holds."""
    pair = (row for row in rows if row.source is value.state and row.event is type(event))
    row = next((row for row in pair if row.when is None or row.when(value, event, now)), None)
    if row is None or row.verb == "refuse":
        said = Report(f"{table.name}: {event} in {value.state.name}", NO_ROW if row is None else row.why)
        return row, value, (said,)
    if row.verb == "ignore":
        return row, value, ()
    new = row.let(value, event, now) if row.let is not None else value
    if row.target is not row.source or row.again:
        new = replace(new, state=row.target, due=due(table, row, value, new, event, now))
    return row, new, tuple(build(new, event) for build in row.do)


def due(table: Table[Any], row: Row, old: Value, new: Value, event: Event, now: float) -> float:
    """When the timer of the state ends that a row leads to."""
    if row.target not in table.timers:
        return INFINITY
    timer, own = TIMING.named(table.timers[row.target]), table.periods.get(row.target)
    repeats = table.tries is not None and row.target is row.source and isinstance(event, TimerFired)
    times = table.tries(old) + 1 if repeats and table.tries is not None else 0
    return now + ((own and own(new)) or timer.after(times))


@every_table
def test_a_machine_steps_as_defined(table: Table[Any]) -> None:
    dice, machine = Dice(seed=len(table.rows)), Machine(table, TIMING)
    value, now, seen = machine.initial, 0.0, set()
    for count in range(EVENTS_EACH):
        if count % 40 == 0 or (value.state in table.final and not table.tombstones):
            value, now = machine.initial, 0.0
        event = dice.event(dice.random.choice(table.events))
        now += 0.3
        ours = attempt(lambda: machine.fire(value, event, now))  # noqa: B023 - called at once
        right = attempt(lambda: defined(table, table.rows, value, event, now))  # noqa: B023 - called at once
        if len(ours) == 2:
            assert ours == right
            continue
        row, new, effects = ours
        assert right[0] is row, (value, event)
        assert right[2] == effects
        assert replace(right[1], due=0.0) == replace(new, due=0.0)
        assert right[1].due == new.due or 0.0 <= new.due - right[1].due <= QUANTUM * 1.01
        seen.add(row)
        value = new
    moving = [each for each in table.rows if each.verb == "row"]
    assert len(seen & set(moving)) > 0.55 * len(moving), "the events hardly reach anything"


@every_table
def test_a_changed_row_makes_a_difference(table: Table[Any]) -> None:
    """The comparison can fail: the definition is given the same rows in the opposite order."""
    machine, dice = Machine(table, TIMING), Dice(seed=1)
    value = machine.initial
    for count in range(3000):
        event = dice.event(dice.random.choice(table.events))
        ours = attempt(lambda: machine.fire(value, event, 1.0))  # noqa: B023 - called at once
        theirs = attempt(lambda: defined(table, table.rows[::-1], value, event, 1.0))  # noqa: B023 - called at once
        if ours[0] is not theirs[0]:
            return
        value = machine.initial if count % 40 == 0 or len(ours) == 2 else ours[1]
    pytest.fail("no difference was found")

"""One table in two machines, `kvproto.fsm.machine` and the `transitions` library, on the same events."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from enum import Enum
from typing import Any, get_args

import pytest
from msgspec.structs import replace

pytest.importorskip("transitions")

from kvproto.fsm.machine import Machine
from kvproto.fsm.plain_json import hints
from kvproto.fsm.table import Row, Table, Value
from kvproto.fsm.timer_wheel import QUANTUM
from kvproto.fsm.vocabulary import Event
from kvproto.layout.cut import NO_CUT, Cut
from kvproto.protocol.events import Claim, Target, Terms
from kvproto.protocol.tables import TABLES
from kvproto.protocol.timing import Timing
from kvproto.verify.framework.draw.transitions_bridge import Model

EVENTS_EACH = 44_000  # seven tables: some quarter of a million
every_table = pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
TERMS = (
    Terms(1, everyone=1, writes=1, aux=1, chunk_tokens=8, window=1),
    Terms(1, everyone=3, writes=3, aux=2, chunk_tokens=8, window=2),
    Terms(2, everyone=3, writes=1, aux=0, chunk_tokens=8, window=2),
    Terms(1, everyone=1, writes=0, aux=0, chunk_tokens=8, window=1),
)  # fmt: skip
CUTS = NO_CUT, Cut(0, 8), Cut(8, 8, 1, 2)
TARGETS = Target(), Target(1, 11, Cut(0, 8)), Target(2, 12, Cut(8, 8, 1, 2))


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
        if hint in (Terms, Cut, Target):
            return pick({Terms: TERMS, Cut: CUTS, Target: TARGETS}[hint])
        if isinstance(hint, type) and issubclass(hint, Enum):
            return pick(list(hint))
        if hint in (bool, bytes, str, float):
            return {bool: pick([True, False]), bytes: b"data", str: "why", float: 1.0}[hint]
        assert hint is int or int in get_args(hint), (name, hint)
        return pick([1, 2, 3])


def attempt(fire: Callable[[], tuple[Row | None, Value, Any]]) -> tuple[Any, ...]:
    """The answer, or the exception that a guard raised for an event that cannot be."""
    try:
        return fire()
    except Exception as error:  # noqa: BLE001 - it is compared
        return type(error), str(error)


@every_table
def test_both_go_the_same_way(table: Table[Any]) -> None:
    dice, machine, model = Dice(seed=len(table.rows)), Machine(table, Timing()), Model(table, Timing())
    value, now, seen = machine.initial, 0.0, set()
    for count in range(EVENTS_EACH):
        if count % 40 == 0 or (value.state in table.final and not table.tombstones):
            value, now = machine.initial, 0.0
        event = dice.event(dice.random.choice(table.events))
        now += 0.3
        ours = attempt(lambda: machine.fire(value, event, now))  # noqa: B023 - called at once
        theirs = attempt(lambda: model.fire(event, now, value))  # noqa: B023 - called at once
        if len(ours) == 2:
            assert ours == theirs
            continue
        row, new, effects = ours
        assert theirs[0] is row, (value, event)
        assert theirs[2] == effects
        assert model.state == new.state.name
        assert replace(theirs[1], due=0.0) == replace(new, due=0.0)
        assert theirs[1].due == new.due or math.isclose(theirs[1].due, new.due, abs_tol=QUANTUM)
        assert row is None or passing(table, value, event, now) == row.index
        seen.add(row)
        value = new
    moving = [each for each in table.rows if each.verb == "row"]
    assert len(seen & set(moving)) > 0.55 * len(moving), "the events hardly reach anything"


def passing(table: Table[Any], value: Value, event: Event, now: float) -> int:
    """The definition, once more: the first row whose guard holds."""
    pair = (row for row in table.rows if row.source is value.state and row.event is type(event))
    return next(row.index for row in pair if row.when is None or row.when(value, event, now))


@every_table
def test_a_changed_row_makes_a_difference(table: Table[Any]) -> None:
    """The comparison can fail: the other machine is given the same rows in the opposite order."""
    turned = Table(table.name, table.value, table.states, initial=table.initial, events=table.events,
                   timers=table.timers, final=table.final, tombstones=table.tombstones)  # fmt: skip
    turned.rows = table.rows[::-1]
    machine, model, dice = Machine(table, Timing()), Model(turned, Timing()), Dice(seed=1)
    value = machine.initial
    for count in range(3000):
        event = dice.event(dice.random.choice(table.events))
        ours = attempt(lambda: machine.fire(value, event, 1.0))  # noqa: B023 - called at once
        theirs = attempt(lambda: model.fire(event, 1.0, value))  # noqa: B023 - called at once
        if ours[0] is not theirs[0]:
            return
        value = machine.initial if count % 40 == 0 or len(ours) == 2 else ours[1]
    pytest.fail("no difference was found")


def test_an_event_of_another_machine_has_no_row() -> None:
    model = Model(TABLES[0], Timing())
    foreign = Dice(1).event(TABLES[1].events[1])
    row, value, effects = model.fire(foreign, 0.0)
    assert (row, value) == (None, Machine(TABLES[0], Timing()).initial)
    assert len(effects) == 1


@every_table
def test_it_draws_itself(table: Table[Any]) -> None:
    model = Model(table, Timing(), diagram=True)
    text = model.diagram()
    assert "stateDiagram" in text
    for state in table.states:
        assert state.name in text

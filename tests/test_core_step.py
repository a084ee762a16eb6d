"""The step against the rows: every row of every table, and what a step promises whatever the table."""

from __future__ import annotations

from collections import Counter, OrderedDict
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace
from support.samples import NOW, event_of, expected, is_report, value_in

from kvproto.fsm.driver import Driver
from kvproto.fsm.machine import Machine, machine_for
from kvproto.fsm.table import Row, Table
from kvproto.fsm.timer_wheel import QUANTUM
from kvproto.fsm.timing import Timer
from kvproto.fsm.vocabulary import Event, Report, TimerFired
from kvproto.protocol import effects as do
from kvproto.protocol import events as ev
from kvproto.protocol.states import PSend
from kvproto.protocol.tables import TABLES
from kvproto.protocol.tables.prefill_send import PSendValue, prefill_send
from kvproto.protocol.timing import Timing
from kvproto.verify.framework.table_patching import TablePatch

TIMING = Timing()
#: tries of a state and an event, at least and at most, and how often each of their rows is to fire before that
FEWEST, SAMPLES, OFTEN = 300, 1500, 20


def pairs(table: Table[Any]) -> list[tuple[Any, type[Event]]]:
    return list(dict.fromkeys((row.source, row.event) for row in table.rows))


def judge(machine: Machine[Any], value: Any, event: Event) -> Row | None:
    """Fire it; the compiled step and the rows agree in every respect."""
    said = expected(machine.table, value, event)
    if said is None:
        return None
    row, new, effects = machine.fire(value, event, NOW)
    assert row == said[0], f"{machine.table.name}: {event} in {value}: {row} instead of {said[0]}"
    if row.verb == "refuse":
        assert new is value and is_report(effects, row)
    elif row.verb == "ignore":
        assert new is value and effects == ()
    else:
        assert effects == said[2]
        assert replace(new, due=0.0) == replace(said[1], due=0.0)
        assert new.state is row.target
        if row.target is row.source and not row.again:
            assert new.due == value.due, "who stays leaves the timer running"
            assert row.let is not None or new is value
        else:
            timely(machine, new, value if row.target is row.source and isinstance(event, TimerFired) else None)
    return row


def timely(machine: Machine[Any], new: Any, old: Any) -> None:
    """`old`: of a timer that ended and starts anew in its state."""
    name = machine.table.timers.get(new.state)
    if name is None:
        assert new.due == float("inf"), "no timer runs in a state without one"
        return
    tries = machine.table.tries
    own = machine.table.periods.get(new.state)
    period = (own and own(new)) or TIMING.named(name).after(0 if old is None or tries is None else tries(old) + 1)
    assert NOW + period <= new.due <= NOW + period + QUANTUM, (new.state, new.due - NOW, period)
    assert new.due % QUANTUM == 0


def drive(driver: Driver, machine: Machine[Any], value: Any, event: Event, *, parts: bool) -> None:
    """A driver does what the step says; its effects too, where no event of the same table follows."""
    row, new, effects = machine.fire(value, event, NOW)
    store = driver.stores["machines"]
    key: Any = (0, 0) if parts else 0
    store.put_back({key: value}, OrderedDict())
    driver.clear_pending()
    driver.trace.clear()
    out = driver.handle(event, NOW)
    first, *more = driver.trace
    assert first == (NOW, row, event, value, new)
    if not more:
        assert out == [effect for effect in effects if type(effect) not in driver.inner]
        assert store.get(key) == (None if new.state in machine.table.final and new is not value else new)
        assert new.due >= value.due or store.wheel.next == new.due or new.due == float("inf")


def only_one(event: Any) -> Any:
    """The key of whatever it is about."""
    return 0


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
@pytest.mark.parametrize("parts", [False, True], ids=["flat", "parts"])
def test_a_driver_carries_out_what_the_step_says(table: Table[Any], *, parts: bool) -> None:
    machine, random, driver = Machine(table, TIMING), Random(table.name), Driver(TIMING)
    driver.add("machines", table, only_one, within=only_one if parts else None)
    for state, kind in pairs(table):
        missing = {row.index for row in table.rows if (row.source, row.event) == (state, kind)}
        for tried in range(SAMPLES):
            # Each row, whatever the seed: the count of rows that a whole run fires must not be a matter of luck.
            if tried >= 40 and not missing:
                break
            value, event = value_in(table, state, random), event_of(kind, random)
            said = expected(table, value, event)
            if said is not None:
                drive(driver, machine, value, event, parts=parts)
                missing.discard(said[0].index)
        assert not missing


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_every_row_fires_and_the_step_says_what_the_rows_say(table: Table[Any]) -> None:
    machine, random = Machine(table, TIMING), Random(table.name)
    fired: Counter[int] = Counter()
    for state, kind in pairs(table):
        rows = [row.index for row in table.rows if (row.source, row.event) == (state, kind)]
        for tried in range(SAMPLES):
            if tried >= FEWEST and all(fired[index] >= OFTEN for index in rows):
                break
            row = judge(machine, value_in(table, state, random), event_of(kind, random))
            if row is not None:
                fired[row.index] += 1
    missing = [f"{row.where} {row}" for row in table.rows if not fired[row.index]]
    assert not missing, "\n".join(missing)


def test_a_step_is_pure() -> None:
    machine, random = Machine(prefill_send, TIMING), Random(1)
    for state, kind in pairs(prefill_send):
        value, event = value_in(prefill_send, state, random), event_of(kind, random)
        if expected(prefill_send, value, event) is not None:
            assert machine.fire(value, event, NOW) == machine.fire(value, event, NOW)


def test_the_first_row_whose_guard_holds_wins() -> None:
    machine = Machine(prefill_send, TIMING)
    send = PSendValue(PSend.AWAIT_GRANT, kv=True)
    granted = ev.StagingGranted(7, 0, 0, 1, 0, 0, 256, usable=True, lease=9.0)
    assert machine.step(send, granted, NOW)[0].state is PSend.AWAIT_SLOT
    assert machine.step(send, replace(granted, usable=False), NOW)[0].state is PSend.AWAIT_WATERMARK


def test_effects_are_built_from_the_new_value() -> None:
    machine = Machine(prefill_send, TIMING)
    granted = ev.StagingGranted(7, 0, 3, 1, 64, 2, 320, usable=False, lease=9.0)
    _, effects = machine.step(PSendValue(PSend.AWAIT_GRANT), granted, NOW)
    assert effects == (do.FreeCredit(7, 0, 3), do.WatchWatermark(7, 0, 3, round=2, end=320))


def test_an_event_of_another_table_is_reported_and_changes_nothing() -> None:
    machine = Machine(prefill_send, TIMING)
    value = PSendValue(PSend.WRITING)
    row, new, effects = machine.fire(value, ev.CallAsked(1, 2, "here"), NOW)
    assert row is None and new is value
    assert len(effects) == 1 and isinstance(effects[0], Report)
    assert "CallAsked" in effects[0].what and "WRITING" in effects[0].what


def test_times_that_are_due_alike_are_one_object() -> None:
    machine = Machine(prefill_send, TIMING)
    opened = ev.SendOpened(7, 0, 0, ev.Target(), ready=False, staged_cost=1.0)
    first, second = (machine.step(machine.initial, opened, NOW + at)[0] for at in (0.0, 1e-4))
    assert first.due == second.due


def test_a_table_is_compiled_once_for_the_same_timers_and_anew_when_it_is_patched() -> None:
    made = machine_for(prefill_send, Timing())
    assert machine_for(prefill_send, Timing()) is made
    assert machine_for(prefill_send, Timing(write=Timer(31.0))).timers != made.timers
    with TablePatch() as patch:
        patch.patch(prefill_send, "timers", prefill_send.timers | {PSend.WRITING: "stall"})
        assert machine_for(prefill_send, Timing()).timers[PSend.WRITING] == Timing().stall
    with TablePatch() as patch:
        patch.drop(prefill_send, prefill_send.rows[:1])
        patched = machine_for(prefill_send, Timing())
        assert patched is not made
    assert patched.pairs[PSend.NEW, ev.SendOpened] != made.pairs[PSend.NEW, ev.SendOpened]
    assert machine_for(prefill_send, Timing()) is made


def test_what_was_inherited_is_inherited_again() -> None:
    class Parent:
        def name(self) -> str:
            return "parent"

    class Child(Parent):
        pass

    with TablePatch() as bench:
        bench.patch(Child, "name", lambda _: "planted")
        assert Child().name() == "planted"
    with TablePatch() as bench:
        bench.patch(Parent, "name", lambda _: "planted")
        assert Child().name() == "planted"
    assert Child().name() == "parent"

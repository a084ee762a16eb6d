"""The step: what it promises whatever the table (`test_rows_one_by_one` has every row of every table)."""

from __future__ import annotations

from msgspec.structs import replace

from kvproto.fsm.machine import Machine, machine_for
from kvproto.fsm.timing import Timer
from kvproto.fsm.vocabulary import Report
from kvproto.protocol import effects as do
from kvproto.protocol import events as ev
from kvproto.protocol.states import PSend
from kvproto.protocol.tables.prefill_send import PSendValue, prefill_send
from kvproto.protocol.timing import Timing
from kvproto.verify.framework.table_patching import TablePatch

TIMING, NOW = Timing(), 100.0


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

"""The wheel: keys come in the order of their slots, each as often as it was put in; nothing is left."""

from __future__ import annotations

import pytest

from kvproto.fsm.timer_wheel import INFINITY, QUANTUM, TimerWheel


def taken(wheel: TimerWheel[str]) -> list[tuple[float, str]]:
    """All that is left, each with the time at which it was due."""
    found = []
    while wheel.next < INFINITY:
        due = wheel.next
        found.append((due / QUANTUM, wheel.take()))
    return found


def test_keys_come_up_by_slots_in_whatever_order_they_were_put_in() -> None:
    wheel = TimerWheel[str]()
    for slot, key in ((5, "e"), (2, "b"), (9, "i"), (2, "c"), (1, "a"), (2, "b")):
        wheel.put(slot * QUANTUM, key)
    assert wheel.next == QUANTUM
    found = taken(wheel)
    assert [slot for slot, _ in found] == [1, 2, 2, 2, 5, 9]
    assert sorted(found) == [(1, "a"), (2, "b"), (2, "b"), (2, "c"), (5, "e"), (9, "i")]
    assert (wheel.slots, wheel.order) == ({}, [])


def test_a_slot_that_was_emptied_can_be_used_again() -> None:
    wheel = TimerWheel[str]()
    for key in ("first", "again"):
        wheel.put(3 * QUANTUM, key)
        assert (wheel.take(), wheel.next, len(wheel.order)) == (key, INFINITY, 0)


def test_a_wheel_that_is_cleared_has_nothing_and_says_so() -> None:
    wheel = TimerWheel[str]()
    wheel.put(QUANTUM, "key")
    wheel.clear()
    assert (wheel.next, wheel.slots, wheel.order) == (INFINITY, {}, [])
    with pytest.raises(IndexError):
        wheel.take()
    wheel.put(QUANTUM, "new")
    assert taken(wheel) == [(1, "new")]

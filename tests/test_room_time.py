"""An engine's view of a room before it has pages for it, and how long it lets the room wait."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest
from support import passing_time as steps
from support.stories import layout

from kvproto.errors import ArgumentError
from kvproto.fsm.machine import Machine
from kvproto.io.clock import ManualClock
from kvproto.protocol import events as ev
from kvproto.protocol.events import ROOM_CHUNK, TimerFired
from kvproto.protocol.states import Cause, PRoom
from kvproto.protocol.tables.prefill_room import prefill_room
from kvproto.protocol.timing import Timing
from kvproto.room import Room
from kvproto.verify.testing import inside
from kvproto.verify.testing.pair import Pair

BOOTSTRAP_S = Timing().bootstrap.period


@pytest.fixture
def pair() -> Iterator[Pair]:
    clock = ManualClock()
    with Pair(layout(1), layout(2), chunk_tokens=8, clock=lambda: clock) as made:
        made.time = clock  # type: ignore[attr-defined]
        yield made


def pass_time(pair: Pair, seconds: float) -> None:
    steps.pass_time(pair, pair.time, seconds)  # type: ignore[attr-defined]


def test_the_prefix_is_seen_when_everybody_is_there(pair: Pair) -> None:
    prefill, room = pair.prefills[0], pair.name(30, prefix=8)
    assert prefill.prefix(room) is None and not prefill.opened_by_all(room), "nobody knows of it"
    pair.open_decode(room, [0])
    pair.settle()
    assert prefill.prefix(room) is None and not prefill.opened_by_all(room), "one of two"
    pair.open_decode(room, [1])
    pair.pump(lambda: prefill.opened_by_all(room))
    assert prefill.prefix(room) == 8, "and this engine has not opened it"
    pair.open_prefill(room)
    pair.finish(room)
    assert prefill.prefix(room) == 8
    other = pair.open(30)
    pair.pump(lambda: prefill.opened_by_all(other))
    prefill.abort(other)
    pair.pump(lambda: pair.over(other))
    assert prefill.prefix(other) is None and not prefill.opened_by_all(other)


@pytest.mark.parametrize("seconds", [5.0, 3 * BOOTSTRAP_S])
def test_a_room_that_nobody_calls_for_waits_as_long_as_its_engine_says(pair: Pair, seconds: float) -> None:
    room, usual = Room(71), Room(72)
    pair.prefills[0].open(room, 30, within=seconds)
    pair.prefills[0].open(usual, 30)
    pass_time(pair, min(seconds, BOOTSTRAP_S) - 1.0)
    assert not pair.outcomes
    pass_time(pair, 2.0)
    assert [name for _, _, name in pair.outcomes] == [room if seconds < BOOTSTRAP_S else usual]
    pass_time(pair, abs(seconds - BOOTSTRAP_S))
    assert {outcome.cause for outcome in pair.outcomes.values()} == {Cause.PEERS_MISSING}
    assert {name for _, _, name in pair.outcomes} == {room, usual}


def test_a_room_in_which_nothing_moves_ends_when_its_own_time_is_over(pair: Pair) -> None:
    room = pair.name(30)
    pair.open_decode(room)
    pair.prefills[0].open(room, 30, within=20.0)
    pair.prefills[0].prefetch(room)
    for _ in range(3):
        pass_time(pair, 15.0)
        assert not pair.outcomes, "each chunk gives it as much again"
        upto = pair.prefills[0].pool.page_size * 2 * (_ + 1)
        pair.prefills[0].produced(room, upto, pages=pair.tables[room][0][2 * _ : 2 * _ + 2])
        pair.pump(lambda: not pair.turn())
    pass_time(pair, 25.0)
    assert pair.outcomes["P", 0, room].cause is Cause.STALLED


def test_a_room_whose_forward_is_never_scheduled_ends_when_its_own_time_is_over(pair: Pair) -> None:
    room = pair.name(30)
    pair.open_decode(room)
    pair.prefills[0].open(room, 30, within=20.0)
    pass_time(pair, 15.0)
    assert not pair.outcomes
    pass_time(pair, 8.0)
    assert pair.outcomes["P", 0, room].cause is Cause.STALLED


@pytest.mark.parametrize("within", [0, -1.0, float("inf"), float("nan"), True, "5"], ids=repr)
def test_a_time_that_is_none_is_refused(pair: Pair, within: object) -> None:
    with pytest.raises(ArgumentError, match="it is in seconds, more than 0"):
        pair.prefills[0].open(Room(7), 30, within=within)  # type: ignore[arg-type]


@pytest.mark.parametrize(("within", "due"), [(0.0, BOOTSTRAP_S), (7.5, 7.5)])
def test_the_step_starts_the_value_s_own_timer(within: float, due: float) -> None:
    machine = Machine(prefill_room, Timing())
    value, _ = machine.step(machine.initial, ev.EngineOpened(7, 30, within=within), 100.0)
    assert value.state is PRoom.AWAIT_PEERS and 0.0 <= value.due - 100.0 - due < 0.1
    over, _ = machine.step(value, TimerFired(7, ROOM_CHUNK, 0, 1), value.due)
    assert over.state is PRoom.DRAINING and over.due == float("inf")


def test_since_when_it_waits_is_known_when_the_trace_has_moved_on(pair: Pair) -> None:
    room = Room(71)
    pair.prefills[0].open(room, 30, within=100.0)
    pass_time(pair, 7.0)
    inside(pair.prefills[0]).rank.trace.clear()
    told = pair.prefills[0].explain(room)
    assert re.search(r"waits for a decode group to open it, since [67]\.\d s; last event: older", told), told


@pytest.mark.parametrize("group", [0, -1, 1 << 64])
def test_a_group_that_is_no_number_of_an_instance_is_refused(pair: Pair, group: int) -> None:
    calls: tuple[Callable[[], object], ...] = (
        lambda: pair.prefills[0].open(Room(7), 30, group=group),
        lambda: pair.decodes[0].connect(pair.plan.prefill, ["tcp://127.0.0.1:1"], group=group),
    )
    for call in calls:
        with pytest.raises(ArgumentError, match="an instance's number has 64 bits, no sign, and is not 0"):
            call()

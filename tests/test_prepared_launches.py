"""Launches that are made ready, launches that wait, and which of both goes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any, cast

import numpy as np
import pytest
import torch
from support.stories import layout

from kvproto.data.launches import LAUNCH_S, TOGETHER, Launches
from kvproto.data.prepared_launches import KEPT, PreparedLaunches, ReadyLaunch
from kvproto.data.room_entry import RoomEntry
from kvproto.io.kernels.base import Done
from kvproto.layout.plan import Plan
from kvproto.protocol.effects import LaunchGather
from kvproto.protocol.events import Target
from kvproto.protocol.states import Cause
from kvproto.rank.room_turns import RoomTurns, digits

PLAN, OTHER = Plan(layout(2), layout(1), 16), Plan(layout(2), layout(1), 32)


def entry() -> RoomEntry:
    return RoomEntry(1, torch.empty(0, dtype=torch.int64), np.empty(0, np.int64), 0)


def asks(number: int, room: int = 1) -> LaunchGather:
    return LaunchGather(room, number, 0, Target(), 0, 0, 0)


class Maker:
    """Makes launches, or cannot."""

    def __init__(self) -> None:
        self.made: list[int] = []
        self.fault = False

    def __call__(self, effect: LaunchGather, room: RoomEntry, plan: Plan) -> ReadyLaunch:
        if self.fault:
            raise ValueError("planted")
        self.made.append(effect.chunk)
        return ReadyLaunch(room, plan, lambda *_: Done(), effect.chunk, effect.chunk + 1, 0)


def test_what_is_ready_is_taken_once_and_only_by_what_it_was_made_for() -> None:
    maker, room = Maker(), entry()
    kept = PreparedLaunches[LaunchGather, Plan](maker)
    for _ in range(2):
        kept.ready(asks(1), room, PLAN)
    assert maker.made == [1]
    assert kept.take(asks(1), room, PLAN).first == 1
    assert maker.made == [1] and len(kept) == 0
    kept.take(asks(1), room, PLAN)
    assert maker.made == [1, 1]


@pytest.mark.parametrize(("other_room", "plan"), [(True, PLAN), (False, OTHER)])
def test_of_another_room_or_plan_it_is_made_anew(other_room: bool, plan: Plan) -> None:
    maker, room = Maker(), entry()
    kept = PreparedLaunches[LaunchGather, Plan](maker)
    kept.ready(asks(1), room, PLAN)
    asked = replace(room) if other_room else room
    found = kept.take(asks(1), asked, plan)
    assert found.entry is asked and found.by is plan and maker.made == [1, 1]


def test_a_fault_is_told_when_it_is_taken_and_not_before() -> None:
    maker, room = Maker(), entry()
    kept = PreparedLaunches[LaunchGather, Plan](maker)
    maker.fault = True
    kept.ready(asks(1), room, PLAN)
    kept.ready(asks(2), None, PLAN)
    kept.ready(asks(3), room, None)
    assert len(kept) == 0
    with pytest.raises(ValueError, match="planted"):
        kept.take(asks(1), room, PLAN)


def test_the_oldest_give_way() -> None:
    maker, room = Maker(), entry()
    kept = PreparedLaunches[LaunchGather, Plan](maker)
    for effect in range(KEPT + 3):
        kept.ready(asks(effect), room, PLAN)
    assert len(kept) == KEPT
    kept.take(asks(2), room, PLAN)
    kept.take(asks(3), room, PLAN)
    assert maker.made[KEPT + 3 :] == [2]


def test_what_is_ready_goes_with_its_room_and_of_one_that_is_over_nothing_is_made() -> None:
    maker, room = Maker(), entry()
    kept = PreparedLaunches[LaunchGather, Plan](maker)
    for number in range(3):
        kept.ready(asks(number, room=number % 2), room, PLAN)
    kept.forget(0)
    assert len(kept) == 1 and asks(1, room=1) in kept
    room.cause = Cause.NONE
    kept.ready(asks(3), room, PLAN)
    assert len(kept) == 1 and maker.made == [0, 1, 2]


class Still:
    """A loop whose clock shows what it is set to."""

    def __init__(self) -> None:
        self.background: list[Any] = []
        self.clock, self.at, self.settled = self, 0.0, 0

    def real(self) -> float:
        return self.at

    def settle(self) -> None:
        self.settled += 1

    def attempt(self, _what: str, action: Callable[[], Any]) -> Any:
        return action()


def test_a_device_that_has_too_little_to_do_is_fed_at_once_and_rooms_take_turns() -> None:
    loop, went, room_for, takes = Still(), list[str](), [1], [LAUNCH_S / 8]

    def launch(name: str) -> Any:
        def launched() -> None:
            went.append(name)
            room_for[0] -= 1
            loop.at += takes[0]

        return launched

    launches = Launches(cast("Any", loop), {}, lambda _: room_for[0] > 0)
    launches.ask(1, launch("small"))
    assert not went and launches.run() and went.pop() == "small", "a small one waits for the frames of its pass"
    room_for[0] = 1
    for room, name in ((1, "a"), (1, "b"), (1, "c"), (2, "d"), (2, "e")):
        launches.ask(room, launch(name), large=True)
    assert went == ["a"] and not launches.feed()
    room_for[0] = 2
    launches.ask(2, launch("f"), large=True)
    assert launches.feed() and went == ["a", "b", "d"], "what waits goes before what is asked for now"
    takes[0] = LAUNCH_S
    assert launches.run() and went == ["a", "b", "d", "c"], "a pass launches one that takes its time"
    assert len(launches) == 1


def sized(*tokens: int) -> dict[int, RoomEntry]:
    """Rooms of so many tokens, by number."""
    return {room: replace(entry(), tokens=count) for room, count in enumerate(tokens)}


def launched(loop: Still, launches: Launches, *asked: int) -> list[int]:
    """Rooms in the order in which their launches go, each of which fills a pass."""
    went = list[int]()

    def launch(room: int) -> None:
        went.append(room)
        loop.at += LAUNCH_S

    for room in asked:
        launches.ask(room, partial(launch, room))
    while launches.run():
        pass
    return went


def test_the_smallest_room_goes_first_and_of_so_many_turns_one_is_a_larger_room_s() -> None:
    loop = Still()
    launches = Launches(cast("Any", loop), sized(64, 8, 8))
    went = launched(loop, launches, 0, 1, 2, 1, 2, 1, 2)
    assert went == [1, 2, 1, 0, 2, 1, 2]
    assert loop.settled == 7 and launches.turns.passed == 0


def test_a_larger_room_s_turn_is_the_larger_room_s_wherever_it_stands() -> None:
    loop = Still()
    launches = Launches(cast("Any", loop), sized(64, 8, 8, 8, 8, 8))
    went = launched(loop, launches, 1, 2, 3, 4, 5, 0, 0)
    assert went == [1, 2, 3, 0, 4, 5, 0]


def by_reading(tokens: dict[int, RoomEntry], asked: list[int]) -> list[int]:
    """The order of turns, looked for among all that wait."""
    left, order, turns, went = Counter(asked), list(dict.fromkeys(asked)), RoomTurns(), list[int]()
    while order:
        sizes = {room: digits(tokens[room].tokens) for room in order}
        first = min(order, key=sizes.__getitem__)
        larger = next((room for room in order if sizes[room] > sizes[first]), None)
        room = turns.whose(first, larger)
        turns.taken(before_larger=larger is not None and room == first)
        went.append(room)
        left[room] -= 1
        order.remove(room)
        order += [room] * (left[room] > 0)
    return went


@pytest.mark.parametrize("seed", range(20))
def test_turns_are_those_that_a_look_at_all_that_wait_finds(seed: int) -> None:
    chance = Random(seed)
    tokens = sized(*(chance.choice((1, 8, 9, 64, 500)) for _ in range(9)))
    asked = [chance.randrange(9) for _ in range(40)]
    launches = Launches(cast("Any", loop := Still()), tokens)
    assert launched(loop, launches, *asked) == by_reading(tokens, asked)
    assert not launches._sizes and not launches


class Counted(dict[int, RoomEntry]):
    """Rooms that are looked up, so many times."""

    looks = 0

    def get(self, *about: Any) -> Any:
        self.looks += 1
        return super().get(*about)


def test_a_turn_asks_after_no_room_however_many_wait() -> None:
    tokens = Counted(sized(*[8] * 300, *[64] * 300))
    launches = Launches(cast("Any", loop := Still()), tokens)
    launched(loop, launches, *range(600), *range(600))
    assert tokens.looks == 600


def test_a_room_that_is_alone_has_its_turn_and_nothing_is_owed_to_others() -> None:
    loop = Still()
    launches = Launches(cast("Any", loop), sized(64, 8))
    launches.ask(0, lambda: None)
    launches.turns.passed = 2
    assert launches.run() and launches.turns.passed == 0 and not launches.run()


def test_a_room_that_nobody_knows_is_a_small_one() -> None:
    loop, went = Still(), list[int]()
    launches = Launches(cast("Any", loop), sized(64))
    for room in (0, 7):
        launches.ask(room, partial(went.append, room))
    launches.run()
    assert went == [7, 0]


def test_where_there_is_no_device_all_wait_for_the_end_of_their_pass() -> None:
    loop, went = Still(), list[int]()
    launches = Launches(cast("Any", loop), {})
    for room in range(TOGETHER):
        launches.ask(room, partial(went.append, room), large=True)
    assert not launches.feed() and not went
    assert [each.run() for each in loop.background] == [True] and went == [*range(TOGETHER)]


def test_small_ones_of_a_hungry_device_wait_and_those_behind_what_waits() -> None:
    went, hungry = list[int](), [True]
    launches = Launches(cast("Any", Still()), {}, lambda _: hungry[0])
    launches.ask(0, lambda: went.append(0))
    launches.ask(1, lambda: went.append(1), large=True)
    assert not went and len(launches) == 2
    hungry[0] = False
    assert not launches.feed() and not went
    hungry[0] = True
    assert launches.feed() and went == [0, 1] and not launches.feed()
    hungry[0] = False
    launches.ask(2, lambda: went.append(2), large=True)
    assert went == [0, 1]


def test_of_a_room_that_is_over_or_whose_plan_nobody_knows_nothing_is_made_ready() -> None:
    maker, room = Maker(), entry()
    kept = PreparedLaunches[LaunchGather, Plan](maker)
    room.cause = Cause.NONE
    kept.ready(asks(1), room, PLAN)
    kept.ready(asks(2), entry(), None)
    assert not kept and not maker.made


def test_a_pass_launches_on_as_long_as_all_of_them_were_quick_whatever_the_time_is() -> None:
    loop, went = Still(), list[int]()
    loop.at = 100.0
    launches = Launches(cast("Any", loop), {})
    for room in range(3):
        launches.ask(room, partial(went.append, room))
    assert launches.run() and went == [0, 1, 2]


def test_a_large_one_waits_while_a_device_has_enough_of_those() -> None:
    went = list[int]()
    launches = Launches(cast("Any", Still()), {}, lambda large: not large)
    launches.ask(0, lambda: went.append(0), large=True)
    assert not went and launches.run() and went == [0]


def test_what_was_put_aside_goes_at_the_end_of_a_pass_and_what_it_leads_to_is_done() -> None:
    loop, happened = Still(), list[Any]()
    launches = Launches(cast("Any", loop), {}, lambda _: True, lambda: happened.append(loop.settled))
    launches.ask(0, lambda: happened.append("launched"))
    assert launches.run() and happened == ["launched", 1] and loop.settled == 2
    assert not launches.run() and len(happened) == 2


def test_small_ones_are_fed_when_there_are_some() -> None:
    went = list[int]()
    launches = Launches(cast("Any", Still()), {}, lambda large: not large)
    for room in range(1, TOGETHER):
        launches.ask(room, lambda: went.append(0))
    assert not launches.feed()
    launches.ask(TOGETHER, lambda: went.append(0), large=True)
    assert not launches.feed(), "a large one waits among them, and the device has enough of those"
    assert launches.run() and len(went) == TOGETHER
    for room in range(TOGETHER):
        launches.ask(room, lambda: went.append(1))
    assert launches.feed() and went[TOGETHER:] == [1] * TOGETHER

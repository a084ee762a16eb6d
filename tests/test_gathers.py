"""Gathers by themselves: which is launched when, what is told of each, and what follows them.

Loop, kernels and staging are scripts; a gather ends when it is told to.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch
from msgspec.structs import replace

from kvproto.data.gathers import AHEAD, Gathers
from kvproto.data.launches import TOGETHER
from kvproto.data.room_entry import NO_TABLE, RoomEntry
from kvproto.data.staged_writes import SMALL
from kvproto.io.kernels.base import Ticket
from kvproto.layout.contacts import Share
from kvproto.layout.cut import Cut, Part
from kvproto.protocol import effects as do
from kvproto.protocol import events as ev
from kvproto.protocol.events import Target
from kvproto.protocol.states import Cause

LARGE, LITTLE, SLOT = SMALL + 1, SMALL, 4 * SMALL
SHARE = Share(0, 0, 0, 0, 1, 2, 0, 3)


class Told(Ticket):
    """A gather that is over when it is told so, or fails."""

    def __init__(self) -> None:
        self.over: bool | Exception = False

    def done(self) -> bool:
        if isinstance(self.over, Exception):
            raise self.over
        return self.over


class World:
    """The gathers of a rank, on a device or on the CPU."""

    def __init__(self, *, device: bool) -> None:
        self.told: list[Any] = []
        self.tickets: list[Told] = []
        self.at_once = False
        #: launches together raise, and of those that were bound this one
        self.apart, self.broken = False, -1
        self.wrong: Exception | None = None
        self.sizes: dict[int, int] = {}
        #: whether forwards run
        self.busy = False
        self.marks = {room: SimpleNamespace(query=lambda: not self.busy) for room in range(9)}
        self.entries = {room: RoomEntry(8, torch.empty(0), np.empty(0, np.int64), 0) for room in range(9)}
        for room, entry in self.entries.items():
            entry.mark(8, 9, self.marks[room])
            entry.placed = "its table"
        stream = "stream" if device else None
        streams = SimpleNamespace(
            stream=stream, await_table=lambda entry: self.told.append(("table", self.room(entry))), place_all=self.place
        )  # fmt: skip
        loop: Any = SimpleNamespace(
            background=[], raise_event=self.told.append, settle=lambda: self.told.append("settled"),
            clock=SimpleNamespace(real=lambda: 0.0),
            logs=SimpleNamespace(part=lambda *about: self.told.append(about)), hold=lambda _error: None,
            attempt=lambda _what, action: action(),
        )  # fmt: skip
        staging: Any = SimpleNamespace(
            parts=defaultdict(object), sent_off=self.sent_off, streams=streams, twins=True,
        )  # fmt: skip
        self.gathers = Gathers(
            loop, cast("Any", "pool"), cast("Any", self), self.entries, staging, SLOT,
            lambda effect: self.told.append(("meanwhile", effect.room)),
        )  # fmt: skip
        self.ask = self.gathers.ask

    def place(self) -> None:
        for entry in self.entries.values():
            entry.table = torch.ones(1)

    def room(self, entry: RoomEntry) -> int:
        return next(room for room, each in self.entries.items() if each is entry)

    def bind(self, side: str, pool: Any, table: Any, first: int, tokens: int, parts: Any) -> Callable[..., Ticket]:
        (part,) = parts
        assert (side, pool, first, tokens, part[0]) == ("gather", "pool", 4, 3, SHARE) and table is not NO_TABLE
        if self.wrong is not None:
            raise self.wrong
        number = self.told.count("bound")
        self.told.append("bound")

        def launch(stream: Any, after: Any) -> Ticket:
            if number == self.broken:
                raise ValueError("planted")
            self.told.append(("launched", stream, after))
            self.tickets.append(Told())
            self.tickets[-1].over = self.at_once
            return self.tickets[-1]

        return launch

    def join(self, launches: list[Callable[..., Ticket]]) -> Callable[..., Ticket]:
        def launch(stream: Any, after: Any) -> Ticket:
            self.told.append(("joined", len(launches)))
            if self.apart:
                raise ValueError("planted")
            return launches[0](stream, after)

        return launch

    def sent_off(self, first: int, last: int, ticket: Ticket) -> Ticket:
        self.told.append(("sent off", first, last))
        return ticket

    def target(self, room: int) -> Target:
        return Target(1, 1, Cut(4, 3), Part(SHARE, 0, self.sizes.get(room, LARGE)))

    def gather(self, room: int, slot: int = 1) -> do.LaunchGather:
        return do.LaunchGather(room, 5, 6, self.target(room), slot, 0, 1)

    def launched(self) -> int:
        return len(self.tickets)

    def gathered(self) -> list[int]:
        return [event.room for event in self.told if isinstance(event, ev.Gathered)]


@pytest.fixture
def device() -> World:
    return World(device=True)


@pytest.fixture
def cpu() -> World:
    return World(device=False)


def test_what_is_launched_reads_its_slot_after_its_table_and_its_forward(device: World) -> None:
    device.ask(device.gather(3, slot=2))
    start = 2 * SLOT
    assert device.told == [
        "bound", ("table", 3), ("launched", "stream", device.marks[3]), ("sent off", start, start + LARGE),
        ("meanwhile", 3),
    ]  # fmt: skip
    assert len(device.gathers) == 1


@pytest.mark.parametrize(("tokens", "layers", "waits"), [(7, 5, True), (6, 9, False), (7, 4, False)])
def test_its_forward_is_the_one_of_all_of_its_tokens_and_layers(
    device: World, tokens: int, layers: int, waits: bool
) -> None:
    entry, early, late = device.entries[1], object(), object()
    entry.marks.clear()
    entry.mark(tokens, layers, early)
    entry.mark(9, 9, late)
    device.ask(device.gather(1))
    assert ("launched", "stream", early if waits else late) in device.told


def test_a_table_that_was_put_off_is_placed_before_it_is_read(device: World) -> None:
    device.entries[1].table = NO_TABLE
    device.ask(device.gather(1))
    assert device.launched() == 1 and device.entries[1].table is not NO_TABLE


def test_one_that_was_made_ready_waits_for_its_table_and_its_forward_as_well(device: World) -> None:
    device.gathers.ready(device.gather(3))
    assert device.told == ["bound"]
    device.ask(device.gather(3))
    assert device.told[:3] == ["bound", ("table", 3), ("launched", "stream", device.marks[3])]


def test_the_oldest_is_asked_after_a_large_launch_and_after_the_last_of_small_ones(device: World) -> None:
    device.sizes |= {1: LITTLE, 2: LITTLE}
    device.gathers.ahead = 1
    for room in (0, 3, 1, 2):
        device.ask(device.gather(room))
    device.tickets[0].over = True
    device.gathers.launches.run(lambda: False)
    assert device.launched() == 2 and device.gathered() == [0], "a large one, and others wait"
    device.tickets[1].over = True
    device.gathers.launches.run(lambda: False)
    assert device.launched() == 3 and device.gathered() == [0], "a small one, and another waits"
    device.gathers.launches.run()
    assert device.gathered() == [0, 3], "the last"


def test_a_device_has_so_many_large_ones_and_the_next_when_one_has_ended(device: World) -> None:
    for room in range(AHEAD + 2):
        device.ask(device.gather(room))
    assert device.launched() == AHEAD and len(device.gathers) == AHEAD + 2
    assert not device.gathers.poll() and device.launched() == AHEAD
    device.tickets[0].over = True
    device.told.clear()
    assert device.gathers.poll() and device.launched() == AHEAD + 1 and device.gathered() == [0]
    assert device.told.index(ev.Gathered(0, 5, 6)) < device.told.index("settled") < device.told.index("bound")
    for ticket in device.tickets:
        ticket.over = True
    assert device.gathers.poll() and device.gathered()[:2] == [0, 1]


def test_that_one_is_fed_is_something_that_happened(device: World) -> None:
    for room in range(AHEAD + 1):
        device.ask(device.gather(room))
    device.gathers.ahead += 1
    assert device.gathers.poll() and device.launched() == AHEAD + 1 and not device.gathered()


def test_small_ones_and_all_on_a_cpu_wait_for_the_end_of_their_pass(device: World, cpu: World) -> None:
    device.sizes[0] = LITTLE
    for world in (device, cpu):
        world.ask(world.gather(0))
        assert not world.launched() and len(world.gathers) == 1
        world.gathers.launches.run()
        assert world.launched() == 1
    assert not cpu.gathers.poll() and cpu.gathers.launches.hungry is None


def test_on_a_cpu_nothing_is_fed(cpu: World) -> None:
    cpu.ask(cpu.gather(0))
    assert not cpu.gathers.poll() and not cpu.launched()


def test_only_the_oldest_is_asked(device: World) -> None:
    for room in range(2):
        device.ask(device.gather(room))
    device.tickets[1].over = True
    assert not device.gathers.poll() and not device.gathered()
    device.tickets[0].over = True
    assert device.gathers.poll() and device.gathered() == [0, 1] and len(device.gathers) == 0
    assert not device.gathers.poll()


def test_one_that_is_over_when_it_is_launched_is_told_at_once(cpu: World) -> None:
    cpu.at_once = True
    cpu.ask(cpu.gather(0))
    cpu.gathers.launches.run()
    assert cpu.gathered() == [0] and len(cpu.gathers) == 0
    assert ("meanwhile", 0) not in cpu.told


def test_each_launch_looks_at_the_oldest_and_one_behind_another_is_not_told_before_it(device: World) -> None:
    device.ask(device.gather(0))
    device.at_once = True
    device.ask(device.gather(1))
    assert not device.gathered() and len(device.gathers) == 2
    device.tickets[0].over = True
    device.gathers.ahead += 1
    device.ask(device.gather(2))
    assert device.gathered() == [0, 1, 2]


def test_the_write_of_a_small_one_is_made_ready_meanwhile_only_if_it_is_alone(device: World) -> None:
    device.sizes |= dict.fromkeys(range(9), LITTLE)
    for room in range(2):
        device.ask(device.gather(room))
    device.gathers.launches.run()
    assert not [each for each in device.told if each[0] == "meanwhile"], "another waits, or is before it"
    for ticket in device.tickets:
        ticket.over = True
    device.gathers.poll()
    device.ask(device.gather(2))
    device.gathers.launches.run()
    assert ("meanwhile", 2) in device.told
    device.ask(device.gather(3))
    device.sizes[4] = LARGE
    device.gathers.launches.run()
    assert ("meanwhile", 3) not in device.told
    device.gathers.ahead = 9
    device.ask(device.gather(4))
    assert ("meanwhile", 4) in device.told
    for ticket in device.tickets:
        ticket.over = True
    device.gathers.poll()
    for room in (5, 6):
        device.ask(device.gather(room))
    device.gathers.launches.run(lambda: False)
    assert len(device.gathers) == 2 and ("meanwhile", 5) not in device.told, "another waits to be launched"


def test_small_ones_of_one_moment_that_wait_for_one_forward_are_one_launch(device: World) -> None:
    device.sizes |= dict.fromkeys(range(9), LITTLE)
    for room in range(5):
        device.entries[room].marks = device.entries[room // 3 * 3].marks
        device.ask(device.gather(room, slot=room))
    device.gathers.launches.run()
    joined = [each for each in device.told if each[0] in ("joined", "launched")]
    first, second = (("launched", "stream", device.marks[room]) for room in (0, 3))
    assert joined == [("joined", 3), first, ("joined", 2), second] and len(device.gathers) == 5
    assert len([each for each in device.told if each[0] == "sent off"]) == 5
    device.tickets[0].over = True
    assert device.gathers.poll() and device.gathered() == [0, 1, 2]


def test_a_device_has_so_many_small_ones_and_the_next_when_they_have_ended(device: World) -> None:
    device.sizes |= dict.fromkeys(range(2 * TOGETHER), LITTLE)
    device.entries |= dict.fromkeys(range(2 * TOGETHER), device.entries[0])
    for room in range(2 * TOGETHER):
        device.ask(device.gather(room))
        if room == 2:
            device.gathers.launches.run()
    device.told.clear()
    assert device.gathers.poll() and device.told.count("bound") == TOGETHER - 3
    assert len(device.gathers.launches) == TOGETHER


def test_what_cannot_be_sent_off_fails(device: World) -> None:
    def sent_off(*_: object) -> Ticket:
        raise ValueError("planted")

    device.gathers.staging.sent_off = sent_off  # type: ignore[method-assign, assignment]
    device.ask(device.gather(0))
    assert ("gather", (0, 5, 6), Cause.KERNEL_FAILED, "ValueError: planted") in device.told
    assert ev.GatherFailed(0, 5, 6) in device.told and not device.gathered() and len(device.gathers) == 0


def test_small_ones_that_cannot_go_together_go_alone_and_who_is_at_fault_fails_alone(device: World) -> None:
    device.sizes |= dict.fromkeys(range(9), LITTLE)
    device.apart, device.broken = True, 1
    for room in range(3):
        device.entries[room].marks = device.entries[0].marks
        device.ask(device.gather(room))
    device.gathers.launches.run()
    assert ("joined", 3) in device.told and device.launched() == 2 == len(device.gathers)
    assert [event for event in device.told if isinstance(event, ev.GatherFailed)] == [ev.GatherFailed(1, 5, 6)]


@pytest.mark.parametrize("when", ["made", "asked", "asked later"])
def test_what_raises_ends_its_gather_alone(device: World, when: str) -> None:
    error = ValueError("planted")
    if when == "made":
        device.wrong = error
    elif when == "asked":
        device.at_once = cast("Any", error)
    device.ask(device.gather(0))
    if when == "asked later":
        device.tickets[0].over = error
        assert device.gathers.poll()
    assert ("gather", (0, 5, 6), Cause.KERNEL_FAILED, "ValueError: planted") in device.told
    assert ev.GatherFailed(0, 5, 6) in device.told and not device.gathered() and len(device.gathers) == 0


def test_what_follows_is_done_when_one_that_was_going_has_ended(device: World) -> None:
    done = list[int]()

    def again() -> None:
        done.append(1)
        device.gathers.later(lambda: done.append(2))

    device.ask(device.gather(0))
    device.gathers.later(again)
    assert len(device.gathers) == 2 and not device.gathers.poll() and not done
    device.tickets[0].over = True
    device.told.clear()
    assert device.gathers.poll() and done == [1]
    assert device.told == [ev.Gathered(0, 5, 6), "settled"], "first all that its end leads to"
    assert device.gathers.poll() and done == [1, 2] and not device.gathers.poll()


def test_what_follows_does_not_wait_for_a_forward(device: World) -> None:
    done, device.busy = list[int](), True
    device.ask(device.gather(0))
    device.gathers.later(lambda: done.append(1))
    assert device.gathers.poll() and done == [1] and not device.gathered()
    device.gathers.later(lambda: done.append(2))
    device.busy = False
    assert not device.gathers.poll() and done == [1], "the gather itself is waited for"


def test_what_follows_waits_for_one_of_them_and_not_for_all(device: World) -> None:
    done = list[int]()
    for room in range(AHEAD):
        device.ask(device.gather(room))
    device.gathers.later(lambda: done.append(1))
    device.tickets[0].over = True
    assert device.gathers.poll() and done == [1]


def test_what_follows_waits_for_what_is_still_to_be_launched(cpu: World) -> None:
    done = list[int]()
    cpu.ask(cpu.gather(0))
    cpu.gathers.later(lambda: done.append(1))
    assert not cpu.gathers.poll() and not done
    cpu.at_once = True
    cpu.gathers.launches.run()
    assert cpu.gathers.poll() and done == [1]


def test_a_large_one_is_made_ready_before_it_is_asked_for(device: World) -> None:
    device.sizes[1] = LITTLE
    device.gathers.ready(device.gather(1))
    assert not device.told
    device.gathers.ready(device.gather(0))
    assert device.told == ["bound"] and len(device.gathers.prepared) == 1
    device.ask(replace(device.gather(0), offset=64, grant=7))
    assert device.told.count("bound") == 1 and device.launched() == 1, "its region is not known before"


@pytest.mark.parametrize("at_once", [True, False])
def test_a_gather_with_nothing_beside_it_tells_how_long_it_took(device: World, at_once: bool) -> None:
    times, took, gathers = iter((10.0, 12.5)), list[tuple[int, float]](), device.gathers
    gathers.loop.clock = cast("Any", SimpleNamespace(real=lambda: next(times)))
    gathers.took = lambda effect, seconds: took.append((effect.room, seconds))
    device.entries[3].marks.clear()
    device.at_once = at_once
    assert gathers.ended is None
    device.ask(device.gather(3))
    if not at_once:
        assert not took and gathers.ended is None
        device.tickets[0].over = True
        gathers.poll()
    assert took == [(3, 2.5)] and gathers.ended == ((3, 5, 6), 12.5)


def test_gathers_beside_each_other_or_after_a_forward_do_not(device: World) -> None:
    took, gathers = list[int](), device.gathers
    gathers.took = lambda effect, _seconds: took.append(effect.room)
    device.sizes |= {4: LITTLE, 5: LITTLE}
    for rooms, marked in (((1, 2), False), ((3,), True), ((4, 5), False)):
        for room in rooms:
            if not marked:
                device.entries[room].marks.clear()
            device.ask(device.gather(room))
        gathers.launches.run()
        for ticket in device.tickets:
            ticket.over = True
        gathers.poll()
        assert gathers.ended is not None and gathers.ended[0] == (rooms[-1], 5, 6)
    assert not took


def test_small_ones_that_go_together_and_end_at_once_do_not_either(device: World) -> None:
    took, gathers, device.at_once = list[int](), device.gathers, True
    gathers.took = lambda effect, _seconds: took.append(effect.room)
    for room in (4, 5):
        device.sizes[room] = LITTLE
        device.entries[room].marks.clear()
        device.ask(device.gather(room))
    gathers.launches.run()
    gathers.poll()
    assert gathers.ended is not None and not took


def test_one_that_is_asked_for_meanwhile_does_not_shorten_it(device: World) -> None:
    times, took, gathers = iter((10.0, 11.0, 12.5)), list[float](), device.gathers
    gathers.loop.clock = cast("Any", SimpleNamespace(real=lambda: next(times)))
    gathers.took = lambda _effect, seconds: took.append(seconds)
    device.entries[3].marks.clear()
    device.ask(device.gather(3))
    del device.entries[1]
    device.ask(device.gather(1))  # it fails before it is launched
    device.tickets[0].over = True
    gathers.poll()
    assert took == [2.5]

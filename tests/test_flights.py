"""Writes of many parts: posted while the send may, at most so many a pass, and ended once."""

from __future__ import annotations

from collections import deque
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from kvproto.engine.writes import BUDGET, Flight, Flights
from kvproto.fsm.vocabulary import Event
from kvproto.io.transports.base import Busy, Completed, Failed, Fault, Handle, PeerId
from kvproto.protocol import events as ev

KEY = (7, 0, 1)
PEER = PeerId("peer")
WHY = Fault("backend", "planted")


class World:
    """Flights over a transport that takes everything, until it is told to be full."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.posted: list[int] = []
        self.full = False
        self.may = True
        loop: Any = SimpleNamespace(turns=1, reports=deque(), raise_event=self.events.append)
        transport: Any = SimpleNamespace(write_many=self.write_many, quiescent=lambda _: True, drop=lambda _: None)
        self.loop, self.flights = loop, Flights(loop, transport, lambda _: None, lambda _: self.may)

    def write_many(self, _peer: PeerId, parts: list[Any], _tag: bytes) -> Handle:
        if self.full:
            raise Busy("planted")
        self.posted.append(sum(len(part.descs) for part in parts))
        return Handle(len(self.posted) - 1)

    def flight(self, parts: int, pieces: int = 1) -> Flight:
        """Post one of so many parts of so many pieces."""
        part: Any = SimpleNamespace(descs=np.ones((pieces, 3), np.uint64))
        flight = Flight(KEY, PEER, deque([part] for _ in range(parts)))
        self.flights.post(flight)
        return flight

    def end(self, *handles: int) -> None:
        for handle in handles:
            self.flights.hear(Completed(Handle(handle)))

    def next_pass(self) -> bool:
        self.loop.turns += 1
        return self.flights.poll()


@pytest.fixture
def world() -> World:
    return World()


def test_a_flight_ends_when_its_last_write_has(world: World) -> None:
    world.flight(3)
    world.end(0, 2)
    assert not world.events and world.flights
    world.end(1)
    assert world.events == [ev.WriteCompleted(*KEY)] and not world.flights


def test_a_pass_posts_a_bounded_number_of_pieces_and_the_next_one_goes_on(world: World) -> None:
    world.flight(7, BUDGET // 2)
    assert len(world.posted) == 2
    assert not world.flights.poll(), "the pass has posted enough"
    assert world.next_pass() and len(world.posted) == 4
    world.flight(1)
    assert len(world.posted) == 4, "another send waits its turn"
    while world.next_pass():
        pass
    assert world.posted == [BUDGET // 2] * 7 + [1]


def test_a_send_that_may_no_longer_post_gives_up_what_is_left_and_ends_with_what_was_posted(world: World) -> None:
    world.flight(5, BUDGET // 2)
    world.may = False
    world.next_pass()
    assert len(world.posted) == 2 and not world.events, "two writes are under way"
    world.end(0, 1)
    assert world.events == [ev.WriteFailed(*KEY, settled=True)] and not world.flights
    assert any("lease" in report for report in world.loop.reports)


def test_a_send_that_may_not_post_at_all_fails_at_once(world: World) -> None:
    world.may = False
    world.flight(2)
    assert not world.posted and world.events == [ev.WriteFailed(*KEY, settled=True)]


def test_a_write_without_room_waits_in_order(world: World) -> None:
    world.full = True
    world.flight(2)
    world.flight(1, 3)
    assert not world.posted and world.flights
    world.full = False
    assert world.next_pass()
    assert world.posted == [1, 1, 3]


def test_one_that_fails_while_the_rest_waits_ends_once(world: World) -> None:
    flight = world.flight(1)
    world.full = True
    flight.parts.append([SimpleNamespace(descs=np.ones((1, 3), np.uint64))])  # type: ignore[list-item]
    world.flights.post(flight)
    world.flights.hear(Failed(Handle(0), WHY, True))
    world.full = False
    for _ in range(3):
        world.next_pass()
    assert world.events == [ev.WriteFailed(*KEY, settled=True)] and not world.flights


def test_a_write_in_doubt_is_told_at_once_and_once_more_when_it_can_move_no_more(world: World) -> None:
    world.flight(1)
    world.flights.hear(Failed(Handle(0), WHY, False))
    assert world.events == [ev.WriteFailed(*KEY, settled=False)]
    world.next_pass()
    assert world.events == [ev.WriteFailed(*KEY, settled=False), ev.WriteFailed(*KEY, settled=True)]

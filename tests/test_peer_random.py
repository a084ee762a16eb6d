"""Two peers under a random schedule: rooms both ways, and writes that fail, hang or are in doubt.

Real endpoints on the fabric, whose pieces land in a drawn order.  Afterwards every room is over on both sides, no byte
differs where one has succeeded, and none has changed elsewhere.
"""

from __future__ import annotations

from random import Random

import pytest
from support.night import by_night
from support.peers import Direction, Peers
from support.stories import QUICK, layout

from kvproto.io.clock import ManualClock
from kvproto.protocol.states import Cause
from kvproto.room import Room
from kvproto.settings import Settings

SEEDS = by_night(200, by_day=6)
ROOMS, MOVES = 12, 4000
SETTINGS = Settings(timing=QUICK, ring_bytes=2048, slots=1, window=2)


class Schedule:
    """One run, all of whose choices are of one seed."""

    def __init__(self, peers: Peers, clock: ManualClock, seed: int) -> None:
        self.peers, self.clock, self.random = peers, clock, Random(seed)
        self.begun: list[tuple[Direction, Room]] = []
        #: rooms of either direction whose KV is all there; those of both have one set of numbers
        self.computed: set[Room] = set()

    def play(self) -> None:
        """Draw moves until all rooms were begun, and then go on until they are over."""
        for _ in range(MOVES):
            self.move()
        self.peers.fabric.auto = True
        for direction, room in self.begun:
            if room not in self.ended(direction):
                direction.produce(room)
        for _ in range(200):
            self.peers.there.settle(3)
            if all(direction.over(room) for direction, room in self.begun):
                return
            self.clock.advance(0.2)
        raise AssertionError([direction.explain() for direction in self.peers.both])

    @staticmethod
    def ended(direction: Direction) -> set[Room]:
        """Rooms that have an outcome somewhere."""
        return {room for _, _, room in direction.outcomes}

    def move(self) -> None:
        random, peers = self.random, self.peers
        match random.choices(("poll", "write", "engine", "time", "trouble"), (50, 25, 15, 5, 0.2))[0]:
            case "poll":
                random.choice(peers.all).poll()
                for each in peers.both:
                    each.collect()
            case "write":
                peers.fabric.step(random)
            case "engine":
                self.engine()
            case "time":
                for each in self.peers.both:  # no message is late by a clock that does not wait for sockets' threads
                    each.settle(1)
                self.clock.advance(random.choice((0.001, 0.02, 0.2)))
            case "trouble":
                self.trouble()

    def engine(self) -> None:
        """A new room of either direction, or more of one that is under way."""
        random = self.random
        direction = random.choice(self.peers.both)
        mine = [room for each, room in self.begun if each is direction and room not in self.ended(direction)]
        if len(self.begun) < ROOMS and (not mine or random.random() < 0.3):
            self.begun.append((direction, direction.open(random.randint(1, 20), room_id=len(self.begun) + 1)))
        elif mine:
            room = random.choice(mine)
            if room not in self.computed and random.random() < 0.5:
                direction.produce(room, direction.tables[room][2] // 2, aux=None)
            else:
                self.computed.add(room)
                direction.produce(room)

    def trouble(self) -> None:
        """A write fails or is in doubt, or an engine gives a room up."""
        random, fabric = self.random, self.peers.fabric
        if flying := fabric.options():
            write = random.choice(flying)
            (fabric.fail if random.random() < 0.5 else fabric.doubt)(write.writer, write.handle)
        elif self.begun:
            direction, room = random.choice(self.begun)
            role = random.choice((direction.prefills[0], direction.decodes[0]))
            if room not in self.ended(direction):
                role.abort(room)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_whatever_happens_every_room_is_over_and_no_byte_is_wrong(seed: int) -> None:
    clock = ManualClock()
    with Peers(layout(1), layout(1), settings=SETTINGS, clock=lambda: clock) as peers:
        peers.fabric.auto, peers.fabric.piece, peers.fabric.shuffle = False, 64, True
        schedule = Schedule(peers, clock, seed)
        schedule.play()
        assert len(schedule.begun) == ROOMS
        for direction in peers.both:
            mine = [room for each, room in schedule.begun if each is direction]
            good = [room for room in mine if direction.causes(room) == {Cause.NONE}]
            assert good
            torn = [page for room in mine if room not in good for page in direction.tables[room][1]]
            for tensors in ("k", "v"):  # of a room that has failed, any part may have been written
                pool, before = direction.decodes[0].pool, direction.before[0]
                for now, was in zip(getattr(pool, tensors), getattr(before, tensors), strict=True):
                    now[torn] = was[torn]
            direction.check(*good)
            direction.rest()

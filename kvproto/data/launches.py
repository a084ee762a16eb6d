"""Launches of gathers and scatters, in a fair order: smallest room first, round-robin among equals.

A copy on the CPU is over when its launch returns.  If it were launched when it is requested, the frames of all rooms
would wait behind the bulk of one room: head-of-line blocking.  So a launch is queued until the frames of its pass have
been handled.  A pass launches one, and more only while all of them have taken less than `LAUNCH_S`: several on a
device, whose launches are short, one on a CPU.  The rest waits for the next pass, which follows at once.

The smallest waiting room goes first: a room with one chunk waits for the copy in flight, not for earlier requests of a
large room.  Every fourth turn is a larger room's, so no room starves (`room_turns`).  Rooms of equal size go
round-robin: a room whose launch was taken goes to the end.

A device works in parallel to the host, and idles if the host does something else.  So on a device a large copy is
launched at once if too little is in flight (`hungry`) and no room waits, and `feed` launches queued ones as soon as
that is so again.  Otherwise the KV of 64 rooms that is ready together would wait for the 3 ms of one pass.  Small
copies take the device no time: they wait for the frames of their pass, or until there are `TOGETHER`, and are launched
together, as one launch if possible (`joint_launches`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from kvproto.data.room_entry import RoomEntry
from kvproto.loop.event_loop import EventLoop
from kvproto.rank.room_turns import RoomTurns

#: seconds of launches after which a pass begins no other
LAUNCH_S: Final = 0.0005
#: small launches that a device is given at once
TOGETHER: Final = 8


class WaitingRoom(msgspec.Struct):
    """The queued launches of a room, its size, and its place in the order: the smallest number is first."""

    size: int
    place: int
    launches: deque[Callable[[], None]]


class Launches:
    """Queued launches by room, served at the end of a pass; a turn is O(1) in the number of rooms."""

    def __init__(
        self, loop: EventLoop, entries: Mapping[int, RoomEntry], hungry: Callable[[bool], bool] | None = None,
        go: Callable[[], None] = lambda: None,
    ) -> None:  # fmt: skip
        """`hungry` says whether the device should get large launches (true), or small ones; None: no device.

        `go` launches those that were put aside to be joined.
        """
        self.loop, self.entries, self.hungry, self.go = loop, entries, hungry, go
        self._rooms: dict[int, WaitingRoom] = {}
        #: by size: the rooms that wait, in their order
        self._sizes: dict[int, dict[int, WaitingRoom]] = {}
        self._places = 0
        #: of these rooms large ones wait
        self._large: set[int] = set()
        self.turns = RoomTurns()
        loop.background.append(self)

    def __len__(self) -> int:
        return len(self._rooms)

    def ask(self, room: int, launch: Callable[[], None], *, large: bool = False) -> None:
        """Launch this when it is the room's turn, or a large one now; what it raises ends nothing else."""
        if large and self.hungry is not None:
            if not self._rooms and self.hungry(True):
                launch()
                return
            self._large.add(room)
        waiting = self._rooms.get(room)
        if waiting is None:
            entry = self.entries.get(room)
            size = entry.tokens.bit_length() if entry is not None else 0  # `digits`, without a call
            self._places += 1
            waiting = self._rooms[room] = WaitingRoom(size, self._places, deque())
            self._sizes.setdefault(size, {})[room] = waiting
        waiting.launches.append(launch)

    def feed(self) -> bool:
        """Launch what waits as long as the device has too little to do; whether there was anything."""
        hungry, large = self.hungry, bool(self._large)
        if hungry is None or not (large or len(self._rooms) >= TOGETHER) or not hungry(large):
            return False
        return self.run(lambda: hungry(large))

    def run(self, goes_on: Callable[[], bool] | None = None) -> bool:
        """Launch as much as a pass may, and as long as this says so; whether there was anything."""
        if not self._rooms:
            return False
        real = self.loop.clock.real
        began = real()
        while self._rooms:
            room = self._turn() if len(self._rooms) > 1 or self.turns.passed else next(iter(self._rooms))
            waiting = self._rooms.pop(room)
            alike = self._sizes[waiting.size]
            del alike[room]
            if not alike:
                del self._sizes[waiting.size]
            self.loop.attempt("a launch", waiting.launches.popleft())
            if waiting.launches:  # behind all that wait
                self._places += 1
                waiting.place = self._places
                self._rooms[room] = self._sizes.setdefault(waiting.size, {})[room] = waiting
            else:
                self._large.discard(room)
            self.loop.settle()
            if real() - began >= LAUNCH_S or (goes_on is not None and not goes_on()):
                break
        if self.hungry is not None:
            self.go()
            self.loop.settle()
        return True

    def _turn(self) -> int:
        least = min(self._sizes)
        first, larger = next(iter(self._sizes[least])), None
        if len(self._sizes) > 1:
            firsts = [next(iter(rooms.items())) for size, rooms in self._sizes.items() if size != least]
            larger = min(firsts, key=lambda each: each[1].place)[0]
        room = self.turns.whose(first, larger)
        self.turns.taken(before_larger=larger is not None and room is first)
        return room

"""Whose gather or scatter is launched next.

A copy on the CPU is over when its launch returns: to launch whatever is asked for, when it is asked for, would have
the frames of all rooms wait behind the bulk of one.  So a launch is kept until the frames of its pass have been heard.
A pass launches one, and more only as long as all of them have taken less than `LAUNCH_S`: several on a device, whose
launches are short, one where they are the copies themselves.  What is left waits for the next pass, which comes at
once.

Of the rooms that wait the smallest goes first: a room with one chunk waits for the copy that is under way, not for
those that a large one has asked for before, and the large one has its turns nevertheless (`room_turns`).  Rooms of the
same size go round: each has one launched, and is last of them then.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Final

from kvproto.engine.event_loop import EventLoop
from kvproto.engine.room_entry import RoomEntry
from kvproto.rank.room_turns import RoomTurns, digits

#: seconds of launches after which a pass begins no other
LAUNCH_S: Final = 0.0005


class Launches:
    """Launches that wait, by room; the last thing that a pass does."""

    def __init__(self, loop: EventLoop, entries: Mapping[int, RoomEntry]) -> None:
        self.loop, self.entries = loop, entries
        self._rooms: dict[int, deque[Callable[[], None]]] = {}
        #: of the rooms that wait
        self._sizes: dict[int, int] = {}
        self.turns = RoomTurns()
        loop.bulk.append(self)

    def __len__(self) -> int:
        """Rooms that wait."""
        return len(self._rooms)

    def ask(self, room: int, launch: Callable[[], None]) -> None:
        """Launch this when it is the room's turn; what it raises ends nothing else."""
        if room not in self._rooms:
            entry = self.entries.get(room)
            self._rooms[room], self._sizes[room] = deque(), digits(entry.tokens) if entry is not None else 0
        self._rooms[room].append(launch)

    def run(self) -> bool:
        """Launch as much as a pass may; whether there was anything."""
        began, real = self.loop.clock.real(), self.loop.clock.real
        moved = bool(self._rooms)
        while self._rooms:
            self._launch(self._turn())
            self.loop.settle()
            if real() - began >= LAUNCH_S:
                break
        return moved

    def _turn(self) -> int:
        """The room whose turn it is."""
        sizes = self._sizes
        first = min(sizes, key=sizes.__getitem__)
        larger = next((room for room in sizes if sizes[room] > sizes[first]), None) if len(sizes) > 1 else None
        room = self.turns.whose(first, larger)
        self.turns.taken(before_larger=larger is not None and room is first)
        return room

    def _launch(self, room: int) -> None:
        asked, size = self._rooms.pop(room), self._sizes.pop(room)
        asked.popleft()()
        if asked:
            self._rooms[room], self._sizes[room] = asked, size

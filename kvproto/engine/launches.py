"""Whose gather or scatter is launched next.

A copy on the CPU is over when its launch returns: to launch whatever is asked for, when it is asked for, would have
the frames of all rooms wait behind the bulk of one.  So a launch is kept until the frames of its pass have been heard,
and rooms take turns: each has one launched, and is last in turn then.  A pass launches one, and more only as long as
all of them have taken less than `LAUNCH_S`: several on a device, whose launches are short, one where they are the
copies themselves.  What is left waits for the next pass, which comes at once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from kvproto.engine.event_loop import EventLoop

#: seconds of launches after which a pass begins no other
LAUNCH_S = 0.0005


class Launches:
    """Launches that wait, by room; the last thing that a pass does."""

    def __init__(self, loop: EventLoop) -> None:
        self.loop = loop
        self._rooms: dict[int, deque[Callable[[], None]]] = {}
        loop.bulk.append(self)

    def __len__(self) -> int:
        """Rooms that wait."""
        return len(self._rooms)

    def ask(self, room: int, launch: Callable[[], None]) -> None:
        """Launch this when it is the room's turn; what it raises ends nothing else."""
        self._rooms.setdefault(room, deque()).append(launch)

    def run(self) -> bool:
        """Launch as much as a pass may; whether there was anything."""
        began, real = self.loop.clock.real(), self.loop.clock.real
        moved = bool(self._rooms)
        while self._rooms:
            room = next(iter(self._rooms))
            asked = self._rooms.pop(room)
            asked.popleft()()
            if asked:
                self._rooms[room] = asked
            self.loop.settle()
            if real() - began >= LAUNCH_S:
                break
        return moved

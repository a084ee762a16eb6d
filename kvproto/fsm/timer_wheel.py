"""The timer wheel: timers of many machines, at eight bytes each.

Time is cut into slots of `QUANTUM` seconds.  A timer is a key in the list of its slot, and only the slots are in a
heap.  Timers end on slots, slightly late and never early: the shortest timer of the protocol is sixteen slots long.  No
key is removed: a restarted timer leaves the old key in place, and the rank compares the value's own `due` when a key
comes up.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Generic, TypeVar

QUANTUM = 1 / 64
INFINITY = float("inf")
K = TypeVar("K")


class TimerWheel(Generic[K]):
    """Keys by the slot in which they are due."""

    def __init__(self) -> None:
        self.slots: dict[float, list[K]] = {}
        self.order: list[float] = []

    def put(self, due: float, key: K) -> None:
        """Have `key` come up at `due`, which is a multiple of QUANTUM."""
        slot = self.slots.get(due)
        if slot is None:
            self.slots[due] = [key]
            heappush(self.order, due)
        else:
            slot.append(key)

    @property
    def next(self) -> float:
        """When the next key comes up; infinity if there is none."""
        return self.order[0] if self.order else INFINITY

    def clear(self) -> None:
        """Take out all keys."""
        self.slots.clear()
        self.order.clear()

    def take(self) -> K:
        """The next key; IndexError if there is none."""
        due = self.order[0]
        slot = self.slots[due]
        key = slot.pop()
        if not slot:
            del self.slots[due]
            heappop(self.order)
        return key

"""The wheel: timers of many things that mostly wait, at eight bytes each.

Time is cut into slots of `QUANTUM` seconds; a timer is a key in the list of its slot, and only the slots are kept
in a heap.  Timers end on slots, a little late and never early: the shortest timer of the protocol is sixteen slots
long.  Nothing is ever taken out: who starts a timer anew leaves the old key where it is, and the rank looks at the
value's own `due` when a key comes up.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Generic, TypeVar

QUANTUM = 1 / 64
INFINITY = float("inf")
K = TypeVar("K")


class Wheel(Generic[K]):
    """Keys by the slot in which they are due."""

    def __init__(self) -> None:
        self.slots: dict[int, list[K]] = {}
        self.order: list[int] = []

    def put(self, due: float, key: K) -> None:
        """Have `key` come up at `due`, which is a multiple of QUANTUM."""
        number = int(due / QUANTUM)
        slot = self.slots.get(number)
        if slot is None:
            self.slots[number] = [key]
            heappush(self.order, number)
        else:
            slot.append(key)

    @property
    def next(self) -> float:
        """When the next key comes up; infinity if there is none."""
        return self.order[0] * QUANTUM if self.order else INFINITY

    def take(self) -> K:
        """The next key; IndexError if there is none."""
        number = self.order[0]
        slot = self.slots[number]
        key = slot.pop()
        if not slot:
            del self.slots[number]
            heappop(self.order)
        return key

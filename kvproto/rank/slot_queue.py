"""Sends that wait for a staging slot, in an order in which rooms take turns.

First come, first served; but a room that has just had a turn is last, with all that it has waiting, and that keeps its
own order.  What a room has waiting is kept by room as well: a turn costs as much as the room has there, however many
other rooms wait.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator

#: room, chunk, peer
SendKey = tuple[int, int, int]


class SlotQueue:
    """The queue; iteration is in its `order`, which is to be read, and changed by these methods alone."""

    __slots__ = ("_of_room", "order")

    def __init__(self, keys: Iterable[SendKey] = ()) -> None:
        self.order: OrderedDict[SendKey, None] = OrderedDict()
        #: by room: what it has waiting, in the same order
        self._of_room: dict[int, dict[SendKey, None]] = {}
        for key in keys:
            self.put(key)

    def __iter__(self) -> Iterator[SendKey]:
        return iter(self.order)

    def __len__(self) -> int:
        return len(self.order)

    def __repr__(self) -> str:
        return f"SlotQueue({[*self.order]})"

    def put(self, key: SendKey) -> None:
        """Have this send wait; one that waits already stays where it is."""
        self.order[key] = None
        self._of_room.setdefault(key[0], {})[key] = None

    def leave(self, key: SendKey) -> None:
        """This send waits no more, if it did."""
        if key in self.order:
            del self.order[key]
            self._forget(key)

    def take(self) -> SendKey:
        """The first, which waits no more; KeyError if nobody waits."""
        key, _ = self.order.popitem(last=False)
        self._forget(key)
        return key

    def put_last(self, room: int) -> None:
        """This room has had a turn: what it has waiting goes behind all others."""
        for key in self._of_room.get(room, ()):
            self.order.move_to_end(key)

    def _forget(self, key: SendKey) -> None:
        mine = self._of_room[key[0]]
        del mine[key]
        if not mine:
            del self._of_room[key[0]]

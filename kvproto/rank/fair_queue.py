"""Fair queue: sends that wait for a slot or a permit; decode ranks take turns, and the rooms of each.

What is free goes to the decode rank that has waited longest for its turn.  Among the sends to one decode rank it is
first come, first served, but a room that has just had a turn is last, with all its waiting sends, which keep their own
order.  So a small room is next, however many sends of a large one were there before it: there is no starvation.  A turn
costs as much as the room has waiting, however many other rooms wait.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator

#: room, chunk, peer
SendKey = tuple[int, int, int]


class FairQueue:
    """Queues sends; iterates over decode ranks in the order of their turns, and over the sends of each.

    `link` names the decode rank of a send by its link; by default all sends are one decode rank's.
    """

    __slots__ = ("_link_of", "link", "turns")

    def __init__(self, keys: Iterable[SendKey] = (), link: Callable[[SendKey], int] = lambda _key: 0) -> None:
        self.link = link
        #: by link, in the order of their turns
        self.turns: OrderedDict[int, SendOrder] = OrderedDict()
        #: by send: the link under which it waits, whatever becomes of the link meanwhile
        self._link_of: dict[SendKey, int] = {}
        for key in keys:
            self.put(key)

    def __iter__(self) -> Iterator[SendKey]:
        return (key for waiting in self.turns.values() for key in waiting.order)

    def __len__(self) -> int:
        return len(self._link_of)

    def __repr__(self) -> str:
        return f"FairQueue({[*self]})"

    def put(self, key: SendKey) -> None:
        """Let this send wait; one that waits already keeps its place."""
        if key not in self._link_of:
            link = self._link_of[key] = self.link(key)
            self.turns.setdefault(link, SendOrder()).put(key)

    def leave(self, key: SendKey) -> None:
        link = self._link_of.pop(key, None)
        if link is not None:
            self.turns[link].leave(key)
            self._tidy(link)

    def take(self, barred: int | None = None) -> SendKey | None:
        """Remove and return the next send; None: no send waits, except for the link `barred`."""
        link = next((link for link in self.turns if link != barred), None)
        if link is None:
            return None
        self.turns.move_to_end(link)
        key = self.turns[link].take()
        del self._link_of[key]
        self._tidy(link)
        return key

    def put_last(self, key: SendKey) -> None:
        """The room of this send has had a turn: its sends to the same decode rank go behind all others."""
        waiting = self.turns.get(self.link(key))
        if waiting is not None:
            waiting.put_last(key[0])

    def _tidy(self, link: int) -> None:
        if not self.turns[link].order:
            del self.turns[link]


class SendOrder:
    """The sends to one decode rank in an order in which rooms take turns."""

    __slots__ = ("_of_room", "order")

    def __init__(self) -> None:
        self.order: OrderedDict[SendKey, None] = OrderedDict()
        #: by room: its waiting sends, in the same order
        self._of_room: dict[int, dict[SendKey, None]] = {}

    def put(self, key: SendKey) -> None:
        self.order[key] = None
        self._of_room.setdefault(key[0], {})[key] = None

    def leave(self, key: SendKey) -> None:
        """Remove this send; KeyError if it does not wait."""
        del self.order[key]
        self._forget(key)

    def take(self) -> SendKey:
        """Remove and return the first; KeyError if none waits."""
        key, _ = self.order.popitem(last=False)
        self._forget(key)
        return key

    def put_last(self, room: int) -> None:
        """Put all of this room's sends behind all others."""
        for key in self._of_room.get(room, ()):
            self.order.move_to_end(key)

    def _forget(self, key: SendKey) -> None:
        mine = self._of_room[key[0]]
        del mine[key]
        if not mine:
            del self._of_room[key[0]]

"""RoomLives: numbers the requests that have the same bootstrap_room, on one rank.

SGLang samples one prompt several times (`n`) by several requests with one `bootstrap_room`: first one without an
answer, which fills the prefix caches, then one for each sample, all at once.  Both instances have as many, in the same
order, of the same prompt.  So the first is the room's first life on both sides, and the next one is another
(`Room.gen`).

A number is forgotten by count, not by time: the endpoint keeps tombstones by count, too, and refuses a room that it
still has one of.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

from kvproto.room import Room

#: numbers that are known: many times the rooms that an endpoint keeps (`Settings.tombstones`, 4,096)
KEPT = 1 << 16


class RoomLives:
    """The numbers of one rank's requests; the engine's thread."""

    def __init__(self, held: Iterable[Room] = ()) -> None:
        """`held`: the rooms that are not released, as they are at each call; their numbers are not forgotten."""
        self._held = held
        #: requests so far, by number; the number that came last stands last
        self._known: OrderedDict[int, int] = OrderedDict()

    def next(self, number: int) -> int:
        """Return how many requests had this number before."""
        before = self._known.pop(number, 0)
        self._known[number] = before + 1
        if len(self._known) > KEPT:
            self._forget()
        return before

    def _forget(self) -> None:
        """Forget the number that came longest ago, of those without an open room."""
        held = {room.id for room in self._held}
        for number in self._known:
            if number not in held:
                del self._known[number]
                return

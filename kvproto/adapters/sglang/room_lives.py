"""RoomLives: numbers the requests that have the same bootstrap_room, on one rank.

SGLang samples one prompt several times (`n`) by several requests with one `bootstrap_room`: first one without an
answer, which fills the prefix caches, then one for each sample, all at once.  Both instances have as many, in the same
order, of the same prompt.  So the first is the room's first life on both sides, and the next one is another
(`Room.gen`).  Numbers are forgotten `KEPT_S` after their last request, on both sides at about the same time.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable

#: seconds for which a number is known after its last request
KEPT_S = 300.0


class RoomLives:
    """The numbers of one rank's requests; the engine's thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        #: requests so far and when the last one came, by number; the one that came last stands last
        self._known: OrderedDict[int, tuple[int, float]] = OrderedDict()

    def next(self, number: int) -> int:
        """Return how many requests had this number before."""
        now = self._clock()
        while self._known and now - next(iter(self._known.values()))[1] >= KEPT_S:
            self._known.popitem(last=False)
        before, _ = self._known.pop(number, (0, now))
        self._known[number] = before + 1, now
        return before

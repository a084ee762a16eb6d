"""Grant ages: the age of the oldest region of a ring.

Nothing is recorded when a region is granted.  Ids count upwards, so the next id, sampled once a second, dates every
region to the second.
"""

from __future__ import annotations

from collections import deque

from kvproto.protocol.ring import Ring


class GrantAges:
    """Samples one ring; the ages of its regions are right to a second, and never too high."""

    def __init__(self, ring: Ring) -> None:
        self.ring = ring
        #: (the next id, when): as many as there were seconds in which the oldest region was there
        self._looks: deque[tuple[int, float]] = deque()

    def look(self, now: float) -> None:
        looks = self._looks
        if not looks or looks[-1][0] != self.ring.next_grant:
            looks.append((self.ring.next_grant, now))
        while looks and looks[0][0] <= self._oldest():
            looks.popleft()

    def oldest(self, now: float) -> float:
        """Seconds since the oldest region was given; 0: there is none, or it was given since the last look."""
        seen = next((when for next_id, when in self._looks if next_id > self._oldest()), now)
        return max(0.0, now - seen) if self.ring.live else 0.0

    def _oldest(self) -> int:
        return next(iter(self.ring.live), self.ring.next_grant)

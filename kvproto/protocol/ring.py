"""The ring: regions of the decode rank's staging memory, promised early and freed in any order.

A region is contiguous and is given at the head.  One that does not fit before the end starts the next *round*
at offset 0 (the gap at the end is waste); one that is larger than the ring is refused.  The ring may promise
more than it has, because a promise made early hides a round trip: regions of successive rounds overlap, and the
*watermark*, the (round, offset) of the oldest region that is not freed, says from when on a promise may be used:

    usable(region)  =  region.round = 0
                    or region.round - 1 < mark.round
                    or region.round - 1 = mark.round and region.end <= mark.tail

that is, everything of the round before it that lies below its end is freed, and all of the rounds before that.
Regions become usable in the order in which they were given.

A ring that becomes empty starts a new round at 0 and says so.  Without this rule the mark would stay at the
last region that was freed, and the next region that wraps would wait for ever.

How far promises may run ahead is bounded by `ahead` rounds; what would go beyond waits for space.
"""

from __future__ import annotations

import msgspec

Mark = tuple[int, int]


def usable(round_: int, end: int, mark: Mark) -> bool:
    """Tell whether the watermark `mark` (round, tail) permits writes to a region of `round_` up to `end`."""
    return round_ == 0 or round_ - 1 < mark[0] or (round_ - 1 == mark[0] and end <= mark[1])


class RingRegion(msgspec.Struct, frozen=True, gc=False):
    """A part of the ring, [offset, end) in bytes; ids count from 1 and are never used again."""

    grant: int
    round: int
    offset: int
    end: int


class Ring:
    """Regions in the order in which they were given; O(1) amortised for all that it does."""

    def __init__(self, size: int, *, ahead: int = 2) -> None:
        """`size` in bytes; `ahead`: how many rounds promises may run ahead of the watermark."""
        self.size = size
        self.ahead = ahead
        self.round = 0
        self.head = 0
        self.next_grant = 1
        self.live: dict[int, RingRegion] = {}
        self.freed: set[int] = set()
        self.blocked: dict[int, RingRegion] = {}

    @property
    def mark(self) -> Mark:
        for region in self.live.values():
            return region.round, region.offset
        return self.round, self.head

    def reserve(self, size: int) -> RingRegion | None:
        """The next region of `size` bytes; None: it would run too far ahead, try again after a free.

        Raises ValueError for what can never fit.
        """
        if not 0 < size <= self.size:
            raise ValueError(f"a region of {size} bytes does not fit a ring of {self.size}: use the slice route")
        round_, offset = self.round, self.head
        if offset + size > self.size:
            round_, offset = round_ + 1, 0
        mark = self.mark
        if round_ > mark[0] + self.ahead:
            return None
        region = RingRegion(self.next_grant, round_, offset, offset + size)
        self.next_grant += 1
        self.round, self.head = round_, region.end
        self.live[region.grant] = region
        if not usable(round_, region.end, self.mark):
            self.blocked[region.grant] = region
        return region

    def free(self, grant: int) -> list[int]:
        """Give a region back; returns the ids of the regions that have become usable by it."""
        if grant not in self.live or grant in self.freed:
            raise KeyError(f"region {grant} is not live")
        self.freed.add(grant)
        while self.live and (oldest := next(iter(self.live))) in self.freed:
            del self.live[oldest]
            self.freed.remove(oldest)
        if not self.live and (self.round, self.head) != (0, 0):
            self.round, self.head = self.round + 1, 0
        return self._unblock()

    def _unblock(self) -> list[int]:
        mark = self.mark
        ready: list[int] = []
        for region in self.blocked.values():
            if not usable(region.round, region.end, mark):
                break
            ready.append(region.grant)
        for grant in ready:
            del self.blocked[grant]
        return [grant for grant in ready if grant in self.live and grant not in self.freed]

    @property
    def used(self) -> int:
        """Bytes of the regions that are not freed (promises included: it may exceed `size`)."""
        return sum(r.end - r.offset for g, r in self.live.items() if g not in self.freed)

"""Durations: histograms of latencies, at the cost of a look-up and two additions each time."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Self

#: upper bounds in seconds: of a pass of the loop, and of what happens to a room
PASS_BOUNDS = (1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
ROOM_BOUNDS = (1e-3, 3e-3, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0)


class Durations:
    """A histogram of seconds; the last count is of what was longer than every bound."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        """`bounds`: upper ones, ascending."""
        self.bounds, self.counts, self.total = tuple(bounds), [0] * (len(bounds) + 1), 0.0

    def note(self, seconds: float) -> None:
        self.counts[bisect_left(self.bounds, seconds)] += 1
        self.total += seconds

    def copy(self) -> Self:
        kept = type(self)(self.bounds)
        kept.counts, kept.total = list(self.counts), self.total
        return kept

    def buckets(self) -> list[tuple[str, float]]:
        """(upper bound, how many were not longer), as Prometheus wants it."""
        found, below = [], 0
        for bound, count in zip((*map(str, self.bounds), "+Inf"), self.counts, strict=True):
            below += count
            found.append((bound, float(below)))
        return found

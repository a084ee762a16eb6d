"""Timing: tables name their timers, and the owner of a rank gives each name its numbers."""

from __future__ import annotations

import math
from typing import Protocol

import msgspec

from kvproto.fsm.errors import ArgumentError


class Timer(msgspec.Struct, frozen=True, gc=False):
    """A period in seconds, and how often the timer may end before the protocol gives up.

    If the table counts `tries`, each period is twice the one before, up to `longest` seconds (0: it does not grow).
    """

    period: float
    tries: int = 1
    longest: float = 0.0

    def __post_init__(self) -> None:
        """ArgumentError: the period is not a time, or the timer could never end."""
        if not _is_number(self.period) or not 0.0 < self.period < math.inf:
            raise ArgumentError(f"a timer's period is {self.period!r}: it is in seconds, finite, and more than 0")
        if type(self.tries) is not int or self.tries < 1:
            raise ArgumentError(f"a timer's tries are {self.tries!r}: a whole number, at least 1")
        if not _is_number(self.longest) or not 0.0 <= self.longest < math.inf:
            raise ArgumentError(
                f"a timer's longest period is {self.longest!r}: it is in seconds, finite, and not under 0"
            )

    def after(self, times: int) -> float:
        """The period that follows when it has ended so often, in seconds."""
        return max(self.period, min(self.period * 2.0 ** min(times, 64), self.longest))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


class Timers(msgspec.Struct, frozen=True):
    """Timers as a struct: a subclass has a field for each, with its numbers as the default."""

    def named(self, name: str) -> Timer:
        """The timer of this name; AttributeError: there is none."""
        timer: Timer = getattr(self, name)
        return timer


class NamedTimers(Protocol):
    """Numbers for the timers of a table; two objects are alike if they are equal."""

    def __hash__(self) -> int: ...

    def named(self, name: str) -> Timer:
        """The timer of this name; AttributeError: there is none."""

"""Timers: tables name them, and whoever runs a table says what each name stands for."""

from __future__ import annotations

from typing import Protocol

import msgspec


class Timer(msgspec.Struct, frozen=True, gc=False):
    """`period` seconds, at most `tries` times in all."""

    period: float
    tries: int = 1


class NamedTimers(Protocol):
    """What gives the timers of a table their numbers."""

    def named(self, name: str) -> Timer:
        """The timer of this name; AttributeError: there is none."""

"""Stubborn transport: refuses one call, counted over all that a constructor asks of it."""

from __future__ import annotations

from typing import Any

from kvproto.io.transports.base import MemoryRegion, UsageError
from kvproto.io.transports.memory import MemoryTransport


class StubbornTransport(MemoryTransport):
    """`refuses`: the number of the call."""

    refuses, asked = 0, 0

    def _ask(self) -> None:
        self.asked += 1
        if self.asked == self.refuses:
            raise UsageError("planted")

    def register(self, *args: Any, **named: Any) -> MemoryRegion:
        self._ask()
        return super().register(*args, **named)

    def endpoint(self) -> bytes:
        self._ask()
        return super().endpoint()

    def lifts(self, region: MemoryRegion) -> bool:
        self._ask()
        return super().lifts(region)

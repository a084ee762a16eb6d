"""Work that was begun, as far as whoever began it may follow it: a kernel's, to kernels and to transports."""

from __future__ import annotations

from typing import Protocol


class Ticket(Protocol):
    """One launch, or several of one stream."""

    def done(self) -> bool:
        """Whether all of its reads and writes are over. Never blocks."""
        ...

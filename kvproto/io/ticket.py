"""A ticket: work in flight that its caller can ask about, of kernels and of transports."""

from __future__ import annotations

from typing import Protocol


class Ticket(Protocol):
    """One launch, or several of one stream."""

    def done(self) -> bool:
        """Whether all of its reads and writes are over. Never blocks."""
        ...

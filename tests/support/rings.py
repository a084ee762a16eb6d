"""Rings with a fault, for those who have to find it."""

from __future__ import annotations

from kvproto.protocol.ring import Ring


class Stale(Ring):
    """A ring that keeps its place when it becomes empty, and with it a watermark that nobody will raise."""

    def free(self, grant: int) -> list[int]:
        round_, head = self.round, self.head
        told = super().free(grant)
        if not self.live:
            self.round, self.head = round_, head
        return told

"""Kernels: slow or failing gathers and scatters, by the trouble of the room that owns the first page.

A slow copy is made when its time is over, from the memory as it is then: a slot, a region or pages that were given away
meanwhile show in the bytes. One that fails copies nothing.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import torch

from kvproto.io.kernels.base import Done, Pool, StagedPart, Ticket
from kvproto.lab.torture.plan import TortureRoom
from kvproto.verify.testing.deferred_kernels import Copy, DeferredKernels

FAILING_S = 0.01


class TroubledKernels(DeferredKernels):
    """The CPU's kernels; `room_at`: whose page this is."""

    def __init__(self, room_at: Callable[[int], TortureRoom]) -> None:
        super().__init__()
        self._room_at = room_at
        self._going: deque[tuple[float, Copy, bool]] = deque()
        self._seconds, self._fails = 0.0, False
        #: copies that were made slow, or fail
        self.hit = 0

    def tick(self) -> None:
        now = time.monotonic()
        for entry in [entry for entry in self._going if entry[0] <= now]:
            self._going.remove(entry)
            self.finish(self.pending.index(entry[1]), fails=entry[2])

    def gather_parts(
        self, pool: Pool, table: torch.Tensor, first: int, tokens: int, parts: Sequence[StagedPart],
        *, stream: Any = None, after: Any = None, digest: torch.Tensor | None = None,
    ) -> Ticket:  # fmt: skip
        """As the contract has it; in trouble, if the room is."""
        self._look_up("gather", table)
        return super().gather_parts(pool, table, first, tokens, parts, stream=stream, after=after, digest=digest)

    def scatter(
        self, pool: Pool, table: torch.Tensor, first: int, tokens: int, parts: Sequence[StagedPart],
        *, stream: Any = None, after: Any = None, digest: torch.Tensor | None = None,
    ) -> Ticket:  # fmt: skip
        """As the contract has it; in trouble, if the room is."""
        self._look_up("scatter", table)
        return super().scatter(pool, table, first, tokens, parts, stream=stream, after=after, digest=digest)

    def _look_up(self, what: str, table: torch.Tensor) -> None:
        room = self._room_at(int(table[0]))
        self._fails = room.trouble == f"{what}-fails"
        self._seconds = room.slow if room.trouble == f"{what}-slow" else FAILING_S * self._fails

    def _begin(self, pool: Pool, copy: Callable[[], object]) -> Ticket:
        if not self._seconds:
            copy()
            return Done()
        ticket = super()._begin(pool, copy)
        assert isinstance(ticket, Copy)
        self.hit += 1
        self._going.append((time.monotonic() + self._seconds, ticket, self._fails))
        return ticket

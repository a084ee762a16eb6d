"""Deferred kernels: kernels that are over when somebody says so.

A copy on the CPU is over when the call returns, which hides every fault of what happens meanwhile.  Here a call only
notes what is to be done; the copy is made when it is `finish`ed, from the memory as it is then: a staging region that
was given away too early, or pages that were, show in the bytes.  A copy can also be made to fail.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from kvproto.io.kernels.base import Done, Kernels, Pool, Side, StagedPart, Ticket
from kvproto.io.kernels.torch import TorchKernels
from kvproto.layout.plan import Share


class Copy:
    """One copy under way; the ticket of its caller."""

    def __init__(self, copy: Callable[[], object], pool: Pool) -> None:
        """`pool`: whose it is."""
        self.copy, self.pool = copy, pool
        self.over = self.fails = False

    def done(self) -> bool:
        """Whether it is over; RuntimeError if it has failed."""
        if self.over and self.fails:
            raise RuntimeError("the copy failed, as the schedule wanted")
        return self.over


class DeferredKernels(Kernels):
    """The CPU's kernels with a queue in front; `late=False`: without."""

    def __init__(self, *, late: bool = True) -> None:
        self.pending: list[Copy] = []
        self._late, self._inner = late, TorchKernels()

    def finish(self, at: int = 0, *, fails: bool = False) -> None:
        """Make one of the pending copies, counted from the oldest; or have it fail, with nothing copied."""
        copy = self.pending.pop(at % len(self.pending))
        if not fails:
            copy.copy()
        copy.over, copy.fails = True, fails

    def forget(self, pool: Pool) -> None:
        self.pending = [copy for copy in self.pending if copy.pool is not pool]

    def _begin(self, pool: Pool, copy: Callable[[], object]) -> Ticket:
        if not self._late:
            copy()
            return Done()
        self.pending.append(Copy(copy, pool))
        return self.pending[-1]

    def prepare(self, pool: Pool, side: Side, shares: Sequence[Share], *, digests: bool = False) -> None:
        self._inner.prepare(pool, side, shares, digests=digests)

    def gather_parts(
        self, pool: Pool, table: torch.Tensor, first: int, tokens: int, parts: Sequence[StagedPart],
        *, stream: Any = None, after: Any = None, digest: torch.Tensor | None = None,
    ) -> Ticket:  # fmt: skip
        run = self._inner.gather_parts
        return self._begin(pool, lambda: run(
            pool, table, first, tokens, parts, stream=stream, after=after, digest=digest
        ))  # fmt: skip

    def scatter(
        self, pool: Pool, table: torch.Tensor, first: int, tokens: int, parts: Sequence[StagedPart],
        *, stream: Any = None, after: Any = None, digest: torch.Tensor | None = None,
    ) -> Ticket:  # fmt: skip
        run = self._inner.scatter
        return self._begin(pool, lambda: run(
            pool, table, first, tokens, parts, stream=stream, after=after, digest=digest
        ))  # fmt: skip

"""Gather and scatter in plain torch indexing: the reference for the others, and the CPU's own.

Each layer is one advanced-index read or write over (page, slot in page), on the pool's tensors viewed as the widest
integers that every stride, offset and buffer allows, so that fp8 or bf16 elements move eight bytes at a time. On a
CPU the work is over when a call returns, and page numbers are checked; on a device it is queued on the current
stream, an event tells when it is over, and index tensors are allocated on the way: correct there, not fast.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import gcd
from typing import Any

import torch

from kvproto.io.kernels.base import Done, Events, Kernels, Pool, Side, StagedPart, Ticket, check_call, need, on_stream
from kvproto.io.kernels.digest import digest_rows
from kvproto.io.kernels.pool import Slice
from kvproto.layout.plan import Share

WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class TorchKernels(Kernels):
    """The reference implementation; see `Kernels`."""

    def __init__(self) -> None:
        self._events = Events()

    def prepare(self, pool: Pool, side: Side, shares: Sequence[Share], *, digests: bool = False) -> None:
        del digests  # made or not, it is the same code
        for share in shares:
            pool.cut(side, (share,))
        pool.cut(side, tuple(shares))

    def gather_parts(
        self, pool: Pool, table: torch.Tensor, first: int, tokens: int, parts: Sequence[StagedPart],
        *, stream: Any = None, after: Any = None, digest: torch.Tensor | None = None,
    ) -> Ticket:  # fmt: skip
        return self._move("gather", pool, table, first, tokens, parts, stream, after, digest)

    def scatter(
        self, pool: Pool, table: torch.Tensor, first: int, tokens: int, parts: Sequence[StagedPart],
        *, stream: Any = None, after: Any = None, digest: torch.Tensor | None = None,
    ) -> Ticket:  # fmt: skip
        return self._move("scatter", pool, table, first, tokens, parts, stream, after, digest)

    def _move(
        self, side: Side, pool: Pool, table: torch.Tensor, first: int, tokens: int, parts: Sequence[StagedPart],
        stream: Any, after: Any, digest: torch.Tensor | None,
    ) -> Ticket:  # fmt: skip
        cut = pool.cut(side, tuple(share for share, _ in parts))
        buffers = [buffer for _, buffer in parts]
        check_call(pool, cut, table, first, tokens, buffers, digest)
        with on_stream(stream):
            if after is not None:
                after.wait()
            pages, slots = _places(pool, table, first, tokens)
            entry = 0
            for part, buffer in zip(cut.slices, buffers, strict=True):
                for layer, (paged, staged) in enumerate(_layers(pool, part, buffer, tokens)):
                    if side == "gather":
                        staged.copy_(paged[pages, slots])
                    else:
                        paged[pages, slots] = staged.to(paged.device, non_blocking=True)
                    if digest is not None:
                        at = entry + layer % part.layers * part.heads
                        rows = staged.to(digest.device).view(torch.uint8)
                        digest[0, at : at + part.heads] += digest_rows(rows, first, layer // part.layers)
                entry += part.layers * part.heads
            return Done() if pool.device.type != "cuda" else self._events.ticket(torch.cuda.current_stream())


def _places(pool: Pool, table: torch.Tensor, first: int, tokens: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The page and the slot in it of each token, checked where that needs no waiting."""
    size = pool.page_size
    token = torch.arange(first, first + tokens, device=table.device)
    pages = table[token // size]
    if table.device.type == "cpu":
        low, high = int(pages.min()), int(pages.max())
        need(low >= 0 and high < pool.pages, f"the page table names pages {low}..{high} of {pool.pages}")
    return pages, token % size


def _layers(pool: Pool, part: Slice, buffer: torch.Tensor, tokens: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Of each layer's K, then of each layer's V: the pool's heads and the staged rows, as words."""
    at = 0
    for tensors, grain, width in zip(pool.kinds, pool.grains, part.widths, strict=True):
        size = gcd(8, grain.align)
        for tensor in tensors[part.layer : part.layer + part.layers]:
            staged = buffer[at : at + tokens * width]
            at += tokens * width
            word = gcd(size, staged.storage_offset(), tensor.storage_offset() * pool.itemsize)
            heads = tensor.permute(pool.axes)[:, :, part.head : part.head + part.heads]
            yield _as_words(heads, word), _as_words(staged, word).view(tokens, part.heads, grain.row // word)


def _as_words(tensor: torch.Tensor, word: int) -> torch.Tensor:
    size = tensor.element_size()
    return (tensor if size <= word else tensor.view(torch.uint8)).view(WORDS[word])

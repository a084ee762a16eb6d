"""Gather and scatter in plain torch indexing: the reference for the others, and the CPU's own.

Each layer is one advanced-index read or write over (page, slot in page), on the pool's tensors viewed as the widest
integers that every stride, offset and buffer allows, so that fp8 or bf16 elements move eight bytes at a time. On a
CPU the work is over when a call returns, and page numbers are checked; on a device it is queued on the current
stream, an event tells when it is over, and index tensors are allocated on the way: correct there, not fast.

A small part costs the calls of torch, not the bytes. So what is the same from call to call is kept: the views of the
pool's heads with their cut, and on a CPU where in its pages a run of tokens lies.
"""

from __future__ import annotations

import ctypes
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import lru_cache
from math import gcd
from typing import Any

import torch

from kvproto.io.kernels.base import Done, Events, Kernels, Pool, Side, StagedPart, Ticket, check_call, on_stream
from kvproto.io.kernels.crossing import Crossing, Launch, Most, PagesCopy, all_of_them
from kvproto.io.kernels.digest import digest_rows
from kvproto.io.kernels.pool import KernelError, Slice
from kvproto.layout.plan import Share

#: the pool's heads as words, by (kind, layer, bytes of a word)
HeadViews = dict[tuple[int, int, int], torch.Tensor]
WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class TorchKernels(Kernels):
    """The reference implementation; see `Kernels`."""

    def __init__(self) -> None:
        #: by device
        self._events: defaultdict[int, Events] = defaultdict(Events)

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

    def cross(self, pool: Pool, crossings: Sequence[Crossing], _most: Most = all_of_them) -> PagesCopy | None:
        return HostCopy(crossings) if pool.device.type == "cpu" else None

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
            slots_of_room = pool.room_slots
            several = pool.stride if slots_of_room > 1 else 0
            places = [_places(pool, table[several * at :], first, tokens) for at in range(slots_of_room)]
            entry = 0
            for index, (part, buffer) in enumerate(zip(cut.slices, buffers, strict=True)):
                views = cut.plans.setdefault(("heads", index), {})
                for kind, layer, paged, staged in _layers(pool, part, buffer, tokens, views):
                    first_layer = part.kinds[kind].layer
                    pages, slots = places[pool.slot_of[first_layer + layer] if pool.slot_of else 0]
                    if side == "gather":
                        staged.copy_(paged[pages, slots])
                    else:
                        paged[pages, slots] = staged.to(paged.device, non_blocking=True)
                    if digest is not None:
                        units = part.kinds[kind].units
                        at = entry + part.entries[kind] + layer * units
                        rows = staged.to(digest.device).view(torch.uint8)
                        digest[0, at : at + units] += digest_rows(rows, first, kind if pool.of is None else 0)
                entry += part.digests
            if pool.device.type != "cuda":
                return Done()
            return self._events[pool.gpu].ticket(torch.cuda.current_stream(pool.device))  # the work is queued there


def _places(pool: Pool, table: torch.Tensor, first: int, tokens: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The page and the slot in it of each token, checked where that needs no waiting."""
    size = pool.page_size
    if table.device.type != "cpu":
        token = torch.arange(first, first + tokens, device=table.device)
        return table[token // size], token % size
    near = table[first // size : -(-(first + tokens) // size)]
    low, high = map(int, near.aminmax())
    if low < 0 or high >= pool.pages:
        raise KernelError(f"the page table names pages {low}..{high} of {pool.pages}")
    page, slot = _within(first % size, tokens, size)
    return near[page], slot


@lru_cache(maxsize=32)
def _within(start: int, tokens: int, size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return for each token from `start` on: its page, counted from the first, and its slot there."""
    token = torch.arange(start, start + tokens)
    return token // size, token % size


def _layers(
    pool: Pool, part: Slice, buffer: torch.Tensor, tokens: int, views: HeadViews
) -> Iterator[tuple[int, int, torch.Tensor, torch.Tensor]]:  # fmt: skip
    """Yield kind, layer of the slice, the pool's heads (cached in `views`) and the staged rows, as words."""
    at, offset = 0, buffer.storage_offset()
    for kind, (tensors, grain, mine) in enumerate(zip(pool.kinds, pool.grains, part.kinds, strict=True)):
        size, step = gcd(8, grain.align), tokens * mine.width
        for layer in range(mine.layer, mine.layer + mine.layers):
            tensor = tensors[layer]
            word = gcd(size, offset + at, tensor.storage_offset() * pool.itemsize)
            heads = views.get((kind, layer, word))
            if heads is None:
                cut = tensor.permute(pool.axes)[:, :, mine.unit : mine.unit + mine.units]
                heads = views[kind, layer, word] = cut.view(WORDS[word])
            staged = buffer[at : at + step].view(WORDS[word]).view(tokens, mine.units, grain.row // word)
            at += step
            yield kind, layer - mine.layer, heads, staged


class HostCopy:
    """The copy where both pools are memory of this process."""

    def __init__(self, crossings: Sequence[Crossing]) -> None:
        self._crossings = tuple(crossings)

    def bind(self, table: torch.Tensor, theirs: torch.Tensor, first: int, tokens: int) -> Launch:
        there = theirs.numpy().view("<u4").tolist()

        def launch(_stream: Any, _after: Any) -> Ticket:
            ours = table.tolist()  # not in `bind`: pages may come, or be replaced, before the launch
            for crossing in self._crossings:
                for source, target, size in _pieces(crossing, ours, there, first, tokens):
                    for near, far in crossing.planes:
                        ctypes.memmove(far + target, near + source, size)
            return Done()

        return launch


def _pieces(
    crossing: Crossing, ours: Sequence[int], there: Sequence[int], first: int, tokens: int
) -> Iterator[tuple[int, int, int]]:
    """(offset here, offset there, bytes) in a plane."""
    near, far, begin = crossing.ours, crossing.theirs, first // crossing.theirs.page_size
    heads, size = (1, crossing.heads * crossing.row) if crossing.dense else (crossing.heads, crossing.row)
    for token in range(first, first + tokens):
        (page, slot), (to, there_slot) = divmod(token, near.page_size), divmod(token, far.page_size)
        source = ours[page] * near.page + slot * near.token
        target = there[to - begin] * far.page + there_slot * far.token
        yield from ((source + head * near.head, target + head * far.head, size) for head in range(heads))

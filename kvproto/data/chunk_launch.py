"""Chunk launch: makes the gather or scatter of a chunk, of tokens or of what travels at the end.

Tokens of all caches lie in the room's one page table, so a chunk of them is one call of the kernels.  What travels at
the end has a pool, and a table, for each cache.  So a chunk of it is a call a cache, and each moves its cache's block
of the staged parts (`kvproto.layout.cut.block_offsets`).  A joint chunk has both.  The kernels make one launch of the
calls of a chunk if they can; otherwise their launches follow one another on the rank's stream.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import torch

from kvproto.data.room_entry import RoomEntry
from kvproto.data.staging_buffers import Parts
from kvproto.io.kernels.base import Kernels, Launch, Pool, Side, StagedPart, Ticket
from kvproto.io.kernels.pool import KernelError
from kvproto.layout.cut import Cut, Part, block_offsets, in_block
from kvproto.layout.plan import Share

#: a part, and its first byte in the staging buffer
Staged = tuple[Part, int]
#: a share, the first byte of its block in the staging buffer, and how many there are
Placed = tuple[Share, int, int]
#: where kernels find rows: their pool, a table of pages, the first row in it and how many there are
Rows = tuple[Pool, torch.Tensor, int, int]


class ChunkLaunch:
    """Queues the launches of a chunk, one after the other on a stream, as one.

    A launch may use other streams besides, and then names them (`asides`).
    """

    __slots__ = ("launches",)

    def __init__(self, launches: Sequence[Launch]) -> None:
        self.launches = launches

    def __call__(self, stream: Any, after: Any) -> Ticket:
        """Queue them; the ticket is that of all."""
        first, *others = self.launches
        tickets = [first(stream, after)]
        try:
            tickets += [launch(stream, after) for launch in others]
        except Exception:
            # To the caller nothing was launched, and a launch before this one may be under way.
            for each in (stream, *(aside for launch in self.launches for aside in getattr(launch, "asides", ()))):
                if each is not None:
                    each.synchronize()
            raise
        return Tickets(tickets)


class Tickets:
    """Those of several launches as one."""

    __slots__ = ("_fault", "_left")

    def __init__(self, tickets: list[Ticket]) -> None:
        self._left = tickets
        self._fault: Exception | None = None

    def done(self) -> bool:
        while self._left:
            try:
                if not self._left[-1].done():
                    return False
            except Exception as fault:  # noqa: BLE001  # raised below, when nothing of the chunk is under way
                self._fault = fault
            self._left.pop()
        if self._fault is not None:
            raise self._fault
        return True


def bind_chunk(
    kernels: Kernels, side: Side, pool: Pool, entry: RoomEntry, cut: Cut, parts: Sequence[Staged], staged: Parts
) -> Launch:  # fmt: skip
    """Return the launch that moves these parts of the chunk between the pool and the staging buffer."""
    if not cut.state:
        mine = [(part.share, staged[first, part.nbytes]) for part, first in parts]
        return kernels.bind(side, pool, entry.table, cut.first, cut.tokens, mine)
    tokens, ends = list[Placed](), list[Placed]()
    for part, first in parts:
        for block in part.blocks(cut):
            (ends if block.at_end else tokens).append((block.share, first + block.offset, block.nbytes))
    found = list[Launch]()
    if tokens:
        found.append(kernels.bind(side, pool, entry.table, cut.first, cut.tokens, _cut(tokens, staged)))
    if ends and pool.ends[0].block == (0, len(ends[0][0].pieces)):  # one cache alone: its block is the whole one
        found.append(kernels.bind(side, *end_rows(pool, entry, 0), _cut(ends, staged)))
    elif ends:
        blocks = enumerate(_of_ends(pool, entry, ends, staged))
        found += [kernels.bind(side, *end_rows(pool, entry, at), mine) for at, mine in blocks if mine]
    return found[0] if len(found) == 1 else kernels.join(found) or ChunkLaunch(found)


def end_rows(pool: Pool, entry: RoomEntry, at: int) -> Rows:
    """Return where the room has its rows of the pool's cache of this number that travels at the end."""
    if not entry.ends or not entry.ends[at]:  # a launch is being prepared before the engine has given it
        raise KernelError("the room has no slot and no window yet")
    end, table = pool.ends[at], entry.end_tables[at]
    if table is None:
        return end, end.slots, entry.ends[at][0], 1  # in a table of all slots each is at its own number
    return end, table, end.first_row(entry.tokens), end.end.last_rows(entry.tokens)


def _cut(parts: Sequence[Placed], staged: Parts) -> list[StagedPart]:
    return [(share, staged[first, nbytes]) for share, first, nbytes in parts]


def _of_ends(
    pool: Pool, entry: RoomEntry, parts: Sequence[Placed], staged: Parts
) -> Iterator[list[StagedPart]]:  # fmt: skip
    """Yield for each cache that travels at the end its blocks of these parts."""
    found: list[list[Placed]] = [[] for _ in pool.ends]
    rows = [end.end.last_rows(entry.tokens) for end in pool.ends]
    for share, first, _ in parts:
        mine = [in_block(share, *end.block) for end in pool.ends]
        # A cache that this rank does not hold has no pieces in the share, and so no block in the part.
        sizes = [end.part_bytes(each, count) for end, each, count in zip(pool.ends, mine, rows, strict=True)]
        offsets = block_offsets(sizes)
        for blocks, each, (begin, _), size in zip(found, mine, pairwise(offsets), sizes, strict=True):
            if size:
                blocks.append((each, first + begin, size))
    return (_cut(blocks, staged) for blocks in found)

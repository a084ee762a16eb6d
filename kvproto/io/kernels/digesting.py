"""Kernels that keep digests of what they moved, for an engine that wants to compare.

An endpoint made with `digests=True` has its kernels wrapped in these; nothing else changes. Every gather and scatter
makes the digests of its heads on its way (`kernels.digest`), and they stay on the device until they are asked for:
`endpoint.digests(room)`, after the room has finished and before `released` has handed it out. How the numbers of the
ranks come together is the engine's matter; `differing` says where they disagree.

What agreement says: what the decode rank's kernels read from the ring, taken for these heads, layers and tokens, is
what the prefill rank's kernels read from its pages. What a page holds afterwards is the kernel's own store, which is
tested, not watched. Parts that went page to page, past the kernels, have their digests made when they are asked for, of
what both ranks' pages hold then, by plain indexing (`of_pages`): until `released` has handed the room out, nobody else
may write there. A prefill rank leaves out those whose pages were withdrawn: they hold other KV by then.

A room is known by its page table, which is its own tensor, and by those of what travels at the end (`Pool.digested`).
Digests number a window's tokens from the first page of its table, so with digests that one begins where the other
side's does (`Pool.origin`); of pages that do not divide that, windows have none. What is kept of each of the last rooms
is one number a chunk, layer and head.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from threading import Lock
from typing import Any

import torch
from msgspec.structs import replace

from kvproto.io.kernels.base import Kernels, Pool, Side, StagedPart, Ticket, on_stream
from kvproto.io.kernels.crossing import Crossing, Most, PagesCopy, all_of_them
from kvproto.io.kernels.differing import Place, differing
from kvproto.io.kernels.digest import new_table, read_table
from kvproto.io.kernels.pool import ORIGIN
from kvproto.io.kernels.torch import TorchKernels
from kvproto.layout.plan import Share
from kvproto.layout.sharding import Layout

__all__ = ["Cell", "DigestingKernels", "Place", "differing"]

ROOMS = 1024
Cell = tuple[int, int, Share]
"""First token, tokens, and what of this rank's own pool, as if it were the source."""
Made = dict[tuple[int, tuple[Share, ...]], tuple[Side, torch.Tensor, Any]]


def read_back(share: Share) -> Share:
    """Return the same KV as if the reader's pool were its source."""
    pieces = tuple(replace(each, src_unit=each.dst_unit, src_layer=each.dst_layer) for each in share.pieces)
    return replace(share, src_head=share.dst_head, src_layer=share.dst_layer, pieces=pieces)


class DigestingKernels(Kernels):
    """Kernels whose calls all make digests. One thread gathers and scatters; any thread calls the rest."""

    def __init__(self, kernels: Kernels, layout: Layout, index: int, rooms: int = ROOMS) -> None:
        """`layout` and `index` name the pool's heads and layers of the model; `rooms`: how many are kept."""
        self._inner, self._rooms = kernels, rooms
        self._layout, self._index = layout, index
        self._layer, self._head = layout.layers_of(index)[0], layout.heads_of(index)[0]
        self._made: dict[int, tuple[torch.Tensor, Made]] = {}
        self._lock = Lock()

    def prepare(self, pool: Pool, side: Side, shares: Sequence[Share], *, digests: bool = True) -> None:
        self._inner.prepare(pool, side, shares, digests=digests)

    def gather_parts(
        self, pool: Pool, table: torch.Tensor, first: int, tokens: int, parts: Sequence[StagedPart],
        *, stream: Any = None, after: Any = None, digest: torch.Tensor | None = None,
    ) -> Ticket:  # fmt: skip
        return self._move("gather", pool, table, first, tokens, parts, stream=stream, after=after, digest=digest)

    def scatter(
        self, pool: Pool, table: torch.Tensor, first: int, tokens: int, parts: Sequence[StagedPart],
        *, stream: Any = None, after: Any = None, digest: torch.Tensor | None = None,
    ) -> Ticket:  # fmt: skip
        return self._move("scatter", pool, table, first, tokens, parts, stream=stream, after=after, digest=digest)

    def _move(
        self, side: Side, pool: Pool, table: torch.Tensor, first: int, tokens: int, parts: Sequence[StagedPart],
        *, stream: Any, after: Any, digest: torch.Tensor | None,
    ) -> Ticket:  # fmt: skip
        call = self._inner.gather_parts if side == "gather" else self._inner.scatter
        made = self._made_for(pool, table, parts, stream) if digest is None else digest
        if made is None:
            return call(pool, table, first, tokens, parts, stream=stream, after=after)
        with on_stream(stream):  # before the call: for want of this memory nothing may be under way
            sums = torch.empty(made.shape[1], dtype=made.dtype, device=made.device)
        ticket = call(pool, table, first, tokens, parts, stream=stream, after=after, digest=made)
        self._keep(side, table, first, parts, made, sums, stream)
        return ticket

    def cross(self, pool: Pool, crossings: Sequence[Crossing], most: Most = all_of_them) -> PagesCopy | None:
        """As the contract of kernels has it: what is copied so has no digests but those of its pages."""
        return self._inner.cross(pool, crossings, most)

    def read(self, table: torch.Tensor, *, end: Layout | None = None, tokens: int = 0) -> dict[Place, int]:
        """Return the digests of the room with this page table, unsigned and perhaps none; wait for the device.

        `end`: the layout of the cache that travels at the end of which it is the table; places then have the number of
        the room's `tokens`, after which the state is there, or the window.
        """
        with self._lock:
            _, made = self._made.get(id(table), (None, {}))
            calls = list(made.items())
        found: dict[Place, int] = {}
        for (first, shares), (side, sums, stream) in calls:
            with on_stream(stream):
                numbers = sums.tolist()
            places = self.places(side, first if end is None else tokens, shares, end)
            found.update((place, number & (1 << 64) - 1) for place, number in zip(places, numbers, strict=True))
        return found

    def of_pages(self, pool: Pool, pages: Any, cells: Iterable[Cell]) -> dict[Place, int]:
        """The digests of what the pages of a room hold in these cells, unsigned; waits for the device."""
        found: dict[Place, int] = {}
        table: torch.Tensor | None = None
        for first, tokens, share in cells:
            table = torch.as_tensor(pages, device=pool.device) if table is None else table
            made, width = new_table([share], pool.device), pool.cut("gather", (share,)).token_bytes[0]
            out = torch.empty(width * tokens, dtype=torch.uint8, device=pool.device)
            TorchKernels().gather(pool, table, first, tokens, share, out, digest=made)
            found.update(zip(self.places("gather", first, (share,)), read_table(made), strict=True))
        return found

    @staticmethod
    def _made_for(pool: Pool, table: torch.Tensor, parts: Sequence[StagedPart], stream: Any) -> torch.Tensor | None:
        if pool.digested and pool.origin != ORIGIN:  # slots are pages of one token
            return None
        with on_stream(stream):
            return new_table([share for share, _ in parts], table.device)

    def _keep(
        self, side: Side, table: torch.Tensor, first: int, parts: Sequence[StagedPart], digest: torch.Tensor,
        sums: torch.Tensor, stream: Any,
    ) -> None:  # fmt: skip
        """The sums of a call that was queued; a repeated call's take the place of the first one's."""
        with on_stream(stream):
            torch.sum(digest, 0, out=sums)
        with self._lock:
            _, made = self._made.setdefault(id(table), (table, {}))
            made[first, tuple(share for share, _ in parts)] = side, sums, stream
            while len(self._made) > self._rooms:
                del self._made[next(iter(self._made))]

    def places(
        self, side: Side, first: int, shares: tuple[Share, ...], layout: Layout | None = None
    ) -> Iterator[Place]:  # fmt: skip
        """Yield the places that a call with these shares makes digests of (`layout`: the parts'), in order."""
        source = side == "gather"
        for share in shares:
            if share.pieces:
                yield from self._parts(share, first, layout or self._layout, source=source)
                continue
            layer = self._layer + (share.src_layer if source else share.dst_layer)
            head = self._head + (share.src_head if source else share.dst_head)
            yield from product((first,), range(layer, layer + share.layers), range(head, head + share.heads))

    def _parts(self, share: Share, first: int, layout: Layout, *, source: bool) -> Iterator[Place]:
        for kind, piece in zip(layout.kinds, share.pieces, strict=True):
            layer = layout.rows_of(kind, self._index)[0] + (piece.src_layer if source else piece.dst_layer)
            unit = layout.units_of(kind, self._index)[0] + (piece.src_unit if source else piece.dst_unit)
            for at in kind.layers[layer : layer + piece.layers]:
                yield from ((first, at, number, kind.name) for number in range(unit, unit + piece.units))

"""Mapped pages: parts that a kernel of this rank stores straight into a peer's pages.

If the transport has mapped the peer's pool (`Transport.maps`) and there is a kernel for it (`Kernels.cross`), a part is
written page to page by one launch for each chunk, whatever the pages and the heads: pieces cost nothing, and there is
no gather and no scatter.  To the tables it is a page-to-page write like any other: requested, leased, posted, ended,
notified.

The parts that do not change from chunk to chunk (`kvproto.data.mapped_parts`) are made with the link, on the wire-up
thread, because they compile.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from kvproto.data.end_pages import WORD
from kvproto.data.mapped_parts import Mapped, MappedEnd, MappedJoint, MappedPart
from kvproto.io.kernels.base import Kernels, Pool
from kvproto.io.kernels.crossing import Crossing, Most, Rows, all_of_them
from kvproto.io.kernels.engine_pages import engine_pages
from kvproto.io.transports.base import MemoryRegion, PeerId, StaleEndpoint, Transport, TransportError
from kvproto.layout.byte_runs import forms, planes
from kvproto.layout.cut import Block
from kvproto.layout.end_share import end_shares, why_end_staged
from kvproto.layout.placement import Placement, Strides, dense
from kvproto.layout.plan import Plan, Share

#: slots of state whose numbers a device keeps: more are copied there for each launch
MOST_SLOTS = 1 << 20


class MappedPages:
    """The mapped parts of one rank, by peer and part."""

    def __init__(
        self, transport: Transport, kernels: Kernels, pool: Pool, regions: Sequence[MemoryRegion], ours: Placement,
        most: Most = all_of_them,
    ) -> None:  # fmt: skip
        """`regions` and `ours`: the pool as the transport has it; `most`: see `Kernels.cross`."""
        self.most = most
        self.transport, self.kernels, self.pool, self.regions, self.ours = transport, kernels, pool, regions, ours
        self._made: dict[tuple[PeerId, Share, bool], MappedPart | MappedEnd] = {}
        #: of joint chunks: by peer and both shares, what `_made` has of each
        self._joint: dict[tuple[PeerId, Share, Share], MappedJoint] = {}
        self._numbers = torch.empty(0, dtype=torch.uint8)

    def make(self, peer: PeerId, plan: Plan, parts: Sequence[Share], theirs: Placement | None) -> None:
        """Prepare kernels for these parts, if the peer's pages are mapped.  Any thread; may take seconds."""
        theirs, maps, ours = theirs or dense(plan.decode, parts[0].reader), self.transport.maps(peer), self.ours
        if not maps or ours.closed or theirs.closed:
            return
        for part in parts:
            try:
                made = self._make(peer, plan, part, ours, theirs, maps)
            except (TransportError, LookupError):  # no such region, here or there: a write of the transport's will tell
                return
            if made is not None and ours is self.ours:  # else the pool has gone meanwhile
                self._made[peer, part, False] = made

    def make_ends(self, peer: PeerId, plan: Plan, parts: Sequence[Share], theirs: Placement | None) -> None:
        """As `make`, for shares of `plan.state`."""
        maps, ours = self.transport.maps(peer), self.ours
        names = [end.end.name for end in self.pool.ends]
        for part in parts:
            if not maps or why_end_staged(plan, part, ours, theirs):
                return
            found = list[tuple[int, int, MappedPart]]()
            for each in end_shares(plan, part, ours, theirs):
                try:
                    made = self._make(peer, each.plan, each.share, each.ours, each.theirs, maps, end=True)
                except (TransportError, LookupError):  # as above
                    return
                if made is None:
                    return
                found.append((names.index(each.plan.prefill.name), each.at, made))
            if ours is self.ours:
                sources = dict.fromkeys(source for _, _, one in found for source in one.sources)
                self._made[peer, part, True] = MappedEnd(tuple(found), tuple(sources), maps)

    def move(self, pool: Pool, ours: Placement) -> None:
        """Take another pool, or none: no part that was prepared holds any more."""
        self.pool, self.ours = pool, ours
        self._made.clear()
        self._joint.clear()

    def get(self, peer: PeerId, part: Share, *, state: bool = False) -> MappedPart | MappedEnd | None:
        """Return the prepared part, at the end if `state`; None: the transport's own writes carry it."""
        made = self._made.get((peer, part, state))
        return made if made is not None and made.maps is self.transport.maps(peer) else None

    def of(self, peer: PeerId, blocks: Sequence[Block]) -> Mapped | None:
        """Return the prepared part of these blocks, which may be two of a joint chunk; None: as `get`."""
        found = [self.get(peer, block.share, state=block.at_end) for block in blocks]
        if len(found) == 1:
            return found[0]
        tokens, at_end = found
        if not (isinstance(tokens, MappedPart) and isinstance(at_end, MappedEnd)):
            return None
        key = peer, blocks[0].share, blocks[1].share
        known = self._joint.get(key)
        if known is None or known.tokens is not tokens or known.at_end is not at_end:
            sources = dict.fromkeys((*tokens.sources, *at_end.sources))
            known = self._joint[key] = MappedJoint(tokens, at_end, tuple(sources), tokens.maps)
        return known

    def still(self, peer: PeerId, part: Mapped) -> None:
        """StaleEndpoint: the peer's memory is not where it was when the part was made."""
        if part.maps is not self.transport.maps(peer):
            raise StaleEndpoint(f"the memory of peer {peer} is not mapped any more, or was mapped anew")

    def forget(self, peer: PeerId) -> None:
        for key in [key for key in list(self._made) if key[0] == peer]:
            del self._made[key]
        for both in [both for both in list(self._joint) if both[0] == peer]:
            del self._joint[both]

    def _make(
        self, peer: PeerId, plan: Plan, part: Share, ours: Placement, theirs: Placement, maps: Mapping[int, int],
        *, end: bool = False,
    ) -> MappedPart | None:  # fmt: skip
        """Return the part, of which engines carry all or, at the end, the long rows; None: it is not mapped."""
        found: dict[tuple[int, int, Rows, Rows], list[tuple[int, int]]] = {}
        kinds, pages, sources = forms(plan, ours, theirs), 1 << 32, dict[int, None]()
        for (src_region, dst_region), places in planes(plan, part, ours, theirs).items():
            remote = self.transport.remote(peer, dst_region)
            base = maps.get(dst_region)
            if base is None:
                return None
            sources[self.regions[src_region].index] = None
            for src, dst, kind in places:
                form, piece = kinds[kind], part.piece(kind)
                near, far = _rows(form.source, plan.prefill.page_size), _rows(form.target, plan.decode.page_size)
                pages = min(pages, _pages(remote.nbytes - dst, far, piece.dst_unit + piece.units, form.row))
                here = self.regions[src_region].addr + src + piece.src_unit * near.head
                there = base + dst + piece.dst_unit * far.head
                found.setdefault((form.row, piece.units, near, far), []).append((here, there))
        crossings = [Crossing(row, units, near, far, tuple(at)) for (row, units, near, far), at in found.items()]
        gpu, slots = self.pool.gpu, end and not plan.prefill.window
        long = [each for each in crossings if engine_pages([each], gpu, slots=slots)] if end else crossings
        rest = [each for each in crossings if each not in long] if long else []
        copy, left = (self.kernels.cross(self.pool, some, self.most) if some else None for some in (crossings, rest))
        if copy is None:
            return None
        engine, size = engine_pages(long, gpu, slots=slots) if long else None, plan.decode.page_size
        numbers = self._numbered(pages) if slots and pages <= MOST_SLOTS else None
        apart = self.transport.apart(peer)
        join = self.kernels.join
        return MappedPart(copy, tuple(sources), pages, size, maps, engine, left, self.most, numbers, apart, join)

    def _numbered(self, slots: int) -> torch.Tensor:
        if len(self._numbers) < WORD * slots:
            numbers = torch.arange(slots, dtype=torch.int32).view(torch.uint8)
            self._numbers = numbers.to(self.pool.device)  # made there they would be late for another stream
        return self._numbers


def _rows(strides: Strides, page_size: int) -> Rows:
    return Rows(strides.page, strides.token, strides.head, page_size)


def _pages(nbytes: int, rows: Rows, heads: int, row: int) -> int:
    """How many pages lie in so many bytes, with the first so many heads of every token."""
    extent = (rows.page_size - 1) * rows.token + (heads - 1) * rows.head + row
    return (nbytes - extent) // max(rows.page, 1) + 1 if nbytes >= extent else 0

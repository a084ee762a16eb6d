"""Mapped pages: parts that a kernel of this rank stores straight into a peer's pages.

If the transport has mapped the peer's pool (`Transport.maps`) and there is a kernel for it (`Kernels.cross`), a part is
written page to page by one launch for each chunk, whatever the pages and the heads: pieces cost nothing, and there is
no gather and no scatter.  Where whole pages are long runs of bytes on both sides, the device's copy engines can carry
them (`kvproto.io.kernels.engine_pages`), and the kernel stores what is left of a page at either end.  They do so beside
a forward, which keeps its multiprocessors, and where a part has `LONG` bytes.  On an idle device a shorter part goes by
the kernel: its launch takes the host 70 us, the copies of 64 MiB 200.  To the tables it is a page-to-page write like
any other: requested, leased, posted, ended, notified.

The parts that do not change from chunk to chunk are made with the link, on the wire-up thread, because they compile.

Page numbers come from the peer, and a kernel that stores outside mapped memory would end this process.  So they are
checked against the peer's regions here, as a transport does with offsets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from kvproto.data.device_streams import DeviceStreams
from kvproto.data.room_entry import HostPages, RoomEntry
from kvproto.io.kernels.base import Kernels, Launch, Pool
from kvproto.io.kernels.crossing import Crossing, Most, PagesCopy, Rows, all_of_them
from kvproto.io.kernels.engine_pages import EnginePages, engine_pages
from kvproto.io.ticket import Ticket
from kvproto.io.transports.base import MemoryRegion, PeerId, StaleEndpoint, Transport, TransportError, UsageError
from kvproto.layout.byte_runs import forms, planes
from kvproto.layout.placement import Placement, Strides, dense
from kvproto.layout.plan import Plan, Share

#: bytes of whole pages that copy engines always carry: the gain is worth what they cost the host
LONG = 128 << 20


@dataclass(frozen=True, slots=True)
class MappedPart:
    """A part's constants for a kernel: the copy, its regions here, the peer's pages."""

    copy: PagesCopy
    sources: tuple[int, ...]
    pages: int
    page_size: int
    #: the addresses that it was made with
    maps: Mapping[int, int]
    #: what carries whole pages in place of the kernel, if they are long
    engine: EnginePages | None = None
    #: how much of the device a launch may take now
    most: Most = all_of_them

    def check(self, theirs: bytes, first: int, tokens: int) -> None:
        """UsageError: these pages are too few for the tokens, or outside of the peer's regions."""
        there, size = np.frombuffer(theirs, "<u4"), self.page_size
        if len(there) < -(-(first + tokens) // size) - first // size:
            raise UsageError(f"{len(there)} pages of {size} for tokens {first}..{first + tokens - 1}")
        if int(there.max()) >= self.pages:
            raise UsageError(f"page {int(there.max())} of a peer whose regions hold {self.pages}")

    def bind(self, entry: RoomEntry, theirs: bytes, first: int, tokens: int, streams: DeviceStreams) -> Launch:
        """Return the copy of these tokens, to be launched after `streams.await_tables`.

        The page numbers that a kernel reads are copied to the device now.  UsageError: as `check`.
        """
        self.check(theirs, first, tokens)
        size, end, engine = self.page_size, first + tokens, self.engine
        begin, low, high = first // size, -(-first // size), end // size
        long = engine is not None and (high - low) * engine.page_bytes >= LONG
        there = torch.empty(0)
        if not long or first % size or end % size:
            there, _ = streams.place(np.frombuffer(theirs, np.uint8).copy())
        whole = None if long else self.copy.bind(entry.table, there, first, tokens)
        if engine is None or low >= high:
            return whole or self.copy.bind(entry.table, there, first, tokens)
        edges = list[Launch]()
        if first % size:
            edges.append(self.copy.bind(entry.table, there, first, low * size - first))
        if end % size:
            edges.append(self.copy.bind(entry.table, there[4 * (high - begin) :], high * size, end % size))
        far = np.frombuffer(theirs, "<u4")[low - begin : high - begin].astype(np.int64)
        return EngineLaunch(engine, entry.pages[low:high], far, tuple(edges), whole, self.most)


@dataclass(frozen=True, slots=True)
class EngineLaunch:
    """A launch of whole pages by the copy engines, and of the ends of pages by the kernel."""

    engine: EnginePages
    #: the room's pages here, which may come, or be replaced, before the launch: a view
    near: HostPages
    far: HostPages
    edges: tuple[Launch, ...]
    #: all of it by the kernel, if no forward is to be spared; None: it is long, and always goes by the engines
    whole: Launch | None
    most: Most

    @property
    def chosen(self) -> bool:
        """Whether the engines would carry it now."""
        return self.whole is None or self.most() < all_of_them()

    def __call__(self, stream: Any, after: Any) -> Ticket:
        """As the contract has it."""
        if self.whole is not None and not self.chosen:
            return self.whole(stream, after)
        try:
            for edge in self.edges:
                edge(stream, after)
            if after is not None:
                stream.wait_event(after)
            return self.engine.launch(self.near, self.far, stream)  # its end is also the edges'
        except Exception:
            stream.synchronize()  # to the caller nothing was launched
            raise


class MappedPages:
    """The mapped parts of one rank, by peer and part."""

    def __init__(
        self, transport: Transport, kernels: Kernels, pool: Pool, regions: Sequence[MemoryRegion], ours: Placement,
        most: Most = all_of_them,
    ) -> None:  # fmt: skip
        """`regions` and `ours`: the pool as the transport has it; `most`: see `Kernels.cross`."""
        self.most = most
        self.transport, self.kernels, self.pool, self.regions, self.ours = transport, kernels, pool, regions, ours
        self._made: dict[tuple[PeerId, Share], MappedPart] = {}

    def make(self, peer: PeerId, plan: Plan, parts: Sequence[Share], theirs: Placement | None) -> None:
        """Prepare kernels for these parts, if the peer's pages are mapped.  Any thread; may take seconds."""
        theirs, maps, ours = theirs or dense(plan.decode, parts[0].reader), self.transport.maps(peer), self.ours
        if not maps or ours.closed or theirs.closed:
            return
        for part in parts:
            try:
                made = self._make(peer, plan, part, theirs, maps)
            except (TransportError, LookupError):  # no such region, here or there: a write of the transport's will tell
                return
            if made is not None and ours is self.ours:  # else the pool has gone meanwhile
                self._made[peer, part] = made

    def move(self, pool: Pool, ours: Placement) -> None:
        """Take another pool, or none: no part that was prepared holds any more."""
        self.pool, self.ours = pool, ours
        self._made.clear()

    def get(self, peer: PeerId, part: Share) -> MappedPart | None:
        """Return the prepared part; None: the transport's own writes carry it."""
        made = self._made.get((peer, part))
        return made if made is not None and made.maps is self.transport.maps(peer) else None

    def still(self, peer: PeerId, part: MappedPart) -> None:
        """StaleEndpoint: the peer's memory is not where it was when the part was made."""
        if part.maps is not self.transport.maps(peer):
            raise StaleEndpoint(f"the memory of peer {peer} is not mapped any more, or was mapped anew")

    def forget(self, peer: PeerId) -> None:
        """The peer is dropped."""
        for key in [key for key in list(self._made) if key[0] == peer]:
            del self._made[key]

    def _make(
        self, peer: PeerId, plan: Plan, part: Share, theirs: Placement, maps: Mapping[int, int]
    ) -> MappedPart | None:
        found: dict[tuple[int, int, Rows, Rows], list[tuple[int, int]]] = {}
        kinds, pages, sources = forms(plan, self.ours, theirs), 1 << 32, dict[int, None]()
        for (src_region, dst_region), places in planes(plan, part, self.ours, theirs).items():
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
        copy = self.kernels.cross(self.pool, crossings, self.most)
        if copy is None:
            return None
        engine = engine_pages(crossings, self.pool.gpu)
        return MappedPart(copy, tuple(sources), pages, plan.decode.page_size, maps, engine, self.most)


def _rows(strides: Strides, page_size: int) -> Rows:
    return Rows(strides.page, strides.token, strides.head, page_size)


def _pages(nbytes: int, rows: Rows, heads: int, row: int) -> int:
    """How many pages lie in so many bytes, with the first so many heads of every token."""
    extent = (rows.page_size - 1) * rows.token + (heads - 1) * rows.head + row
    return (nbytes - extent) // max(rows.page, 1) + 1 if nbytes >= extent else 0

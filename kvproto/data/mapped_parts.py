"""Mapped parts: what a kernel, or the copy engines, store of one part into a peer's mapped pages.

A part is made once a link (`kvproto.data.mapped_pages`) and bound for each chunk, from the room's table here and the
page numbers that the peer has named.  Where whole pages are long runs of bytes on both sides, the device's copy engines
can carry them (`kvproto.io.kernels.engine_pages`), and the kernel stores what is left of a page at either end.  They do
so beside a forward, which keeps its multiprocessors, and where a part has `LONG` bytes.  On an idle device a shorter
part goes by the kernel: its launch takes the host 70 us, the copies of 64 MiB 200.  So does any part whose peer is on
the same device: there engines copied 313 GB/s, the kernel 855.

What travels at the end is stored likewise, each cache by a kernel of its own from its own table; the kernels of a chunk
are one launch, of which one event tells.  Some rows of a state are long and others short.  To another device engines
carry the long ones, all layers as one copy if they are evenly spaced (`kvproto.io.kernels.page_stacks`), and the kernel
at the same time those that are left (`rest`).  Engines have a stream of their own then, so no kernel waits for them:
four prefill ranks of a hybrid on one GPU reach 0.98 of a bulk write so, and 0.82 by the kernel alone.

Page numbers come from the peer, and a kernel that stores outside mapped memory would end this process.  So they are
checked against the peer's regions here, as a transport does with offsets.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import torch

from kvproto.data.chunk_launch import ChunkLaunch, Tickets, end_rows
from kvproto.data.device_streams import DeviceStreams
from kvproto.data.end_pages import WORD, FarPages, of_cache, unpacked
from kvproto.data.room_entry import FEW, RoomEntry
from kvproto.io.kernels.base import Launch, Pool
from kvproto.io.kernels.crossing import Most, PagesCopy, all_of_them
from kvproto.io.kernels.engine_pages import EnginePages, NearPages, PageIds
from kvproto.io.ticket import Ticket
from kvproto.io.transports.base import UsageError

#: bytes of whole pages that copy engines always carry: the gain is worth what they cost the host
LONG = 128 << 20
#: makes one launch of several kernels', as `Kernels.join` does; None: it cannot
Join = Callable[[Sequence[Launch]], Launch | None]


@dataclass(frozen=True, slots=True)
class MappedPart:
    """A part's constants for a kernel: the copy, its regions here, the peer's pages."""

    copy: PagesCopy
    sources: tuple[int, ...]
    pages: int
    page_size: int
    #: the addresses that it was made with
    maps: Mapping[int, int]
    #: what carries whole pages in place of the kernel, if they are long, and the kernel of what it leaves
    engine: EnginePages | None = None
    rest: PagesCopy | None = None
    #: how much of the device a launch may take now
    most: Most = all_of_them
    #: of slots of state: every number, u32 on the device, so none is copied there for a launch
    numbers: torch.Tensor | None = None
    #: whether the peer's pages are on another device; None: it is not known
    apart: bool | None = None
    join: Join = lambda _launches: None

    def check(self, theirs: bytes, first: int, tokens: int) -> None:
        """UsageError: these pages are too few for the tokens, or outside of the peer's regions."""
        count, size = len(theirs) // WORD, self.page_size
        if count < -(-(first + tokens) // size) - first // size:
            raise UsageError(f"{count} pages of {size} for tokens {first}..{first + tokens - 1}")
        # A slot of state is one number, and most tables are short.
        most = max(memoryview(theirs).cast("I")) if count <= FEW else int(np.frombuffer(theirs, "<u4").max())
        if most >= self.pages:
            raise UsageError(f"page {most} of a peer whose regions hold {self.pages}")

    def bind(
        self, entry: RoomEntry, far: FarPages, first: int, tokens: int, streams: DeviceStreams, _pool: Pool
    ) -> Launch:  # fmt: skip
        """Return the copy of these tokens, to be launched on `streams.next_store()`.

        The page numbers that a kernel reads are copied to the device now.  UsageError: as `check`.
        """
        return self.bind_rows(entry.table, entry.pages[first // self.page_size :], far[0], first, tokens, streams)

    def bind_rows(
        self, table: torch.Tensor, near: NearPages, theirs: bytes, first: int, tokens: int, streams: DeviceStreams
    ) -> Launch:  # fmt: skip
        """As `bind`: `table` is on the device, `near` the same on the host from the page of the first row on."""
        self.check(theirs, first, tokens)
        size, end, engine, edges = self.page_size, first + tokens, self.engine, list[Launch]()
        begin, low, high = first // size, -(-first // size), end // size
        if engine is None or low >= high:
            return self.copy.bind(table, self._there(theirs, streams), first, tokens)
        long = self.apart is not False and (high - low) * engine.page_bytes >= LONG
        beside = self.rest is not None or bool(engine.stacks)
        long |= self.apart is True and beside
        whole, there, aside = None, torch.empty(0), None
        if not long or self.rest is not None or first % size or end % size:
            there = self._there(theirs, streams)
        if not long:
            whole = self.copy.bind(table, there, first, tokens)
        if self.rest is not None:
            edges.append(self.rest.bind(table, there, first, tokens))
        if beside:
            aside = streams.next_copy()
        if first % size:
            edges.append(self.copy.bind(table, there, first, low * size - first))
        if end % size:
            edges.append(self.copy.bind(table, there[4 * (high - begin) :], high * size, end % size))
        far, kernels = np.frombuffer(theirs, "<u4")[low - begin : high - begin], _joined(edges, self.join)
        return EngineLaunch(engine, near[low - begin : high - begin], far, tuple(kernels), whole, self.most, aside)

    def _there(self, theirs: bytes, streams: DeviceStreams) -> torch.Tensor:
        """Return the peer's page numbers on the device."""
        if self.numbers is None or len(theirs) > WORD:  # behind a number lie the next ones, whichever they name
            return streams.place_peer(theirs)
        return self.numbers[WORD * int.from_bytes(theirs[:WORD], "little") :]


def _joined(kernels: list[Launch], join: Join) -> list[Launch]:
    """Return what is launched for these: one launch if they can be joined."""
    one = join(kernels) if len(kernels) > 1 else None
    return kernels if one is None else [one]


def _as_one(launches: Sequence[Launch], join: Join) -> Launch:
    """Return one launch of a chunk's: first what engines are given, then all kernels."""
    engines, kernels = list[Launch](), list[Launch]()
    for each in launches:
        if not isinstance(each, EngineLaunch):
            kernels.append(each)
        elif each.whole is None:  # it always goes by the engines
            kernels += each.edges
            engines.append(msgspec.structs.replace(each, edges=()))
        else:
            engines.append(each)
    found = engines + _joined(kernels, join)
    return found[0] if len(found) == 1 else ChunkLaunch(found)


@dataclass(frozen=True, slots=True)
class MappedEnd:
    """A part of what travels at the end: of each cache its number here and there, and what is mapped."""

    parts: tuple[tuple[int, int, MappedPart], ...]
    sources: tuple[int, ...]
    maps: Mapping[int, int]

    def bind(
        self, entry: RoomEntry, far: FarPages, _first: int, _tokens: int, streams: DeviceStreams, pool: Pool
    ) -> Launch:  # fmt: skip
        """As `MappedPart.bind`: every row that the room has at the end."""
        return _as_one(self.launches(entry, far, streams, pool), self.parts[0][2].join)

    def launches(self, entry: RoomEntry, far: FarPages, streams: DeviceStreams, pool: Pool) -> list[Launch]:
        """Return the launch of each cache."""
        found, pages = list[Launch](), unpacked(far[1])
        for here, there, part in self.parts:
            _, table, first, rows = end_rows(pool, entry, here)
            found.append(part.bind_rows(table, entry.ends[here], of_cache(pages, there), first, rows, streams))
        return found


@dataclass(frozen=True, slots=True)
class MappedJoint:
    """A part of a joint chunk: of its tokens, and of what travels at the end."""

    tokens: MappedPart
    at_end: MappedEnd
    sources: tuple[int, ...]
    maps: Mapping[int, int]

    def bind(
        self, entry: RoomEntry, far: FarPages, first: int, tokens: int, streams: DeviceStreams, pool: Pool
    ) -> Launch:  # fmt: skip
        """As `MappedPart.bind`: both as one launch."""
        mine = self.tokens.bind(entry, far, first, tokens, streams, pool)
        return _as_one([*self.at_end.launches(entry, far, streams, pool), mine], self.tokens.join)


Mapped = MappedPart | MappedEnd | MappedJoint


class EngineLaunch(msgspec.Struct, frozen=True):
    """A launch of whole pages by the copy engines, and of the ends of pages by the kernel."""

    engine: EnginePages
    #: the room's pages here, a view, since they may come, or be replaced, before the launch, or its slots
    near: NearPages
    far: PageIds
    edges: tuple[Launch, ...]
    #: all of it by the kernel, if no forward is to be spared; None: it is long, and always goes by the engines
    whole: Launch | None
    most: Most
    #: the stream of the copies where the kernel stores beside them; None: the launch's own
    aside: Any = None

    @property
    def asides(self) -> tuple[Any, ...]:
        """Return the streams that it uses beside the launch's own."""
        return () if self.aside is None else (self.aside,)

    @property
    def chosen(self) -> bool:
        """Whether the engines would carry it now."""
        return self.whole is None or self.most() < all_of_them()

    def __call__(self, stream: Any, after: Any) -> Ticket:
        if not self.chosen:
            assert self.whole is not None
            return self.whole(stream, after)
        aside = stream if self.aside is None else self.aside
        try:
            if after is not None:
                aside.wait_event(after)
            tickets = [self.engine.launch(self.near, self.far, aside)]
            tickets += [edge(stream, after) for edge in self.edges]
        except Exception:
            for each in (stream, aside):
                each.synchronize()  # to the caller nothing was launched
            raise
        return tickets[0] if len(tickets) == 1 else Tickets(tickets)


def by_engines(launch: Launch) -> bool:
    """Whether engines would carry some of it now."""
    if isinstance(launch, ChunkLaunch):
        return any(map(by_engines, launch.launches))
    return isinstance(launch, EngineLaunch) and launch.chosen

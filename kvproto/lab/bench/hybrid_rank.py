"""Hybrid rank: a rank of a hybrid model, whose rooms have pages of a few layers and a slot of state.

A prefill rank serves several decode instances; each has a group of its own.  The truth is noise from a seed, by room,
part and layer, the same in every process, so what is right does not come from the library.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import numpy as np
import torch

from kvproto.data.room_entry import HostPages, RoomEntry
from kvproto.endpoint.decode_endpoint import DecodeEndpoint
from kvproto.endpoint.prefill_endpoint import PrefillEndpoint
from kvproto.io.kernels.base import Launch, Ticket
from kvproto.io.kernels.cache_pool import CachePool
from kvproto.io.transports.base import PeerId
from kvproto.io.transports.nixl import NixlTransport
from kvproto.io.transports.regions import bulk
from kvproto.lab.bench.bare import begin_at
from kvproto.lab.bench.described_rows import DescribedRows
from kvproto.lab.bench.pipeline_rank import PipelineRank, give_way
from kvproto.lab.bench.pools import MARKER, seeded_bytes
from kvproto.layout.cut import Cut
from kvproto.layout.plan import Plan
from kvproto.layout.sharding import Layout
from kvproto.room import Room
from kvproto.settings import DECODE_GROUP, Settings
from kvproto.verify.testing import inside
from kvproto.verify.testing.pools import empty_caches, tensors_of


class HybridForm(msgspec.Struct, frozen=True):
    """One row: the layouts of both sides, decode instances, rooms and their tokens."""

    prefill: Layout
    decode: Layout
    instances: int
    rooms: int
    tokens: int
    chunk_tokens: int
    settings: Settings

    @property
    def plan(self) -> Plan:
        return Plan(self.prefill, self.decode, self.chunk_tokens)

    def owed(self, writer: int, reader: int) -> int:
        """Bytes of a room that a prefill rank writes to a rank of its decode instance."""
        plan, found = self.plan, 0
        for cut in (Cut(0, self.tokens), Cut(0, 0, state=True)):
            shares = plan.of(cut).writers(reader)
            found += sum(plan.part_bytes(share, cut) for share in shares if share.writer == writer)
        return found


class HybridRank(PipelineRank):
    """A prefill rank, or a rank of one decode instance: `index` counts those of all instances."""

    case: HybridForm
    pool: CachePool | None

    def begin(self, form: HybridForm) -> str:
        """A new endpoint; returns a prefill rank's address."""
        self.end()
        self.case, self.pool = form, None
        self._let_go()
        mine, place = self._rooms(), self.index if self.side == "P" else self.index % form.decode.ranks
        layout = form.prefill if self.side == "P" else form.decode
        each = -(-form.tokens // layout.page_size)
        # An instance may have no room: its pool is no less a pool.
        self.pool = empty_caches(layout, place, each * max(1, len(mine)), max(1, len(mine)), self.device)
        group = {} if self.side == "P" else {"group": DECODE_GROUP + self.index // form.decode.ranks}
        make: Callable[..., Any] = PrefillEndpoint if self.side == "P" else DecodeEndpoint
        self.endpoint = make(
            layout, place, self.pool, NixlTransport(), chunk_tokens=form.chunk_tokens, settings=form.settings, **group
        )  # fmt: skip
        self.tables = {room: torch.arange(each * at, each * at + each) for at, room in enumerate(mine)}
        self.mark()
        if self.side == "P":
            for room in mine:
                for view, truth in self._truth(room):
                    view.copy_(truth)
        return str(self.endpoint.address) if self.side == "P" else ""

    def call(self, addresses: list[str]) -> None:
        self.endpoint.connect(self.case.prefill, addresses)
        self._until(self.endpoint.ready)

    def _rooms(self) -> list[int]:
        """The rooms of this rank: of a prefill rank all, of a decode rank its instance's."""
        instance, count = self.index // self.case.decode.ranks, self.case.instances
        return [room for room in range(1, self.case.rooms + 1) if self.side == "P" or room % count == instance]

    def _peer(self, room: int, reader: int) -> PeerId:
        """The transport's name of this rank of the room's decode instance."""
        parts = inside(self.endpoint)
        peer: PeerId = parts.data.link_peer[parts.rank.link_of[DECODE_GROUP + room % self.case.instances, reader]]
        return peer

    def mark(self) -> None:
        assert self.pool is not None
        for tensor in tensors_of(self.pool) if self.side == "D" else ():
            tensor.fill_(MARKER)
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def whole(self) -> bool:
        return all(bool(view.eq(truth).all()) for room in self._rooms() for view, truth in self._truth(room))

    def bind_stores(self) -> bool:
        """Bind the kernels that store each room's rows; whether there are any: the peers' pages are mapped."""
        data, case, self.bound = inside(self.endpoint).data, self.case, list[Launch]()
        plan, state = case.plan, case.plan.state
        assert state is not None
        (cuts,) = plan.state_cuts(state.duties(self.index))
        parts = [(share, False) for share in plan.duties(self.index)] + [(share, True) for share in cuts]
        for room in self._rooms():
            entry, pages, slot = self._placed(room)
            far = pages.astype("<u4").tobytes(), np.array([1, slot], "<u4").tobytes()
            for share, at_end in parts:
                mapped = data.mapped.get(self._peer(room, 0), share, state=at_end)
                if mapped is None:
                    return False
                self.bound.append(mapped.bind(entry, far, 0, case.tokens, data.streams, data.gathers.pool))
        return True

    def _placed(self, room: int) -> tuple[RoomEntry, HostPages, int]:
        """Return a room's entry here, and its pages and its slot at its decode instance."""
        case, table = self.case, self.tables[room]
        each, there = -(-case.tokens // case.decode.page_size), (room - 1) // case.instances
        entry = RoomEntry(case.tokens, table.to(self.device), table.numpy(), len(table))
        entry.ends, entry.end_tables = ((self._rooms().index(room),),), (None,)
        return entry, np.arange(each * there, each * there + each), there

    def bind_descriptors(self) -> int:
        """Make the writes of each room's rows by descriptors ready; how many descriptors they have."""
        rank, self.described = inside(self.endpoint).rank, DescribedRows(self.endpoint, self.case.plan, self.index)
        for room in self._rooms():
            link = rank.link_of[DECODE_GROUP + room % self.case.instances, 0]
            self.described.add(link, *self._placed(room))
        return self.described.count

    def describe(self, at: float) -> tuple[float, float]:
        """Post them from the moment `at`: (begin, end)."""
        return self.described.post(at)

    def store(self, at: float) -> tuple[float, float]:
        """Launch what is bound, one after the other: (begin, end).

        Nothing is asked for, told or confirmed: what is left of a transfer is the device's.
        """
        streams = inside(self.endpoint).data.streams
        begin, left = begin_at(self.endpoint, at), list[Ticket]()
        for launch in self.bound:
            left.append(launch(streams.next_store(), None))
        while not all(ticket.done() for ticket in left):
            give_way()
        return begin, time.perf_counter()

    def _truth(self, room: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Yield this rank's rows of the room in the pool, and what they are: of each part and layer."""
        case, pool = self.case, self.pool
        layout, rank = (case.prefill, self.index) if self.side == "P" else (case.decode, self.index % case.decode.ranks)
        assert pool is not None
        seed, slot = room << 12, self._rooms().index(room)
        for each, held in ((layout, pool), *((end.end, end) for end in pool.ends)):
            for kind, tensors in zip(each.kinds, held.kinds, strict=True):
                (unit, units), (first, _) = each.units_of(kind, rank), each.rows_of(kind, rank)
                for at, tensor in enumerate(tensors):
                    rows = 1 if kind.at_end else case.tokens
                    whole = seeded_bytes((rows, kind.units, kind.row), seed + first + at, self.device)
                    count = 1 if kind.at_end else len(self.tables[room])
                    # A room's pages follow one another, so its rows are one view.
                    mine = tensor[slot * count : slot * count + count].flatten(0, 1)[:rows]
                    yield mine, whole[:, unit : unit + units]
                seed += len(kind.layers)

    def ask(self, gen: int) -> None:
        """Open the rooms; a prefill rank then asks for what it can have before their forwards."""
        for at, room in enumerate(self._rooms()):
            more = {"slot": at}
            if self.side == "P":
                more["group"] = DECODE_GROUP + room % self.case.instances
            self.endpoint.open(Room(room, gen), self.case.tokens, self.tables[room], **more)
        if self.side == "P":
            self.prefetch([Room(room, gen) for room in self._rooms()])

    def run(self, gen: int, forward: bool, at: float) -> tuple[float, float]:
        """All rooms, computed at this moment (`PipelineRank.go`); (begin, end)."""
        return self.go([(room, gen) for room in self._rooms()], self.case.tokens, at, forward)[:2]

    def write(self, at: float) -> tuple[float, float]:
        """The same bytes as bulk writes, one for each room and reader: (begin, end)."""
        transport = inside(self.endpoint).data.transport
        readers = range(self.case.decode.ranks)
        owed = {reader: self.case.owed(self.index, reader) for reader in readers}
        if self.source is None:
            buffer = seeded_bytes((max(owed.values()),), 1, self.device)
            self.source = buffer, self.registered(buffer)
        wanted = []
        for room in self._rooms():
            for reader, nbytes in owed.items():
                peer = self._peer(room, reader)
                descs = bulk(0, nbytes * self.index % (self.case.settings.ring_bytes - nbytes + 1), nbytes)
                wanted.append((peer, self.source[1], transport.remote(peer, 0), descs, b""))
        return self.write_all(wanted, at)

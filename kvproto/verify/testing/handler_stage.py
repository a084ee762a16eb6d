"""Handler stage: what handlers wait for is a move, and what they hold is judged after each.

An `EngineStage` with three parts changed.  The device is a fake one, whose streams run when they are told
(`fake_device`): forwards, page tables, gathers and scatters end in any order that the waits between them allow.  The
transport counts its prepared writes.  And the loops' time stands still while a room is under way, so nothing is mended
by a timer.

Judged, beside what `judge` knows:

reads      no gather or scatter reads a page table before its copy has run, or KV before its forward has
slots      each slot is free or of one send; a write that may still move reads from the slot of its own send
awake      no loop sleeps while something of its rank is under way, and each does when nothing is
prepared   each prepared write of the transport is kept for a slot or waits to be posted; no slot has two
links      a rank whose transport has lost a peer does not go on as if the link were up
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import msgspec
import torch

from kvproto.data import decode_data as decode_effects
from kvproto.data import prefill_data as prefill_effects
from kvproto.data.gathers import AHEAD
from kvproto.data.prepared_pages import PreparedBatch
from kvproto.data.staged_writes import StagedWrite
from kvproto.endpoint.decode_endpoint import DecodeEndpoint
from kvproto.endpoint.prefill_endpoint import PrefillEndpoint
from kvproto.io.kernels.base import Side as Copies
from kvproto.io.transports.base import PreparedWrite, Transport
from kvproto.io.transports.fabric import Fabric
from kvproto.io.transports.memory import MemoryTransport
from kvproto.layout.sharding import Layout
from kvproto.loop.event_loop import SLOW
from kvproto.protocol.states import PLink
from kvproto.room import Room
from kvproto.settings import Route, Settings
from kvproto.verify.testing.access import inside
from kvproto.verify.testing.fake_device import FakeDevice, FakeEvent, SlowKernels, SlowStreams
from kvproto.verify.testing.stage import TIMING, EngineStage

#: tokens of a chunk, and of a page on both sides
CHUNK_TOKENS, PAGE = 8, 4
MODEL = Layout(layers=1, heads=2, k_dim=4, v_dim=2, itemsize=2, dtype="bfloat16", page_size=PAGE, tp=1)
#: pieces that a peer has room for: a part that goes over pages is more than one batch
ROOM_FOR = 2
#: calls after which a link that was lost is up again
RETURN_TRIES = 20


class CountedTransport(MemoryTransport):
    """The in-memory transport; `prepared_writes` that were neither posted nor dropped."""

    def __init__(self, fabric: Fabric, *, maps: bool = False) -> None:
        super().__init__(fabric, max_inflight_descs=ROOM_FOR, maps=maps)
        self.prepared_writes: set[int] = set()
        self._made = 0

    def _prepare(self, prepared: PreparedWrite) -> int:
        self._made += 1
        self.prepared_writes.add(self._made)
        return self._made

    def _unprepare(self, raw: int) -> None:
        self.prepared_writes.remove(raw)

    def _post(self, handle: Any, prepared: PreparedWrite) -> Any:
        self.prepared_writes.discard(prepared.raw)
        prepared.raw = None
        return super()._post(handle, prepared)


class HandlerStage(EngineStage):
    """One prefill and one decode rank on a fake device."""

    def __init__(
        self, *, slots: int, ranks: int = 1, route: Route = "staged", ahead: int = AHEAD, maps: bool = False,
        small: int = 0,
    ) -> None:  # fmt: skip
        """Make the stage.

        `ranks` of the prefill group; gathers that a device is given `ahead`; `maps`: pools can be addressed by one
        another; bytes of a `small` part.
        """
        self.ahead, self.maps, self.small = ahead, maps, small
        self.device, self.computed = FakeDevice(), dict[tuple[int, int], int]()
        #: by rank and room: where the forwards end that are queued
        self.queued: dict[tuple[int, int], list[int]] = {}
        self.slow = SlowKernels(self.device, self._whose, self._watch)
        self.rooms: list[Room] = []
        #: links whose transport was cut, with the epoch that they had; and those of which the rank was told
        self.cutting, self.cuts = dict[int, tuple[int, int]](), dict[int, tuple[int, int]]()
        settings = Settings(timing=TIMING, ring_bytes=4096, slots=slots, window=4, tombstones=64, route=route)
        prefill = msgspec.structs.replace(MODEL, tp=ranks)
        super().__init__(
            prefill, MODEL, chunk_tokens=CHUNK_TOKENS, pages=24, settings=settings, sockets=False, late=False
        )
        self._deal()
        self.settled()

    def _deal(self) -> None:
        """Pages are given out in the same order in each walk, and never two neighbours."""
        for pages in self.pages_of.values():
            pages.sort(key=lambda page: (page % 2, page))

    def transport(self) -> Transport:
        return CountedTransport(self.fabric, maps=self.maps)

    def make_prefill(self, index: int) -> PrefillEndpoint:
        """A rank whose gathers take their time."""
        with self._on_device(prefill_effects, f"P{index}"):
            endpoint = super().make_prefill(index)
        data = inside(endpoint).data
        data.kernels = data.gathers.kernels = data.gathers.together.kernels = data.mapped.kernels = self.slow
        data.gathers.small, data.gathers.ahead = self.small, self.ahead
        return endpoint

    def make_decode(self, index: int) -> DecodeEndpoint:
        """A rank whose scatters take their time."""
        with self._on_device(decode_effects, f"D{index}"):
            endpoint = super().make_decode(index)
        data = inside(endpoint).data
        data.kernels = data.together.kernels = self.slow
        data.small = self.small
        return endpoint

    def _on_device(self, handlers: Any, rank: str) -> Any:
        return patch.object(handlers, "DeviceStreams", lambda _device: SlowStreams(self.device, rank))

    # ---------------------------------------------------------------------------------------- the engines
    def begin(self, chunks: int, *, at_once: bool, paged: bool) -> Room:
        """As `opened`, its forwards queued: one a chunk, or one for all, `at_once`."""
        room = self.opened(chunks, paged=paged)
        self.compute(room, at_once=at_once)
        return room

    def begin_anew(self) -> None:
        """Have every rank's next store take its first stream."""
        for prefill in self.prefills:
            streams: Any = inside(prefill).data.streams
            streams.begin_anew()

    def opened(self, chunks: int, *, paged: bool) -> Room:
        """A room of so many chunks, open everywhere.

        `paged`: the prefill engine has the pages when it opens the room; else they come with the forwards.
        """
        room = self.name(chunks * CHUNK_TOKENS, room_id=2 * self._next + paged)
        self._next += 1
        self.rooms.append(room)
        self.tasks[room].layer_groups = 1  # a chunk is a forward here, and groups are more chunks
        self.open_decode(room)
        self.open_prefill(room)
        self.prefetch(room)
        return room

    def compute(self, room: Room, *, at_once: bool) -> None:
        tokens = self.tasks[room].tokens
        for upto in (tokens,) if at_once else range(CHUNK_TOKENS, tokens + 1, CHUNK_TOKENS):
            for index, endpoint in enumerate(self.prefills):
                if upto <= self.tasks[room].produced.get(index, 0):
                    continue
                after = self._forward(room, index, upto)
                more = self.tasks[room].more_pages(self.plan.prefill, index, upto)
                endpoint.produced(room, upto, after=after, pages=more)
                self.tasks[room].produced[index] = upto
        for index, endpoint in enumerate(self.prefills):
            endpoint.aux(room, b"aux")
            self.tasks[room].given.add(index)

    def _forward(self, room: Room, index: int, upto: int) -> FakeEvent:
        task, layout, first = self.tasks[room], self.plan.prefill, self.tasks[room].produced.get(index, 0)

        queued, key = self.queued.setdefault((index, room.key), []), (index, room.key)

        def compute() -> None:
            end = queued.pop(0)
            if first < end:  # else its pages were withdrawn
                task.write(self.prefills[index].pool, layout, index, first, end)
                self.computed[key] = max(self.computed.get(key, 0), end)

        queued.append(upto)

        return self.device.stream(f"P{index} engine").put(("forward", self.number(room.key), upto), compute)

    def withdrawn(self, room: Room) -> bool:
        """Whether pages of the room were withdrawn, and no prefill rank reads them any more."""
        taken = self.tasks[room].taken
        return bool(taken) and all(self.prefills[index].withdrawn(room) for index in taken)

    def give_anew(self, room: Room) -> None:
        """Let others have what was withdrawn; forwards that are queued compute only what is kept."""
        task = self.tasks[room]
        for index in sorted(task.taken):
            task.lose(self.prefills[index].pool, self.plan.prefill, index)
            key, kept = (index, room.key), task.produced[index]
            if key in self.queued:
                self.queued[key][:] = [min(end, kept) for end in self.queued[key]]
            self.computed[key] = min(self.computed.get(key, 0), kept)

    def cut(self, index: int) -> None:
        """Have this prefill rank's transport lose the decode rank: writes in flight are in doubt."""
        rank, data = inside(self.prefills[index]).rank, inside(self.prefills[index]).data
        link, value = next(iter(rank.links.items()))
        self.hurt_all()
        self.shaken = True
        self.cutting[index] = link, value.epoch
        self.fabric.cut(data.transport.instance, inside(self.decodes[0]).data.transport.instance)

    def hurt_all(self) -> None:
        self._hurt(None)

    def poll(self, index: int) -> bool:
        """As on any stage; after its pass a rank knows of a cut."""
        moved = super().poll(index)
        if index in self.cutting:
            self.cuts[index] = self.cutting.pop(index)
        return moved

    def turn(self) -> bool:
        """Everything that can move does; the device first."""
        moved = not self.device.idle()
        return super().turn() or moved

    def number(self, key: int) -> int:
        """Return the number of this room under way (-1: none)."""
        return next((at for at, room in enumerate(self.rooms) if room.key == key), -1)

    def end(self) -> bool:
        """Let all come to its end, and forget it; whether the stage is as it was before the first room."""
        self.device.quick = False
        self.drain()
        for task in list(self.tasks.values()):
            assert self.retire(task), f"{task.room} is not over"
        self.rooms.clear()
        self.outcomes.clear()
        self.releases.clear()
        self.tables.clear()
        self.computed.clear()
        self.queued.clear()
        self._deal()
        self.cuts.clear()
        self.settled()
        for _ in range(RETURN_TRIES):
            if self.linked():
                for index, endpoint in enumerate(self.endpoints):
                    assert not inside(endpoint).data.busy(), f"rank {index} has nothing to do, and keeps looking"
                return True
            self.clock.advance(TIMING.call.period)
            self.settled()
        return False

    # ------------------------------------------------------------------------------------------- judging
    def _entries_with(self, table: torch.Tensor) -> Iterator[tuple[int, int]]:
        """(rank, room key) of those whose table this is."""
        for endpoint in self.endpoints:
            for key, entry in inside(endpoint).entries.items():
                if entry.table is table:
                    yield inside(endpoint).rank.index, key

    def _whose(self, table: torch.Tensor) -> object:
        return next((self.number(key) for _, key in self._entries_with(table)), None)

    def _watch(self, side: Copies, table: torch.Tensor, first: int, tokens: int) -> None:
        for index, key in self._entries_with(table) if side == "gather" else ():
            if self.computed.get((index, key), 0) < first + tokens:
                raise AssertionError(f"a gather of tokens {first}..{first + tokens - 1} of room {self.number(key)} on "
                                     f"P{index} reads KV before its forward has run")  # fmt: skip

    def judge(self) -> None:
        super().judge()
        for index, prefill in enumerate(self.prefills):
            self._slots(index, prefill)
            self._prepared_writes(index, prefill)
        self._awake()
        for index, (link, epoch) in self.cuts.items():
            value = inside(self.prefills[index]).rank.links.get(link)
            told = value is None or value.state is not PLink.UP or value.epoch != epoch
            assert told, f"P{index} was told that its transport has lost the peer, and its link is still up"

    def _awake(self) -> None:
        for index, prefill in enumerate(self.prefills):
            gathers, writes = inside(prefill).data.gathers, inside(prefill).data.writes
            under_way = gathers._going or gathers.launches or writes.flying or writes._waiting  # noqa: SLF001
            assert not under_way or inside(prefill).loop.due <= SLOW, f"P{index} sleeps, and something is under way"
        for index, decode in enumerate(self.decodes):
            rank, loop, _, data = inside(decode)
            assert not (data.scatters or rank.grants) or loop.due <= SLOW, f"D{index} sleeps, and work is under way"

    def _slots(self, index: int, prefill: PrefillEndpoint) -> None:
        rank, _, _, data = inside(prefill)
        every = sorted([*rank.free_slots, *rank.slot_of.values()])
        assert every == list(range(rank.settings.slots)), f"P{index}: slots {rank.free_slots}, {rank.slot_of}"
        staged, size = data.regions[0].addr, data.slot_bytes
        for cargo in self.watched.under_way(data.transport.instance):
            keys = data.writes.flying.get(cargo.handle)
            assert keys is not None, f"P{index} has forgotten a write that still moves"
            own = {rank.slot_of.get(key) for key in keys}
            for source, _, length in cargo.pieces.values():
                if 0 <= source - staged < len(every) * size:
                    read = range((source - staged) // size, (source - staged + length - 1) // size + 1)
                    assert own.issuperset(read), f"P{index}: {keys} are read from slots {read}, and have {own}"

    def _prepared_writes(self, index: int, prefill: PrefillEndpoint) -> None:
        data = inside(prefill).data
        assert isinstance(data.transport, CountedTransport)
        unposted = [batch for left in data.writes.unposted.values() for batch in left.batches]
        held = [made for _, made in data.prepared_writes._kept.values()]  # noqa: SLF001
        held += [batch for batch in unposted if isinstance(batch, StagedWrite)]
        writes = [made.prepared for made in held if made.prepared is not None]
        pages = (*unposted, *data.prepared_pages.batches)
        writes += [batch.write for batch in pages if isinstance(batch, PreparedBatch)]
        known = sorted(write.raw for write in writes if write.raw is not None)
        assert known == sorted(data.transport.prepared_writes), (
            f"P{index}: the transport has the prepared writes {sorted(data.transport.prepared_writes)},"
            f" of which {known} are kept"
        )

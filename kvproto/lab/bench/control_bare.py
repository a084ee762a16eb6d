"""Control, bare: the control benchmark's messages, launches and writes by hand, without a protocol.

What is left is what no protocol over these libraries can go below in this language: each room's seven messages are
made, read and carried by the control plane; its part is gathered, written with its note, and scattered; both ends look
whether it has ended.  Small launches go eight at a time and the writes of one moment as one, as endpoints have them.
Page tables are on the device before the clock runs, regions and slots are taken in turn, and nobody checks, refuses,
repeats, times, traces or remembers anything.  The rest of a room is the price of its tables, its ranks and its loop.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from kvproto.data.launches import TOGETHER
from kvproto.io.kernels.base import Launch, Ticket
from kvproto.io.transports.base import Arrived, Completed, WritePart
from kvproto.layout.cut import Cut, chunks
from kvproto.protocol import messages as msg
from kvproto.protocol.codec import decode, encode
from kvproto.protocol.notification import MAX_NOTES, Note, make_tag, read_tag
from kvproto.verify.testing import inside

#: any, so that frames leave together
EPOCH = 1
FRAMES = 256
LONGEST_S = 60.0
#: of a room that is gathered or scattered
Cell = tuple[int, int]


class Bare:
    """One end: what both do."""

    def __init__(self, endpoint: Any, tables: list[list[int]], tokens: int) -> None:
        """`tables`: by room id, from 0 on, its pages; each room has so many tokens, one chunk."""
        inner = inside(endpoint)
        self.control, self.data, self.rank = inner.loop.control, inner.data, inner.rank
        assert chunks(tokens, 0, self.rank.chunk_tokens) == 1
        (self.peer,) = inner.loop.connections.link_at
        device = torch.device(endpoint.pool.device)
        self.pool, self.stream, self.tokens = endpoint.pool, self.data.streams.stream, tokens
        self.tables = [torch.tensor(table, dtype=torch.int64, device=device) for table in tables]
        self.over = 0
        self._going: deque[tuple[Ticket, list[Cell]]] = deque()

    def say(self, room: int, body: msg.Message) -> None:
        self.control.send(self.peer, encode(EPOCH, room, body), later=True)

    def launch(self, side: Any, cells: list[Cell], buffers: list[torch.Tensor], share: Any) -> None:
        """Gather or scatter these rooms, `TOGETHER` a launch where that can be."""
        kernels, bound = self.data.kernels, list[Launch]()
        for (room, _), buffer in zip(cells, buffers, strict=True):
            table = self.tables[room % len(self.tables)]
            bound.append(kernels.bind(side, self.pool, table, 0, self.tokens, ((share, buffer),)))
        joint = kernels.join(bound) if len(bound) > 1 and self.stream is not None else None
        if joint is not None:
            self._going.append((joint(self.stream, None), cells))
        else:
            self._going += [(each(self.stream, None), [cell]) for each, cell in zip(bound, cells, strict=True)]

    def ended(self) -> list[Cell]:
        """Those whose launch is over."""
        found = list[Cell]()
        while self._going and self._going[0][0].done():
            found += self._going.popleft()[1]
        return found

    def run(self, look: Callable[[], None], rooms: int) -> tuple[float, float]:
        """Look until so many rooms are over: (begin, end)."""
        begin = time.perf_counter()
        while self.over < rooms:
            look()
            self.control.flush()
            if time.perf_counter() > begin + LONGEST_S:
                raise TimeoutError(f"{self.over} of {rooms} rooms by hand after {LONGEST_S:g} s")
        return begin, time.perf_counter()


class BarePrefill(Bare):
    """The end that writes."""

    def __init__(self, endpoint: Any, tables: list[list[int]], tokens: int) -> None:
        super().__init__(endpoint, tables, tokens)
        ((link, peer),) = self.rank.peers.items()
        self.part, self.to = peer.plan.part(self.rank.index, peer.rank, Cut(0, tokens)), self.data.link_peer[link]
        self.free = list(range(self.rank.settings.slots))
        #: granted regions that wait for a slot, and what each gathered room is to be written as
        self.granted: deque[Cell] = deque()
        self.writes: dict[int, tuple[int, int]] = {}
        self.flying: dict[Any, list[int]] = {}
        self._acked: Counter[int] = Counter()

    def look(self) -> None:
        for event in self.data.transport.poll():
            if isinstance(event, Completed):
                self.free += self.flying.pop(event.handle)
        ended = self.ended()
        for at in range(0, len(ended), MAX_NOTES):
            self._write(ended[at : at + MAX_NOTES])
        for _, frame in self.control.receive(FRAMES):
            self._hear(*decode(frame))
        while self.granted and self.free:
            some = [self.granted.popleft() for _ in range(min(len(self.granted), len(self.free), TOGETHER))]
            self._gather(some)

    def _hear(self, _epoch: int, room: int, body: msg.Message) -> None:
        if isinstance(body, msg.Open):
            self.say(room, msg.Opened())
            self.say(room, msg.StagingReq(0, time.monotonic()))
            self.say(room, msg.Aux(b"token"))
        elif isinstance(body, msg.StagingRsp):
            self.granted.append((room, body.offset))
        elif isinstance(body, msg.ChunkAck | msg.AuxAck):
            self._acked[room] += 1
            if self._acked[room] == 2:
                del self._acked[room]
                self.over += 1

    def _gather(self, some: list[Cell]) -> None:
        buffers = list[torch.Tensor]()
        for room, offset in some:
            slot = self.free.pop()
            begin = slot * self.data.slot_bytes
            self.writes[room] = slot, offset
            buffers.append(self.data.staging.parts[begin, self.part.nbytes])
        self.launch("gather", some, buffers, self.part.share)

    def _write(self, some: list[Cell]) -> None:
        notes, rows, slots = list[Note](), list[tuple[int, int, int]](), list[int]()
        for room, _ in some:
            slot, offset = self.writes.pop(room)
            slots.append(slot)
            rows.append((slot * self.data.slot_bytes, offset + self.part.offset, self.part.nbytes))
            notes.append((EPOCH, room, msg.StgNotify(0, 1)))
        transport = self.data.transport
        part = WritePart(self.data.regions[0], transport.remote(self.to, 0), np.array(rows, np.uint64))
        tag = make_tag(self.rank.group, self.rank.index, notes)
        self.flying[transport.write_many(self.to, [part], tag)] = slots


class BareDecode(Bare):
    """The end that is written to, and that opens the rooms."""

    def __init__(self, endpoint: Any, tables: list[list[int]], tokens: int, rooms: int, at_work: int) -> None:
        """`rooms` in all, `at_work` of them at a time."""
        super().__init__(endpoint, tables, tokens)
        (peer,), index = self.rank.peers.values(), self.rank.index
        self.part = peer.plan.part(peer.rank, index, Cut(0, tokens))
        self.grant = peer.plan.grant_bytes(index, Cut(0, tokens))
        self.regions = self.rank.settings.ring_bytes // self.grant
        assert self.regions >= at_work, "regions are taken in turn"
        self.rooms, self.at_work = rooms, at_work
        self.opened = self.granted = 0
        #: by room where its region begins, and how much of it has come: its aux row, its part
        self.at: dict[int, int] = {}
        self._came: Counter[int] = Counter()

    def look(self) -> None:
        while self.opened < self.rooms and self.opened - self.over < self.at_work:
            self.say(self.opened, msg.Open(self.tokens, 0, runs=1))
            self.opened += 1
        arrived = list[Cell]()
        for event in self.data.transport.poll():
            if isinstance(event, Arrived):
                arrived += [(room, self.at.pop(room)) for _, room, _ in read_tag(event.tag)[1]]
        for room, _ in self.ended():
            self.say(room, msg.ChunkAck(0))
            self._came_in(room)
        for at in range(0, len(arrived), TOGETHER):
            some = arrived[at : at + TOGETHER]
            parts, part = self.data.ring.parts, self.part
            self.launch("scatter", some, [parts[offset + part.offset, part.nbytes] for _, offset in some], part.share)
        for _, frame in self.control.receive(FRAMES):
            self._hear(*decode(frame))

    def _hear(self, _epoch: int, room: int, body: msg.Message) -> None:
        if isinstance(body, msg.StagingReq):
            offset = self.granted % self.regions * self.grant
            self.granted += 1
            self.at[room] = offset
            answer = msg.StagingRsp(0, self.granted, offset, 0, offset + self.grant, 0, 0, body.asked)
            self.say(room, answer)
        elif isinstance(body, msg.Aux):
            self.say(room, msg.AuxAck())
            self._came_in(room)

    def _came_in(self, room: int) -> None:
        self._came[room] += 1
        if self._came[room] == 2:
            del self._came[room]
            self.over += 1

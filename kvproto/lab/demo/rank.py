"""Rank: a demonstration's rank without its endpoint, with a shard, its page tables, and its reports.

Every rank draws its own page tables, from a seed of its own: nothing may rest on two ranks having the same ones. A
prefill rank that is told that a room is released fills the room's pages with noise at once and hands them to the next
room. An endpoint that said so too early would be found out by the comparison.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from kvproto.io.kernels.base import Pool
from kvproto.lab.demo.comm import Comm
from kvproto.lab.demo.guard import Guard, PooledRoom
from kvproto.lab.demo.job import DemoJob, RoomSpec, Side
from kvproto.lab.demo.model import AUX, prompt
from kvproto.lab.demo.oracle import load_truth
from kvproto.lab.demo.pages import Allocator, Kind, Rows, sheet_of
from kvproto.lab.demo.shard import Shard
from kvproto.lab.demo.tampered_room import TamperedRoom, corrupted
from kvproto.lab.demo.verify import Sheet
from kvproto.layout.cut import chunks, cut_at
from kvproto.layout.sharding import Layout, align_chunk_tokens


class DemoRank:
    """Rank `rank` of `side`'s group. Construction joins the group's collectives, on all ranks at once."""

    def __init__(self, job: DemoJob, side: Side, rank: int, directory: Path, device: str = "cpu") -> None:
        shape = job.shape(side)
        self.job, self.side, self.rank, self.directory = job, side, rank, directory
        comm = Comm(directory / f"{side}.store", rank, shape.tp, shape.pp)
        self.shard = Shard(job, side, rank, comm, device)
        self.pool, self.layout = self.shard.pool, self.shard.layout
        self.chunk_tokens = align_chunk_tokens(job.chunk, job.prefill.page_size, job.decode.page_size)
        self.rooms = {room.room: room for room in job.rooms}
        self.tables: dict[int, list[int]] = {}
        self._grown: dict[int, int] = {}  # tokens generated after the prompt, by room
        self._allocator = Allocator(self.pool.pages, (job.seed, side, rank))
        #: by room, the row behind its last token when it was first continued, and what it was before
        self._behind: dict[int, tuple[Tensor, Tensor]] = {}
        self._guard = Guard(self.pool)

    @property
    def on_gpu(self) -> bool:
        return self.pool.device.type == "cuda"

    def layout_of(self, side: Side) -> Layout:
        return self.job.layout(side)

    def kv_pool(self) -> Pool:
        return Pool(self.pool.k, self.pool.v, self.pool.order, self.pool.page_size)

    def allocate(self, room: RoomSpec) -> list[int]:
        """Allocate the room's pages; MemoryError: the pool is full. Their present content counts as old."""
        table = self.tables[room.room] = self._allocator.take(self.job.pages_of(self.side, room))
        if self.side == "decode" and room.prefix:
            self.shard.place(load_truth(self.directory, room.room), table, room.prefix)
        self._guard.renew(table)
        self.settle()
        return table

    def settle(self) -> None:
        """Wait for the GPU, if there is one: what comes into these pages next comes on another stream."""
        if self.on_gpu:
            torch.cuda.synchronize(self.pool.device)

    def opened_with(self, room: RoomSpec) -> dict[str, Any]:
        """The part of the room's table that the prompt fills, for a call of `open`."""
        return {"pages": self.tables[room.room][: -(-room.tokens // self.pool.page_size)]}

    def place(self, room: RoomSpec) -> bytes:
        """Put the room's KV into fresh pages, as it was computed before; its aux row."""
        truth, table = load_truth(self.directory, room.room), self.allocate(room)
        self.shard.place(truth, table, room.tokens)
        return AUX.pack(truth.tokens[0], truth.logits[0])

    def give_back(self, room: int) -> None:
        """Give the room's pages back; they are reused, and a late reader or writer would meet noise there."""
        table = self.tables.pop(room)
        self._grown.pop(room, None)
        self._behind.pop(room, None)
        self.pool.scribble(table)
        self._guard.renew(table)
        self._allocator.give(table)

    def prefill(self, room: int) -> Iterator[tuple[int, bytes | None]]:
        """`Shard.prefill` of the room's prompt into its pages."""
        return self.shard.prefill(prompt(self.job, self.rooms[room]), self.tables[room])

    def begin_resuming(self, room: int) -> None:
        """Remember the row behind the room's last token, in which nobody but `resume` may write."""
        self._behind[room] = self._guard.behind(self.held(room))

    def resume(self, room: int, token: int, count: int | None = None) -> Iterator[bytes]:
        """`Shard.resume` of the room after `token`, the last one that was generated: `count` more, or all."""
        spec, grown = self.rooms[room], self._grown.get(room, 0)
        count = spec.new - 1 - grown if count is None else count
        self._grown[room] = grown + count
        return self.shard.resume(token, self.tables[room], spec.tokens + grown, count)

    def copied(self, room: int) -> Rows:
        """Copy the room's KV as it is now where the pool is, for `told`."""
        places = self.pool.where(self.tables[room], 0, self.rooms[room].tokens)
        kinds: tuple[Kind, Kind] = ("k", "v")
        return {
            (kind, self.shard.first_layer + local): self.pool.load(kind, local, places).view(torch.uint8)
            for kind in kinds
            for local in range(self.shard.layers)
        }

    def told(self, copies: Rows) -> Sheet:
        return sheet_of(copies, dict.fromkeys(copies, self.shard.first_head))

    def sheet(self, room: int) -> Sheet:
        return self.told(self.copied(room))

    def intruded(self) -> list[str]:
        """Changes outside the tokens of the rooms that hold pages now: prompts, and what was generated here."""
        held = {room: self.held(room) for room in self.tables}
        grown = [PooledRoom(x.table, x.tokens + self._grown.get(room, 0)) for room, x in held.items()]
        touched = [room for room, (now, before) in self._behind.items() if not now.equal(before)]
        found = [f"room {room}: the row behind its last token changed, outside the rooms" for room in touched]
        return found + self._guard.intruded(grown)

    def corrupted(self, rooms: Sequence[int]) -> Iterator[tuple[str, int, Sheet]]:
        """Yield (control, room, sheet) of each control that can be applied to one of these rooms."""
        size = self.pool.page_size
        tampered = [TamperedRoom(self.rooms[room], size, self.copied(room), self.cells(room)) for room in rooms]
        for name, room, rows in corrupted(tampered):
            yield name, room, self.told(rows)

    def held(self, room: int) -> PooledRoom:
        return PooledRoom(self.tables[room], self.rooms[room].tokens)

    def cells(self, room: int) -> list[tuple[int, int]]:
        """(first token, tokens) of each chunk of a room."""
        spec = self.rooms[room]
        total = chunks(spec.tokens, spec.prefix, self.chunk_tokens)
        cuts = [cut_at(k, spec.tokens, spec.prefix, self.chunk_tokens) for k in range(total)]
        return [(cut.first, cut.tokens) for cut in cuts]

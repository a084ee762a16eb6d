"""Rank: a demonstration's rank without its endpoint, with a shard, its page tables, and its reports.

Every rank draws its own page tables, from a seed of its own: nothing may rest on two ranks having the same ones. A
prefill rank that is told that a room is released fills the room's pages with noise at once and hands them to the next
room. An endpoint that said so too early would be found out by the comparison.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from kvproto.io.kernels.base import Pool
from kvproto.lab.demo.comm import Comm
from kvproto.lab.demo.controls import CONTROLS, Copied, Guard, PooledRoom, applicable, copied, tampered, told
from kvproto.lab.demo.job import DemoJob, RoomSpec, Side
from kvproto.lab.demo.model import AUX, prompt
from kvproto.lab.demo.oracle import load_truth
from kvproto.lab.demo.pages import Allocator
from kvproto.lab.demo.shard import AfterLayer, Shard
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

    @property
    def layers(self) -> int:
        return self.shard.layers

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

    def prefill(self, room: int, after_layer: AfterLayer | None = None) -> Iterator[tuple[int, bytes | None]]:
        """`Shard.prefill` of the room's prompt into its pages."""
        return self.shard.prefill(prompt(self.job, self.rooms[room]), self.tables[room], after_layer)

    def begin_resuming(self, room: int) -> None:
        """Remember the row behind the room's last token, in which nobody but `resume` may write."""
        self._behind[room] = self._guard.behind(self.held(room))

    def resume(self, room: int, token: int, count: int | None = None) -> Iterator[bytes]:
        """`Shard.resume` of the room after `token`, the last one that was generated: `count` more, or all."""
        spec, grown = self.rooms[room], self._grown.get(room, 0)
        count = spec.new - 1 - grown if count is None else count
        self._grown[room] = grown + count
        return self.shard.resume(token, self.tables[room], spec.tokens + grown, count)

    def copied(self, room: int) -> Copied:
        """The room's KV as it is now, for `told`."""
        return copied(self.pool, self.held(room))

    def told(self, copies: Copied) -> Sheet:
        return told(copies, self.shard.first_layer, self.shard.first_head)

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
        """Yield (control, room, sheet) of each control on the first of these rooms that it can be applied to."""
        for name in CONTROLS:
            for room in rooms:
                if self.controls(room, [name]):
                    with self.tampered(name, room):
                        yield name, room, self.sheet(room)
                    break

    def controls(self, room: int, names: list[str]) -> list[str]:
        return [name for name in names if applicable(name, self.pool, self._marked(room))]

    @contextlib.contextmanager
    def tampered(self, name: str, room: int) -> Iterator[None]:
        with tampered(name, self._guard, self._marked(room)):
            yield

    def held(self, room: int) -> PooledRoom:
        spec = self.rooms[room]
        total = chunks(spec.tokens, spec.prefix, self.chunk_tokens)
        cuts = [cut_at(k, spec.tokens, spec.prefix, self.chunk_tokens) for k in range(total)]
        return PooledRoom(self.tables[room], spec.tokens, tuple((cut.first, cut.tokens) for cut in cuts))

    def _marked(self, room: int) -> PooledRoom:
        """The room with K of a head that this rank does not hold, for the control that needs one."""
        held, heads = self.held(room), self.job.heads
        if self.shard.heads > 1 or heads == 1:
            return held
        other = (self.shard.first_head + 1) % heads
        foreign = load_truth(self.directory, room).keys[self.shard.first_layer, other]
        return PooledRoom(held.table, held.tokens, held.cells, foreign)

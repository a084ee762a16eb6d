"""Caches rank: a rank of either side, with its share of a model's caches in pages, windows and slots.

Each rank computes the whole model with the library's own cache, and remembers its share of that in pages alone: its
heads, its segments of a convolution, its layers.  What P has computed leaves from there.  D has seen none of a prompt:
its ranks put together what is in their pages, make the library's cache of it, and go on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from kvproto.io.kernels.cache_pool import CachePool
from kvproto.lab.demo.cache_field import rebuilt, rows_of
from kvproto.lab.demo.caches_job import CachesJob
from kvproto.lab.demo.caches_model import CachesModel, load_rows
from kvproto.lab.demo.caches_pages import CachesPages, HeldRoom, whole_rows
from kvproto.lab.demo.comm import Comm
from kvproto.lab.demo.family import FAMILIES
from kvproto.lab.demo.job import RoomSpec, Side
from kvproto.lab.demo.pages import Rows
from kvproto.lab.demo.tampered_room import TamperedRoom, corrupted
from kvproto.lab.demo.verify import Sheet
from kvproto.layout.sharding import Layout

#: pages and slots that no room uses: they must come out unchanged
SPARE = 5


class CachesRank:
    """Rank `rank` of `side`'s group; it has the calls of `DemoRank`.  Decode ranks join a group."""

    on_gpu = False

    def __init__(self, job: CachesJob, side: Side, rank: int, directory: Path) -> None:
        self.job, self.side, self.rank, self.directory = job, side, rank, directory
        self.me, shape = CachesModel(job), job.shape(side)
        self.layout = self.me.layout(side)
        pages = sum(-(-room.tokens // shape.page_size) for room in job.rooms) + SPARE
        self.pages = CachesPages(self.layout, rank, pages=pages, windows=pages, slots=len(job.rooms) + SPARE,
                                 seed=hash((job.seed, side == "decode", rank)) & 0x7FFF_FFFF)  # fmt: skip
        self.rooms = {room.room: room for room in job.rooms}
        self.tables = dict[int, HeldRoom]()
        #: by room, the library's cache that goes on, and the tokens that were said
        self._going_on = dict[int, tuple[Any, int]]()
        if side == "decode":
            self._comm = Comm(directory / "decode.store", rank, shape.tp, shape.pp)

    def layout_of(self, side: Side) -> Layout:
        return self.me.layout(side)

    def kv_pool(self) -> CachePool:
        return self.pages.pool

    def allocate(self, room: RoomSpec) -> None:
        """Take a room's memory, with what D has of it already; MemoryError: too little is left."""
        held = self.tables[room.room] = self.pages.take(room.tokens)
        if self.side == "decode" and room.prefix:
            self.pages.store(load_rows(self.directory, room.room)[0], held, 0, room.prefix)

    def opened_with(self, room: RoomSpec) -> dict[str, Any]:
        """Pages, slot and window of a room, for a call of `open`."""
        held, ends = self.tables[room.room], {each.of[0].name for each in self.pages.pool.ends if each.of is not None}
        return {
            "pages": held.pages, "slot": held.slot if "state" in ends else None,
            "window": held.window if "window" in ends else None,
        }  # fmt: skip

    def give_back(self, room: int) -> None:
        """Give a room's memory back: a late reader or writer would meet noise there."""
        self.pages.give(self.tables.pop(room))
        self._going_on.pop(room, None)

    def prefill(self, room: int) -> Iterator[tuple[int, bytes | None]]:
        """Forward the room's prompt chunk by chunk into its pages; after each: (tokens now there, aux row)."""
        first, held = 0, self.tables[room]
        for upto, cache, row in self.me.prefill(self.rooms[room]):
            self.pages.store(rows_of(self.me.fields, cache), held, first, upto)
            yield upto, row
            first = upto

    def place(self, room: RoomSpec) -> bytes:
        """Put the room's rows into fresh memory, as they were computed before; its aux row."""
        self.allocate(room)
        rows, row = load_rows(self.directory, room.room)
        self.pages.store(rows, self.tables[room.room], 0, room.tokens)
        return row

    def begin_resuming(self, room: int) -> None:
        """Make the library's cache of what all ranks of the group have of the room in their pages."""
        rows = whole_rows(self._comm.gather_objects(self.sheet(room)), self.me.units)
        self._going_on[room] = rebuilt(self.me.model.config, self.me.fields, rows, self.rooms[room].tokens), 0

    def resume(self, room: int, token: int, count: int | None = None) -> Iterator[bytes]:
        """Yield `count` aux rows of what follows `token`, or all that are left."""
        cache, said = self._going_on[room]
        count = self.rooms[room].new - 1 - said if count is None else count
        self._going_on[room] = cache, said + count
        yield from self.me.more(cache, token, count)

    def copied(self, room: int) -> Rows:
        """Copy this rank's rows of a room as they are now, for `told`."""
        return self.pages.load(self.tables[room])

    def told(self, copies: Rows) -> Sheet:
        return self.pages.sheet(copies)

    def sheet(self, room: int) -> Sheet:
        return self.told(self.copied(room))

    def intruded(self) -> list[str]:
        """Changes outside the rows of the rooms that hold memory now."""
        return self.pages.intruded(self.tables.values())

    def corrupted(self, rooms: Sequence[int]) -> Iterator[tuple[str, int, Sheet]]:
        """Yield (control, room, sheet) of each control that can be applied to one of these rooms."""
        shares = {room: self.copied(room) for room in rooms}
        segments, tp = FAMILIES[self.job.family].segments, (self.job.prefill.tp, self.job.decode.tp)
        tampered = [
            TamperedRoom(self.rooms[room], self.pages.page_size, share, (),
                         [each for number, each in shares.items() if number != room], segments, tp)
            for room, share in shares.items()
        ]  # fmt: skip
        for name, room, rows in corrupted(tampered):
            yield name, room, self.told(rows)

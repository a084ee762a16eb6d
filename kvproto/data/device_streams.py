"""Device streams: a rank's own streams on its GPU.

Gathers and scatters have a stream of their own, so they wait only for the forward that produces their KV, and the
forward does not wait for them. Stores into a peer's pages have a stream that waits for no forward: they are launched
when their KV is computed, the peer waits for their end, and a gather in front of them may wait for a forward that
hangs. Stores take turns on two streams: the programs of the next one begin as those of one end, so that the link is
never without work, and no program of a forward takes their place, for whose end the store would wait. What copy engines
carry beside a store has two streams of its own, which take turns likewise. Page tables are copied on a stream of their
own: an engine may open a room at any time, and a copy from pageable memory blocks until its stream reaches it, which
may wait for a forward. The tables of rooms that were opened in one pass of the loop are one copy (`put_off`, `run`),
unless one is needed earlier.

The order: a gather waits for the event that came with `produced`; the first launch that reads a table waits for the
table; an engine that reads pages after `finished` need not wait, because the scatter is over.

On the CPU there are no streams, and copies are over when they return.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from threading import Lock
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from kvproto.data.device_alarm import DeviceAlarm
from kvproto.data.peer_tables import MOST, PeerTables
from kvproto.data.room_entry import NO_TABLE, HostPages, RoomEntry
from kvproto.io.held_calls import drained, passed
from kvproto.io.kernels.base import Pool
from kvproto.io.kernels.current_device import use_device
from kvproto.io.transports.device_maps import cuda_driver
from kvproto.loop.rank_loop import Loop
from kvproto.observe.logs import named
from kvproto.protocol.states import Cause

new_stream: Callable[..., Any] = torch.cuda.Stream
#: a room's slots, or pages of a window, by cache that travels at the end
Ends = tuple[tuple[int, ...], ...]


class CurrentStream:
    """Make a stream current for a block, as `torch.cuda.stream` does, at a fifth of its cost."""

    __slots__ = ("_before", "_device", "_index", "_stream")

    def __init__(self, stream: Any, index: int) -> None:
        """`index` of the stream's device."""
        self._stream, self._index = stream, index

    def __enter__(self) -> None:
        self._device = use_device(self._index)
        self._device.__enter__()
        self._before = torch.cuda.current_stream(self._index)
        torch.cuda.set_stream(self._stream)

    def __exit__(self, *_: object) -> None:
        torch.cuda.set_stream(self._before)
        self._device.__exit__(None, None, None)


class DeviceStreams:
    """The streams of one rank: `stream` for data, `stores` for stores into peers' pages; None on a CPU."""

    def __init__(self, device: torch.device) -> None:
        """`device`: where the rank's pool is."""
        self.device = device
        self.stream: Any = None
        self.stores: tuple[Any, Any] = (None, None)
        self.copies: tuple[Any, Any] = (None, None)
        self._tables: Any = None
        #: what places the tables of peers; None: torch does
        self._peers: PeerTables | None = None
        #: rooms whose tables are not on their way yet
        self.unplaced: deque[RoomEntry] = deque()
        self._placing = Lock()
        #: called with the entry whose table could not be copied, and the error
        self.failed: Callable[[RoomEntry, BaseException], None] = lambda _entry, _error: None
        self._awaited: Any = None
        #: the event of the table that was sent last, or a peer's table itself; those that the two stores are behind
        self._sent: Any = None
        self._behind: list[Any] = [None, None]
        #: which of the two had the last store, and which of `copies` the last copy
        self.turn = self._turn_of_copies = 1
        #: the event after which the forward is over that the engine reported last
        self.forward: Any = None
        #: the device's number
        self.index = device.index or 0
        if device.type == "cuda":
            urgent = -1  # a chunk is small beside a forward, and a peer waits for it
            self.stream = new_stream(device, priority=urgent)
            self.stores = new_stream(device, priority=urgent), new_stream(device, priority=urgent)
            self.copies = new_stream(device, priority=urgent), new_stream(device, priority=urgent)
            self._tables = new_stream(device)
            if (driver := cuda_driver()) is not None:
                self._peers = PeerTables(driver, device, self._tables, self.stores)

    def forward_runs(self) -> bool:
        """Whether a forward that the engine has reported is not over yet, for all that is known."""
        if self.forward is not None and passed(self.forward):
            self.forward = None
        return self.forward is not None

    def alarm(self) -> DeviceAlarm | None:
        """Return an alarm with a stream of its own, for the loop's sleep; None: there is no device."""
        return DeviceAlarm(new_stream(self.device), self.index) if self.device.type == "cuda" else None

    def place(self, pages: npt.NDArray[Any]) -> tuple[torch.Tensor, Any]:
        """A host table on the device, and the event after which it is there (None: now).  Any thread."""
        table = torch.from_numpy(pages)
        if self.stream is None:
            return table, None
        with CurrentStream(self._tables, self.index):
            placed = table.to(self.device, non_blocking=True)
            event = self._mark_sent()
        for reader in (self.stream, *self.stores):
            placed.record_stream(reader)
        return placed, event

    def place_peer(self, pages: bytes) -> torch.Tensor:
        """Return the pages that a peer has named, on the device behind `next_store`.  The loop's thread."""
        if self._peers is None or len(pages) > MOST:
            return self.place(np.frombuffer(pages, np.uint8).copy())[0]
        self._sent = placed = self._peers.place(pages)
        return placed

    def place_ends(self, pool: Pool, ends: Ends) -> tuple[tuple[torch.Tensor | None, ...], Any]:
        """A room's slots of state and pages of windows, as `place` does, where pools have tables of rooms."""
        own = [mine if end.own_tables else () for end, mine in zip(pool.ends, ends, strict=True)] if ends else []
        if not any(own):
            return (None,) * len(own), None
        # One copy for all of them, which costs what one of them would.
        whole, event = self.place(np.concatenate([np.array(mine, np.int64) for mine in own]))
        tables = torch.split(whole, [len(mine) for mine in own])
        return tuple(table if mine else None for table, mine in zip(tables, own, strict=True)), event

    def put_ends(self, pool: Pool, entry: RoomEntry, ends: Ends) -> None:
        """Give an open room others; the loop's thread."""
        entry.end_tables, placed = self.place_ends(pool, ends)
        # Behind every table that this thread has sent, so its event alone is enough.
        entry.placed = entry.placed if placed is None else placed

    def _mark_sent(self) -> Any:
        """The event after which the table is there whose copy was queued just now."""
        event: Any = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record(self._tables)
        self._sent = event
        return event

    def extend(self, entry: RoomEntry, more: HostPages) -> Any:
        """Put more pages at the table's end; the event after which they are on the device (None: now).

        From one thread of the engine's at a time, and never what was given already: a launch may be reading that.
        """
        if not len(more):
            return None
        at, entry.given = entry.given, entry.given + len(more)
        if self.stream is None:
            entry.pages[at : entry.given] = more
            return None
        with self._placing:
            entry.pages[at : entry.given] = more
            if entry.table is NO_TABLE:  # they go with the others
                return None
        try:
            with CurrentStream(self._tables, self.index):
                entry.table[at : entry.given].copy_(torch.from_numpy(more), non_blocking=True)
                return self._mark_sent()
        except BaseException:
            entry.given = at  # nothing may read pages that are not there
            raise

    def put_off(self, entry: RoomEntry) -> None:
        """Have the room's table, whose pages are all given, on the device with others; any thread."""
        if self.stream is None:
            entry.table = torch.from_numpy(entry.pages)
        else:
            self.unplaced.append(entry)

    def place_all(self) -> None:
        """Put the tables on the device that were put off: as one copy, which costs what one of them would."""
        with self._placing:
            entries = [self.unplaced.popleft() for _ in range(len(self.unplaced))]
            if not entries:
                return
            try:
                self._place_together(entries)
            except BaseException as error:  # noqa: BLE001  # each alone: a smaller copy may find room
                if len(entries) == 1:
                    self.failed(entries[0], error)
                    return
                for entry in entries:
                    try:
                        self._place_together([entry])
                    except BaseException as alone:  # noqa: BLE001  # its room fails, and no other
                        self.failed(entry, alone)

    def _place_together(self, entries: list[RoomEntry]) -> None:
        pages = np.concatenate([entry.pages for entry in entries]) if len(entries) > 1 else entries[0].pages
        whole, event = self.place(pages)
        end = 0
        for entry in entries:
            first, end = end, end + len(entry.pages)
            entry.placed = event  # first: another thread may copy the two
            entry.table = whole[first:end]

    def run(self) -> bool:
        """Put them there at the end of each pass of the loop; whether there were any."""
        if not self.unplaced:
            return False
        self.place_all()
        return True

    def __len__(self) -> int:
        """Rooms whose tables are not on their way."""
        return len(self.unplaced)

    def await_table(self, entry: RoomEntry) -> None:
        """Make the next launch wait for the room's table, if its copy is in flight."""
        placed, entry.placed = entry.placed, None
        if placed is not None and placed is not self._awaited:  # else the stream is behind it already
            if not passed(placed):
                self.stream.wait_event(placed)
            self._awaited = placed

    def next_store(self) -> Any:
        """Return the next store's stream, behind tables whose copies are in flight; the two take turns."""
        self.turn = turn = 1 - self.turn
        stream, sent = self.stores[turn], self._sent
        if sent is not self._behind[turn]:
            if not drained(self._tables):  # all: two threads may have recorded their events in the other order
                stream.wait_stream(self._tables)
            self._behind[turn] = sent
        return stream

    def next_copy(self) -> Any:
        """Return the stream of the next copies by engines beside a store; the two take turns."""
        self._turn_of_copies = 1 - self._turn_of_copies
        return self.copies[self._turn_of_copies]


def table_failed(loop: Loop, entry: RoomEntry, error: BaseException) -> None:
    """End the room whose page table cannot be put on the device."""
    if entry.room is not None:
        loop.room_failed(entry.room.key, "page table", error)
    else:  # the engine is just opening it: the first launch fails, for this reason
        entry.fault = Cause.KERNEL_FAILED, f"page table: {named(error)}"

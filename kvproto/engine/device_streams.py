"""A rank's own streams on its GPU.

Gathers and scatters go on a stream of their own, so that they wait for the forward that produces the KV and for
nothing else, and the forward not for them. Page tables are sent on a second one: an engine may open a room at any
time, and a copy from ordinary memory waits for its stream, which may be waiting for a forward.

What is ordered by whom: a gather waits for the event that came with `produced`; every launch that is the first to
read a table waits for the table; an engine that reads pages after `finished` needs nothing, the scatter is over.

On the CPU there are no streams, and copies are over when they return.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy.typing as npt
import torch

from kvproto.engine.room_entry import HostPages, RoomEntry

new_stream: Callable[..., Any] = torch.cuda.Stream


class CurrentStream:
    """What `torch.cuda.stream` does, at a fifth of its time for a thread whose device it is: by number, not by name."""

    __slots__ = ("_before", "_device", "_index", "_stream")

    def __init__(self, stream: Any, index: int) -> None:
        """`index` of the stream's device."""
        self._stream, self._index = stream, index

    def __enter__(self) -> None:
        self._device = torch.cuda.current_device()
        if self._device != self._index:
            torch.cuda.set_device(self._index)
        self._before = torch.cuda.current_stream(self._index)
        torch.cuda.set_stream(self._stream)

    def __exit__(self, *_: object) -> None:
        torch.cuda.set_stream(self._before)
        if self._device != self._index:
            torch.cuda.set_device(self._device)


class DeviceStreams:
    """The streams of one rank. `stream` is for the data (None on the CPU)."""

    def __init__(self, device: torch.device) -> None:
        """`device`: where the rank's pool is."""
        self.device = device
        self.stream: Any = None
        self._tables: Any = None
        #: the device's number
        self.index = device.index or 0
        if device.type == "cuda":
            urgent = -1  # a chunk is small beside a forward, and a peer waits for it
            self.stream = new_stream(device, priority=urgent)
            self._tables = new_stream(device)

    def place(self, pages: npt.NDArray[Any]) -> tuple[torch.Tensor, Any]:
        """A host table on the device, and the event after which it is there (None: now).  Any thread."""
        table = torch.from_numpy(pages)
        if self.stream is None:
            return table, None
        with CurrentStream(self._tables, self.index):
            placed = table.to(self.device, non_blocking=True)
            event: Any = torch.cuda.Event()  # type: ignore[no-untyped-call]
            event.record(self._tables)
        placed.record_stream(self.stream)
        return placed, event

    def extend(self, entry: RoomEntry, more: HostPages) -> Any:
        """Put more pages at the table's end; the event after which they are on the device (None: now).

        From one thread of the engine's at a time, and never what was given already: a launch may be reading that.
        """
        if not len(more):
            return None
        at, entry.given = entry.given, entry.given + len(more)
        entry.pages[at : entry.given] = more
        if self.stream is None:
            return None
        with CurrentStream(self._tables, self.index):
            entry.table[at : entry.given].copy_(torch.from_numpy(more), non_blocking=True)
            event: Any = torch.cuda.Event()  # type: ignore[no-untyped-call]
            event.record(self._tables)
        return event

    def await_table(self, entry: RoomEntry) -> None:
        """What is launched next reads the room's table: have it wait, if the table is still on its way."""
        if entry.placed is not None:
            if not entry.placed.query():
                self.stream.wait_event(entry.placed)
            entry.placed = None

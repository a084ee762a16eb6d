"""Staging memory: what the transport reaches, and what kernels work on.

Two ways, the endpoint's `staging`:

*device*: one buffer on the pool's device is both.  Plain allocations only: what expandable segments or other virtual
memory hand out can be a hundred times slower between processes.

*pinned*: for a transport that cannot reach device memory.  It gets a page-locked buffer on the host; kernels work on
a twin of it on the device, and copy engines carry the bytes between the two, on a stream of their own, so that
gather or scatter of one piece goes on beside the copy of another.  A kernel could reach the host by itself, but its
many short accesses leave a tenth of the bus unused; the twin costs as much device memory as the buffer has.
Between two processes of one host a transport that copies from host memory to host memory bounds all: NIXL over UCX
carried 5.2 GB/s there in one piece, 4.4 in 16, and no more with 8 or 16 threads of its own (5.3 and 4.8).  So the
buffer is memory that peers on this host can map (`kvproto.io.transports.host_memory`).  A transport that has mapped a
peer's takes what it writes from the twin by itself (`lifted`, `kvproto.io.transports.copy_engine`): nothing is copied
to this host's buffer first, and 49 GB/s come through, of 55 in one write.  Over a port of 400 Gbit/s the pipeline hides
the copies but for the first and the last (`kvproto bench pinned --simulate`).

On the CPU there are no twins: kernels work on what the transport has.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Literal, get_args

import torch

from kvproto.data.device_streams import DeviceStreams, new_stream
from kvproto.errors import ArgumentError
from kvproto.io.kernels.base import Events, EventTicket, Ticket
from kvproto.io.kernels.host_buffer import HostBuffer
from kvproto.io.kernels.host_copies import copy_bytes

Kind = Literal["device", "pinned"]
#: parts of a buffer that are kept
PARTS = 4096


class Parts(dict[tuple[int, int], torch.Tensor]):
    """Parts of a buffer, by first byte and length; some are kept: to cut a tensor costs more than to find it again."""

    def __init__(self, whole: torch.Tensor) -> None:
        self._whole = whole

    def __missing__(self, part: tuple[int, int]) -> torch.Tensor:
        if len(self) >= PARTS:
            self.clear()
        first, nbytes = part
        found = self[part] = self._whole[first : first + nbytes]
        return found


def _allocate(nbytes: int, device: torch.device) -> torch.Tensor:
    """A buffer; torch's errors (out of memory among them) name neither the setting nor the remedy."""
    try:
        return torch.empty(nbytes, dtype=torch.uint8, device=device)
    except (RuntimeError, TypeError, MemoryError) as error:
        remedy = "lower Settings.ring_bytes of a decode rank; slots, slot_bytes or the grid of a prefill rank"
        raise ArgumentError(f"{nbytes} bytes of staging on {device} cannot be had: {remedy} ({error})") from error


class Staging:
    """A buffer of `nbytes`: `wire` is the transport's, `near` the kernels'."""

    def __init__(self, nbytes: int, lane: DeviceStreams, kind: Kind) -> None:
        """ArgumentError: there is no such kind, or the machine has not so much memory."""
        if kind not in get_args(Kind):
            raise ArgumentError(f"staging is 'device' or 'pinned', not {kind!r}")
        self.lane, self.twins = lane, kind == "pinned" and lane.stream is not None
        #: the transport takes what it writes from `near` by itself
        self.lifted = False
        new = partial(_allocate, nbytes, lane.device)
        twin = new() if self.twins else None
        self._host = HostBuffer(nbytes, page_locked=self.twins, twin=twin) if kind == "pinned" else None
        self.wire = self._host.bytes if self._host is not None else new()
        self.near = twin if twin is not None else self.wire
        #: bytes of `near`, by the first and how many they are
        self.parts = Parts(self.near)
        self._events = Events()
        self._copies: Any = new_stream(lane.device) if self.twins else None

    def sent_off(self, first: int, last: int, ticket: Ticket) -> Ticket:
        """A gather into bytes [first, last) of `near` was queued: its ticket, or that of the copy to `wire`."""
        if not self.twins or self.lifted:
            return ticket
        if isinstance(ticket, EventTicket):
            ticket.lead(self._copies)
        else:
            self._copies.wait_stream(self.lane.stream)
        return self._copy(self.wire, self.near, first, last)

    def bring(self, first: int, last: int) -> None:
        """A scatter from bytes [first, last) of `near` is about to be queued: have it wait for the copy."""
        if self.twins:
            self._copy(self.near, self.wire, first, last).lead(self.lane.stream)

    def _copy(self, to: torch.Tensor, source: torch.Tensor, first: int, last: int) -> EventTicket:
        copy_bytes(to, source, first, last, self._copies)
        return self._events.ticket(self._copies)

    def __del__(self) -> None:
        """No copy outlives the memory that it reads and writes."""
        if getattr(self, "_copies", None) is not None:
            self._copies.synchronize()

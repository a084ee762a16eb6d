"""Staging buffers: the memory that the transport reaches and kernels work on.

The endpoint's option `staging` has two values:

*device*: one buffer on the pool's device is both.  It has to be a plain allocation: expandable segments and other
virtual memory can be a hundred times slower between processes.

*pinned*: for a transport that cannot reach device memory.  The transport gets a page-locked buffer on the host; kernels
work on a twin of it on the device, and copy engines copy between the two, on a stream of their own, in parallel to
gathers and scatters.  A kernel could access the host itself, but its short accesses waste a tenth of the bus; the twin
costs as much device memory as the buffer.  Between two processes of one host the throughput is bounded by a transport
that copies from host memory to host memory: NIXL over UCX reached 5.2 GB/s in one piece, 4.4 in 16, and no more with 8
or 16 threads of its own (5.3 and 4.8).  So the buffer is memory that peers on this host can map
(`kvproto.io.transports.host_memory`).  A transport that has mapped a peer's buffer writes from the twin itself
(`lifted`, `kvproto.io.transports.copy_engine`): nothing is copied to this host's buffer first, and it reaches 49 GB/s,
of 55 in one write.  Over a port of 400 Gbit/s the pipeline hides the copies, except the first and the last.

On the CPU there are no twins: kernels work on what the transport has.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal, TypeVar, get_args

import torch

from kvproto.data.device_streams import DeviceStreams, new_stream
from kvproto.errors import ArgumentError
from kvproto.io.kernels.base import Events, EventTicket, Ticket
from kvproto.io.kernels.host_buffer import HostBuffer
from kvproto.io.kernels.host_copies import copy_bytes

Kind = Literal["device", "pinned"]
#: parts of a buffer that are kept
PARTS = 4096
T = TypeVar("T")


class Parts(dict[tuple[int, int], torch.Tensor]):
    """Cached parts of a buffer, by first byte and length: a look-up is cheaper than cutting a tensor."""

    def __init__(self, whole: torch.Tensor) -> None:
        self._whole = whole

    def __missing__(self, part: tuple[int, int]) -> torch.Tensor:
        if len(self) >= PARTS:
            self.clear()
        first, nbytes = part
        found = self[part] = self._whole[first : first + nbytes]
        return found


def _obtain(nbytes: int, place: str, make: Callable[[], T]) -> T:
    """Make a buffer; an error of torch or the system names neither the setting nor the remedy."""
    try:
        return make()
    except (RuntimeError, TypeError, MemoryError, OSError, OverflowError) as error:
        remedy = "lower Settings.ring_bytes of a decode rank; slots, slot_bytes or chunk_tokens of a prefill rank"
        raise ArgumentError(f"{nbytes} bytes of staging on {place} cannot be had: {remedy} ({error})") from error


class Staging:
    """A buffer of `nbytes`: `wire` is the transport's, `near` the kernels'."""

    def __init__(self, nbytes: int, streams: DeviceStreams, kind: Kind) -> None:
        """ArgumentError: there is no such kind, or the machine has not so much memory."""
        if kind not in get_args(Kind):
            raise ArgumentError(f"staging is 'device' or 'pinned', not {kind!r}")
        self.nbytes, self.kind = nbytes, kind
        self.streams, self.twins = streams, kind == "pinned" and streams.stream is not None
        #: the transport takes what it writes from `near` by itself
        self.lifted = False
        self._events = Events()
        self._copies: Any = new_stream(streams.device) if self.twins else None
        self.obtain()

    def obtain(self) -> None:
        """Allocate the memory.  ArgumentError: the machine has not so much."""
        nbytes, device = self.nbytes, self.streams.device
        new = partial(_obtain, nbytes, str(device), partial(torch.empty, nbytes, dtype=torch.uint8, device=device))
        twin = new() if self.twins else None
        shared = partial(HostBuffer, nbytes, page_locked=self.twins, twin=twin)
        self._host = _obtain(nbytes, "this host", shared) if self.kind == "pinned" else None
        self.wire = self._host.bytes if self._host is not None else new()
        self.near = twin if twin is not None else self.wire
        #: bytes of `near`, by the first and how many they are
        self.parts = Parts(self.near)

    def give_back(self) -> None:
        """Free the memory, to which no kernel and no transport has anything left to do."""
        if self._copies is not None:
            self._copies.synchronize()
        self._host, self.wire = None, torch.empty(0, dtype=torch.uint8)
        self.near, self.parts = self.wire, Parts(self.wire)

    def sent_off(self, first: int, last: int, ticket: Ticket) -> Ticket:
        """A gather into bytes [first, last) of `near` was queued: its ticket, or that of the copy to `wire`."""
        if not self.twins or self.lifted:
            return ticket
        if isinstance(ticket, EventTicket):
            ticket.lead(self._copies)
        else:
            self._copies.wait_stream(self.streams.stream)
        return self._copy(self.wire, self.near, first, last)

    def bring(self, first: int, last: int) -> None:
        """A scatter from bytes [first, last) of `near` is about to be queued: have it wait for the copy."""
        if self.twins:
            self._copy(self.near, self.wire, first, last).lead(self.streams.stream)

    def _copy(self, to: torch.Tensor, source: torch.Tensor, first: int, last: int) -> EventTicket:
        copy_bytes(to, source, first, last, self._copies)
        return self._events.ticket(self._copies)

    def __del__(self) -> None:
        """No copy outlives the memory that it reads and writes."""
        if getattr(self, "_copies", None) is not None:
            self._copies.synchronize()

"""Twin writes: writes of bytes that lie on a device, beside the host memory that the library knows.

Staging in pinned host memory has a twin on the device (`host_memory.Twin`), which kernels fill.  A write from there is
begun by the device's copy engine (`copy_engine`).  Where the peer's ring is mapped and page-locked here, the engine
carries all but the last page into it, and brings that page into the buffer, from where it goes by NIXL's agent with the
tag.  Where nothing is mapped, the engine brings all of it into the buffer, and then it is a write as others are.  The
loop that posts copies nothing, and goes on.
"""

from __future__ import annotations

import msgspec
import numpy as np

from .base import MemoryRegion, PeerId
from .copy_engine import CopyEngine, EngineCopy
from .endpoint import InstanceDescription
from .host_memory import HostMaps
from .page_lists import PagesRequest
from .regions import Request

#: bytes of the end, at most, which go with the tag
PAGE = 4096


class TwinWrite(msgspec.Struct, frozen=True):
    """A write whose first part the copy engine carries; the agent posts `tail` when that is over."""

    copy: EngineCopy
    tail: Request
    tag: bytes


class TwinWrites:
    """The copy engine of a transport, and the memory of its peers that is mapped for it."""

    def __init__(self) -> None:
        self._engine = CopyEngine()
        self._maps = HostMaps(self._engine.lock)

    def attach(self, region: MemoryRegion) -> None:
        self._engine.attach(region)

    def detach(self, region: MemoryRegion) -> None:
        self._engine.detach(region)

    def link(self, new: InstanceDescription) -> None:
        """Map what can be mapped of a peer that the agent has accepted; any thread."""
        if self._engine:
            self._maps.open(PeerId(new.instance), new.regions)

    def unlink(self, peer: PeerId) -> None:
        """Unmap a peer to which nothing is in flight, and nothing will be."""
        self._maps.close(peer)

    def lifts(self, region: MemoryRegion) -> bool:
        """Whether what is written from this region is taken from the device."""
        return self._engine.lifts((region.index,))

    def takes(self, request: Request | PagesRequest) -> bool:
        """Whether this write does not go by the transport's agent as it is."""
        return self._engine.lifts(request.sources)

    def start(self, peer: PeerId, request: Request, tag: bytes) -> TwinWrite | None:
        """Have the copy engine begin; None: it lies on a device, and cannot be had from there."""
        near, tail = request.local.tolist(), request
        lifted = [(addr, nbytes) for addr, nbytes, _ in near if self._engine.twin(addr, nbytes) is not None]
        there = [self._maps.find(peer, addr, nbytes) for addr, nbytes, _ in request.remote.tolist()]
        into = [part.here.ctypes.data for part in there if part is not None and part.lock is not None]
        if len(lifted) == len(into) == len(near):
            rows = [(addr, to, nbytes) for (addr, nbytes), to in zip(lifted, into, strict=True)]
            addr, to, nbytes = rows.pop()
            most = (nbytes - 1) // PAGE * PAGE  # so that something is left for the end
            rows += [(addr, to, most), (addr + most, addr + most, nbytes - most)]
            tail = _end(request, most)
        else:
            rows = [(addr, addr, nbytes) for addr, nbytes in lifted]
        copy = self._engine.start([row for row in rows if row[2]], there)
        return TwinWrite(copy, tail, tag) if copy is not None else None

    def close(self) -> None:
        """Wait for what is under way, and let go of everything."""
        self._engine.close()
        self._maps.close_all()


def _end(request: Request, first: int) -> Request:
    """Return the bytes from `first` of the last piece of a write."""
    local, remote = (rows[[-1]] for rows in (request.local, request.remote))
    for rows in (local, remote):
        rows[0, 0] += np.uint64(first)
        rows[0, 1] -= np.uint64(first)
    return msgspec.structs.replace(request, local=local, remote=remote)

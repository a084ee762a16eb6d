"""Copy engine: writes into host memory that a peer shares, carried by a device instead of a processor.

A staging buffer in pinned memory has a twin on the device, which kernels fill (`kvproto.data.staging_buffers`).
What is written from such a region is taken from its twin (`lifts`): where a peer's ring is mapped into this process
(`host_memory`) and page-locked here as well, an asynchronous copy carries it straight into the ring, at the rate of the
bus; cores, which carry some 6 GB/s each from host to host, have nothing to do, and the thread that posts goes on.
Elsewhere it is first copied into the buffer, and goes on from there.

Whoever posts a write knows that the bytes are in the twin, and keeps them there until the write is over.  So a copy
waits for nothing, and only one stream is needed.  Page-locking takes the driver a while (it looks at every page), and
so does the end of it: both are done on the threads that wire peers up and let go of them.

Nothing here raises where something cannot be had: then it is said, and there is no copy.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from . import host_memory
from .base import MemoryRegion
from .device_maps import cuda_driver, on_device
from .host_memory import Bytes

_NOT_READY = 600
#: cudaHostRegister's "for every context", a stream that does not wait for the default one, an event without a time
_PORTABLE, _NON_BLOCKING, _NO_TIMING = 1, 1, 2


class PageLock:
    """Bytes stay page-locked, and mapped, as long as this object lives."""

    def __init__(self, cuda: Any, whole: Bytes, device: int) -> None:
        self._cuda, self._whole, self._device = cuda, whole, device

    def __del__(self) -> None:
        with on_device(self._cuda, self._device) as there:
            if there:
                self._cuda.cuMemHostUnregister(ctypes.c_void_p(self._whole.ctypes.data))


class EngineCopy:
    """Copies under way; it keeps what they write into page-locked."""

    def __init__(self, event: ctypes.c_void_p, keep: object) -> None:
        self._event, self._keep, self._code = event, keep, _NOT_READY

    def done(self) -> bool:
        """Whether they move no byte any more."""
        if self._code == _NOT_READY:
            self._code = cuda_driver().cuEventQuery(self._event)
            if self._code != _NOT_READY:
                # Later calls read the code that was kept, so the event can go as soon as it has ended.
                cuda_driver().cuEventDestroy_v2(self._event)
        return self._code != _NOT_READY

    def exception(self) -> BaseException | None:
        """Return the error of the copies; None: there is none."""
        return OSError(f"the device's copy failed (CUresult {self._code})") if self._code else None


class CopyEngine:
    """The copies of one transport, of all its regions that have twins; these are on one device."""

    def __init__(self) -> None:
        #: by index of the region: it, and where its twin begins
        self._twins: dict[int, tuple[MemoryRegion, int]] = {}
        #: of which device, and its stream, the driver's number; 0: there is none yet
        self._device = self._stream = 0

    def __bool__(self) -> bool:
        """Whether there is anything that it could carry."""
        return bool(self._twins)

    def attach(self, region: MemoryRegion) -> None:
        twin = host_memory.twin(region) if cuda_driver() is not None else None
        # One stream serves one device: a twin on another one is written by the agent, as regions without twins are.
        if twin is None or (self._stream and twin.device != self._device):
            return
        self._device, self._stream = twin.device, self._stream or _new_stream(twin.device)
        if self._stream:
            self._twins[region.index] = region, twin.addr

    def detach(self, region: MemoryRegion) -> None:
        """It is one no longer, and nothing is carried of it."""
        self._twins.pop(region.index, None)

    def lock(self, whole: Bytes) -> PageLock | None:
        """Any thread: page-lock what was mapped; None: it cannot be, or it is of no use."""
        if not self:
            return None
        cuda = cuda_driver()
        with on_device(cuda, self._device) as there:
            place = ctypes.c_void_p(whole.ctypes.data), ctypes.c_size_t(whole.size)
            locked = there and cuda.cuMemHostRegister_v2(*place, _PORTABLE) == 0
        return PageLock(cuda, whole, self._device) if locked else None

    def lifts(self, sources: Sequence[int]) -> bool:
        """Whether a region among these has its bytes on the device, and perhaps only there."""
        return any(index in self._twins for index in sources)

    def start(self, rows: Sequence[tuple[int, int, int]], keep: object = None) -> EngineCopy | None:
        """Queue copies of rows that lie on the device; None: it cannot be done.

        A row is (address of its host memory here, destination, bytes).  `keep`: an object that has to live as long.
        """
        event, cuda = ctypes.c_void_p(), cuda_driver()
        with on_device(cuda, self._device) as there:
            if not there or cuda.cuEventCreate(ctypes.byref(event), _NO_TIMING):
                return None
            stream = ctypes.c_void_p(self._stream)
            if not all(self._queued(cuda, stream, *row) for row in rows) or cuda.cuEventRecord(event, stream):
                # a copy that was queued without an end that can be seen is waited for: it is some milliseconds
                cuda.cuStreamSynchronize(stream)
                cuda.cuEventDestroy_v2(event)
                return None
        return EngineCopy(event, keep)

    def _queued(self, cuda: Any, stream: ctypes.c_void_p, source: int, to: int, nbytes: int) -> bool:
        twin = self.twin(source, nbytes)
        if twin is None:
            return False
        failed: int = cuda.cuMemcpyAsync(ctypes.c_uint64(to), ctypes.c_uint64(twin), ctypes.c_size_t(nbytes), stream)
        return failed == 0

    def twin(self, source: int, nbytes: int) -> int | None:
        """Return the device address of these bytes of host memory; None: they have none."""
        for region, addr in self._twins.values():
            first = source - region.addr
            if first >= 0 and first + nbytes <= region.nbytes:
                return addr + first
        return None

    def close(self) -> None:
        """Have what is under way end, which takes some milliseconds; nothing is begun any more."""
        self._twins.clear()
        if self._stream:
            with on_device(cuda_driver(), self._device) as there:
                if there:
                    cuda_driver().cuStreamSynchronize(ctypes.c_void_p(self._stream))
                    cuda_driver().cuStreamDestroy_v2(ctypes.c_void_p(self._stream))
            self._stream = 0


def _new_stream(device: int) -> int:
    """A stream of the device, the driver's number; 0: there is none."""
    stream = ctypes.c_uint64()
    with on_device(cuda_driver(), device) as there:
        made = there and cuda_driver().cuStreamCreate(ctypes.byref(stream), _NON_BLOCKING) == 0
    return stream.value if made else 0



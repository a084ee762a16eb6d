"""Host memory: other processes of the host map it, so a write into it is a copy by the copy engine.

A region whose bytes lie on a device as well says where (`Twin`): the copy engine starts there (`copy_engine`).

So a ring on the host lies in a file without a name in any directory (`memfd`), and its region tells peers where that
file is open: in which process, under which number, on which host (the kernel's boot id) and by what random name.  Who
may open it there, finds the name as it was told and the file sealed against another size, maps it and has a copy engine
write into it (`twin_writes`); everybody else writes as before.  The name is told to peers alone, so a number that means
something else there opens nothing.

A mapping keeps the memory, whatever becomes of the process that made it: a copy into what its owner has given up does
no harm.  The file goes with the last who has it, so a process that is killed leaves nothing behind.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import secrets
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Thread
from typing import NamedTuple
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt

from .base import MemoryRegion, PeerId
from .device_maps import HOST, this_host
from .endpoint import RegionEntry

Bytes = npt.NDArray[np.uint8]
#: process, its descriptor, where in the file, the file's random name
_PLACE = struct.Struct("<IIQ16s")
_NAME = "kvproto-"
_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
_made: WeakValueDictionary[int, SharedMemory] = WeakValueDictionary()


class Twin(NamedTuple):
    """The device copy of a part of host memory."""

    device: int
    addr: int


class SharedMemory:
    """Zeroed memory that peers on this host can map while this object lives; `view` may outlive it.

    Raises OSError where there is no such memory, or not as much.
    """

    def __init__(self, nbytes: int) -> None:
        #: who writes here has written the same there before it lets a transport read
        self.twin: Twin | None = None
        self.nbytes, self.name = nbytes, secrets.token_bytes(16)
        self.fd = os.memfd_create(_NAME + self.name.hex(), os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self.fd, nbytes)
        # Before anybody maps it: a process that maps a file which shrinks later dies of SIGBUS.
        fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, _SEALS)
        self.view = mmap.mmap(self.fd, nbytes)
        self.addr = int(np.frombuffer(self.view, np.uint8).ctypes.data)
        _made[self.addr] = self

    def __del__(self) -> None:
        if "fd" in vars(self):
            os.close(self.fd)


def share(region: MemoryRegion) -> bytes:
    """Return the data with which a peer on this host maps the region; empty: it cannot."""
    memory = _memory(region) if this_host() else None
    if memory is None:
        return b""
    return this_host() + _PLACE.pack(os.getpid(), memory.fd, region.addr - memory.addr, memory.name)


def twin(region: MemoryRegion) -> Twin | None:
    """Return the device copy of the region's bytes; None: there is none."""
    memory = _memory(region)
    if memory is None or memory.twin is None:
        return None
    return Twin(memory.twin.device, memory.twin.addr + region.addr - memory.addr)


def _memory(region: MemoryRegion) -> SharedMemory | None:
    # Copied: the collector may drop an entry at any time.
    for addr, memory in list(_made.items()) if region.kind == "DRAM" else ():
        if addr <= region.addr and region.addr + region.nbytes <= addr + memory.nbytes:
            return memory
    return None


class Part(NamedTuple):
    """Bytes of a peer as they are mapped here, and what keeps them page-locked, if anything does."""

    here: Bytes
    lock: object | None


class _Mapped(NamedTuple):
    """A region of a peer: where it lies there, what it told of itself, and its bytes here."""

    addr: int
    share: bytes
    here: Bytes
    lock: object | None


Lock = Callable[[Bytes], object | None]
"""Page-locks what was mapped as long as what it returns lives; None: it does not."""


class HostMaps:
    """The mapped host memory of one transport's peers. Any thread may `open` and `close`, one at a time."""

    def __init__(self, lock: Lock = lambda _: None) -> None:
        self._of: dict[PeerId, tuple[_Mapped, ...]] = {}
        self._lock = lock

    def open(self, peer: PeerId, regions: Sequence[RegionEntry]) -> None:
        """Map what can be of these, which are all that the peer has; what is mapped already stays so."""
        known = {(each.addr, each.here.size, each.share): each for each in self._of.get(peer, ())}
        found = [known.get((each.addr, each.nbytes, each.share)) or _mapped(each, self._lock) for each in regions]
        self._of[peer] = tuple(each for each in found if each is not None)

    def find(self, peer: PeerId, addr: int, nbytes: int) -> Part | None:
        """Return these mapped bytes of the peer, mapped as long as the part lives; None: they are not."""
        for each in self._of.get(peer, ()):
            first = addr - each.addr
            if first >= 0 and first + nbytes <= each.here.size:
                return Part(each.here[first : first + nbytes], each.lock)
        return None

    def close(self, peer: PeerId) -> None:
        """Unmap this peer's memory; page-locked memory on a thread, because the driver is slow."""
        gone = list(self._of.pop(peer, ()))
        if any(each.lock is not None for each in gone):
            Thread(target=gone.clear, daemon=True).start()

    def close_all(self) -> None:
        """Let go of everything; what that takes is waited for."""
        self._of.clear()


def _mapped(region: RegionEntry, lock: Lock) -> _Mapped | None:
    """The region as it is here; None: it is of another host, or of no file that is what it was told to be."""
    if region.kind != "DRAM" or len(region.share) != HOST + _PLACE.size or region.share[:HOST] != this_host():
        return None
    process, number, first, name = _PLACE.unpack(region.share[HOST:])
    try:
        file = os.open(f"/proc/{process}/fd/{number}", os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        # asked of what was opened, not of the path: a number may come to mean another file at any time
        told = str(Path(f"/proc/self/fd/{file}").readlink()) == f"/memfd:{_NAME}{name.hex()} (deleted)"
        sealed = told and fcntl.fcntl(file, fcntl.F_GET_SEALS) & _SEALS == _SEALS
        if not sealed or first + region.nbytes > os.fstat(file).st_size:
            return None
        whole = np.frombuffer(mmap.mmap(file, first + region.nbytes), np.uint8)
    except OSError:
        return None
    finally:
        os.close(file)
    return _Mapped(region.addr, region.share, whole[first:], lock(whole))

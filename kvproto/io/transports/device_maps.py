"""Device maps: a process's device memory mapped into another of its host by the CUDA driver's handles.

A region of device memory that was allocated plainly has a handle; another process that opens it has the same memory at
an address of its own, and its kernels store there over the link, as UCX's own copies do.  The handle travels with the
region in the endpoint, and with it the host that it is good for (the kernel's boot id): numbers of another host may
mean another allocation here.

What has no handle (virtual memory, memory pools), or cannot be opened (another host, the same process, no way between
the two devices) is not mapped, and goes by the transport's own writes.  Nothing here raises for that.

An opened allocation is held until its peer is dropped; one that several regions lie in is opened once.  Memory that
was freed by its owner meanwhile is still memory: a store into it does no harm here.  To let go of it the driver may
wait for the device, so that is asked for on a thread of its own; the driver counts how often a handle was opened, so a
peer that comes back meanwhile has its memory at the same address.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

from .base import MemoryRegion, PeerId
from .endpoint import RegionEntry

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
HOST, HANDLE, OFFSET, UUID = 36, 64, 8, 16
#: the driver enables access between the two devices when it is first needed
_LAZY = 1
#: seconds that the end waits for what is being unmapped
_END_S = 2.0


class _Handle(ctypes.Structure):
    _fields_ = (("reserved", ctypes.c_byte * HANDLE),)


@lru_cache(maxsize=1)
def cuda_driver() -> Any:
    """The CUDA driver's library; None: there is none."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
        driver.cuIpcOpenMemHandle_v2.argtypes = [ctypes.POINTER(ctypes.c_uint64), _Handle, ctypes.c_uint]
    except (OSError, AttributeError):
        return None
    return driver


@lru_cache(maxsize=1)
def this_host() -> bytes:
    """Return this host's boot id; empty: it is unknown."""
    try:
        return BOOT_ID.read_bytes().strip()[:HOST].ljust(HOST)
    except OSError:
        return b""


@contextmanager
def on_device(driver: Any, device: int) -> Iterator[bool]:
    """Within: the device's context is the thread's; whether it could be had."""
    context = ctypes.c_void_p()
    got = driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device) == 0
    pushed = got and driver.cuCtxPushCurrent_v2(context) == 0
    try:
        yield pushed
    finally:
        if pushed:
            driver.cuCtxPopCurrent_v2(ctypes.byref(ctypes.c_void_p()))
        if got:
            driver.cuDevicePrimaryCtxRelease_v2(device)


def share(region: MemoryRegion) -> bytes:
    """Return the handle with which a peer on this host opens the region; empty: there is none."""
    driver = cuda_driver() if region.kind == "VRAM" else None
    if driver is None or not this_host():
        return b""
    with on_device(driver, region.dev) as there:
        whole = allocation(driver, region.addr) if there else None
        handle = _Handle()
        if whole is None or driver.cuIpcGetMemHandle(ctypes.byref(handle), ctypes.c_uint64(whole[0])) != 0:
            return b""
    return this_host() + bytes(handle) + (region.addr - whole[0]).to_bytes(OFFSET, "little")


def uuid_of(device: int) -> bytes:
    """Return the UUID of a device, as this process counts them; empty: the driver does not tell."""
    driver, place, uuid = cuda_driver(), ctypes.c_int(), (ctypes.c_ubyte * UUID)()
    if driver is None or driver.cuDeviceGet(ctypes.byref(place), device):
        return b""
    # That of a part of a device (MIG) is its own, where the driver is new enough to tell.
    ask = getattr(driver, "cuDeviceGetUuid_v2", None) or driver.cuDeviceGetUuid
    return b"" if ask(ctypes.byref(uuid), place) else bytes(uuid)


def allocation(driver: Any, address: int) -> tuple[int, int] | None:
    """Return the first address and the bytes of the allocation of this address; None: it is in none."""
    base, size = ctypes.c_uint64(), ctypes.c_size_t()
    found = driver.cuMemGetAddressRange_v2(ctypes.byref(base), ctypes.byref(size), ctypes.c_uint64(address)) == 0
    return (base.value, size.value) if found else None


class DeviceMaps:
    """The mapped memory of one transport's peers. Any thread may `open` and `close`, one peer at a time."""

    def __init__(self) -> None:
        self._addresses: dict[PeerId, dict[int, int]] = {}
        #: by peer: by handle, where that allocation is here, and from which device it was opened
        self._opened: dict[PeerId, dict[bytes, int]] = {}
        self._device: dict[PeerId, int] = {}
        #: by peer: whether its memory is on another device than the one that it was opened for; not known: left out
        self._apart: dict[PeerId, bool] = {}
        #: peers all of whose handles are good for another host
        self._elsewhere: set[PeerId] = set()
        self._closing: list[threading.Thread] = []
        self._why: dict[PeerId, str] = {}

    def open(self, peer: PeerId, regions: Sequence[RegionEntry], device: int) -> None:
        """Map these regions, as far as possible, for kernels of this device.

        They replace all earlier regions of the peer.
        """
        self._forget(peer)
        driver, found = cuda_driver(), dict[int, int]()
        whole = [each for each in regions if each.kind == "VRAM"]
        shared = [each for each in whole if len(each.share) == HOST + HANDLE + OFFSET]
        if len(shared) < len(whole):
            self._why[peer] = "it names no handle of its memory: that is virtual, of a memory pool, or kept to itself"
        whole, shared = shared, [each for each in shared if each.share[:HOST] == this_host()]
        if whole and not shared and this_host():
            self._elsewhere.add(peer)
        if driver is None or not shared:
            return
        opened = self._opened.setdefault(peer, {})
        # The first device stays the peer's: handles that are open belong to its context.
        device = self._device.setdefault(peer, device)
        with on_device(driver, device) as there:
            for each in shared if there else ():
                address, why = self._open(driver, opened, each)
                if address:
                    found[each.index] = address
                else:
                    self._why[peer] = f"region {each.index}: {why}"
        if found:
            self._addresses[peer] = found
            ours, theirs = uuid_of(device), {each.gpu for each in shared if each.index in found}
            if ours and all(theirs):
                self._apart[peer] = ours not in theirs

    def of(self, peer: PeerId) -> Mapping[int, int] | None:
        """Return the addresses of the peer's mapped regions, by index; None: none is mapped."""
        return self._addresses.get(peer)

    def apart(self, peer: PeerId) -> bool | None:
        """Return whether all of the peer's mapped memory is on another device; None: it is not known."""
        return self._apart.get(peer)

    def elsewhere(self, peer: PeerId) -> bool:
        """Return whether the peer's memory is known to be another host's."""
        return peer in self._elsewhere

    def why_not(self, peer: PeerId) -> str:
        """Say why a region of the peer, on this host, is not mapped; empty: it is, or the host is another one."""
        return self._why.get(peer, "")

    def close(self, peer: PeerId) -> None:
        """Let go of all that is mapped of this peer, in a while; nothing may be storing there."""
        driver, opened = cuda_driver(), self._opened.pop(peer, {})
        self._forget(peer)
        device = self._device.pop(peer, 0)
        if opened:
            self._closing = [each for each in self._closing if each.is_alive()]
            thread = threading.Thread(target=_unmap, args=(driver, device, list(opened.values())), daemon=True)
            thread.start()
            self._closing.append(thread)

    def close_all(self) -> None:
        """Let go of everything; what that takes is waited for, up to a bound."""
        for peer in list(self._opened):
            self.close(peer)
        for each in self._closing:
            each.join(_END_S)

    def _forget(self, peer: PeerId) -> None:
        self._elsewhere.discard(peer)
        for kept in (self._addresses, self._why, self._apart):
            kept.pop(peer, None)

    @staticmethod
    def _open(driver: Any, opened: dict[bytes, int], region: RegionEntry) -> tuple[int, str]:
        """Return the region's address here and ""; or 0 and why it cannot be mapped."""
        handle = region.share[HOST : HOST + HANDLE]
        offset, base = int.from_bytes(region.share[HOST + HANDLE :], "little"), opened.get(handle, 0)
        if not base:
            place = ctypes.c_uint64()
            failed = driver.cuIpcOpenMemHandle_v2(ctypes.byref(place), _Handle.from_buffer_copy(handle), _LAZY)
            if failed:
                return 0, f"the driver does not open it (CUresult {failed})"
            base = opened[handle] = place.value
        whole = allocation(driver, base)
        inside = whole is not None and base + offset + region.nbytes <= whole[0] + whole[1]
        return (base + offset, "") if inside else (0, "it is not inside of the allocation that it names")


def _unmap(driver: Any, device: int, opened: Sequence[int]) -> None:
    with on_device(driver, device) as there:
        for base in opened if there else ():
            driver.cuIpcCloseMemHandle(ctypes.c_uint64(base))

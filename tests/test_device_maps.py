"""Maps of a peer's device memory: what lies in the allocation, by its newest table, opened once."""

from __future__ import annotations

import ctypes
import re
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace
from support.cuda_driver import Contexts, uuid_of

from kvproto.io.transports import device_maps
from kvproto.io.transports.base import MemoryRegion, PeerId
from kvproto.io.transports.device_maps import HANDLE, OFFSET, DeviceMaps
from kvproto.io.transports.endpoint import RegionEntry

PEER, BOOT = PeerId("peer"), b"this-host".ljust(device_maps.HOST)
SIZE, FAR = 1 << 20, 1 << 40


class Driver(Contexts):
    """The driver calls of maps, over two allocations of a peer; a handle is an allocation's name."""

    def __init__(self) -> None:
        super().__init__()
        self.whole = {b"one".ljust(HANDLE): FAR, b"two".ljust(HANDLE): FAR + 8 * SIZE}
        self.opened: list[int] = []
        self.closed: list[int] = []

    def cuIpcOpenMemHandle_v2(self, place: Any, handle: Any, _flags: int) -> int:  # noqa: N802
        base = self.whole.get(bytes(handle), 0)
        place._obj.value = base
        self.opened += [base] if base else []
        return 0 if base else 201

    def cuIpcGetMemHandle(self, handle: Any, base: ctypes.c_uint64) -> int:  # noqa: N802
        name = next(name for name, at in self.whole.items() if at == base.value)
        ctypes.memmove(ctypes.addressof(handle._obj), name, HANDLE)
        return 0

    def cuMemGetAddressRange_v2(self, base: Any, size: Any, address: ctypes.c_uint64) -> int:  # noqa: N802
        for at in self.whole.values():
            if at <= address.value < at + SIZE:
                base._obj.value, size._obj.value = at, SIZE
                return 0
        return 1

    def cuIpcCloseMemHandle(self, base: ctypes.c_uint64) -> int:  # noqa: N802
        self.closed.append(base.value)
        return 0


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    made = Driver()
    monkeypatch.setattr(device_maps, "cuda_driver", lambda: made)
    monkeypatch.setattr(device_maps, "this_host", lambda: BOOT)
    return made


def region(index: int, offset: int, nbytes: int, name: bytes = b"one", host: bytes = BOOT) -> RegionEntry:
    share = host + name.ljust(HANDLE) + offset.to_bytes(OFFSET, "little")
    return RegionEntry(index, 4096, nbytes, "VRAM", 0, share)


def test_regions_of_one_allocation_are_opened_once_and_let_go_with_their_peer(driver: Driver) -> None:
    maps = DeviceMaps()
    maps.open(PEER, [region(0, 0, 64), region(1, 512, SIZE - 512), region(2, 0, 64, b"two")], 0)
    assert maps.of(PEER) == {0: FAR, 1: FAR + 512, 2: FAR + 8 * SIZE}
    assert driver.opened == [FAR, FAR + 8 * SIZE]
    maps.close(PEER)
    assert maps.of(PEER) is None
    maps.close_all()
    assert driver.closed == driver.opened


def test_the_thread_that_lets_go_of_a_peer_does_not_wait_for_the_driver(driver: Driver) -> None:
    """Its memory may be opened again meanwhile."""
    maps, waits, unmap = DeviceMaps(), threading.Event(), driver.cuIpcCloseMemHandle
    driver.cuIpcCloseMemHandle = lambda base: unmap(base) if waits.wait(10.0) else 1  # type: ignore[method-assign]
    maps.open(PEER, [region(0, 0, 64)], 0)
    maps.close(PEER)
    assert maps.of(PEER) is None and driver.closed == []
    assert all(thread.daemon for thread in maps._closing), "nor does a process that ends"
    maps.open(PEER, [region(0, 0, 64)], 0)
    assert maps.of(PEER) == {0: FAR}
    waits.set()
    maps.close_all()
    assert driver.closed == driver.opened == [FAR, FAR]


@pytest.mark.usefixtures("driver")
def test_a_peer_is_elsewhere_where_its_handles_are_another_host_s(monkeypatch: pytest.MonkeyPatch) -> None:
    maps, here, there = DeviceMaps(), region(0, 0, 64), region(1, 0, 64, host=b"another".ljust(device_maps.HOST))
    for regions, elsewhere in (
        ([here], False), ([there], True), ([here, there], False), ([replace(there, share=b"")], False),
        ([there, replace(here, kind="DRAM")], True), ([], False), ([there], True),
    ):  # fmt: skip
        maps.open(PEER, regions, 0)
        assert maps.elsewhere(PEER) == elsewhere, "by its newest table"
    maps.close(PEER)
    assert not maps.elsewhere(PEER)
    monkeypatch.setattr(device_maps, "this_host", lambda: b"")
    maps.open(PEER, [there], 0)
    assert not maps.elsewhere(PEER), "nobody knows which host this is"


@pytest.mark.parametrize(("bad", "why"), [
    (region(0, SIZE - 63, 64), "not inside of the allocation"), (region(0, 0, SIZE + 1), "not inside"),
    (region(0, (1 << 64) - 64, 128), "not inside"), (region(0, 0, 64, b"three"), r"does not open it \(CUresult 201\)"),
    (region(0, 0, 64, host=b"another-host".ljust(device_maps.HOST)), "^$"),
    (replace(region(0, 0, 64), share=b"short"), "names no handle"), (replace(region(0, 0, 64), kind="DRAM"), "^$"),
], ids=["ends behind", "larger", "wraps", "no handle of this host", "another host", "no share", "host"])  # fmt: skip
@pytest.mark.usefixtures("driver")
def test_what_is_not_here_or_not_inside_is_not_mapped(bad: RegionEntry, why: str) -> None:
    """And of what may be of this host it is said why."""
    maps = DeviceMaps()
    maps.open(PEER, [bad], 0)
    assert maps.of(PEER) is None and re.search(why, maps.why_not(PEER))
    maps.close(PEER)
    assert not maps.why_not(PEER)


@pytest.mark.usefixtures("driver")
def test_a_newer_table_is_looked_at_as_the_first_one_was() -> None:
    maps = DeviceMaps()
    maps.open(PEER, [region(0, 0, 64), region(1, 64, 64)], 0)
    before = maps.of(PEER)
    maps.open(PEER, [region(0, 0, 1 << 40), region(1, 128, 64)], 0)
    assert maps.of(PEER) == {1: FAR + 128}, "region 0 has grown beyond what is mapped"
    assert maps.of(PEER) is not before
    maps.open(PEER, [region(0, 0, 64)], 0)
    assert maps.of(PEER) == {0: FAR}, "region 1 is gone"


def test_what_is_shared_is_what_is_opened(driver: Driver) -> None:
    shared = device_maps.share(MemoryRegion(3, FAR + 8 * SIZE + 256, 64, "VRAM", 0))
    assert device_maps.share(MemoryRegion(3, FAR, 64, "DRAM", 0)) == b""
    maps = DeviceMaps()
    maps.open(PEER, [RegionEntry(3, 4096, 64, "VRAM", 0, shared)], 0)
    assert maps.of(PEER) == {3: FAR + 8 * SIZE + 256}
    assert len(driver.opened) == 1


def test_a_peer_is_apart_where_all_of_its_memory_is_known_to_be_on_another_device(driver: Driver) -> None:
    maps, near, far = DeviceMaps(), uuid_of(2), uuid_of(5)
    one, two = region(0, 0, 64), region(1, 64, 64)
    for gpus, apart in (((far, far), True), ((near, far), False), ((near, near), False), ((far, b""), None)):
        maps.open(PEER, [replace(each, gpu=gpu) for each, gpu in zip((one, two), gpus, strict=True)], 2)
        assert maps.apart(PEER) is apart
    maps.open(PEER, [replace(one, gpu=far), replace(region(1, 0, SIZE + 1), gpu=near)], 2)
    assert maps.apart(PEER) is True, "of what is mapped"
    maps.close(PEER)
    assert maps.apart(PEER) is None
    driver.cuDeviceGet = lambda *_: 1  # type: ignore[method-assign]
    maps.open(PEER, [replace(one, gpu=far)], 2)
    assert maps.of(PEER) and maps.apart(PEER) is None and device_maps.uuid_of(2) == b""


def test_a_device_is_told_by_the_newest_call_that_the_driver_has(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert device_maps.uuid_of(7) == uuid_of(7)
    older = SimpleNamespace(cuDeviceGet=driver.cuDeviceGet, cuDeviceGetUuid=driver.cuDeviceGetUuid_v2)
    monkeypatch.setattr(device_maps, "cuda_driver", lambda: older)
    assert device_maps.uuid_of(3) == uuid_of(3)
    older.cuDeviceGetUuid = lambda *_: 1
    assert device_maps.uuid_of(3) == b""
    monkeypatch.setattr(device_maps, "cuda_driver", lambda: None)
    assert device_maps.uuid_of(3) == b""


def test_a_peer_that_was_let_go_of_is_opened_for_the_device_that_wants_it_then(driver: Driver) -> None:
    maps = DeviceMaps()
    for device in (2, 4):
        maps.open(PEER, [region(0, 0, 64)], device)
        assert driver.asked[-1] == device
        maps.close(PEER)
        maps.close_all()
        assert driver.asked[-1] == device and driver.closed == driver.opened


def test_a_device_is_asked_within_its_context_alone_and_that_is_given_back(driver: Driver) -> None:
    maps, ours = DeviceMaps(), MemoryRegion(3, FAR, 64, "VRAM", 5)
    assert len(device_maps.share(ours)) == device_maps.HOST + HANDLE + OFFSET
    maps.open(PEER, [region(0, 0, 64)], 2)
    maps.open(PEER, [region(0, 0, 64), region(1, 0, 64, b"two")], 4)
    maps.close(PEER)
    maps.close_all()
    assert driver.asked == [5, 2, 2, 2], "a peer's memory belongs to the device that opened it first"
    assert driver.closed == driver.opened and not driver.held and not driver.pushed
    for driver.retains, driver.pushes in ((1, 0), (0, 1)):
        assert device_maps.share(ours) == b""
        maps.open(PEER, [region(0, 0, 64)], 0)
        assert maps.of(PEER) is None and not driver.held and not driver.pushed


def test_memory_without_an_allocation_or_a_handle_or_a_host_is_not_shared(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert device_maps.share(MemoryRegion(3, FAR - 1, 64, "VRAM", 0)) == b""
    inside = MemoryRegion(3, FAR, 64, "VRAM", 0)
    with monkeypatch.context() as patch:
        patch.setattr(driver, "cuIpcGetMemHandle", lambda *_: 1)
        assert device_maps.share(inside) == b""
    with monkeypatch.context() as patch:
        patch.setattr(device_maps, "this_host", lambda: b"")
        assert device_maps.share(inside) == b""
    monkeypatch.setattr(device_maps, "cuda_driver", lambda: None)
    assert device_maps.share(inside) == b""
    maps = DeviceMaps()
    maps.open(PEER, [region(0, 0, 64)], 0)
    assert maps.of(PEER) is None
    maps.close(PEER)


def test_what_was_said_of_an_earlier_table_holds_no_longer(driver: Driver) -> None:
    maps = DeviceMaps()
    maps.open(PEER, [region(0, 0, 64)], 0)
    maps.open(PEER, [region(0, 0, SIZE + 1)], 0)
    assert maps.of(PEER) is None and maps.why_not(PEER)
    maps.open(PEER, [region(0, 0, 64)], 0)
    assert maps.of(PEER) == {0: FAR} and not maps.why_not(PEER)
    driver.cuMemGetAddressRange_v2 = lambda *_: 1  # type: ignore[method-assign]
    maps.open(PEER, [region(0, 0, 64)], 0)
    assert maps.of(PEER) is None and "not inside" in maps.why_not(PEER)


def test_where_there_is_nothing_to_map_no_device_is_asked(driver: Driver) -> None:
    """A context costs a device memory, and the one that asks time."""
    maps = DeviceMaps()
    maps.open(PEER, [replace(region(0, 0, 64), kind="DRAM")], 0)
    maps.close(PEER)
    maps.close(PeerId("nobody"))
    maps.close_all()
    assert driver.asked == []


def test_the_end_waits_for_what_is_being_let_go(driver: Driver) -> None:
    maps, waits, unmap = DeviceMaps(), threading.Event(), driver.cuIpcCloseMemHandle
    driver.cuIpcCloseMemHandle = lambda base: unmap(base) if waits.wait(10.0) else 1  # type: ignore[method-assign]
    maps.open(PEER, [region(0, 0, 64)], 0)
    threading.Timer(0.02, waits.set).start()
    maps.close_all()
    assert driver.closed == driver.opened == [FAR]
    for _ in range(4):
        maps.open(PEER, [region(0, 0, 64)], 0)
        maps.close_all()
    assert len(maps._closing) == 1, "those that are over are not kept"


@pytest.mark.parametrize("library", [None, SimpleNamespace(), SimpleNamespace(cuIpcOpenMemHandle_v2=SimpleNamespace())])
def test_the_driver_is_what_the_system_has_and_takes_handles_by_value(
    monkeypatch: pytest.MonkeyPatch, library: Any
) -> None:  # fmt: skip
    def load(name: str) -> Any:
        if library is None:
            raise OSError(name)
        return library

    monkeypatch.setattr(ctypes, "CDLL", load)
    found = device_maps.cuda_driver.__wrapped__()
    if library is None or not vars(library):
        assert found is None
    else:
        assert found is library and ctypes.sizeof(found.cuIpcOpenMemHandle_v2.argtypes[1]) == HANDLE


def test_a_host_is_known_by_its_boot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    boot, find = tmp_path / "boot_id", device_maps.this_host.__wrapped__
    monkeypatch.setattr(device_maps, "BOOT_ID", boot)
    assert find() == b""
    boot.write_text("short\n")
    assert find() == b"short".ljust(device_maps.HOST)
    boot.write_text("0" * 40 + "\n")
    assert find() == b"0" * device_maps.HOST

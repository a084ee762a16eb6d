"""Host memory that is shared: who maps it, who does not, and how long it lasts."""

from __future__ import annotations

import fcntl
import gc
import mmap
import multiprocessing
import os
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from kvproto.io.transports import host_memory
from kvproto.io.transports.base import Kind, MemoryRegion, PeerId
from kvproto.io.transports.device_maps import HOST
from kvproto.io.transports.endpoint import RegionEntry
from kvproto.io.transports.host_memory import Bytes, HostMaps, SharedMemory, share

PEER, OTHER = PeerId("peer"), PeerId("other")
NBYTES, FIRST = 3 * 4096, 100
OPEN = Path("/proc/self/fd")


def region_of(memory: SharedMemory, first: int = 0, nbytes: int = 0, kind: Kind = "DRAM") -> RegionEntry:
    """The bytes from `first` on (all, if it is not said how many) as their owner announces them."""
    region = MemoryRegion(7, memory.addr + first, nbytes or memory.nbytes - first, kind, 0)
    return RegionEntry(7, region.addr, region.nbytes, kind, 0, share(region))


def here(memory: SharedMemory) -> Bytes:
    return np.frombuffer(memory.view, np.uint8)


def found(entry: RegionEntry) -> Bytes | None:
    """The whole region as who is told of it has it."""
    maps = HostMaps()
    maps.open(PEER, [entry])
    part = maps.find(PEER, entry.addr, entry.nbytes)
    return None if part is None else part.here


def test_it_is_zeros_and_what_is_stored_into_a_mapping_is_there() -> None:
    memory = SharedMemory(NBYTES)
    assert not here(memory).any()
    mapped = found(region_of(memory, FIRST))
    assert mapped is not None and mapped.size == NBYTES - FIRST
    assert mapped.ctypes.data != memory.addr + FIRST, "another mapping of the same file"
    mapped[:2] = 5, 6
    assert here(memory)[FIRST - 1 : FIRST + 3].tolist() == [0, 5, 6, 0]


def test_a_part_is_found_by_the_addresses_that_its_owner_has() -> None:
    memory, maps = SharedMemory(NBYTES), HostMaps()
    entry = region_of(memory, FIRST, 1000)
    maps.open(PEER, [entry])
    here(memory)[:] = np.arange(NBYTES) % 251
    for first, nbytes in ((0, 1000), (0, 1), (999, 1), (17, 500)):
        part = maps.find(PEER, entry.addr + first, nbytes)
        assert part is not None and part.here.tolist() == [(FIRST + first + at) % 251 for at in range(nbytes)]
    for first, nbytes in ((-1, 2), (0, 1001), (999, 2), (1000, 1), (-1000, 1)):
        assert maps.find(PEER, entry.addr + first, nbytes) is None
    assert maps.find(OTHER, entry.addr, 1) is None


def _write(pipe: Connection, entry: RegionEntry) -> None:
    mapped = found(entry)
    if mapped is not None:
        mapped[:] = 9
    pipe.send(mapped is not None)


def test_another_process_writes_there() -> None:
    memory, context = SharedMemory(NBYTES), multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    writer = context.Process(target=_write, args=(theirs, region_of(memory, FIRST, 50)))
    writer.start()
    assert ours.poll(30) and ours.recv()
    writer.join(30)
    assert here(memory).tolist() == [0] * FIRST + [9] * 50 + [0] * (NBYTES - FIRST - 50)


def test_only_host_memory_that_was_made_so_is_shared() -> None:
    memory, plain = SharedMemory(NBYTES), np.zeros(NBYTES, np.uint8)
    assert len(region_of(memory).share) <= 128
    assert region_of(memory, kind="VRAM").share == b""
    assert region_of(memory, 1, NBYTES).share == b"", "it ends behind it"
    assert share(MemoryRegion(0, memory.addr - 1, 2, "DRAM", 0)) == b"", "it begins before it"
    assert share(MemoryRegion(0, plain.ctypes.data, NBYTES, "DRAM", 0)) == b""


def test_where_the_host_has_no_name_nothing_is_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = SharedMemory(NBYTES)
    monkeypatch.setattr(host_memory, "this_host", lambda: b"")
    assert region_of(memory).share == b""


CHANGED: dict[str, Callable[[bytes], bytes]] = {
    "of another host": lambda told: bytes(HOST) + told[HOST:],
    "of a process that there is not": lambda told: told[:HOST] + b"\xff\xff\xff\x7f" + told[HOST + 4 :],
    "of another file": lambda told: told[:-1] + bytes([told[-1] ^ 1]),
    "begins elsewhere": lambda told: told[: HOST + 8] + (1).to_bytes(8, "little") + told[HOST + 16 :],
    "too short": lambda told: told[:-1],
    "nothing": lambda told: b"",
}


@pytest.mark.parametrize("change", CHANGED.values(), ids=CHANGED)
def test_what_is_not_as_it_is_told_is_not_mapped(change: Callable[[bytes], bytes]) -> None:
    memory = SharedMemory(NBYTES)
    entry = region_of(memory)
    told = RegionEntry(entry.index, entry.addr, entry.nbytes, "DRAM", 0, change(entry.share))
    assert found(entry) is not None and found(told) is None


def test_what_is_said_to_be_a_device_s_or_longer_than_its_file_is_not_mapped() -> None:
    memory = SharedMemory(NBYTES)
    entry, last = region_of(memory), region_of(memory, NBYTES - 1)
    assert found(RegionEntry(entry.index, entry.addr, entry.nbytes, "VRAM", 0, entry.share)) is None
    assert found(RegionEntry(entry.index, entry.addr, entry.nbytes + 1, "DRAM", 0, entry.share)) is None
    assert found(last) is not None
    assert found(RegionEntry(last.index, last.addr, 2, "DRAM", 0, last.share)) is None


def test_a_file_that_could_become_shorter_is_not_mapped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_memory, "_SEALS", fcntl.F_SEAL_GROW)
    memory = SharedMemory(NBYTES)
    entry = region_of(memory)
    assert found(entry) is not None
    monkeypatch.undo()
    assert found(entry) is None


def test_a_mapping_that_fails_is_none_and_nothing_stays_open(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError("no room for it")

    memory = SharedMemory(NBYTES)
    entry, before = region_of(memory), len(list(OPEN.iterdir()))
    monkeypatch.setattr(mmap, "mmap", refuse)
    assert found(entry) is None
    assert len(list(OPEN.iterdir())) == before


def test_a_newer_table_keeps_what_it_names_and_lets_go_of_the_rest() -> None:
    one, two, maps = SharedMemory(NBYTES), SharedMemory(NBYTES), HostMaps()
    first, second = region_of(one), region_of(two)
    maps.open(PEER, [first])
    known = maps.find(PEER, first.addr, NBYTES)
    maps.open(PEER, [first, second])
    again = maps.find(PEER, first.addr, NBYTES)
    assert known is not None and again is not None and known.here.ctypes.data == again.here.ctypes.data
    assert maps.find(PEER, second.addr, NBYTES) is not None
    maps.open(PEER, [second])
    assert maps.find(PEER, first.addr, 1) is None and maps.find(PEER, second.addr, 1) is not None
    maps.open(OTHER, [first])
    maps.close(PEER)
    assert maps.find(PEER, second.addr, 1) is None and maps.find(OTHER, first.addr, 1) is not None
    maps.close(PEER)


def test_other_memory_at_the_same_address_is_mapped_anew() -> None:
    one, two, maps = SharedMemory(NBYTES), SharedMemory(NBYTES), HostMaps()
    first = region_of(one)
    maps.open(PEER, [first])
    maps.open(PEER, [replace(region_of(two), addr=first.addr)])
    part = maps.find(PEER, first.addr, 1)
    assert part is not None
    part.here[:] = 7
    assert (one.view[0], two.view[0]) == (0, 7)


def test_what_is_mapped_lasts_as_long_as_somebody_copies_there_and_no_longer() -> None:
    def mappings() -> int:
        gc.collect()
        return sum(name in line for line in Path("/proc/self/maps").read_text().splitlines())

    memory, maps = SharedMemory(NBYTES), HostMaps()
    name, entry = memory.name.hex(), region_of(memory)
    maps.open(PEER, [entry])
    part, fd = maps.find(PEER, entry.addr, 10), memory.fd
    assert part is not None and mappings() == 2
    maps.close(PEER)
    del memory
    assert mappings() == 1
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)
    part.here[:] = 3  # its owner has given it up, and nobody is harmed
    assert region_is_gone(entry)
    del part
    assert mappings() == 0


class Lock:
    """Says on which thread it was let go of."""

    def __init__(self, let_go: list[int]) -> None:
        self.let_go = let_go

    def __del__(self) -> None:
        self.let_go.append(threading.get_ident())


@pytest.mark.parametrize("locked", [True, False])
def test_a_loop_that_lets_go_of_what_is_locked_does_not_wait_and_nobody_waits_for_what_is_not(
    monkeypatch: pytest.MonkeyPatch, locked: bool
) -> None:
    let_go, threads = list[int](), list[threading.Thread]()

    def thread(*args: Any, **options: Any) -> threading.Thread:
        threads.append(threading.Thread(*args, **options))
        return threads[-1]

    monkeypatch.setattr(host_memory, "Thread", thread)
    both = [SharedMemory(NBYTES) for _ in range(2)]
    locks = [None, Lock(let_go) if locked else None]
    maps = HostMaps(lambda _: locks.pop())
    maps.open(PEER, [region_of(memory) for memory in both])
    maps.close(PEER)
    assert len(threads) == locked and all(thread.daemon for thread in threads), "a process that ends does not wait"
    for each in threads:
        each.join(10.0)
    assert let_go == [each.ident for each in threads]


def test_a_lock_is_asked_for_the_whole_mapping_and_goes_with_the_end() -> None:
    let_go, asked = list[int](), list[int]()
    def lock(whole: Bytes) -> Lock:
        asked.append(whole.size)
        return Lock(let_go)

    maps, memory = HostMaps(lock), SharedMemory(NBYTES)
    entry = region_of(memory, FIRST)
    maps.open(PEER, [entry])
    part = maps.find(PEER, entry.addr, 1)
    assert asked == [NBYTES] and part is not None and part.lock is not None
    maps.close_all()
    assert maps.find(PEER, entry.addr, 1) is None and not let_go, "it is still written to"
    del part
    assert let_go == [threading.get_ident()]


def region_is_gone(entry: RegionEntry) -> bool:
    return found(entry) is None and share(MemoryRegion(0, entry.addr, entry.nbytes, "DRAM", 0)) == b""


def test_a_file_that_cannot_be_made_is_an_error_and_no_more() -> None:
    with pytest.raises(OSError, match=r"File too large|Invalid argument|Cannot allocate"):
        SharedMemory(1 << 62)

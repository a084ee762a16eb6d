"""What a device's copy engine carries into memory that a peer shares, over a driver that does as it is told."""

from __future__ import annotations

import gc

import numpy as np
import pytest
from msgspec.structs import replace
from support.cuda_driver import NOT_READY, Copies
from support.nixl_library import Library

from kvproto.io.transports import copy_engine, device_maps, nixl, nixl_stripes
from kvproto.io.transports.base import (
    Arrived,
    Completed,
    Failed,
    Handle,
    MemoryRegion,
    PeerId,
    TransportEvent,
    WritePart,
)
from kvproto.io.transports.copy_engine import CopyEngine
from kvproto.io.transports.endpoint import RegionEntry
from kvproto.io.transports.host_memory import HostMaps, Part, SharedMemory, Twin, share
from kvproto.io.transports.nixl import NixlTransport
from kvproto.io.transports.regions import bulk
from kvproto.testing.transport_ends import wait

PEER, NBYTES, DEVICE = PeerId("peer"), 8192, 3


class Side:
    """Shared memory with a twin, of which the region has all but the first and last hundred bytes."""

    def __init__(self, device: int = DEVICE) -> None:
        self.memory, self.on_device = SharedMemory(NBYTES), (np.arange(NBYTES) % 251).astype(np.uint8)
        self.memory.twin = Twin(device, self.on_device.ctypes.data)
        self.region = MemoryRegion(4, self.memory.addr + 100, NBYTES - 200, "DRAM", 0)


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Copies:
    made = Copies()
    for module in (copy_engine, device_maps):
        monkeypatch.setattr(module, "cuda_driver", lambda: made)
    return made


class World:
    """An engine with one region that has a twin, and a peer's memory mapped and page-locked."""

    def __init__(self) -> None:
        self.side, self.engine, self.far = Side(), CopyEngine(), SharedMemory(NBYTES)
        self.engine.attach(self.side.region)
        self.maps = HostMaps(self.engine.lock)
        region = MemoryRegion(0, self.far.addr, NBYTES, "DRAM", 0)
        self.maps.open(PEER, [RegionEntry(0, region.addr, NBYTES, "DRAM", 0, share(region))])

    def there(self, first: int, nbytes: int) -> Part:
        part = self.maps.find(PEER, self.far.addr + first, nbytes)
        assert part is not None and part.lock is not None
        return part

    def landed(self) -> list[int]:
        return list(self.far.view[:])


@pytest.fixture
def world(driver: Copies) -> World:  # it has to be there first
    return World()


def test_the_twin_s_bytes_land_where_they_are_to_and_nothing_waits_for_it(world: World, driver: Copies) -> None:
    copy = world.engine.start(world.side.region.addr + 10, world.there(20, 500))
    assert copy is not None and not copy.done() and not any(world.landed())
    driver.run()
    assert copy.done() and copy.exception() is None
    assert world.landed() == [0] * 20 + [at % 251 for at in range(110, 610)] + [0] * (NBYTES - 520)
    assert not driver.events and copy.done(), "an event that was destroyed is not asked again"
    assert sorted(driver.flags) == [("event", 2), ("lock", 1), ("stream", 1)]
    assert set(driver.asked) == {DEVICE} and not driver.held and not driver.pushed


def test_a_copy_that_fails_is_over_and_says_how(world: World, driver: Copies) -> None:
    copy = world.engine.start(world.side.region.addr, world.there(0, 8))
    assert copy is not None
    driver.run(fault=700)
    assert copy.done() and "CUresult 700" in str(copy.exception())


def test_one_stream_does_all_copies_in_their_order(world: World, driver: Copies) -> None:
    copies = [world.engine.start(world.side.region.addr + at, world.there(0, 8)) for at in (1, 2)]
    assert len(driver.streams) == 1
    driver.run()
    assert all(copy is not None and copy.done() for copy in copies) and world.landed()[:8] == list(range(102, 110))


def test_what_is_taken_lies_inside_of_a_region_with_a_twin_and_goes_where_memory_is_locked(world: World) -> None:
    first, size = world.side.region.addr, world.side.region.nbytes
    for source, nbytes, taken in (
        (first, size, True), (first, 1, True), (first + size - 1, 1, True),
        (first - 1, 2, False), (first + 1, size, False), (first + size, 1, False),
    ):  # fmt: skip
        part = world.there(0, nbytes)
        assert world.engine.takes(source, part) is taken
        assert (world.engine.start(source, part) is not None) is taken
    part = world.there(0, 8)
    assert not world.engine.takes(first, None) and not world.engine.takes(first, Part(part.here, None))
    assert world.engine.start(first, Part(part.here, None)) is None


def test_a_region_that_is_gone_is_not_carried(world: World) -> None:
    assert world.engine
    world.engine.detach(world.side.region)
    assert not world.engine and not world.engine.takes(world.side.region.addr, world.there(0, 8))
    world.engine.detach(world.side.region)


def test_regions_without_a_twin_are_not_for_it(driver: Copies, monkeypatch: pytest.MonkeyPatch) -> None:
    engine, plain, side = CopyEngine(), SharedMemory(NBYTES), Side()
    engine.attach(MemoryRegion(0, plain.addr, NBYTES, "DRAM", 0))
    engine.attach(replace_kind(side.region))
    engine.attach(MemoryRegion(1, np.zeros(8, np.uint8).ctypes.data, 8, "DRAM", 0))
    assert not engine and driver.asked == [], "a device that is not needed is not asked"
    assert engine.lock(np.zeros(8, np.uint8)) is None and driver.asked == []
    monkeypatch.setattr(copy_engine, "cuda_driver", lambda: None)
    engine.attach(side.region)
    assert not engine
    engine.close()


def replace_kind(region: MemoryRegion) -> MemoryRegion:
    return replace(region, kind="VRAM")


def test_all_its_regions_are_on_one_device(driver: Copies) -> None:
    engine, here, there = CopyEngine(), Side(), Side(DEVICE + 1)
    engine.attach(here.region)
    engine.attach(replace(there.region, index=5))
    again = Side()
    engine.attach(replace(again.region, index=6))
    part = Part(np.zeros(8, np.uint8), object())
    takes = [engine.takes(side.region.addr, part) for side in (here, there, again)]
    assert takes == [True, False, True] and len(driver.streams) == 1


@pytest.mark.parametrize("refused", ["retains", "pushes", "cuStreamCreate"])
def test_without_a_stream_it_carries_nothing(driver: Copies, refused: str) -> None:
    if refused in vars(driver):
        setattr(driver, refused, 1)
    else:
        driver.refuses[refused] = 2
    engine, side = CopyEngine(), Side()
    engine.attach(side.region)
    assert not engine and not driver.pushed
    engine.close()
    assert driver.streams == {}


@pytest.mark.parametrize("refused", ["retains", "pushes", "cuEventCreate", "cuMemcpyAsync", "cuEventRecord"])
def test_what_cannot_be_begun_leaves_nothing_behind_and_goes_another_way(
    world: World, driver: Copies, refused: str
) -> None:
    if refused in vars(driver):
        setattr(driver, refused, 1)
    else:
        driver.refuses[refused] = 1
    assert world.engine.start(world.side.region.addr, world.there(0, 8)) is None
    assert not driver.events and not any(driver.streams.values()), "nor does anything go on unseen"
    assert not driver.pushed
    driver.retains = driver.pushes = 0


def test_memory_is_locked_as_long_as_it_is_mapped_or_written_to(world: World, driver: Copies) -> None:
    assert list(driver.locked.values()) == [NBYTES]
    copy = world.engine.start(world.side.region.addr, world.there(0, 8))
    world.maps.close_all()
    gc.collect()
    assert driver.locked and copy is not None and not copy.done()
    driver.run()
    assert copy.done()
    del copy
    gc.collect()
    assert not driver.locked and not driver.held


@pytest.mark.parametrize("refused", ["retains", "cuMemHostRegister_v2"])
def test_what_cannot_be_locked_is_mapped_all_the_same(driver: Copies, refused: str) -> None:
    engine, side, whole = CopyEngine(), Side(), np.zeros(8, np.uint8)
    engine.attach(side.region)
    driver.refuses["cuMemHostRegister_v2"] = 1
    driver.retains = int(refused == "retains")
    assert engine.lock(whole) is None and not driver.locked
    driver.refuses.clear()
    driver.retains = 0
    lock = engine.lock(whole)
    assert lock is not None and driver.locked
    driver.retains = 1
    del lock
    gc.collect()
    assert driver.locked, "without its context the driver is not asked"


def test_the_end_waits_for_what_is_under_way_and_begins_nothing_more(world: World, driver: Copies) -> None:
    copy, part = world.engine.start(world.side.region.addr, world.there(0, 8)), world.there(0, 8)
    world.engine.close()
    assert copy is not None and copy.done() and world.landed()[:8] == list(range(100, 108))
    assert not driver.streams and not world.engine.takes(world.side.region.addr, part)
    world.engine.close()
    assert driver.events == {} and NOT_READY not in driver.events.values()


def test_an_end_without_its_context_asks_for_nothing(world: World, driver: Copies) -> None:
    driver.pushes = 1
    world.engine.close()
    assert driver.streams, "they go with the context"


# -- in a transport


class Writer:
    """A transport whose staging has a twin, and a peer whose ring is mapped; small writes are for the engine too."""

    def __init__(self, library: Library, **options: object) -> None:
        self.library, self.side, self.far = library, Side(), SharedMemory(NBYTES)
        self.writer, self.reader = NixlTransport("w", **options), NixlTransport("r")  # type: ignore[arg-type]
        region = self.side.region
        self.region = self.writer.register(region.addr, region.nbytes)
        self.reader.register(self.far.addr, NBYTES)
        self.peer = self.writer.connect(self.reader.endpoint())
        library.calls.clear()

    def write(self, nbytes: int) -> Handle:
        target = self.writer.remote(self.peer, 0)
        return self.writer.write(self.peer, self.region, target, bulk(5, 7, nbytes), b"tag")

    def landed(self) -> list[int]:
        return list(self.far.view[:])

    def posted(self) -> list[str]:
        return [name for name, _ in self.library.called("postXferReq")]


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Library:
    made = Library()
    monkeypatch.setattr(nixl, "load", lambda: (made.api, made.bindings))
    monkeypatch.setattr(nixl_stripes, "PAGE", 16)
    monkeypatch.setattr(nixl_stripes, "LEAST", 64)
    return made


@pytest.mark.parametrize("workers", [0, 2])
def test_the_engine_carries_all_but_the_end_and_that_goes_with_the_tag(
    library: Library, driver: Copies, workers: int
) -> None:
    writer = Writer(library, workers=workers)
    handle = writer.write(100)
    assert writer.writer.poll() == [] and writer.posted() == []
    driver.run()
    assert writer.landed() == [0] * 7 + [at % 251 for at in range(105, 201)] + [0] * (NBYTES - 103)
    assert writer.reader.poll() == [] and writer.writer.poll() == [Completed(handle)] and writer.posted() == ["w"]
    assert not any(writer.landed()[103:107]), "the last four are the host's, which nobody has filled here"
    assert writer.reader.poll() == [Arrived(PeerId("w"), b"tag")]


@pytest.mark.parametrize(("nbytes", "by_engine"), [(63, False), (64, True)])
def test_what_is_small_goes_as_ever(library: Library, driver: Copies, nbytes: int, by_engine: bool) -> None:
    writer = Writer(library)
    writer.write(nbytes)
    assert any(driver.streams.values()) is by_engine and writer.posted() == ["w"] * (not by_engine)


@pytest.mark.parametrize("workers", [0, 2])
def test_what_the_engine_does_not_begin_goes_as_without_it(
    library: Library, driver: Copies, monkeypatch: pytest.MonkeyPatch, workers: int
) -> None:
    monkeypatch.setattr(nixl_stripes, "GRAIN", 16)
    writer = Writer(library, workers=workers)
    driver.refuses["cuMemcpyAsync"] = 1
    np.frombuffer(writer.side.memory.view, np.uint8)[:] = 9
    handle = writer.write(100)
    events: list[TransportEvent] = []

    def over() -> bool:
        events.extend(writer.writer.poll())
        return bool(events)

    wait(over, "the write")
    assert events == [Completed(handle)] and writer.landed() == [0] * 7 + [9] * 100 + [0] * (NBYTES - 107)
    assert writer.posted() == ["w"] and writer.reader.poll() == [Arrived(PeerId("w"), b"tag")]


def test_a_copy_that_fails_fails_its_write(library: Library, driver: Copies) -> None:
    writer = Writer(library)
    handle = writer.write(100)
    driver.run(fault=700)
    (failed,) = writer.writer.poll()
    assert isinstance(failed, Failed) and failed.handle == handle and "CUresult 700" in str(failed.error)
    assert writer.posted() == [] and writer.reader.poll() == []


def test_what_is_not_for_the_engine_is_made_ready_before_it_is_posted(library: Library, driver: Copies) -> None:
    writer = Writer(library)
    part = WritePart(writer.region, writer.writer.remote(writer.peer, 0), bulk(0, 0, 100))
    assert writer.writer.prepare(writer.peer, [part], b"") is not None and not library.called("createXferReq")
    driver.refuses["cuMemHostRegister_v2"] = 1
    library.agents.clear()
    writer = Writer(library)
    part = WritePart(writer.region, writer.writer.remote(writer.peer, 0), bulk(0, 0, 100))
    assert writer.writer.prepare(writer.peer, [part], b"") is not None and library.called("createXferReq")


def test_a_region_that_is_given_back_is_not_the_engine_s(library: Library, driver: Copies) -> None:
    writer = Writer(library)
    writer.writer.deregister(writer.region)
    writer.region = writer.writer.register(writer.side.on_device.ctypes.data, NBYTES)
    writer.write(100)
    assert writer.posted() == ["w"] and not any(driver.streams.values())
    assert writer.writer._stripes is not None and not writer.writer._stripes._engine


def test_where_there_is_nobody_to_copy_nothing_is_mapped(library: Library, driver: Copies) -> None:
    driver.refuses["cuStreamCreate"] = 1
    writer = Writer(library)
    assert writer.writer._stripes is not None
    assert writer.writer._stripes._maps.find(writer.peer, writer.far.addr, 1) is None


@pytest.mark.parametrize("unmapped", ["no maps", "not locked", "nothing on a device"])
def test_without_maps_or_locks_or_a_twin_it_is_the_library_s(library: Library, driver: Copies, unmapped: str) -> None:
    driver.refuses["cuMemHostRegister_v2"] = int(unmapped == "not locked")
    driver.refuses["cuStreamCreate"] = int(unmapped == "nothing on a device")
    writer = Writer(library, maps=unmapped != "no maps")
    writer.write(100)
    assert writer.posted() == ["w"] and not any(driver.streams.values())


def test_nothing_of_a_peer_stays_mapped_or_locked_when_it_or_the_transport_goes(
    library: Library, driver: Copies
) -> None:
    for closes in (False, True):
        writer = Writer(library)
        assert driver.locked
        if closes:
            writer.writer.close()
            assert not driver.locked and len(driver.streams) == 1, "that of the other one, which was not closed"
        else:
            writer.writer.disconnect(writer.peer)
            wait(lambda: not driver.locked, "the thread that unlocks it")
        library.agents.clear()

"""A device's copy engine carries bytes into memory that a peer shares, over a scripted driver."""

from __future__ import annotations

import gc

import numpy as np
import pytest
from msgspec.structs import replace
from support.cuda_driver import NOT_READY, Copies
from support.nixl_library import Library

from kvproto.io.transports import copy_engine, device_maps, nixl, twin_writes
from kvproto.io.transports.base import (
    Arrived,
    BadEndpoint,
    Completed,
    Failed,
    Handle,
    MemoryRegion,
    PeerId,
    TransportEvent,
    WritePart,
)
from kvproto.io.transports.copy_engine import CopyEngine, EngineCopy
from kvproto.io.transports.endpoint import RegionEntry, decode, encode
from kvproto.io.transports.host_memory import HostMaps, Part, SharedMemory, Twin, share
from kvproto.io.transports.nixl import NixlTransport
from kvproto.io.transports.regions import bulk
from kvproto.lab.torture.nixl_samples import metadata
from kvproto.verify.testing.transport_ends import wait

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

    def start(self, *rows: tuple[int, int, int]) -> EngineCopy | None:
        """Copies from these offsets of the region to those of the peer's memory."""
        parts, first = [self.there(to, nbytes) for _, to, nbytes in rows], self.side.region.addr
        to = [part.here.ctypes.data for part in parts]
        copied = [(first + source, there, nbytes) for (source, _, nbytes), there in zip(rows, to, strict=True)]
        return self.engine.start(copied, parts)

    def landed(self) -> list[int]:
        return list(self.far.view[:])


@pytest.fixture
def world(driver: Copies) -> World:  # it has to be there first
    return World()


def test_the_twin_s_bytes_land_where_they_are_to_and_nothing_waits_for_it(world: World, driver: Copies) -> None:
    copy = world.start((10, 20, 500))
    assert copy is not None and not copy.done() and not any(world.landed())
    driver.run()
    assert copy.done() and copy.exception() is None
    assert world.landed() == [0] * 20 + [at % 251 for at in range(110, 610)] + [0] * (NBYTES - 520)
    assert not driver.events and copy.done(), "an event that was destroyed is not asked again"
    assert sorted(driver.flags) == [("event", 2), ("lock", 1), ("stream", 1)]
    assert set(driver.asked) == {DEVICE} and not driver.held and not driver.pushed


def test_a_copy_that_fails_is_over_and_says_how(world: World, driver: Copies) -> None:
    copy = world.start((0, 0, 8))
    assert copy is not None
    driver.run(fault=700)
    assert copy.done() and "CUresult 700" in str(copy.exception())


def test_one_stream_does_all_copies_in_their_order(world: World, driver: Copies) -> None:
    copies = [world.start((0, 50, 3), (at, 0, 8)) for at in (1, 2)]
    assert len(driver.streams) == 1
    driver.run()
    assert all(copy is not None and copy.done() for copy in copies) and world.landed()[:8] == list(range(102, 110))
    assert world.landed()[50:53] == [100, 101, 102], "and each its rows"


def test_what_lies_on_the_device_is_inside_of_a_region_with_a_twin(world: World, driver: Copies) -> None:
    first, size, twin = world.side.region.addr, world.side.region.nbytes, world.side.on_device.ctypes.data + 100
    for source, nbytes, there in (
        (first, size, twin), (first, 1, twin), (first + size - 1, 1, twin + size - 1),
        (first - 1, 2, None), (first + 1, size, None), (first + size, 1, None),
    ):  # fmt: skip
        assert world.engine.twin(source, nbytes) == there
        row = source, world.far.addr, nbytes
        assert (world.engine.start([row]) is not None) is (there is not None)
        assert (world.engine.start([(first, world.far.addr, 1), row]) is not None) is (there is not None)
    assert world.engine.lifts([4]) and world.engine.lifts([1, 4]) and not world.engine.lifts([1]) and driver.events


def test_a_region_that_is_gone_is_not_carried(world: World) -> None:
    assert world.engine
    world.engine.detach(world.side.region)
    assert not world.engine and not world.engine.lifts([4]) and world.engine.twin(world.side.region.addr, 8) is None
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
    assert [engine.lifts([index]) for index in (4, 5, 6)] == [True, False, True] and len(driver.streams) == 1


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
    assert world.start((0, 0, 8)) is None
    assert not driver.events and not any(driver.streams.values()), "nor does anything go on unseen"
    assert not driver.pushed
    driver.retains = driver.pushes = 0


def test_memory_is_locked_as_long_as_it_is_mapped_or_written_to(world: World, driver: Copies) -> None:
    assert list(driver.locked.values()) == [NBYTES]
    copy = world.start((0, 0, 8))
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
    copy = world.start((0, 0, 8))
    world.engine.close()
    assert copy is not None and copy.done() and world.landed()[:8] == list(range(100, 108))
    assert not driver.streams and not world.engine.lifts([4])
    world.engine.close()
    assert driver.events == {} and NOT_READY not in driver.events.values()


def test_an_end_without_its_context_asks_for_nothing(world: World, driver: Copies) -> None:
    driver.pushes = 1
    world.engine.close()
    assert driver.streams, "they go with the context"


# -- in a transport


class Writer:
    """A transport whose staging has a twin, and a peer whose ring is mapped."""

    def __init__(self, library: Library, *, shares: bool = True, **options: object) -> None:
        self.library, self.side, self.far = library, Side(), SharedMemory(NBYTES)
        self.writer, self.reader = NixlTransport("w", **options), NixlTransport("r", maps=shares)  # type: ignore[arg-type]
        region = self.side.region
        self.region = self.writer.register(region.addr, region.nbytes)
        self.reader.register(self.far.addr, NBYTES)
        self.peer = self.writer.connect(self.reader.endpoint())
        library.calls.clear()

    def write(self, *rows: tuple[int, int, int]) -> Handle:
        return self.writer.write(self.peer, self.region, self.writer.remote(self.peer, 0), rows, b"tag")

    def over(self) -> list[TransportEvent]:
        """The events of a write that is over."""
        events: list[TransportEvent] = []

        def told() -> bool:
            events.extend(self.writer.poll())
            return bool(events)

        wait(told, "the write")
        return events

    def landed(self, *rows: tuple[int, int, int]) -> bool:
        """Whether what lies there is of the device, and all else as it was."""
        expected = [0] * NBYTES
        for source, to, nbytes in rows:
            expected[to : to + nbytes] = [(100 + source + at) % 251 for at in range(nbytes)]
        return list(self.far.view[:]) == expected

    def posted(self) -> list[str]:
        return [name for name, _ in self.library.called("postXferReq")]


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Library:
    made = Library()
    monkeypatch.setattr(nixl, "load", lambda: (made.api, made.bindings))
    monkeypatch.setattr(twin_writes, "PAGE", 16)
    return made


@pytest.mark.parametrize("rows", [
    [(5, 7, 100)], [(5, 7, 96)], [(0, 0, 16)], [(3, 0, 1)], [(0, 0, NBYTES - 200)], [(5, 500, 30), (900, 7, 33)],
], ids=str)  # fmt: skip
def test_the_device_s_bytes_go_straight_to_the_peer_but_for_the_end_which_goes_with_the_tag(
    library: Library, driver: Copies, rows: list[tuple[int, int, int]]
) -> None:
    writer = Writer(library)
    assert writer.writer.lifts(writer.region)
    handle = writer.write(*rows)
    assert writer.writer.poll() == [] and writer.posted() == [] and writer.landed()
    driver.run()
    source, to, nbytes = rows[-1]
    most = (nbytes - 1) // 16 * 16
    assert writer.landed(*rows[:-1], (source, to, most)) and writer.reader.poll() == []
    assert writer.writer.poll() == [Completed(handle)] and writer.posted() == ["w"]
    assert writer.landed(*rows) and writer.reader.poll() == [Arrived(PeerId("w"), b"tag")]


def test_an_endpoint_with_the_metadata_of_another_agent_maps_nothing(library: Library, driver: Copies) -> None:
    """Else the next write to the peer would go into the memory that a forged endpoint names."""
    library.form = lambda *about: b"a new form: " + metadata(*about)
    writer, other, elsewhere = Writer(library), NixlTransport("other"), SharedMemory(NBYTES)
    told, theirs = (decode(each.endpoint(), "nixl") for each in (writer.reader, other))
    named = replace(told.regions[0], share=share(MemoryRegion(0, elsewhere.addr, NBYTES, "DRAM", 0)))
    with pytest.raises(BadEndpoint, match="of agent 'other'"):
        writer.writer.connect(encode(replace(told, serial=told.serial + 1, blob=theirs.blob, regions=(named,))))
    writer.write((5, 7, 100))
    driver.run()
    assert not any(elsewhere.view[:]) and not writer.landed()


@pytest.mark.parametrize("rows", [[(5, 7, 100)], [(5, 7, 47)], [(5, 500, 30), (900, 7, 100)]], ids=str)
@pytest.mark.parametrize("mapped", [True, False])
def test_where_the_peer_is_not_locked_or_not_mapped_it_is_first_brought_here(
    library: Library, driver: Copies, rows: list[tuple[int, int, int]], mapped: bool
) -> None:
    driver.refuses["cuMemHostRegister_v2"] = int(mapped)
    writer = Writer(library, shares=mapped)
    handle = writer.write(*rows)
    assert writer.writer.poll() == [] and writer.posted() == [] and writer.landed()
    driver.run()
    assert writer.landed(), "it is here, and has not left"
    assert writer.over() == [Completed(handle)] and writer.landed(*rows)
    assert writer.reader.poll() == [Arrived(PeerId("w"), b"tag")]
    assert writer.posted() == ["w"]


def test_what_cannot_be_had_from_the_device_is_not_written(library: Library, driver: Copies) -> None:
    for locked in (True, False):
        driver.refuses["cuMemHostRegister_v2"] = int(not locked)
        writer = Writer(library)
        driver.refuses["cuMemcpyAsync"] = 1
        handle = writer.write((0, 0, 100))
        (failed,) = writer.writer.poll()
        assert isinstance(failed, Failed) and failed.quiescent and "cannot be copied" in failed.error.detail
        assert (failed.handle, failed.error.kind) == (handle, "backend") and writer.posted() == [] and writer.landed()
        driver.refuses.clear()
        library.agents.clear()


@pytest.mark.parametrize("locked", [True, False])
def test_a_copy_that_fails_fails_its_write(library: Library, driver: Copies, locked: bool) -> None:
    driver.refuses["cuMemHostRegister_v2"] = int(not locked)
    writer = Writer(library)
    handle = writer.write((0, 0, 100))
    driver.run(fault=700)
    (failed,) = writer.writer.poll()
    assert isinstance(failed, Failed) and failed.handle == handle and "CUresult 700" in str(failed.error)
    assert writer.posted() == [] and writer.reader.poll() == []


def test_parts_of_two_regions_are_each_taken_from_where_they_lie(library: Library, driver: Copies) -> None:
    writer, plain = Writer(library), np.full(64, 255, np.uint8)
    other = writer.writer.register(plain.ctypes.data, 64)
    assert not writer.writer.lifts(other)
    target = writer.writer.remote(writer.peer, 0)
    parts = [WritePart(other, target, bulk(0, 0, 64)), WritePart(writer.region, target, bulk(0, 64, 50))]
    handle = writer.writer.write_many(writer.peer, parts, b"")
    driver.run()
    assert writer.over() == [Completed(handle)]
    assert list(writer.far.view[:115]) == [255] * 64 + [100 + at for at in range(50)] + [0]


def test_only_what_is_not_for_the_device_is_made_ready_before_it_is_posted(library: Library, driver: Copies) -> None:
    writer, plain = Writer(library), np.zeros(64, np.uint8)
    target = writer.writer.remote(writer.peer, 0)
    writer.writer.prepare(writer.peer, [WritePart(writer.region, target, bulk(0, 0, 64))], b"")
    assert not library.called("createXferReq")
    other = writer.writer.register(plain.ctypes.data, 64)
    writer.writer.prepare(writer.peer, [WritePart(other, target, bulk(0, 0, 64))], b"")
    assert library.called("createXferReq") and not driver.events


def test_a_region_that_is_given_back_is_not_lifted(library: Library, driver: Copies) -> None:
    writer = Writer(library)
    writer.writer.deregister(writer.region)
    assert not writer.writer.lifts(writer.region)
    writer.region = writer.writer.register(writer.side.on_device.ctypes.data, NBYTES)
    writer.write((0, 0, 100))
    assert writer.posted() == ["w"] and not any(driver.streams.values())


@pytest.mark.parametrize("without", ["maps", "a stream"])
def test_without_maps_or_a_stream_nothing_is_lifted_and_nothing_mapped(
    library: Library, driver: Copies, without: str
) -> None:
    driver.refuses["cuStreamCreate"] = int(without == "a stream")
    writer = Writer(library, maps=without != "maps")
    assert not writer.writer.lifts(writer.region)
    writer.write((0, 0, 100))
    assert writer.posted() == ["w"] and not driver.events and not driver.locked
    twins = writer.writer._twins
    assert twins is None or twins._maps.find(writer.peer, writer.far.addr, 1) is None


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

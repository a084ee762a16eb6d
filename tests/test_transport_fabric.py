"""The steps of a fabric, one of each kind at its time; a transport that closes with a write in flight."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import Any

import numpy as np
import pytest

from kvproto.io.transports.base import (
    Arrived,
    Completed,
    Failed,
    Handle,
    PeerId,
    PeerLost,
    TransportCaps,
    TransportError,
    UsageError,
    WritePart,
)
from kvproto.io.transports.cargo import FabricStep
from kvproto.io.transports.fabric import Fabric
from kvproto.io.transports.links import InFlightWrite
from kvproto.io.transports.memory import MAX_TAG, MemoryTransport
from kvproto.io.transports.regions import bulk

SIZE = 64


class World:
    """A writer and a reader, linked."""

    def __init__(self, **options: Any) -> None:
        self.fabric = Fabric(**options)
        self.near, self.far = np.arange(1, SIZE + 1, dtype=np.uint8), np.zeros(SIZE, np.uint8)
        self.writer, self.reader = MemoryTransport(self.fabric, "w"), MemoryTransport(self.fabric, "r")
        self.source = self.writer.register(self.near.ctypes.data, SIZE)
        self.target = self.reader.register(self.far.ctypes.data, SIZE)
        self.peer = self.writer.connect(self.reader.endpoint())

    def write(self, descs: Any, tag: bytes = b"tag") -> Handle:
        return self.writer.write(self.peer, self.source, self.writer.remote(self.peer, 0), descs, tag)

    def possible(self) -> list[tuple[str, int]]:
        return [(step.kind, step.piece) for step in self.fabric.options()]


def test_what_an_instance_can_do_is_what_its_fabric_does() -> None:
    for native in (True, False):
        made = MemoryTransport(Fabric(native_notify=native), max_inflight_descs=7)
        assert made.caps == TransportCaps("memory", ("DRAM",), MAX_TAG, 1 << 20, 7, native, False)


def test_pieces_land_in_turn_or_in_any_order_and_the_rest_comes_after_them() -> None:
    world = World(piece=3)
    world.write(bulk(0, 0, 8))
    assert world.possible() == [("land", 0)]
    world.fabric.take(world.fabric.options()[0])
    assert world.possible() == [("land", 1)] and world.far.tolist()[:5] == [1, 2, 3, 0, 0]
    shuffled = World(piece=3, shuffle=True)
    shuffled.write([(0, 0, 4), (8, 16, 2)])
    assert shuffled.possible() == [("land", 0), ("land", 1), ("land", 2)]
    shuffled.fabric.take(shuffled.fabric.options()[1])
    assert shuffled.far.tolist()[:4] == [0, 0, 0, 4] and shuffled.possible() == [("land", 0), ("land", 2)]
    assert shuffled.fabric.run() == 4


def test_what_is_over_or_unknown_cannot_be_done() -> None:
    world = World()
    handle = world.write(bulk(0, 0, 8))
    assert world.fabric.run() == 3
    for step in (FabricStep(PeerId("w"), handle, "land"), FabricStep(PeerId("r"), handle, "land")):
        with pytest.raises(UsageError, match="not possible"):
            world.fabric.take(step)
    for call in (world.fabric.fail, world.fabric.doubt, world.fabric.mute):
        with pytest.raises(UsageError, match="not on the fabric"):
            call(PeerId("w"), handle)


def test_a_tag_that_is_lost_after_its_write_is_through_ends_it() -> None:
    world = World()
    handle = world.write(bulk(0, 0, 8))
    for kind in ("land", "complete"):
        world.fabric.take(next(step for step in world.fabric.options() if step.kind == kind))
    world.fabric.mute(PeerId("w"), handle)
    with pytest.raises(UsageError, match="not on the fabric"):
        world.fabric.doubt(PeerId("w"), handle)
    assert world.writer.poll() == [Completed(handle)] and world.reader.poll() == []


def test_while_one_end_stands_still_bytes_land_and_nothing_else_happens() -> None:
    for name in ("w", "r"):
        world = World()
        handle = world.write(bulk(0, 0, 8))
        world.fabric.stall(PeerId(name))
        assert world.possible() == [("land", 0)]
        world.fabric.run()
        assert world.possible() == [] and world.fabric.step(Random(1)) is None
        world.fabric.resume(PeerId(name))
        assert world.fabric.run() == 2
        assert world.writer.poll() == [Completed(handle)]


@pytest.mark.parametrize("kept", [0, 1])
def test_bytes_land_in_memory_that_is_registered_now_and_nowhere_else(kept: int) -> None:
    world, memory = World(), np.zeros(2 * SIZE, np.uint8)
    halves = [world.reader.register(memory.ctypes.data + at, SIZE) for at in (0, SIZE)]
    world.writer.connect(world.reader.endpoint())
    for half in halves:
        world.writer.write(world.peer, world.source, world.writer.remote(world.peer, half.index), bulk(0, 0, SIZE), b"")
    world.reader.deregister(halves[1 - kept])
    world.fabric.run()
    told = {type(each): each for each in world.writer.poll()}
    failed = told[Failed]
    assert isinstance(failed, Failed)
    assert (failed.handle, failed.error.kind, failed.quiescent) == (1 - kept, "stale_endpoint", True)
    assert told[Completed] == Completed(halves[kept].index - 1)  # type: ignore[arg-type]
    assert [bool(memory[at : at + SIZE].any()) for at in (0, SIZE)] == [kept == 0, kept == 1]


def test_every_fault_is_of_its_kind() -> None:
    world = World()
    failed, doubtful, cut = (world.write(bulk(0, 0, 8)) for _ in range(3))
    world.fabric.fail(PeerId("w"), failed)
    world.fabric.doubt(PeerId("w"), doubtful)
    world.fabric.cut(PeerId("w"), PeerId("r"))
    *writes, lost = world.writer.poll()
    assert [(each.handle, each.error.kind, each.quiescent) for each in writes if isinstance(each, Failed)] == [
        (failed, "backend", True), (doubtful, "in_doubt", False), (cut, "peer_lost", False),
    ]  # fmt: skip
    assert isinstance(lost, PeerLost) and (lost.peer, lost.error.kind) == ("r", "peer_lost")


def test_who_is_dead_is_told_nothing_and_a_write_to_him_never_was() -> None:
    world = World()
    writer = MemoryTransport(world.fabric, "m", maps=True)
    writer.connect(world.reader.endpoint())
    assert writer.tell(PeerId("r"), b"word") and world.reader.poll() == [Arrived(PeerId("m"), b"word")]
    world.fabric.kill(PeerId("r"))
    assert not writer.tell(PeerId("r"), b"word")
    handle = world.write(bulk(0, 0, 8))
    failed, lost = world.writer.poll()
    assert isinstance(failed, Failed) and isinstance(lost, PeerLost)
    assert (failed.handle, failed.error.kind, failed.quiescent) == (handle, "peer_lost", True)
    assert lost.error.kind == "peer_lost"
    silent = Fabric(native_notify=False)
    one, two = (MemoryTransport(silent, maps=True) for _ in range(2))
    assert not one.tell(one.connect(two.endpoint()), b"word")
    with pytest.raises(UsageError, match="gone"):
        world.fabric.launch(PeerId("r"), PeerId("w"), handle, None, b"")  # type: ignore[arg-type]


class Watched(MemoryTransport):
    """One that notes what it still has in flight when it ends."""

    left: list[Handle]

    def _end(self) -> None:
        self.left = list(self._flights)
        super()._end()


def left_in_flight(fabric: Fabric) -> tuple[Watched, np.ndarray[Any, np.dtype[np.uint8]], object]:
    """A transport with a write that another thread left, its target's bytes, and what must live as long."""
    transport, other = Watched(fabric), MemoryTransport(fabric)
    bytes_, target = np.full(64, 7, np.uint8), np.zeros(64, np.uint8)
    source = transport.register(bytes_.ctypes.data, 64)
    region = other.register(target.ctypes.data, 64)
    peer = transport.connect(other.endpoint())
    prepared = transport.prepare(peer, [WritePart(source, transport.remote(peer, region.index), bulk(0, 0, 64))], b"")

    def leave() -> None:
        flight: InFlightWrite = transport._post(Handle(0), prepared)
        transport._leave(flight)

    with ThreadPoolExecutor(1) as pool:
        pool.submit(leave).result()
    assert transport.busy()
    return transport, target, (bytes_, other)


def test_a_transport_that_closes_waits_for_what_another_thread_has_left() -> None:
    transport, target, _ = left_in_flight(Fabric(auto=True))
    transport.close(30.0)
    assert set(target.tolist()) == {7} and transport.left == []
    assert not transport.busy() and transport.poll() == []


def test_a_transport_that_closes_waits_for_a_thread_that_warms_a_peer() -> None:
    fabric = Fabric(auto=True)
    transport, other = Watched(fabric), MemoryTransport(fabric)
    peer, looks = transport.connect(other.endpoint()), list[bool]()
    transport._links.hold(peer)

    def look() -> None:
        looks.append(transport._links.held())
        if len(looks) == 2:
            transport._links.release(peer)

    transport._look = look  # type: ignore[method-assign]
    transport.close(30.0)
    assert looks == [True, True]


def test_what_has_not_ended_when_a_transport_closes_is_taken_over_before_the_end() -> None:
    transport, target, _ = left_in_flight(Fabric())
    transport.close(0.0)
    assert transport.left == [Handle(0)] and set(target.tolist()) == {0}
    assert not transport.busy() and transport.quiescent(Handle(0)) and transport.poll() == []


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
@pytest.mark.parametrize("step", ["_progress", "_gather", "_end"])
def test_a_close_of_which_a_step_fails_goes_on_to_its_end_and_says_so(
    monkeypatch: pytest.MonkeyPatch, step: str, error: type[BaseException]
) -> None:
    transport, _, _alive = left_in_flight(Fabric())

    def fail() -> None:
        raise error("planted")

    monkeypatch.setattr(transport, step, fail)
    with pytest.raises(error if error is KeyboardInterrupt else TransportError, match="planted"):
        transport.close(0.02)
    assert transport.closed and hasattr(transport, "left") == (step != "_end")
    if step != "_gather":
        assert transport.quiescent(Handle(0)) and not transport.busy()
    monkeypatch.undo()
    transport.close()

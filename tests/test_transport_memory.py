"""The in-memory transport: every schedule keeps the contract; what loss and doubt leave behind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from random import Random

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvproto.io.transports.base import (
    Arrived,
    Busy,
    Completed,
    Failed,
    Handle,
    MemoryRegion,
    PeerId,
    PeerLost,
    PreparedWrite,
    StaleEndpoint,
    UsageError,
    WritePart,
    WrongThread,
)
from kvproto.io.transports.endpoint import RegionEntry
from kvproto.io.transports.fabric import Fabric
from kvproto.io.transports.links import TransportLink
from kvproto.io.transports.memory import MemoryTransport
from kvproto.io.transports.regions import bulk
from kvproto.verify.testing.handler_stage import CountedTransport

SIZE = 4096


class End:
    """A transport with one registered buffer."""

    def __init__(self, fabric: Fabric, fill: int, **options: int) -> None:
        self.transport = MemoryTransport(fabric, **options)  # type: ignore[arg-type]
        self.buffer: npt.NDArray[np.uint8] = np.full(SIZE, fill, dtype=np.uint8)
        self.region = self.transport.register(self.buffer.ctypes.data, SIZE)

    def write(self, to: End, descs: npt.ArrayLike, tag: bytes = b"tag") -> Handle:
        peer = self.transport.connect(to.transport.endpoint())
        remote = self.transport.remote(peer, to.region.index)
        return self.transport.write(peer, self.region, remote, descs, tag)


def ends(fabric: Fabric, **options: int) -> tuple[End, End]:
    return End(fabric, 1, **options), End(fabric, 0)


def peer_of(end: End) -> PeerId:
    return end.transport.instance


# -- the schedule


def test_the_source_is_read_when_a_piece_lands() -> None:
    fabric = Fabric(piece=4)
    p, d = ends(fabric)
    p.write(d, bulk(0, 0, 8))
    fabric.take(fabric.options()[0])
    p.buffer[:] = 9
    fabric.run()
    assert d.buffer[:8].tolist() == [1] * 4 + [9] * 4


def test_without_native_notification_no_tag_travels() -> None:
    fabric = Fabric(auto=True, native_notify=False)
    p, d = ends(fabric)
    assert not p.transport.caps.native_notify
    handle = p.write(d, bulk(0, 0, 8))
    assert p.transport.poll() == [Completed(handle)]
    assert d.transport.poll() == []


@given(st.integers(0, 2**32), st.integers(1, 5), st.booleans())
@settings(deadline=None, max_examples=60)
def test_whatever_the_schedule_each_write_ends_once_and_arrives_whole(seed: int, piece: int, shuffle: bool) -> None:
    rng = Random(seed)
    fabric = Fabric(piece=piece, shuffle=shuffle)
    p, d = ends(fabric)
    p.buffer[:] = np.arange(SIZE) % 251
    expected: dict[bytes, list[tuple[int, int, int]]] = {}
    at = 0
    for i in range(rng.randint(1, 4)):
        rows = []
        for _ in range(rng.randint(1, 4)):
            n = rng.randint(1, 9)
            rows.append((rng.randrange(SIZE - n), at, n))
            at += n + rng.randint(0, 2)
        expected[b"%d" % i] = rows
        p.write(d, rows, b"%d" % i)
    done: list[Handle] = []
    arrived: list[bytes] = []
    while fabric.step(rng):
        done += [e.handle for e in p.transport.poll() if isinstance(e, Completed)]
        for event in d.transport.poll():
            assert isinstance(event, Arrived)
            arrived.append(event.tag)
            for src, dst, n in expected[event.tag]:
                assert (d.buffer[dst : dst + n] == p.buffer[src : src + n]).all()
    assert sorted(done) == list(range(len(expected)))
    assert sorted(arrived) == sorted(expected)
    written = np.zeros(SIZE, dtype=bool)
    for _src, dst, n in (row for rows in expected.values() for row in rows):
        written[dst : dst + n] = True
    assert not d.buffer[~written].any()


def test_the_same_choices_give_the_same_run() -> None:
    def trace() -> list[object]:
        rng = Random(7)
        fabric = Fabric(piece=3, shuffle=True)
        p, d = ends(fabric)
        p.write(d, [(0, 0, 10), (100, 50, 10)], b"a")
        p.write(d, bulk(7, 200, 20), b"b")
        out: list[object] = []
        while step := fabric.step(rng):
            out += [step, *p.transport.poll(), *d.transport.poll()]
        return out

    assert trace() == trace()


# -- faults


class PreparedWorld:
    """A transport that counts its prepared writes, and has room for two pieces, before a peer."""

    def __init__(self) -> None:
        self.fabric, self.buffer = Fabric(), np.zeros(SIZE, np.uint8)
        self.made, self.peer = CountedTransport(self.fabric), End(self.fabric, 0)
        self.region = self.made.register(self.buffer.ctypes.data, SIZE)
        self.name = self.made.connect(self.peer.transport.endpoint())

    def parts(self) -> list[WritePart]:
        return [WritePart(self.region, self.made.remote(self.name, 0), bulk(0, 0, 8))]

    def prepared(self) -> PreparedWrite:
        return self.made.prepare(self.name, self.parts(), b"tag")


def test_a_prepared_write_that_is_dropped_is_dropped_once_and_by_its_owner() -> None:
    world = PreparedWorld()
    prepared = world.prepared()
    with ThreadPoolExecutor(1) as pool, pytest.raises(WrongThread):
        pool.submit(world.made.drop, prepared).result()
    assert len(world.made.prepared_writes) == 1 and prepared.raw is not None
    world.made.drop(prepared)
    world.made.drop(prepared)
    assert not world.made.prepared_writes


def test_a_prepared_write_of_a_former_table_is_dropped_and_made_anew() -> None:
    world = PreparedWorld()
    prepared = world.prepared()
    more = np.zeros(64, np.uint8)
    world.made.register(more.ctypes.data, 64)
    handle = world.made.post(prepared)
    assert not world.made.prepared_writes
    world.fabric.run()
    assert world.made.poll() == [Completed(handle)]


def test_a_prepared_write_without_room_is_kept_and_one_to_a_lost_peer_or_after_the_end_is_none() -> None:
    world = PreparedWorld()
    prepared_writes = [world.prepared() for _ in range(3)]
    for prepared in prepared_writes[:2]:
        world.made.post(prepared)
    with pytest.raises(Busy):
        world.made.post(prepared_writes[2])
    assert len(world.made.prepared_writes) == 1
    world.fabric.cut(world.made.instance, world.name)
    world.made.poll()
    assert world.prepared().raw is None and len(world.made.prepared_writes) == 1
    world.made.close(drain_s=0.0)
    world.made.drop(prepared_writes[2])
    assert len(world.made.prepared_writes) == 1, "the backend is gone, and all with it"
    for call in (
        lambda: world.made.post(prepared_writes[2]), world.prepared, lambda: world.made.write_many(world.name, [], b""),
    ):  # fmt: skip
        with pytest.raises(UsageError, match="closed"):
            call()


def test_a_write_in_doubt_may_still_land_and_arrive_and_pins_its_source_meanwhile() -> None:
    fabric = Fabric()
    p, d = ends(fabric)
    handle = p.write(d, bulk(0, 0, 8))
    fabric.doubt(peer_of(p), handle)
    (event,) = p.transport.poll()
    assert isinstance(event, Failed)
    assert (event.quiescent, event.error.kind) == (False, "in_doubt")
    assert p.transport.busy()
    assert not p.transport.quiescent(handle)
    with pytest.raises(Busy):
        p.transport.deregister(p.region)
    fabric.run()
    assert p.transport.poll() == []  # one outcome, already reported
    assert p.transport.quiescent(handle)
    assert not p.transport.busy()
    assert d.transport.poll() == [Arrived(peer_of(p), b"tag")]
    p.transport.deregister(p.region)


def test_a_cut_link_dooms_its_writes_but_no_others() -> None:
    fabric = Fabric()
    p, d = ends(fabric)
    other = End(fabric, 0)
    first, second = p.write(d, bulk(0, 0, 8)), p.write(other, bulk(0, 0, 8))
    remote = p.transport.remote(peer_of(d), d.region.index)
    fabric.cut(peer_of(p), peer_of(d))
    failed, lost = p.transport.poll()
    assert isinstance(failed, Failed)
    assert (failed.handle, failed.quiescent) == (first, False)
    assert isinstance(lost, PeerLost)
    assert lost.peer == peer_of(d)
    third = p.transport.write(peer_of(d), p.region, remote, bulk(0, 0, 8), b"")
    (event,) = p.transport.poll()
    assert isinstance(event, Failed)
    assert (event.handle, event.quiescent) == (third, True)
    d.transport.register(*_memory())
    with pytest.raises(StaleEndpoint, match="lost"):
        p.transport.connect(d.transport.endpoint())
    fabric.run()
    assert p.transport.poll() == [Completed(second)]
    p.transport.disconnect(peer_of(d))
    assert p.transport.connect(d.transport.endpoint()) == peer_of(d)


_KEEP: list[npt.NDArray[np.uint8]] = []


def _memory() -> tuple[int, int]:
    _KEEP.append(np.zeros(64, dtype=np.uint8))
    return _KEEP[-1].ctypes.data, 64


def test_a_killed_writer_leaves_part_of_its_bytes_and_no_word() -> None:
    fabric = Fabric(piece=4)
    p, d = ends(fabric)
    p.write(d, bulk(0, 0, 8))
    fabric.take(fabric.options()[0])
    fabric.kill(peer_of(p))
    assert fabric.run() == 0
    assert d.buffer.sum() == 4
    assert d.transport.poll() == []


def test_a_step_that_is_not_possible_is_refused() -> None:
    fabric = Fabric()
    p, d = ends(fabric)
    p.write(d, bulk(0, 0, 8))
    step = fabric.options()[0]
    fabric.take(step)
    with pytest.raises(UsageError, match="not possible"):
        fabric.take(step)
    fabric.run()
    assert fabric.step(Random(0)) is None


def test_a_killed_target_fails_what_is_in_flight_and_what_comes_after() -> None:
    fabric = Fabric(piece=4)
    p, d = ends(fabric)
    first = p.write(d, bulk(0, 0, 8))
    fabric.take(fabric.options()[0])
    fabric.kill(peer_of(d))
    failed, lost = p.transport.poll()
    assert isinstance(failed, Failed)
    assert (failed.handle, failed.error.kind, failed.quiescent) == (first, "peer_lost", True)
    assert isinstance(lost, PeerLost)
    p.transport.disconnect(peer_of(d))
    assert fabric.run() == 0


def test_a_muted_tag_is_lost_while_the_write_completes() -> None:
    fabric = Fabric()
    p, d = ends(fabric)
    handle = p.write(d, bulk(0, 0, 8))
    fabric.mute(peer_of(p), handle)
    fabric.run()
    assert p.transport.poll() == [Completed(handle)]
    assert d.transport.poll() == []


# -- peers, limits, ownership


def test_an_endpoint_of_former_tables_is_refused_and_a_newer_one_taken() -> None:
    fabric = Fabric()
    p, d = ends(fabric)
    old = d.transport.endpoint()
    extra = d.transport.register(*_memory())
    peer = p.transport.connect(d.transport.endpoint())
    with pytest.raises(StaleEndpoint, match="older"):
        p.transport.connect(old)
    remote = p.transport.remote(peer, extra.index)
    d.transport.deregister(extra)
    p.transport.connect(d.transport.endpoint())
    with pytest.raises(StaleEndpoint, match="no region"):
        p.transport.remote(peer, extra.index)
    with pytest.raises(StaleEndpoint, match="not in its current"):
        p.transport.write(peer, p.region, remote, bulk(0, 0, 1), b"")


def test_an_endpoint_made_while_memory_is_registered_is_no_newer_than_what_it_names() -> None:
    p, d = ends(Fabric())
    table, extra = d.transport._table, list[MemoryRegion]()
    entries = table.entries

    def meanwhile(shares: Mapping[int, tuple[bytes, bytes]]) -> tuple[RegionEntry, ...]:
        found = entries(shares)
        extra.append(d.transport.register(*_memory()))
        return found

    table.entries = meanwhile  # type: ignore[method-assign]
    peer = p.transport.connect(d.transport.endpoint())
    table.entries = entries  # type: ignore[method-assign]
    p.transport.connect(d.transport.endpoint())
    assert p.transport.remote(peer, extra[0].index).addr == extra[0].addr


def _elsewhere(call: Callable[[], object]) -> BaseException | None:
    """The error that `call` raises on another thread."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(call).exception()


def test_an_instance_has_one_life() -> None:
    fabric = Fabric()
    p, _ = ends(fabric)
    with pytest.raises(UsageError, match="one life"):
        MemoryTransport(fabric, p.transport.instance)


def test_a_peer_cannot_be_connected_while_it_is_taken_down() -> None:
    caught: list[BaseException | None] = []

    class Slow(MemoryTransport):
        def _unlink(self, link: TransportLink) -> None:
            caught.append(_elsewhere(lambda: self.connect(d.transport.endpoint())))

    fabric = Fabric()
    d = End(fabric, 0)
    p = Slow(fabric)
    p.disconnect(p.connect(d.transport.endpoint()))
    assert isinstance(caught[0], Busy)
    p.connect(d.transport.endpoint())

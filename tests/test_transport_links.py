"""Holding a peer, and its writes in flight: no thread connects, warms or drops what another works on."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from kvproto.io.transports.base import (
    Busy,
    Completed,
    Failed,
    Handle,
    PeerGone,
    PeerId,
    StaleEndpoint,
    UsageError,
    WrongThread,
)
from kvproto.io.transports.endpoint import InstanceDescription
from kvproto.io.transports.fabric import Fabric
from kvproto.io.transports.links import TransportLink, TransportLinks
from kvproto.io.transports.memory import MemoryTransport

SIZE = 4096


class Linked(MemoryTransport):
    """A transport whose backend notes whom it links, and does in the middle of a call what it is told."""

    def __init__(self, fabric: Fabric, **options: Any) -> None:
        super().__init__(fabric, **options)
        self.linked = 0
        self.warmed: list[tuple[PeerId, float]] = []
        self.meanwhile: Callable[[], object] = lambda: None

    def _link(self, _new: InstanceDescription) -> None:
        self.linked += 1
        self.meanwhile()

    def _warm(self, link: TransportLink, timeout_s: float) -> bool:
        self.warmed.append((link.peer, timeout_s))
        self.meanwhile()
        return True


class World:
    """A writer and a reader with a region each."""

    def __init__(self, **options: Any) -> None:
        self.fabric = Fabric()
        self.writer, self.reader = Linked(self.fabric, **options), MemoryTransport(self.fabric)
        self.near, self.far = np.ones(SIZE, np.uint8), np.zeros(SIZE, np.uint8)
        self.region = self.writer.register(self.near.ctypes.data, SIZE)
        self.reader.register(self.far.ctypes.data, SIZE)

    def connect(self) -> PeerId:
        return self.writer.connect(self.reader.endpoint())

    def write(self, peer: PeerId, pieces: int) -> Handle:
        rows = [(4 * at, 4 * at, 1) for at in range(pieces)]
        return self.writer.write(peer, self.region, self.writer.remote(peer, 0), rows, b"")


def test_an_endpoint_that_is_known_changes_nothing_and_a_newer_one_is_told_to_the_backend() -> None:
    world = World()
    peer = world.connect()
    assert world.connect() == peer and world.writer.linked == 1
    more = np.zeros(64, np.uint8)
    world.reader.register(more.ctypes.data, 64)
    assert world.connect() == peer and world.writer.linked == 2
    assert world.writer.remote(peer, 1).nbytes == 64


def test_a_table_that_the_backend_refuses_is_not_taken() -> None:
    world, more = World(), np.zeros(64, np.uint8)

    def refuse() -> None:
        raise PeerGone("it does not answer")

    world.writer.meanwhile = refuse
    with pytest.raises(PeerGone):
        world.connect()
    with pytest.raises(StaleEndpoint, match="not connected"):
        world.writer.remote(PeerId("memory-1"), 0)
    world.writer.meanwhile = lambda: None
    peer = world.connect()
    world.reader.register(more.ctypes.data, 64)
    world.writer.meanwhile = refuse
    with pytest.raises(PeerGone):
        world.connect()
    with pytest.raises(StaleEndpoint, match="no region 1"):
        world.writer.remote(peer, 1)
    world.writer.meanwhile = lambda: None
    assert world.connect() == peer and world.writer.remote(peer, 1).nbytes == 64


def test_a_peer_that_is_being_connected_or_warmed_is_nobody_else_s() -> None:
    world = World()
    peer = PeerId("memory-1")
    refused: list[str] = []

    def others() -> None:
        for name, call in (
            ("connect", world.connect), ("warm", lambda: world.writer.warm(peer)),
            ("disconnect", lambda: world.writer.disconnect(peer)),
        ):  # fmt: skip
            with pytest.raises(Busy, match="by another thread"):
                call()
            refused.append(name)

    world.writer.meanwhile = others
    assert world.connect() == peer
    assert world.writer.warm(peer, 3.0) is True
    assert world.writer.warmed == [(peer, 3.0)]
    assert refused == ["connect", "warm", "disconnect"] * 2
    world.writer.meanwhile = lambda: None
    assert world.writer.warm(peer) is True
    world.writer.disconnect(peer)


@contextmanager
def held(world: World, peer: PeerId) -> Iterator[threading.Event]:
    """While another thread warms the peer, until the event."""
    entered, over = threading.Event(), threading.Event()

    def wait() -> None:
        entered.set()
        assert over.wait(5.0)

    world.writer.meanwhile = wait
    thread = threading.Thread(target=world.writer.warm, args=(peer,))
    thread.start()
    try:
        assert entered.wait(5.0)
        yield over
    finally:
        over.set()
        thread.join(5.0)


def test_who_closes_waits_for_whoever_holds_a_peer_and_then_nobody_may() -> None:
    world = World()
    peer = world.connect()
    endpoint = world.reader.endpoint()
    with held(world, peer) as over:
        ended = world.writer._end
        alone: list[bool] = []

        def end() -> None:
            alone.append(over.is_set())
            ended()

        world.writer._end = end  # type: ignore[method-assign]
        threading.Timer(0.02, over.set).start()
        world.writer.close(drain_s=5.0)
    assert alone == [True]
    for call in (lambda: world.writer.connect(endpoint), lambda: world.writer.warm(peer), world.writer.endpoint):
        with pytest.raises(UsageError, match="closed"):
            call()


def test_a_transport_that_ends_while_a_peer_is_taken_hold_of_warms_nobody() -> None:
    world = World()
    peer = world.connect()
    links, hold = world.writer._links, world.writer._links.hold

    def then_close(peer: PeerId) -> TransportLink:
        link = hold(peer)
        world.writer.close(drain_s=0.0)
        return link

    links.hold = then_close  # type: ignore[method-assign]
    assert world.writer.warm(peer) is False and not world.writer.warmed


def test_who_is_lost_is_not_warmed() -> None:
    world = World()
    peer = world.connect()
    world.fabric.cut(world.writer.instance, peer)
    world.writer.poll()
    assert world.writer.warm(peer) is False and not world.writer.warmed


def test_what_the_owner_alone_may_call_is_refused_to_others_and_after_the_end() -> None:
    world, more = World(), np.zeros(64, np.uint8)
    peer = world.connect()
    calls: list[Callable[[], object]] = [
        lambda: world.writer.register(more.ctypes.data, 64), lambda: world.writer.deregister(world.region),
        lambda: world.writer.disconnect(peer), lambda: world.write(peer, 1),
        lambda: world.writer.run(peer, lambda: SimpleNamespace(done=lambda: True), ()),
    ]  # fmt: skip
    others: list[Callable[[], object]] = [
        world.writer.poll, lambda: world.writer.abandon(Handle(0)), lambda: world.writer.close(0.0),
    ]  # fmt: skip
    with ThreadPoolExecutor(1) as pool:
        for call in (*calls, *others):
            assert isinstance(pool.submit(call).exception(), WrongThread)
    world.writer.close(0.0)
    for call in calls:
        with pytest.raises(UsageError, match="closed"):
            call()


def test_a_region_of_somebody_else_s_is_not_ours_whatever_its_number() -> None:
    world = World()
    peer = world.connect()
    world.write(peer, 1)
    theirs = world.reader._table.regions()[0]
    assert theirs.index == world.region.index
    with pytest.raises(UsageError, match="not registered"):
        world.writer.deregister(theirs)


def test_where_nothing_can_be_mapped_nothing_is_and_no_tag_goes_alone() -> None:
    world = World()
    peer = world.connect()
    assert world.writer.maps(peer) is None and world.writer.unmapped(peer) == ""
    assert world.writer.tell(peer, b"word") is False and world.reader.poll() == []
    mapped, more = World(maps=True), np.zeros(64, np.uint8)
    peer = mapped.connect()
    before = mapped.writer.maps(peer)
    assert before == {0: mapped.far.ctypes.data} and mapped.writer.maps(peer) is before
    mapped.reader.register(more.ctypes.data, 64)
    mapped.connect()
    assert mapped.writer.maps(peer) == {0: mapped.far.ctypes.data, 1: more.ctypes.data}


def test_what_is_in_flight_is_counted_until_it_ends() -> None:
    world = World(max_inflight_descs=4)
    peer = world.connect()
    last = world.write(peer, 2)
    for _ in range(5):
        handle = world.write(peer, 2)
        with pytest.raises(Busy, match="4 pieces are in flight"):
            world.write(peer, 1)
        while step := next((step for step in world.fabric.options() if step.handle == last), None):
            world.fabric.take(step)
        assert world.writer.poll() == [Completed(last)]
        last = handle
    work = SimpleNamespace(done=lambda: False)
    world.writer.run(peer, lambda: work, ())
    world.write(peer, 2)


def test_a_write_of_more_pieces_than_may_be_in_flight_goes_alone() -> None:
    world = World(max_inflight_descs=4)
    peer = world.connect()
    handle = world.write(peer, 6)
    with pytest.raises(Busy):
        world.write(peer, 1)
    world.fabric.run()
    assert world.writer.poll() == [Completed(handle)]
    world.write(peer, 1)


def test_what_other_threads_have_left_counts_as_in_flight() -> None:
    links = TransportLinks(PeerId("me"))
    new = InstanceDescription("memory", 2, "peer", 1, (), b"")
    assert links.begin(new)
    links.end(new, linked=True)
    peer = PeerId("peer")
    for _ in range(2):
        links.stray(peer, +1)
    with pytest.raises(Busy, match=r"^2 writes"):
        links.drop(peer)
    for _ in range(2):
        links.stray(peer, -1)
    assert links.drop(peer) is not None
    links.release(peer)
    assert links.drop(peer) is None and links.begin(new)


def test_a_write_to_a_peer_that_is_lost_fails_and_one_that_a_kernel_does_is_not_launched() -> None:
    world = World()
    peer = world.connect()
    world.fabric.cut(world.writer.instance, peer)
    world.writer.poll()

    def launch() -> Any:
        raise AssertionError("stored where nobody is")

    handles = world.writer.run(peer, launch, ()), world.write(peer, 1)
    told = world.writer.poll()
    assert [(each.handle, each.error.kind, each.quiescent) for each in told if isinstance(each, Failed)] == [
        (handle, "peer_lost", True) for handle in handles
    ]
    assert not world.writer.busy() and all(world.writer.quiescent(handle) for handle in handles)
    assert handles == (0, 1)

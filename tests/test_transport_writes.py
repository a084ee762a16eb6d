"""The one outcome that each write is owed: lost, left by another thread, abandoned or in flight."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from test_transport_fabric import left_in_flight

from kvproto.io.transports import write_records
from kvproto.io.transports.base import (
    Arrived,
    Busy,
    Completed,
    Failed,
    Handle,
    PeerId,
    PeerLost,
    UsageError,
    WritePart,
    WrongThread,
)
from kvproto.io.transports.fabric import Fabric
from kvproto.io.transports.memory import MemoryTransport
from kvproto.io.transports.page_lists import PagePiece
from kvproto.io.transports.regions import bulk
from kvproto.verify.testing.handler_stage import CountedTransport

SIZE = 64


class World:
    """Two transports with a region each, which both write into the other's."""

    def __init__(self, kind: Any = MemoryTransport, *, auto: bool = False) -> None:
        self.fabric = Fabric(auto=auto)
        self.memory = np.zeros(2 * SIZE, np.uint8)
        self.ends = [kind(self.fabric), kind(self.fabric)]
        for at, end in enumerate(self.ends):
            end.register(self.memory.ctypes.data + at * SIZE, SIZE)
        self.one, self.two = self.ends
        self.one.connect(self.two.endpoint())
        self.two.connect(self.one.endpoint())

    def parts(self, end: Any, other: Any) -> list[WritePart]:
        return [WritePart(end._table.regions()[0], end.remote(other.instance, 0), bulk(0, 0, 8))]

    def write(self, end: Any, tag: bytes = b"") -> Handle:
        other = self.two if end is self.one else self.one
        handle: Handle = end.write_many(other.instance, self.parts(end, other), tag)
        return handle


def test_what_another_thread_has_left_ends_unsaid() -> None:
    fabric = Fabric()
    transport, target, _alive = left_in_flight(fabric)
    (link,) = transport._links.all()
    with pytest.raises(Busy, match="1 writes"):
        transport.disconnect(link.peer)
    assert transport.poll() == [] and transport.busy()
    handle = Handle(0)
    assert not transport.quiescent(handle)
    fabric.run()
    assert transport.poll() == [] and not transport.busy() and transport.quiescent(handle)
    assert set(target.tolist()) == {7}
    transport.disconnect(link.peer)


def test_memory_is_not_let_go_while_another_thread_s_write_reads_it() -> None:
    transport, _, _alive = left_in_flight(Fabric())
    with pytest.raises(Busy, match="region 0 is read"):
        transport.deregister(transport._table.regions()[0])


def test_a_peer_is_lost_once_and_not_after_it_was_forgotten() -> None:
    world = World()
    for _ in range(2):
        world.fabric.cut(world.one.instance, world.two.instance)
    (told,) = world.one.poll()
    assert isinstance(told, PeerLost) and told.peer == world.two.instance
    world.fabric.cut(world.two.instance, world.one.instance)
    world.two.disconnect(world.one.instance)
    assert world.two.poll() == []


def test_a_kernel_that_ends_is_waited_for_and_one_that_fails_says_why() -> None:
    world = World()
    handle = world.one.run(world.two.instance, lambda: SimpleNamespace(done=lambda: True), ())
    world.one.close(drain_s=2.0)
    assert world.one.poll() == [Completed(handle)]
    handle = world.two.run(world.one.instance, lambda: SimpleNamespace(done=lambda: 1 // 0), ())
    (told,) = world.two.poll()
    assert isinstance(told, Failed) and (told.handle, told.error.kind, told.quiescent) == (handle, "backend", True)
    assert "ZeroDivisionError" in told.error.detail


def test_a_handle_that_was_not_given_yet_is_nobody_s() -> None:
    world = World()
    assert world.write(world.one) == 0
    assert world.one.quiescent(Handle(0)) is False
    for handle in (-1, 1):
        with pytest.raises(UsageError, match=f"handle {handle} is not of this transport"):
            world.one.quiescent(Handle(handle))


def test_a_prepared_write_to_a_peer_that_was_lost_since_is_freed_and_fails() -> None:
    world = World(CountedTransport)
    prepared = world.one.prepare(world.two.instance, world.parts(world.one, world.two), b"")
    world.fabric.cut(world.one.instance, world.two.instance)
    world.one.poll()
    handle = world.one.post(prepared)
    (told,) = world.one.poll()
    assert isinstance(told, Failed) and (told.handle, told.error.kind, told.quiescent) == (handle, "peer_lost", True)
    assert not world.one.prepared_writes and not world.one.busy()


def test_of_an_abandoned_write_nothing_is_said_whoever_does_it() -> None:
    world = World()
    work = SimpleNamespace(done=lambda: True)
    kept, dropped = (world.one.run(world.two.instance, lambda: work, ()) for _ in range(2))
    world.one.abandon(dropped)
    assert world.one.poll() == [Completed(kept)] and not world.one.busy()
    world.fabric.cut(world.one.instance, world.two.instance)
    world.one.poll()
    handles = [world.one.run(world.two.instance, lambda: work, ()), world.write(world.one), world.write(world.one)]
    world.one.abandon(handles[1])
    assert [(each.handle, each.error.kind) for each in world.one.poll()] == [
        (handles[0], "peer_lost"), (handles[2], "peer_lost"),
    ]  # fmt: skip


def test_what_was_said_of_others_stays_said() -> None:
    world = World(auto=True)
    first, second = world.write(world.one), world.write(world.one)
    world.write(world.two, b"word")
    world.one.close(drain_s=5.0)
    world.one.abandon(first)
    told = world.one.poll()
    assert sorted(map(str, told)) == sorted(map(str, [Arrived(world.two.instance, b"word"), Completed(second)]))
    assert world.one.poll() == []


def test_who_is_at_rest_ends_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def sleep(_: float) -> None:
        raise AssertionError("there is nothing to wait for")

    monkeypatch.setattr(write_records, "time", SimpleNamespace(monotonic=lambda: 0.0, sleep=sleep))
    World().one.close(drain_s=5.0)


def test_who_closes_drains_first_and_no_longer_than_he_is_asked_to() -> None:
    world = World(auto=True)
    handle = world.write(world.one, b"last")
    world.one.close(drain_s=5.0)
    assert world.one.poll() == [Completed(handle)]
    assert world.two.poll() == [Arrived(PeerId(world.one.instance), b"last")]
    other = World()
    handle = other.write(other.one)
    other.one.close(drain_s=0.0)
    (told,) = other.one.poll()
    assert isinstance(told, Failed) and (told.handle, told.error.kind, told.quiescent) == (handle, "in_doubt", True)
    with pytest.raises(UsageError, match="gone"):
        other.fabric.launch(other.one.instance, other.two.instance, handle, None, b"")  # type: ignore[arg-type]


def test_a_prepared_write_does_not_outlive_the_region_that_it_reads() -> None:
    """Its memory may be somebody else's by then, and its index never comes again."""
    world = World()
    prepared = world.one.prepare(world.two.instance, world.parts(world.one, world.two), b"")
    (region,) = world.one._table.regions()
    world.one.deregister(region)
    with pytest.raises(UsageError, match="region 0 is not registered"):
        world.one.post(prepared)
    again = world.one.register(region.addr, region.nbytes)
    with pytest.raises(UsageError, match="region 0 is not registered"):
        world.one.post(prepared)
    assert again.index == 1 and not world.one.poll() and not world.fabric.options()


def test_page_lists_do_not_outlive_the_region_that_they_read() -> None:
    """Their next write is refused, also when the same memory is registered again."""
    world = World()
    (region,) = world.one._table.regions()
    piece = PagePiece(region, world.one.remote(world.two.instance, 0), 0, 0, 8, 8, 8)
    lists, page = world.one.page_lists(world.two.instance, [piece]), np.zeros(1, np.int64)
    world.one.deregister(region)
    with pytest.raises(UsageError, match="region 0 is not registered"):
        world.one.write_pages(lists, page, page, b"")
    world.one.register(region.addr, region.nbytes)
    with pytest.raises(UsageError, match="region 0 is not registered"):
        world.one.write_pages(lists, page, page, b"")
    assert not world.one.poll() and not world.fabric.options()


class Listing(MemoryTransport):
    """Tells what it is asked to prepare and to free for page lists."""

    def __init__(self, fabric: Fabric) -> None:
        super().__init__(fabric)
        self.told, self.keeps = list[object](), True

    def _prep(self, lists: Any) -> int | None:
        self.told.append(lists)
        return len(self.told) if self.keeps else None

    def _unprep(self, raw: Any) -> None:
        self.told.append(raw)


def listed(world: World, region: Any = None) -> Any:
    region = region or world.one._table.regions()[0]
    return world.one.page_lists(
        world.two.instance, [PagePiece(region, world.one.remote(world.two.instance, 0), 0, 0, 8, 8, 8)]
    )


def test_page_lists_are_freed_once_whoever_lets_go_of_them() -> None:
    world, other = World(Listing), np.zeros(SIZE, np.uint8)
    one, link = world.one, world.one._links.known(world.two.instance)
    lists = listed(world)
    assert (one.told, lists.raw, link.lists, lists.link) == ([lists], 1, [lists], link)
    for _ in range(2):
        one.drop_lists(lists)
        assert (one.told, lists.raw, link.lists, lists.link) == ([lists, 1], None, [], None)
    more = one.register(other.ctypes.data, SIZE)
    kept, gone = listed(world), listed(world, more)
    one.deregister(more)
    assert one.told[2:] == [kept, gone, 4] and link.lists == [kept]
    handle = world.write(one)
    for abandoned in (False, True):
        if abandoned:
            one.abandon(handle)
        with pytest.raises(Busy):
            one.disconnect(world.two.instance)
        assert kept.raw == 3, "a write is in flight to that peer"
    closed = World(Listing)
    left = listed(closed)
    closed.one.close(drain_s=0.0)
    closed.one.told.clear()
    closed.one.drop_lists(left)
    assert (closed.one.told, left.raw) == ([], None)
    rest = World(Listing)
    last, theirs = listed(rest), rest.one._links.known(rest.two.instance)
    theirs.strays = 1
    with pytest.raises(Busy):
        rest.one.disconnect(rest.two.instance)
    assert last.raw == 1, "another thread has left a write in flight"
    theirs.strays = 0
    rest.one.disconnect(rest.two.instance)
    assert (rest.one.told, last.raw) == ([last, 1], None)


def test_page_lists_are_laid_again_where_regions_have_changed_and_not_otherwise() -> None:
    world, other = World(Listing, auto=True), np.zeros(SIZE, np.uint8)
    one, page = world.one, np.zeros(1, np.int64)
    one.keeps = False
    lists, tag = listed(world), bytes(one.caps.max_tag)
    for _ in range(2):
        one.write_pages(lists, page, page, tag)
    assert one.told == [lists]
    more = one.register(other.ctypes.data, SIZE)
    for _ in range(2):
        one.write_pages(lists, page, page, tag)
    assert one.told == [lists] * 2 and one._links.known(world.two.instance).lists == [lists]
    with pytest.raises(UsageError, match="carries at most"):
        one.write_pages(lists, page, page, tag + b"x")
    one.poll()
    one.disconnect(world.two.instance)
    one.connect(world.two.endpoint())
    one.write_pages(lists, page, page, b"")
    assert one.told == [lists] * 3 and lists.link is one._links.known(world.two.instance)
    world.fabric.cut(one.instance, world.two.instance)
    one.poll()
    one.deregister(more)
    one.write_pages(lists, page, page, b"")
    assert one.told == [lists] * 3, "to a lost peer nothing is laid"
    assert [each.error.kind for each in one.poll() if isinstance(each, Failed)] == ["peer_lost"]


def test_page_lists_are_of_the_owner_s_thread_and_of_an_open_transport() -> None:
    world, page = World(Listing), np.zeros(1, np.int64)
    lists = listed(world)
    world.one._owner += 1
    calls: list[Callable[[], object]] = [
        lambda: listed(world), lambda: world.one.write_pages(lists, page, page, b""),
        lambda: world.one.drop_lists(lists),
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(WrongThread):
            call()
    world.one.adopt()
    world.one.close(drain_s=0.0)
    for call in calls[:2]:
        with pytest.raises(UsageError, match="the transport is closed"):
            call()

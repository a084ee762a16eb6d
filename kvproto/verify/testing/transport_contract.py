"""Transport contract: the promises of every transport, as tests for any transport.

    from kvproto.verify.testing.transport_contract import Ends, TransportContract
    from kvproto.verify.testing.transport_ends import ProcessPeer, Rank

    class TestOurs(TransportContract):
        @pytest.fixture(scope="class")
        @classmethod
        def ends(cls):
            rank, peer = Rank(OurTransport()), ProcessPeer(OurTransport)
            yield rank, peer.ready()
            rank.close()
            assert peer.end() == 0

Bytes are compared, one outcome a write is counted, errors have to be honest: `kvproto.io.transports.base` says what is
promised.  The writer is the process of the tests; the target is another one, or (`LocalPeer`) the same.

A failed comparison shows both sides if `pytest.register_assert_rewrite("kvproto.verify.testing.transport_contract")`
comes before the import.  Needs pytest and numpy.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pytest

from kvproto.io.transports.base import (
    BadEndpoint,
    Busy,
    Completed,
    Failed,
    Handle,
    PeerId,
    StaleEndpoint,
    TransportEvent,
    UsageError,
    WritePart,
)
from kvproto.io.transports.endpoint import decode, encode
from kvproto.io.transports.host_memory import SharedMemory
from kvproto.io.transports.page_lists import PageLists, PagePiece
from kvproto.io.transports.regions import bulk
from kvproto.verify.testing.transport_ends import LocalPeer, ProcessPeer, Rank, wait

PIECES = np.array([(0, 8, 16), (100, 64, 8)], dtype=np.uint64)
Ends = tuple[Rank, LocalPeer | ProcessPeer]


class Rig:
    """The writer's end, with what it has been told, and the target to ask."""

    def __init__(self, rank: Rank, peer: LocalPeer | ProcessPeer) -> None:
        self.rank, self.peer = rank, peer
        self.events: list[TransportEvent] = []
        self.source = rank.buffers[0]
        self.transport = rank.transport

    def connect(self) -> PeerId:
        return self.transport.connect(self.peer.ask("endpoint"))

    def write(self, descs: npt.ArrayLike, tag: bytes = b"tag") -> Handle:
        """Post one write from the first buffer to the target's first."""
        peer = self.connect()
        target = self.transport.remote(peer, 0)
        return self.transport.write(peer, self.rank.regions[0], target, descs, tag)

    def lists(self, *pieces: tuple[int, int, int, int, int], source: int = 0, region: int = 0) -> PageLists:
        """Prepare pages of (source offset, target offset, source step, target step, bytes) to a region there."""
        peer = self.connect()
        here, there = self.rank.regions[source], self.transport.remote(peer, region)
        return self.transport.page_lists(peer, [PagePiece(here, there, *piece) for piece in pieces])

    def poll(self) -> list[TransportEvent]:
        self.events += self.rank.poll()
        return self.events

    def finish(self, *handles: Handle) -> list[TransportEvent]:
        """Poll until each of the handles has an outcome; those outcomes in the order in which they came."""

        def mine() -> list[TransportEvent]:
            return [e for e in self.poll() if isinstance(e, Completed | Failed) and e.handle in handles]

        wait(lambda: len(mine()) >= len(handles), "outcomes")
        return mine()

    def arrived(self, count: int) -> list[tuple[str, bytes, int]]:
        """Return the arrivals at the target, once they are so many."""
        got: list[tuple[str, bytes, int]] = []

        def enough() -> bool:
            got.extend(self.peer.ask("arrived"))
            self.poll()
            return len(got) >= count

        wait(enough, f"{count} arrivals")
        return got


class TransportContract:
    """Derive, and say in a fixture `ends` which two ranks are tested."""

    @pytest.fixture(scope="class")
    @classmethod
    def ends(cls) -> Iterator[Ends] | Any:
        """The writer's rank and its target."""
        raise NotImplementedError("a fixture `ends` that yields the two ranks")

    @pytest.fixture
    def rig(self, ends: Ends) -> Rig:
        """Both ends at rest, the source full of noise."""
        rank, peer = ends
        assert not rank.transport.busy()
        peer.ask("clear")
        rank.buffers[0][:] = np.random.default_rng(1).integers(1, 256, len(rank.buffers[0]), dtype=np.uint8)
        return Rig(rank, peer)

    def test_what_lies_here_and_nowhere_else_is_taken_from_here(self, rig: Rig) -> None:
        assert not any(rig.transport.lifts(region) for region in rig.rank.regions)

    def test_one_bulk_write_is_there_whole_when_its_tag_is(self, rig: Rig) -> None:
        size = len(rig.source)
        handle = rig.write(bulk(0, 0, size), b"\x00\xff tag")
        assert rig.finish(handle) == [Completed(handle)]
        if rig.transport.caps.native_notify:
            total = int(rig.source.sum(dtype=np.uint64))
            assert rig.arrived(1) == [(rig.transport.instance, b"\x00\xff tag", total)]
        assert rig.peer.ask("read", 0, 0, size) == rig.source.tobytes()
        assert rig.transport.quiescent(handle)
        assert not rig.transport.busy()

    def test_a_tag_never_comes_before_its_bytes(self, rig: Rig) -> None:
        """Each round fills the target with a higher value; a tag that is early finds too low a sum."""
        if not rig.transport.caps.native_notify:
            pytest.skip("the control plane carries the tags, after Completed")
        size = len(rig.source)
        slots = np.random.default_rng(3).permutation(256) * (size // 256)
        rows = [(int(at), int(at), size // 256) for at in slots]
        for value in range(1, 31):
            rig.source[:] = value
            rig.finish(rig.write(rows, b"%d" % value))
        arrived = rig.arrived(30)
        assert [tag for _, tag, _ in arrived] == [b"%d" % value for value in range(1, 31)]
        # A busy receiver may look when the next round is on its way: its sum is too high then, never too low.
        assert [value for value, (_, _, total) in enumerate(arrived, 1) if total < value * size] == []

    def test_many_pieces_land_where_they_should_and_nowhere_else(self, rig: Rig) -> None:
        rng = np.random.default_rng(2)
        slots = rng.permutation(1000)
        rows = [(int(src) * 640, int(dst) * 1024, 640) for src, dst in enumerate(slots)]
        handles = [rig.write(rows[:500]), rig.write(rows[500:])]
        assert sorted(event.handle for event in rig.finish(*handles) if isinstance(event, Completed)) == handles
        if rig.transport.caps.native_notify:
            rig.arrived(2)
        expected = np.zeros(len(rig.source), dtype=np.uint8)
        for src, dst, n in rows:
            expected[dst : dst + n] = rig.source[src : src + n]
        assert rig.peer.ask("read", 0, 0, len(expected)) == expected.tobytes()

    def test_one_write_spans_regions(self, rig: Rig) -> None:
        second = rig.peer.ask("add", 4096)
        peer = rig.connect()
        src = rig.rank.regions[0]
        parts = [WritePart(src, rig.transport.remote(peer, i), PIECES) for i in (0, second)]
        handle = rig.transport.write_many(peer, parts, b"two")
        assert rig.finish(handle) == [Completed(handle)]
        if rig.transport.caps.native_notify:
            assert [tag for _, tag, _ in rig.arrived(1)] == [b"two"]
        for at in (0, 1):
            row = rig.peer.ask("read", at, 0, 80)
            assert row == b"\0" * 8 + rig.source[:16].tobytes() + b"\0" * 40 + rig.source[100:108].tobytes() + b"\0" * 8
        rig.peer.ask("drop", 1)
        rig.connect()
        with pytest.raises(StaleEndpoint, match="not in its current"):
            rig.transport.write_many(peer, parts, b"two")
        with pytest.raises(StaleEndpoint, match="no region"):
            rig.transport.remote(peer, second)
        rig.peer.ask("forget", 1)

    def test_a_prepared_write_is_posted_later_as_what_it_was(self, rig: Rig) -> None:
        peer = rig.connect()
        parts = [WritePart(rig.rank.regions[0], rig.transport.remote(peer, 0), PIECES)]
        prepared, spare = (rig.transport.prepare(peer, parts, tag) for tag in (b"prepared", b"spare"))
        assert not rig.transport.busy()
        rig.transport.drop(spare)
        handle = rig.transport.post(prepared)
        assert rig.finish(handle) == [Completed(handle)]
        if rig.transport.caps.native_notify:
            assert [tag for _, tag, _ in rig.arrived(1)] == [b"prepared"]
        expected = b"\0" * 8 + rig.source[:16].tobytes() + b"\0" * 40 + rig.source[100:108].tobytes() + b"\0" * 8
        assert rig.peer.ask("read", 0, 0, 80) == expected

    def test_a_prepared_write_that_its_peer_has_outlived_is_made_anew_or_refused(self, rig: Rig) -> None:
        second = rig.peer.ask("add", 4096)
        peer = rig.connect()
        first, other = (
            rig.transport.prepare(peer, [WritePart(rig.rank.regions[0], rig.transport.remote(peer, at), PIECES)], b"")
            for at in (0, second)
        )
        rig.peer.ask("drop", 1)
        rig.connect()
        with pytest.raises(StaleEndpoint, match="not in its current"):
            rig.transport.post(other)
        handle = rig.transport.post(first)
        assert rig.finish(handle) == [Completed(handle)]
        last = rig.transport.prepare(peer, [WritePart(rig.rank.regions[0], rig.transport.remote(peer, 0), PIECES)], b"")
        rig.transport.drop(last)
        rig.transport.disconnect(peer)
        with pytest.raises(StaleEndpoint, match="not connected"):
            rig.transport.post(last)
        rig.peer.ask("forget", 1)

    def test_whole_pages_land_where_they_should_and_nowhere_else(self, rig: Rig) -> None:
        pages, page = 40, 1024
        lists = rig.lists(
            (0, 0, page, page, 256), (page * pages, page * pages + 512, page, page, 512),
            (2 * page * pages, 2 * page * pages, 64, 96, 64),
        )  # fmt: skip
        rng = np.random.default_rng(4)
        near, far = (rng.permutation(pages)[:25] for _ in range(2))
        near[5:9], far[5:9] = np.arange(4) + 36, np.arange(4) + 36  # in a row on both sides, and in no other place
        handle = rig.transport.write_pages(lists, near, far, b"pages")
        assert rig.finish(handle) == [Completed(handle)]
        if rig.transport.caps.native_notify:
            assert [tag for _, tag, _ in rig.arrived(1)] == [b"pages"]
        expected = np.zeros(len(rig.source), dtype=np.uint8)
        for piece in lists.pieces:
            for ours, theirs in zip(near.tolist(), far.tolist(), strict=True):
                src, dst = piece.src_off + ours * piece.src_step, piece.dst_off + theirs * piece.dst_step
                expected[dst : dst + piece.nbytes] = rig.source[src : src + piece.nbytes]
        assert rig.peer.ask("read", 0, 0, len(expected)) == expected.tobytes()

    def test_pages_in_a_row_are_one_piece_and_all_their_bytes_arrive(self, rig: Rig) -> None:
        lists = rig.lists((0, 4096, 512, 512, 512))
        near, far = np.array([3, 4, 5, 9, 10, 1]), np.array([7, 8, 9, 10, 11, 2])
        assert lists.starts(near, far).tolist() == [0, 3, 5]
        handle = rig.transport.write_pages(lists, near, far, b"")
        assert rig.finish(handle) == [Completed(handle)]
        expected = bytearray(len(rig.source))
        for ours, theirs in zip(near.tolist(), far.tolist(), strict=True):
            page = rig.source[512 * ours : 512 * ours + 512].tobytes()
            expected[4096 + 512 * theirs : 4608 + 512 * theirs] = page
        assert rig.peer.ask("read", 0, 0, len(expected)) == bytes(expected)

    def test_pages_and_pieces_outside_of_the_two_pools_are_refused(self, rig: Rig) -> None:
        size = len(rig.source)
        for bad in ((0, 0, 512, 512, 513), (0, 0, 512, 512, 0), (-1, 0, 8, 8, 8), (size - 7, 0, 8, 8, 8),
                    (0, size - 7, 8, 8, 8)):  # fmt: skip
            with pytest.raises(UsageError, match="a piece of"):
                rig.lists(bad)
        with pytest.raises(UsageError, match="at least one piece"):
            rig.lists()
        lists = rig.lists((0, size // 2, 512, 512, 512))
        assert (lists.near, lists.far) == (size // 512, size // 1024)
        one = np.array([0])
        for near, far in ((one - 1, one), (one, one - 1), (one + lists.near, one), (one, one + lists.far),
                          (one[:0], one[:0]), (one, np.array([0, 1])), (one, np.array([[0]])),
                          (one, np.array([0.0]))):  # fmt: skip
            with pytest.raises(UsageError, match="page"):
                rig.transport.write_pages(lists, near, far, b"")
        with pytest.raises(UsageError, match="tag"):
            rig.transport.write_pages(lists, one, one, b"x" * (rig.transport.caps.max_tag + 1))
        assert not rig.transport.busy()
        handle = rig.transport.write_pages(lists, one + lists.near - 1, one + lists.far - 1, b"")
        assert rig.finish(handle) == [Completed(handle)]
        assert rig.peer.ask("read", 0, size - 512, 512) == rig.source[size - 512 :].tobytes()

    def test_lists_are_made_anew_where_regions_or_peers_have_changed_and_refused_where_theirs_is_gone(
        self, rig: Rig
    ) -> None:
        second, one = rig.peer.ask("add", 4096), np.array([1])
        lists, other = rig.lists((0, 0, 64, 64, 64)), rig.lists((0, 0, 64, 64, 64), region=second)
        for lost in (False, True):
            if lost:
                rig.transport.disconnect(lists.peer)
                with pytest.raises(StaleEndpoint, match="not connected"):
                    rig.transport.write_pages(lists, one, one, b"")
            else:
                rig.peer.ask("drop", 1)
            rig.connect()
            handle = rig.transport.write_pages(lists, one, one, b"")
            assert rig.finish(handle) == [Completed(handle)]
            with pytest.raises(StaleEndpoint, match="not in its current"):
                rig.transport.write_pages(other, one, one, b"")
        assert rig.peer.ask("read", 0, 64, 64) == rig.source[64:128].tobytes()
        rig.transport.drop_lists(lists)
        rig.transport.drop_lists(lists)
        rig.transport.drop_lists(other)
        rig.peer.ask("forget", 1)

    def test_a_prepared_write_of_pages_is_posted_later_and_made_anew_where_its_peer_has_changed(self, rig: Rig) -> None:
        rig.peer.ask("add", 4096)
        lists, page = rig.lists((0, 0, 64, 64, 64)), np.array([1])
        first, spare = (
            rig.transport.prepare_pages(lists, page + at, page, tag) for at, tag in ((0, b"first"), (1, b"spare"))
        )
        assert not rig.transport.busy()
        rig.transport.drop(spare)
        handle = rig.transport.post(first)
        assert rig.finish(handle) == [Completed(handle)]
        if rig.transport.caps.native_notify:
            assert [tag for _, tag, _ in rig.arrived(1)] == [b"first"]
        assert rig.peer.ask("read", 0, 64, 64) == rig.source[64:128].tobytes()
        later = rig.transport.prepare_pages(lists, page + 2, page, b"")
        rig.peer.ask("drop", 1)
        rig.connect()
        handle = rig.transport.post(later)
        assert rig.finish(handle) == [Completed(handle)]
        assert rig.peer.ask("read", 0, 64, 64) == rig.source[192:256].tobytes()
        rig.peer.ask("forget", 1)

    def test_lists_that_are_dropped_while_their_write_is_in_flight_cost_it_nothing(self, rig: Rig) -> None:
        index = rig.rank.add(1 << 20)
        source = rig.rank.buffers[index - rig.rank.regions[0].index]
        source[:] = rig.source[: 1 << 20]
        lists = rig.lists((0, 0, 4096, 4096, 4096), source=-1)
        pages = np.random.default_rng(5).permutation(lists.near)
        handle = rig.transport.write_pages(lists, pages, pages, b"")
        rig.transport.drop_lists(lists)
        assert rig.finish(handle) == [Completed(handle)]
        assert rig.peer.ask("read", 0, 0, 1 << 20) == source.tobytes()
        kept = rig.lists((0, 0, 4096, 4096, 4096), source=-1)
        rig.transport.deregister(rig.rank.regions[-1])
        with pytest.raises(UsageError, match="not registered"):
            rig.transport.write_pages(kept, pages, pages, b"")

    def test_many_writes_in_flight_end_once_each_and_arrive_once_each(self, rig: Rig) -> None:
        handles = [rig.write(bulk(64 * i, 64 * i, 64), b"%d" % i) for i in range(200)]
        outcomes = rig.finish(*handles)
        assert sorted(e.handle for e in outcomes if isinstance(e, Completed)) == handles
        if rig.transport.caps.native_notify:
            assert sorted(int(tag) for _, tag, _ in rig.arrived(200)) == list(range(200))
        assert rig.peer.ask("read", 0, 0, 12800) == rig.source[:12800].tobytes()
        assert rig.peer.ask("arrived") == []

    def test_an_empty_tag_tells_the_target_nothing(self, rig: Rig) -> None:
        quiet = rig.write(bulk(0, 0, 64), b"")
        rig.finish(quiet)
        loud = rig.write(bulk(0, 64, 64), b"loud")
        rig.finish(loud)
        if rig.transport.caps.native_notify:
            assert [tag for _, tag, _ in rig.arrived(1)] == [b"loud"]

    def test_the_longest_tag_travels_and_a_longer_one_is_refused(self, rig: Rig) -> None:
        limit = rig.transport.caps.max_tag
        with pytest.raises(UsageError, match="tag"):
            rig.write(bulk(0, 0, 1), b"x" * (limit + 1))
        if rig.transport.caps.native_notify:
            rig.finish(rig.write(bulk(0, 0, 1), b"x" * limit))
            assert [len(tag) for _, tag, _ in rig.arrived(1)] == [limit]

    def test_out_of_range_is_refused_and_harms_nothing(self, rig: Rig) -> None:
        size = len(rig.source)
        for bad in ([(0, size - 1, 2)], [(size - 1, 0, 2)], [(0, 0, 0)], [(0, 0, 8), (2**64 - 4, 0, 8)]):
            with pytest.raises(UsageError, match="region 0"):
                rig.write(np.array(bad, dtype=np.uint64))
        assert not rig.transport.busy()
        handle = rig.write(bulk(0, size - 8, 8))
        assert rig.finish(handle) == [Completed(handle)]
        rig.peer.ask("arrived")

    def test_connecting_again_changes_nothing_and_foreign_endpoints_are_named(self, rig: Rig) -> None:
        data = rig.peer.ask("endpoint")
        assert rig.transport.connect(data) == rig.transport.connect(data)
        backend = rig.transport.caps.backend
        other = encode(msgspec.structs.replace(decode(data, backend), backend="other"))
        with pytest.raises(BadEndpoint, match="'other'"):
            rig.transport.connect(other)
        with pytest.raises(BadEndpoint):
            rig.transport.connect(data[: len(data) // 2])
        with pytest.raises(UsageError, match="our own"):
            rig.transport.connect(rig.transport.endpoint())

    def test_an_abandoned_write_comes_to_rest_unreported(self, rig: Rig) -> None:
        handle = rig.write(bulk(0, 0, 65536), b"late")
        rig.transport.abandon(handle)
        wait(lambda: (rig.poll(), rig.transport.quiescent(handle))[1], "quiescence")
        assert not [e for e in rig.events if isinstance(e, Completed | Failed)]
        assert not rig.transport.busy()
        if rig.transport.caps.native_notify:
            assert [tag for _, tag, _ in rig.arrived(1)] == [b"late"]

    def test_a_source_in_flight_is_pinned_and_free_afterwards(self, rig: Rig) -> None:
        index = rig.rank.add(4096)
        region = rig.rank.regions[-1]
        peer = rig.connect()
        handle = rig.transport.write(peer, region, rig.transport.remote(peer, 0), bulk(0, 0, 4096), b"")
        with pytest.raises(Busy, match="in flight"):
            rig.transport.deregister(region)
        with pytest.raises(Busy, match="not quiescent"):
            rig.transport.disconnect(peer)
        rig.finish(handle)
        rig.transport.deregister(region)
        with pytest.raises(UsageError, match=f"region {index} is not registered"):
            rig.transport.write(peer, region, rig.transport.remote(peer, 0), bulk(0, 0, 1), b"")

    def test_disconnect_and_connect_again(self, rig: Rig) -> None:
        peer = rig.connect()
        rig.transport.disconnect(peer)
        with pytest.raises(StaleEndpoint, match="not connected"):
            rig.transport.remote(peer, 0)
        handle = rig.write(bulk(0, 0, 4096), b"again")
        assert rig.finish(handle) == [Completed(handle)]
        if rig.transport.caps.native_notify:
            rig.arrived(1)
        assert rig.peer.ask("read", 0, 0, 4096) == rig.source[:4096].tobytes()

    def test_the_next_instance_is_another_begins_with_nothing_and_ends_by_itself(self, rig: Rig) -> None:
        rig.connect()
        following, memory, told = rig.transport.successor(), SharedMemory(4096), list[TransportEvent]()
        try:
            assert following.caps == rig.transport.caps
            assert following.instance != rig.transport.instance
            with pytest.raises(StaleEndpoint, match="not connected"):
                following.remote(PeerId(rig.connect()), 0)
            peer = following.connect(rig.peer.ask("endpoint"))
            region = following.register(memory.addr, 4096)
            assert region.index == 0
            handle = following.write(peer, region, following.remote(peer, 0), bulk(0, 0, 4096), b"")

            def ended() -> bool:
                rig.peer.ask("read", 0, 0, 1)  # a peer of this process polls when it is asked something
                told.extend(following.poll())
                return bool(told)

            wait(ended, "the write of the next instance")
            assert told == [Completed(handle)]
            following.deregister(region)
        finally:
            following.close()
        handle = rig.write(bulk(0, 0, 4096))
        assert rig.finish(handle) == [Completed(handle)]

    def test_connect_and_warm_run_on_another_thread_while_the_owner_works(self, rig: Rig) -> None:
        results: list[object] = []
        endpoint = rig.peer.ask("endpoint")
        rig.transport.disconnect(rig.connect())

        def connect() -> None:
            try:
                results.append(rig.transport.warm(rig.transport.connect(endpoint), 5.0))
            except Exception as error:  # noqa: BLE001 (shown by the assertion below)
                results.append(error)

        thread = threading.Thread(target=connect)
        thread.start()
        wait(lambda: (rig.poll(), not thread.is_alive())[1], "connect and warm")
        thread.join()
        assert results == [True]
        handle = rig.write(bulk(0, 0, 64))
        assert rig.finish(handle) == [Completed(handle)]
        rig.peer.ask("arrived")

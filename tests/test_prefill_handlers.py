"""A prefill rank's handlers alone: what is prepared while nothing moves, and when it looks again."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch
from msgspec.structs import replace
from support.stories import layout

from kvproto.data.mapped_parts import EngineLaunch
from kvproto.data.page_writes import PageWrites
from kvproto.data.pool_memory import LINKS
from kvproto.data.prefill_data import NoRouteError, PrefillData
from kvproto.data.prefill_wires import NUDGE_S
from kvproto.data.room_entry import NO_TABLE, RoomEntry
from kvproto.io.kernels.crossing import all_of_them
from kvproto.io.transports.base import Busy, MemoryRegion, PeerId, TransportError
from kvproto.layout.costs import PROFILES
from kvproto.layout.cut import NO_PART, Cut, Part, cut_at
from kvproto.layout.placement import Placement
from kvproto.layout.plan import Plan
from kvproto.loop.event_loop import STILL_S
from kvproto.protocol import effects as do
from kvproto.protocol.events import Target
from kvproto.protocol.messages import Heartbeat, PagesRsp, StagingRsp, StgNotify
from kvproto.protocol.states import Cause
from kvproto.settings import Settings
from kvproto.verify.testing.access import inside
from kvproto.verify.testing.pair import SMALL, Pair

CHUNK_TOKENS, ROOM = 16, 5
GATHER = do.LaunchGather(ROOM, 0, 0, Target(1, 1, Cut(0, CHUNK_TOKENS)), 0, 0, 1)
PAGES = do.PreparePages(ROOM, 1, 0, Target(1, 7, Cut(CHUNK_TOKENS, CHUNK_TOKENS), Part(NO_PART.share, 0, 7)), b"")


@pytest.fixture
def pair() -> Iterator[Pair]:
    with Pair(layout(2), layout(1), chunk_tokens=CHUNK_TOKENS) as made:
        yield made


@pytest.fixture
def data(pair: Pair) -> Any:
    """Handlers at rest."""
    found = inside(pair.prefills[0]).data
    assert not found.busy() and not found.poll()
    return found


def test_a_rank_begins_as_it_was_asked_to_and_with_nothing_to_do(pair: Pair) -> None:
    transport = pair.transport()
    transport.caps = replace(transport.caps, backend="mooncake")  # type: ignore[misc]
    pair.transport = lambda: transport  # type: ignore[method-assign]
    fresh = pair.make_prefill(0)
    rank, loop, _, data = inside(fresh)
    assert not data.busy() and loop.heard[PagesRsp] == rank.windows == 0
    assert data.slot_bytes == SMALL.slot_bytes and data.streams.stream is None and not any(data.stats.values())
    assert rank.native_notify and transport.caps.native_notify
    assert rank.costs == PROFILES[LINKS["mooncake"]] != inside(pair.prefills[0]).rank.costs
    assert not data.writes.others()
    data.gathers.launches.ask(ROOM, lambda: None)
    assert data.writes.others()
    assert not data.staging.lifted
    fresh.close()


def test_a_decode_rank_begins_with_nothing_counted_and_may_rest_before_its_first_look(pair: Pair) -> None:
    with pair.make_decode(0) as fresh:
        data = inside(fresh).data
        assert data.moved == {"staged": 0, "pages": 0} and not data.stirs


def test_slots_are_not_copied_where_the_transport_takes_them_from_the_device(pair: Pair) -> None:
    transport, asked = pair.transport(), list[MemoryRegion]()
    transport.lifts = lambda region: not asked.append(region)  # type: ignore[func-returns-value, method-assign]
    pair.transport = lambda: transport  # type: ignore[method-assign]
    fresh = pair.make_prefill(0)
    data = inside(fresh).data
    assert data.staging.lifted and [region.addr for region in asked] == [data.staging.wire.data_ptr()]
    fresh.close()


@pytest.mark.parametrize("what", ["gathers", "writes", "transport", "expected", "windows", "pages"])
def test_a_rank_looks_again_while_anything_moves_or_could_be_made_ready(what: str) -> None:
    heard = Counter({PagesRsp: 4 + (what == "pages")})
    some: Any = SimpleNamespace(
        loop=SimpleNamespace(heard=heard), rank=SimpleNamespace(windows=3 + (what == "windows")), _known=7,
        _expected=[1] * (what == "expected"), writes=what == "writes",
        gathers=what == "gathers", transport=SimpleNamespace(busy=lambda: what == "transport"),
    )  # fmt: skip
    assert PrefillData.busy(some) is True


@pytest.mark.parametrize("device", [False, True])
def test_what_is_awaited_is_made_ready_one_a_look_while_nothing_moves(data: Any, device: bool) -> None:
    ready: list[Any] = []
    data.rank.expected_gathers, data.rank.expected_stores = lambda: [GATHER], lambda *_: [PAGES]
    data.gathers.ready = lambda effect: ready.append(("gather", effect))
    data._mapped, data.entries[ROOM] = (lambda _: "mapped"), "entry"
    data.stores.ready = lambda *about: ready.append(about)
    data.streams.stream = "a stream" if device else None
    data.rank.expected_gathers, sends = list, data.rank.expected_gathers
    data.rank.windows += 1
    assert not data._prepare_next(), "a window of which nothing follows is nothing that happened"
    data.rank.expected_gathers = sends
    data.rank.windows += 1
    for moving in ("gathers", "writes"):
        kept = getattr(data, moving)
        setattr(data, moving, [1])
        assert not data._prepare_next() and not ready
        setattr(data, moving, kept)
    assert data._prepare_next() is device and ready == [("gather", GATHER)] * device
    assert not data._prepare_next(), "nobody has told of pages"
    data.loop.heard[PagesRsp] += 1
    ready.clear()
    assert data._prepare_next() and data._prepare_next() is device and not data._prepare_next()
    assert ready[-1] == (PAGES, "entry", "mapped")
    del data.entries[ROOM]
    data.streams.stream = None


def test_a_look_in_which_anything_happened_prepares_nothing(data: Any) -> None:
    looks = [True, False]
    data._prepare_next = looks.pop
    assert not data.poll() and data.poll() and not looks
    data.transport.poll = lambda: [None]
    assert data.poll()
    data.transport.poll, data.gathers.poll = list, lambda: True
    assert data.poll()


def test_a_page_table_that_cannot_be_placed_is_told_by_either_side_s_streams(pair: Pair) -> None:
    for endpoint in pair.endpoints:
        data: Any = inside(endpoint).data
        entry: Any = SimpleNamespace(room=None, fault=None)
        data.streams.failed(entry, OSError("planted"))
        assert entry.fault == (Cause.KERNEL_FAILED, "page table: OSError: planted")


def test_what_cannot_be_reached_is_not_mapped(data: Any) -> None:
    (link, peer), *_ = data.link_peer.items()
    asked = []
    data.mapped.get = lambda *about, state: asked.append(about)
    data._mapped(do.PreparePages(ROOM, 0, 0, Target(link, 7), b""))
    assert [to for to, _ in asked] == [peer]
    data.link_peer.clear()
    assert data._mapped(do.PreparePages(ROOM, 0, 0, Target(link, 7), b"")) is None and len(asked) == 1


def test_a_part_for_a_peer_that_is_not_connected_is_unmade_and_says_why(data: Any) -> None:
    told: list[Any] = []
    data.writes.unmade = lambda *what: told.append(what)
    (link,) = data.link_peer
    data.link_peer.clear()
    data.prepare_pages(do.PreparePages(ROOM, 1, 0, Target(link, 7), b""))
    (((room, chunk, reader), error),) = told
    assert (room, chunk, reader) == (ROOM, 1, 0) and "not connected" in str(error)


def test_pieces_go_in_batches_that_the_transport_takes_and_each_part_is_counted_by_its_way(data: Any) -> None:
    pages = np.arange(4, dtype=np.int64)
    data.entries[ROOM] = RoomEntry(CHUNK_TOKENS, torch.from_numpy(pages), pages, 4)
    ((link, peer),) = data.link_peer.items()
    cut = Cut(0, CHUNK_TOKENS)

    def effect(plan: Plan) -> do.PreparePages:
        return do.PreparePages(ROOM, 0, 0, Target(link, 7, cut, plan.part(0, 0, cut)), pages.astype("<u4").tobytes())

    known = effect(data.rank.peers[link].plan)
    for most, inflight in ((3, 100), (100, 3)):
        caps = replace(data.transport.caps, max_descs=most, max_inflight_descs=inflight)
        transport: Any = SimpleNamespace(caps=caps, remote=data.transport.remote)
        data.page_writes = PageWrites(transport, data.regions, data.memory.placement)
        batches = [sum(len(each.descs) for each in batch) for batch in data._batches(known, peer)]
        assert len(batches) > 1 and max(batches) == 3
    data.page_writes = PageWrites(data.transport, data.regions, data.memory.placement)
    assert data.stats["pages"] == 2 and data.stats["direct"] == 0
    for theirs, way in ((layout(2), {"pages": 2, "direct": 1}), (replace(layout(2), order="HND"), {"pages": 3})):
        plan = Plan(layout(2), theirs, CHUNK_TOKENS)
        data.rank.peers[link].plan = plan
        data.learn(link)
        data._batches(effect(plan), peer)
        assert {**data.stats, **way} == data.stats
    data.rank.peers[link].placement = Placement((), (), "planted")
    with pytest.raises(NoRouteError, match="the pool of the decode rank is closed: planted"):
        data._batches(known, peer)
    del data.entries[ROOM]


def test_what_the_transport_has_told_is_not_said_once_more_and_all_else_is(data: Any) -> None:
    messages = list[Any]()
    data.loop.connections.transmit = messages.append
    ((link, peer),) = data.link_peer.items()
    note = do.Transmit(link, 7, ROOM, StgNotify(3, 0))
    data.transmit(note)
    data.writes.told = {(peer, (7, ROOM, StgNotify(3, 0)))}
    data.transmit(note)
    assert messages == [note]
    others = [
        do.Transmit(link, 7, ROOM, StgNotify(4, 0)), do.Transmit(link, 7, ROOM, StgNotify(3, 1)),
        do.Transmit(link, 8, ROOM, StgNotify(3, 0)), do.Transmit(link, 7, ROOM + 1, StgNotify(3, 0)),
        do.Transmit(link + 1, 7, ROOM, StgNotify(3, 0)), do.Transmit(link, 7, ROOM, StagingRsp(3, 0, 0, 0, 0, 0, 0)),
    ]  # fmt: skip
    for other in others:
        data.transmit(other)
    assert messages == [note, *others]
    data.poll()
    data.transmit(note)
    assert messages[-1] is note and not data.writes.told, "what is said by the next look is said again"


def test_a_link_is_told_whether_kernels_store_what_its_peer_is_owed(data: Any) -> None:
    told, ((link, peer),) = list[Any](), data.link_peer.items()
    data.rank.reach = lambda link, _, mapped: told.append((link, mapped))
    data.loop.logs.unmapped = lambda *why: told.append(why)
    for why in ("", "another host"):
        data.transport.unmapped = lambda _, why=why: why
        data.adopt_wire(do.AdoptWire(link, peer))
    assert told == [(link, False), ("decode rank 0", "another host"), (link, False)]
    told.clear()
    reader = data.rank.peers[link]
    data.mapped.get = lambda to, part: (to, part) if (to, part) == (peer, reader.plan.duties(0)[0]) else None
    data.adopt_wire(do.AdoptWire(link, peer))
    reader.plan, reader.rank = Plan(layout(2), layout(2), CHUNK_TOKENS), 1
    data.adopt_wire(do.AdoptWire(link, peer))
    assert told == [(link, True), (link, False)], "the other one is owed nothing"


@pytest.mark.parametrize(
    ("own", "elsewhere", "mapped", "told"),
    [
        ("", False, False, "cuda_ipc"), ("", True, False, "rdma"), ("", False, True, "mapped"),
        ("tcp", True, True, "tcp"), ("shm", True, False, "shm"),
    ],
)  # fmt: skip
def test_a_link_costs_what_links_of_its_kind_do(
    data: Any, own: str, elsewhere: bool, mapped: bool, told: str
) -> None:
    ((link, peer),) = data.link_peer.items()
    data.rank.settings, data.rank.costs = Settings(costs=own), PROFILES[own or "cuda_ipc"]
    data.transport.elsewhere = lambda _: elsewhere
    data.mapped.get = lambda *_, **__: mapped or None
    data.adopt_wire(do.AdoptWire(link, peer))
    assert data.rank.peers[link].costs == PROFILES[told] and data.rank.peers[link].mapped == mapped
    data._learned(peer, PROFILES["shm"])
    assert data.rank.peers[link].costs == PROFILES[told if mapped else "shm"]
    data._learned(PeerId("another"), PROFILES["free"])
    assert data.rank.peers[link].costs == PROFILES[told if mapped else "shm"]


def test_a_stage_without_a_layer_of_tokens_is_told_of_kernels_for_what_travels_at_the_end(data: Any) -> None:
    ((link, peer),) = data.link_peer.items()
    reader = data.rank.peers[link]
    mine, other = (SimpleNamespace(reader=reader.rank + at) for at in (0, 1))

    def stores(known: tuple[object, ...], *shares: object, tokens: tuple[object, ...] = (), state: bool = True) -> bool:
        data.mapped.get = lambda to, part, *, state=False: part if (to, part, state) == (peer, *known) else None
        data.transport.unmapped = lambda _: ""
        reader.plan = SimpleNamespace(
            duties=lambda _: tokens, state=SimpleNamespace(duties=lambda _: shares) if state else None,
            state_cuts=lambda some: [[(group, each) for each in some] for group in (0, 1) if some],
        )  # fmt: skip
        return bool(data._stores(link, peer))

    assert stores(((0, mine), True), other, mine), "the first chunk's part of its share is asked for"
    assert not stores(((1, mine), True), other, mine) and not stores(((0, mine), False), other, mine)
    assert not stores(((0, mine), True), other) and not stores(((0, mine), True), state=False)
    assert not stores(((0, mine), True), mine, tokens=(mine,)), "what is owed of tokens is what counts"


@pytest.mark.parametrize(("over", "others", "holds"), [(0, True, True), (0, False, False), (1, True, False)])
def test_a_small_write_waits_for_those_whose_gathers_are_under_way(
    data: Any, over: int, others: bool, holds: bool
) -> None:
    write, asked = SimpleNamespace(peer="peer", piece=(0, 0, data.gathers.small + over)), list[Any]()
    data.prepared_writes.take = lambda _: write
    data.writes.post_staged = lambda *what, hold: asked.append((*what, hold))
    if others:
        data.gathers.launches.ask(ROOM, lambda: None)
    data.post_write(do.PostWrite(ROOM, 1, 2, Target(1), 0, 0, 0))
    assert asked == [((ROOM, 1, 2), write, holds)]


def test_a_write_that_cannot_be_made_is_refused_and_says_why(data: Any) -> None:
    refused, error = list[Any](), TransportError("planted")

    def fails(_: Any) -> None:
        raise error

    data.prepared_writes.take, data.writes.refuse = fails, lambda *what: refused.append(what)
    data.post_write(do.PostWrite(ROOM, 1, 2, Target(1), 0, 0, 0))
    assert refused == [((ROOM, 1, 2), error)]


@pytest.mark.parametrize(
    ("chunk", "groups", "waits"), [(0, 1, "first"), (1, 1, "all"), (2, 2, "first layer"), (3, 2, "all")]
)
def test_a_part_over_pages_waits_for_the_forward_of_all_of_its_tokens_and_layers(
    data: Any, chunk: int, groups: int, waits: str
) -> None:
    pages, asked = np.arange(2 * CHUNK_TOKENS // 4, dtype=np.int64), list[Any]()
    entry = data.entries[ROOM] = RoomEntry(2 * CHUNK_TOKENS, torch.from_numpy(pages), pages, len(pages))
    for mark in ((CHUNK_TOKENS, 2, "first"), (2 * CHUNK_TOKENS, 1, "first layer"), (2 * CHUNK_TOKENS, 2, "all")):
        entry.mark(*mark)
    data._batches, data.writes.offer = lambda *_: deque(), lambda *what: asked.append(what)
    ((link, peer),) = data.link_peer.items()
    cut = cut_at(chunk, 2 * CHUNK_TOKENS, 0, CHUNK_TOKENS, groups)
    to = Target(link, 7, cut, data.rank.peers[link].plan.part(0, 0, cut))
    data.prepare_pages(do.PreparePages(ROOM, chunk, 0, to, b""))
    assert asked == [((ROOM, chunk, 0), peer, deque(), waits, (7, ROOM, StgNotify(chunk, 0)))]
    del data.entries[ROOM]


def test_a_store_is_bound_to_a_table_that_is_placed_and_says_how_many_bytes_it_moves(data: Any) -> None:
    pages, placed = np.arange(4, dtype=np.int64), list[int]()
    entry = RoomEntry(32, torch.from_numpy(pages), pages, 4)
    mapped = SimpleNamespace(bind=lambda *about: about)

    def place() -> None:
        placed.append(1)
        entry.table = torch.from_numpy(pages)

    data.streams.place_all = place
    made = data._bind(PAGES, entry, mapped)
    assert made.launch == (entry, (b"", b""), CHUNK_TOKENS, CHUNK_TOKENS, data.streams, data.gathers.pool)
    assert not placed
    assert (made.entry, made.by, made.nbytes, made.layers) == (entry, mapped, 7, 0)
    entry.table = NO_TABLE
    data._bind(PAGES, entry, mapped)
    assert placed == [1]


def test_a_store_is_launched_on_its_stream_behind_tables_where_the_peer_s_memory_still_is(data: Any) -> None:
    told, mapped = list[Any](), SimpleNamespace(sources=(2, 3))
    entry = data.entries[ROOM] = object()
    data.stores.take = lambda *about: SimpleNamespace(launch=lambda *how: told.append(how), about=about, nbytes=7)
    data.mapped.still = lambda *about: told.append(about)
    data.streams.next_store = lambda: f"a stream after {len(told)}"
    batch = data._store(PAGES, "peer", mapped)
    assert not told and (batch.sources, batch.nbytes) == ((2, 3), 7) and data.stats["mapped"] == 1
    batch.launch()
    assert told == [("peer", mapped), ("a stream after 1", None)] and data.stats["engine"] == 0
    for whole, engine in ((None, 1), (lambda *_: None, 1), (None, 2)):
        engine_pages: Any = SimpleNamespace(launch=lambda *_: None)
        by_engine = EngineLaunch(engine_pages, (), np.empty(0), (), cast("Any", whole), all_of_them)
        data.stores.take = lambda *_, made=by_engine: SimpleNamespace(launch=made, nbytes=7)
        data._store(PAGES, "peer", mapped).launch()
        assert data.stats["engine"] == engine, "where engines carry it"
    assert data.entries.pop(ROOM) is entry


def test_its_transport_follows_the_loop_s_thread_and_ends_with_it(data: Any) -> None:
    called: list[str] = []
    transport = cast("Any", data.transport)
    transport.adopt, close = lambda: called.append("adopt"), transport.close
    transport.close = lambda: called.append("close")
    data.gather_alarm, data.write_alarm = (
        SimpleNamespace(close=partial(called.append, each)) for each in ("gathers", "writes")
    )
    data.adopt()
    data.close()
    assert called == ["adopt", "gathers", "writes", "close"]
    transport.close, data.gather_alarm, data.write_alarm = close, None, None


def test_memory_that_the_transport_still_uses_is_closed_later_and_nothing_made_for_it_is_kept(data: Any) -> None:
    transport, dropped, busy, pool = data.transport, list[Any](), [Busy("in flight")], data.gathers.pool
    deregister, there = transport.deregister, len(data.regions)

    def refuses_once(region: MemoryRegion) -> None:
        if busy:
            raise busy.pop()
        deregister(region)

    transport.drop, transport.deregister = dropped.append, refuses_once
    data.prepared_writes._kept[0] = "its mark", SimpleNamespace(prepared="a write", peer="peer")
    leaving = data.leave_memory()
    assert next(leaving) == "the transport (in flight)" and dropped == ["a write"] and len(data.regions) == there
    assert not list(leaving) and transport._table.regions() == ()
    transport.lifts = lambda region: region.addr == data.staging.wire.data_ptr()
    data.take_memory(pool)
    assert len(data.regions) == there and data.staging.lifted
    assert data.mapped.pool is pool and data.mapped.ours is data.memory.placement


def test_memory_that_is_not_taken_and_stays_registered_is_named_with_the_error(data: Any) -> None:
    def stays(_: Any) -> None:
        raise TransportError("it stays")

    pool, deregister = data.gathers.pool, data.transport.deregister
    assert not list(data.leave_memory())
    data.transport.lifts, data.transport.deregister = lambda _: 1 // 0, stays
    with pytest.raises(ZeroDivisionError) as told:
        data.take_memory(pool)
    assert told.value.__notes__[0].startswith("and memory stays registered: region")
    data.transport.deregister = deregister


class Waiting:
    """Gathers or writes: how many there are, and the event that the oldest waits for."""

    def __init__(self, count: int, event: object) -> None:
        self.count, self.event = count, event

    def __len__(self) -> int:
        return self.count

    def awaits(self) -> object:
        return self.event


@pytest.mark.parametrize(
    ("gathers", "writes", "busy", "found"),
    [
        ((1, "first"), (0, None), False, [5]), ((0, None), (2, "second"), False, [6]),
        ((3, "first"), (1, "second"), False, [5, 6]), ((1, "first"), (1, None), False, None),
        ((1, None), (1, "second"), False, None), ((1, "passed"), (0, None), False, None),
        ((1, "first"), (0, None), True, None), ((0, None), (0, None), False, None),
    ],
)  # fmt: skip
def test_forwards_wake_the_loop_where_nothing_else_is_awaited(
    gathers: tuple[int, Any], writes: tuple[int, Any], busy: bool, found: list[int] | None
) -> None:
    alarm = SimpleNamespace(set={"first": 5, "second": 6, "passed": None}.get)
    some: Any = SimpleNamespace(
        gathers=Waiting(*gathers), writes=Waiting(*writes), transport=SimpleNamespace(busy=lambda: busy),
        gather_alarm=alarm, write_alarm=alarm,
    )  # fmt: skip
    assert PrefillData.alarms(some) == found
    some.gather_alarm = some.write_alarm = None
    assert PrefillData.alarms(some) is None, "without a device all is polled"


def test_the_oldest_gather_tells_what_it_waits_for(data: Any) -> None:
    pages = np.arange(4, dtype=np.int64)
    entry = RoomEntry(CHUNK_TOKENS, torch.from_numpy(pages), pages, 4)
    entry.mark(CHUNK_TOKENS, 2, "forward")
    assert data.gathers.awaits() is None
    made = SimpleNamespace(entry=entry, layers=2)
    data.gathers._going += [("key", "ticket", GATHER, made), ("key", "ticket", GATHER, None)]
    assert data.gathers.awaits() == "forward"
    data.gathers.launches.ask(ROOM, lambda: None)
    assert data.gathers.awaits() is None, "one that is to be launched waits for nothing"
    data.gathers._going.clear()
    data.gathers.launches._rooms.clear()


def test_a_peer_is_woken_when_a_write_begins_or_ends_and_not_more_often_than_it_falls_asleep(data: Any) -> None:
    sent, times = list[Any](), iter([10.0, 10.0 + NUDGE_S / 2, 10.0 + 2 * NUDGE_S, 11.0, 12.0])
    ((link, peer),) = data.link_peer.items()
    data.loop.connections.send = lambda *what: sent.append(what)
    clock, data.loop.clock = data.loop.clock, SimpleNamespace(real=lambda: next(times))
    epoch = data.rank.links[link].epoch
    for count in (1, 1, 2):
        data.nudge(peer)
        assert sent == [(link, epoch, 0, Heartbeat())] * count
    data.link_peer[link + 1] = peer  # of a link that is not known nothing is said
    data.nudge(peer)
    data.nudge("another")
    assert len(sent) == 3
    del data.link_peer[link + 1]
    data.loop.clock = clock
    assert NUDGE_S < STILL_S


def test_a_peer_that_has_no_bell_here_is_asked_once_and_woken_by_frames(data: Any) -> None:
    ((link, peer),) = data.link_peer.items()
    sent, rung, times = list[Any](), list[str](), iter([10.0, 11.0, 12.0, 13.0])
    data.loop.connections.send = lambda *what: sent.append(what)
    clock, data.loop.clock = data.loop.clock, SimpleNamespace(real=lambda: next(times))

    def ring(name: str) -> bool:
        rung.append(name)
        return len(rung) < 3

    data.bell, bell = SimpleNamespace(ring=ring, tell=lambda name, note: (name, note) == (peer, b"note")), data.bell
    for turn in range(4):
        data.nudge(peer)
        assert data.tell(peer, b"note") == (turn < 2) and not data.tell(peer, b"another")
    assert rung == [peer] * 3 and sent == [(link, data.rank.links[link].epoch, 0, Heartbeat())] * 2
    data.loop.clock, data.bell = clock, bell


def test_a_nudge_that_cannot_leave_harms_no_write(data: Any) -> None:
    def fails(*_: Any) -> None:
        raise OSError("planted")

    data.loop.connections.send, faults = fails, data.loop.counts["faults"]
    data.nudge(next(iter(data.link_peer.values())))
    assert data.loop.counts["faults"] == faults + 1


def test_only_peers_whose_transport_waits_for_their_polls_are_woken(pair: Pair) -> None:
    nobody: Any = None
    assert inside(pair.prefills[0]).data.writes.nudge(nobody) is None
    assert inside(pair.prefills[0]).data.writes.tell(nobody, b"") is False
    transport = pair.transport()
    transport.caps = replace(transport.caps, needs_target_progress=True)  # type: ignore[misc]
    pair.transport = lambda: transport  # type: ignore[method-assign]
    fresh = pair.make_prefill(0)
    data = inside(fresh).data
    assert (data.writes.nudge, data.writes.tell) == (data.nudge, data.tell)
    fresh.close()

"""A peer's mapped pages: one copy a chunk stores the owed bytes, without ring and pieces."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch
from msgspec.structs import replace
from support.stories import layout

from kvproto.data import mapped_pages, prefill_data
from kvproto.data.mapped_pages import MappedPages, _pages
from kvproto.data.mapped_parts import MappedEnd, MappedJoint, MappedPart
from kvproto.data.room_entry import NO_PAGES, NO_TABLE, RoomEntry
from kvproto.fsm.timing import Timer
from kvproto.io.kernels import triton
from kvproto.io.kernels.crossing import Rows, all_of_them
from kvproto.io.kernels.pool import KernelError
from kvproto.io.transports.base import Busy, Completed, Failed, PeerId, Transport, TransportError, UsageError
from kvproto.io.transports.fabric import Fabric
from kvproto.io.transports.memory import MemoryTransport
from kvproto.layout.costs import PROFILES, Costs
from kvproto.layout.cut import Block, Cut
from kvproto.layout.placement import Placement, Strides, dense
from kvproto.layout.plan import Plan
from kvproto.layout.sharding import Layout
from kvproto.metrics.metrics import measure
from kvproto.protocol import events as ev
from kvproto.protocol.messages import StgNotify
from kvproto.protocol.states import Cause, PSend, PWrite
from kvproto.protocol.tables.prefill_send import notify, prefill_send
from kvproto.protocol.tables.prefill_write import complete, drop, last_flies, prefill_write
from kvproto.protocol.timing import Timing
from kvproto.settings import Settings
from kvproto.verify.testing import inside
from kvproto.verify.testing.fake_device import FakeEvent, Mark
from kvproto.verify.testing.handler_stage import HandlerStage
from kvproto.verify.testing.pair import PATIENT, SMALL, Pair

TOKENS, CHUNK_TOKENS = 45, 8


class MappedPair(Pair):
    """A pair whose pools can be addressed by one another."""

    def transport(self) -> Transport:
        return MemoryTransport(self.fabric, maps=True)


def told(pair: Pair) -> list[int]:
    """Notifications that prefill ranks sent by the control plane."""
    return [inside(prefill).loop.connections.said[StgNotify] for prefill in pair.prefills]


def stats(pair: Pair) -> list[dict[str, int]]:
    return [inside(prefill).data.stats for prefill in pair.prefills]


def of(tp: int, page: int = 4, **other: Any) -> Layout:
    return replace(layout(tp, page=page), **other)


FORMS = [
    (of(1), of(1)), (of(2), of(1)), (of(1), of(2)), (of(2), of(2)), (of(2), of(1, 8)), (of(1, 8), of(2)),
    (of(2, order="HND"), of(1)), (of(1, order="HND"), of(2, order="HND")),
    (of(1, v_dim=0), of(1, v_dim=0)), (of(2, v_dim=4), of(1, v_dim=4)), (of(1, pp=2), of(2)),
]  # fmt: skip


@pytest.mark.parametrize(("prefill", "decode"), FORMS, ids=str)
def test_a_room_goes_by_one_copy_a_chunk_and_every_byte_is_right(prefill: Layout, decode: Layout) -> None:
    with MappedPair(prefill, decode, chunk_tokens=CHUNK_TOKENS, settings=PATIENT) as pair:
        room, other = pair.open(TOKENS), pair.open(2 * CHUNK_TOKENS + 3, prefix=CHUNK_TOKENS)
        pair.finish(room, other)
        pair.check(room, other)
        pair.rest()
        for each in stats(pair):
            assert each["mapped"] == each["pieces"] > 0
            assert each["writes"] == each["pages"] == each["direct"] == 0
        moved = sum(pair.plan.part_bytes(share, Cut(0, TOKENS + CHUNK_TOKENS + 3)) for share in pair.plan.shares)
        assert sum(each["bytes"] for each in stats(pair)) == moved
        assert not any(told(pair))
        routes = {each.labels[2] for each in measure(pair.prefills[0]) if each.name == "kvproto_route_seconds"}
        assert routes == {"staged", "mapped"}


def test_where_tags_do_not_travel_the_control_plane_tells() -> None:
    fabric = Fabric(auto=True, native_notify=False)
    with MappedPair(of(2), of(1), chunk_tokens=CHUNK_TOKENS, fabric=fabric, settings=PATIENT) as pair:
        room = pair.open(TOKENS)
        pair.finish(room)
        pair.check(room)
        assert told(pair) == [each["mapped"] for each in stats(pair)]


def test_a_tag_that_is_lost_is_told_again_by_the_control_plane(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MemoryTransport, "tell", lambda *_: True)
    settings = replace(SMALL, timing=Timing(resend=Timer(2.0, 3)))  # no answer is so late that it is told once more
    with MappedPair(of(1), of(1), chunk_tokens=CHUNK_TOKENS, settings=settings) as pair:
        room = pair.open(2 * CHUNK_TOKENS)
        pair.finish(room)
        pair.check(room)
        assert told(pair) == [2]


def test_what_is_told_as_a_kernel_ends_is_what_the_rows_say_next() -> None:
    (told_so,) = prefill_send.pairs()[PSend.WRITING_PAGES, ev.WriteCompleted]
    assert told_so.when is None and notify in told_so.do
    last, other = prefill_write.pairs()[PWrite.IN_FLIGHT, ev.BatchCompleted]
    assert last.when is last_flies and last.do == (complete,) and not other.do
    (stopped,) = prefill_write.pairs()[PWrite.IN_FLIGHT, ev.WriteStopped]
    assert stopped.target is PWrite.ENDING and drop in stopped.do, "it hears that nothing will be said"


def test_groups_of_layers_go_one_by_one() -> None:
    settings = replace(SMALL, layer_groups=2)
    with MappedPair(of(1), of(2), chunk_tokens=CHUNK_TOKENS, settings=settings) as pair:
        room = pair.name(TOKENS)
        _, theirs, tokens, _ = pair.tables[room]
        for endpoint in pair.decodes:
            endpoint.open(room, tokens, theirs, layer_groups=2)
        pair.open_prefill(room)
        pair.finish(room)
        pair.check(room)
        assert stats(pair)[0]["mapped"] == 2 * 2 * -(-TOKENS // CHUNK_TOKENS)


@pytest.mark.parametrize(("settings", "way"), [
    (replace(SMALL, route="staged"), "writes"), (replace(SMALL, costs=PROFILES["free"]), "writes"),
    (replace(SMALL, costs=Costs(piece=0.0, launch=1.0)), "mapped"), (replace(SMALL, route="pages"), "mapped"),
])  # fmt: skip
def test_what_the_engine_has_said_of_routes_and_costs_stays(settings: Settings, way: str) -> None:
    with MappedPair(of(2), of(1), chunk_tokens=CHUNK_TOKENS, settings=settings) as pair:
        room = pair.open(TOKENS)
        pair.finish(room)
        pair.check(room)
        assert all(each[way] for each in stats(pair))


def test_only_pools_that_are_open_on_both_sides_are_mapped() -> None:
    with MappedPair(of(1), of(1), chunk_tokens=CHUNK_TOKENS) as pair:
        data = inside(pair.prefills[0]).data
        (peer,), theirs, part = data.link_peer.values(), dense(pair.plan.decode, 0), pair.plan.shares[0]
        ours = data.mapped.ours
        for near, far in ((ours, theirs), (replace(ours, closed="why"), theirs), (ours, replace(theirs, closed="why"))):
            mapped = MappedPages(data.transport, data.kernels, pair.prefills[0].pool, data.mapped.regions, near)
            mapped.make(peer, pair.plan, [part], far)
            made = mapped.get(peer, part)
            assert (made is None) is bool(near.closed or far.closed)
            assert made is None or set(made.sources) == {region.index for region in data.mapped.regions[1:]}
            mapped.forget(PeerId("another"))
            assert mapped.get(peer, part) is made
            mapped.forget(peer)
            assert mapped.get(peer, part) is None
        data.mapped.make(peer, pair.plan, [part], theirs)
        assert data.mapped.get(peer, part) is not None
        vars(data.transport)["_known"].clear()  # as after another connection
        assert data.mapped.get(peer, part) is None


def test_a_launch_that_spares_no_forward_has_the_whole_device() -> None:
    assert all_of_them() == prefill_data.WHOLE == triton.WHOLE == 100


def test_a_page_counts_if_all_of_its_rows_are_inside() -> None:
    rows = Rows(page=100, token=10, head=3, page_size=4)
    most = 3 * 10 + 2 * 3 + 2
    assert [_pages(nbytes, rows, 3, 2) for nbytes in (most - 1, most, most + 99, most + 100)] == [0, 1, 1, 2]
    assert [_pages(3, Rows(page, token=1, head=1, page_size=1), 1, 1) for page in (0, 1)] == [3, 3], "peers say how far"


def test_a_part_is_stored_from_its_head_on_in_as_many_pages_as_its_last_plane_has() -> None:
    """Two planes of K and two of V in one region of the peer's, a byte too short for one page more."""
    plan = Plan(of(2), of(1), CHUNK_TOKENS)
    part, row = plan.duties(1)[0], 16
    assert (part.dst_head, part.heads, plan.prefill.k_dim * plan.prefill.itemsize) == (2, 2, row)
    theirs = Placement((Strides(4 * 4 * row, 4 * row, row),) * 2, ((3, 0), (3, 2048), (3, 4096), (3, 6144)))
    known = {3: 10**6}
    about: Any = SimpleNamespace(
        maps=lambda _: known, apart=lambda _: None, remote=lambda *_: SimpleNamespace(nbytes=4 * 2048 - 1), gpu=-1,
        cross=lambda _, found, _most: found, join=lambda _: None,
    )  # fmt: skip
    regions: Any = [SimpleNamespace(addr=1000 * index, index=10 + index) for index in range(5)]
    mapped = MappedPages(about, about, about, regions, dense(plan.prefill, 1))
    mapped.make(PeerId("peer"), plan, [part], theirs)
    made = cast("Any", mapped.get(PeerId("peer"), part))
    assert (made.pages, made.sources) == (7, (11, 12, 13, 14))
    (crossing,) = made.copy
    assert crossing.planes == tuple((1000 * k + 1000, 10**6 + 2048 * k + 2 * row) for k in range(4))


class Scripted:
    """Mapped pages over a transport and kernels that answer as they are told."""

    def __init__(self, page: int = 4, **other: Any) -> None:
        self.plan = Plan(of(1, page, **other), of(1, page, **other), CHUNK_TOKENS)
        self.part, self.theirs = self.plan.duties(0)[0], dense(self.plan.decode, 0)
        self.known, self.nbytes, self.copies = {region: 10**6 for region, _ in self.theirs.planes}, 1 << 20, True
        regions: Any = [SimpleNamespace(addr=1000 * index, index=index) for index in range(9)]
        about, pool = cast("Any", self), cast("Any", SimpleNamespace(gpu=-1, device=torch.device("cpu"), ends=()))
        self.mapped = MappedPages(about, about, pool, regions, dense(self.plan.prefill, 0))

    def maps(self, _peer: PeerId) -> dict[int, int]:
        return self.known

    def apart(self, _peer: PeerId) -> bool:
        return True

    def remote(self, *_: Any) -> Any:
        return SimpleNamespace(nbytes=self.nbytes)

    def cross(self, _pool: Any, found: Any, _most: Any) -> Any:
        return found if self.copies else None

    def join(self, _launches: Any) -> None:
        """Nothing is joined."""

    def made(self) -> Any:
        self.mapped.make(PEER, self.plan, [self.part], self.theirs)
        return self.mapped.get(PEER, self.part)


PEER = PeerId("peer")


def test_no_part_is_kept_that_cannot_be_made_or_whose_memory_has_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    world = Scripted()
    assert world.made() is not None
    world.mapped.move(world.mapped.pool, world.mapped.ours)
    assert world.mapped.get(PEER, world.part) is None, "it was made for other memory"
    region, base = world.known.popitem()
    assert world.made() is None, "a region of the peer's is not mapped"
    world.known[region], world.copies = base, False
    assert world.made() is None, "there is no kernel for it"
    world.copies = True

    def moves(*_: Any) -> Any:
        world.mapped.move(world.mapped.pool, replace(world.mapped.ours))
        return SimpleNamespace(nbytes=1 << 20)

    monkeypatch.setattr(world, "remote", moves)
    assert world.made() is None, "the pool has gone meanwhile"
    share: Any = SimpleNamespace(
        plan=world.plan, share=world.part, ours=world.mapped.ours, theirs=world.theirs, at=0
    )  # fmt: skip
    monkeypatch.setattr(mapped_pages, "why_end_staged", lambda *_: "")
    monkeypatch.setattr(mapped_pages, "end_shares", lambda *_: [share])
    for error in (LookupError, TransportError("gone")):
        monkeypatch.setattr(world, "remote", raises(error))
        assert world.made() is None
        world.mapped.make_ends(PEER, world.plan, [world.part], world.theirs)
        assert world.mapped.get(PEER, world.part, state=True) is None


def test_rows_are_one_copy_of_which_engines_carry_all_or_at_the_end_long_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    world = Scripted(v_dim=4)
    monkeypatch.setattr(mapped_pages, "engine_pages", lambda some, _, **__: "engine" * (some[0].row > 8) or None)
    whole = world.made()
    assert len(whole.copy) == 2 and (whole.engine, whole.rest) == ("engine", None)
    given = PEER, world.plan, world.part, world.mapped.ours, world.theirs, world.known
    some: Any = world.mapped._make(*given, end=True)
    assert len(some.copy) == 2 and some.engine == "engine" and [each.row for each in some.rest] == [8]
    monkeypatch.setattr(mapped_pages, "engine_pages", lambda *_, **__: None)
    none: Any = world.mapped._make(*given, end=True)
    assert len(none.copy) == 2 and (none.engine, none.rest) == (None, None)


def test_rows_of_a_slot_may_be_one_copy_and_those_of_a_window_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    world, asked = Scripted(), list[bool]()
    monkeypatch.setattr(mapped_pages, "engine_pages", lambda *_, slots: asked.append(slots))
    given = PEER, world.plan, world.part, world.mapped.ours, world.theirs, world.known
    world.mapped._make(*given)
    assert set(asked) == {False}
    asked.clear()
    world.mapped._make(*given, end=True)
    assert set(asked) == {True}
    asked.clear()
    monkeypatch.setattr(Layout, "window", 5)
    world.mapped._make(*given, end=True)
    assert set(asked) == {False}


def test_numbers_of_slots_are_on_the_device_once_for_whatever_part_is_not_too_large(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = Scripted()
    monkeypatch.setattr(mapped_pages, "MOST_SLOTS", 8)
    few = world.mapped._numbered(2)
    assert few.view(torch.int32).tolist() == [0, 1] and world.mapped._numbered(2) is few
    more = world.mapped._numbered(3)
    assert more.view(torch.int32).tolist() == [0, 1, 2] and world.mapped._numbered(1) is more
    for page, end, pages in ((1, True, 8), (1, True, 9), (1, False, 8), (2, True, 8)):
        world, row = Scripted(page), 16
        world.nbytes = pages * page * world.plan.decode.heads * row
        made = world.mapped._make(
            PEER, world.plan, world.part, world.mapped.ours, world.theirs, world.known, end=end
        )  # fmt: skip
        assert made is not None and made.pages == pages
        assert (made.numbers is not None) is (end and pages == 8)


def raises(error: Any) -> Any:
    """Return a call that raises it."""
    def call(*_: Any) -> Any:
        raise error

    return call


def test_a_page_outside_of_the_peers_regions_fails_the_room_and_stores_nothing() -> None:
    with MappedPair(of(1), of(1), chunk_tokens=CHUNK_TOKENS) as pair:
        room = pair.open(TOKENS)
        entry = inside(pair.decodes[0]).entries[room.key]
        entry.pages[2] = pair.pages
        before = [tensor.clone() for tensor in pair.decodes[0].pool.k]
        pair.finish(room)
        assert Cause.WRITE_FAILED in pair.causes(room)
        assert all(torch.equal(now[pair.pages - 1], was[pair.pages - 1])
                   for now, was in zip(pair.decodes[0].pool.k, before, strict=True))  # fmt: skip


def test_pages_that_end_too_early_are_refused() -> None:
    with MappedPair(of(1), of(1), chunk_tokens=CHUNK_TOKENS) as pair:
        data = inside(pair.prefills[0]).data
        (part,) = data.mapped._made.values()
        assert isinstance(part, MappedPart)
        with pytest.raises(UsageError, match=r"1 pages of 4 for tokens 4\.\.11"):
            part.check(np.zeros(1, "<u4").tobytes(), 4, 8)
        with pytest.raises(UsageError, match="page 64 of a peer whose regions hold 64"):
            part.check(np.array([0, 64], "<u4").tobytes(), 4, 8)


def test_stores_are_ready_before_their_kv_is_and_forgotten_with_their_room() -> None:
    with MappedPair(of(1), of(1), chunk_tokens=CHUNK_TOKENS) as pair:
        room, other = pair.open(3 * CHUNK_TOKENS), pair.open(3 * CHUNK_TOKENS)
        data = inside(pair.prefills[0]).data
        pair.pump(lambda: len(data.stores) == 6)
        assert data.stats["mapped"] == 0
        made = list(data.stores.kept.values())
        pair.finish(room)
        pair.check(room)
        assert data.stats["mapped"] == 3 and len(data.stores) == 3
        assert all(any(each is one for one in made) for each in data.stores.kept.values())
        pair.prefills[0].abort(other)
        pair.pump(lambda: pair.over(other))
        pair.rest()
        assert not data.stores


def test_what_was_made_for_memory_that_is_mapped_anew_is_made_anew() -> None:
    with MappedPair(of(1), of(1), chunk_tokens=CHUNK_TOKENS) as pair:
        data = inside(pair.prefills[0]).data
        ((link, peer),) = data.link_peer.items()
        to, plan = data.rank.peers[link], pair.plan
        (share,) = plan.duties(0)
        made = data.mapped.get(peer, share)
        vars(data.transport)["_known"].clear()  # as after another connection
        assert made is not None and data.mapped.get(peer, share) is None
        data.mapped.make(peer, plan, [share], to.placement)
        assert data.mapped.get(peer, share) not in (None, made)


def test_nothing_is_stored_where_the_peers_memory_was_before(monkeypatch: pytest.MonkeyPatch) -> None:
    with MappedPair(of(1), of(1), chunk_tokens=CHUNK_TOKENS) as pair:
        room = pair.open(CHUNK_TOKENS)
        data = inside(pair.prefills[0]).data
        pair.pump(lambda: len(data.stores) == 1)
        store, before = data._store, [tensor.view(torch.uint8).clone() for tensor in pair.decodes[0].pool.k]

        def moved(*about: Any) -> Any:
            made = store(*about)
            vars(data.transport)["_known"].clear()  # as after another connection
            return made

        monkeypatch.setattr(data, "_store", moved)
        pair.finish(room)
        assert Cause.WRITE_FAILED in pair.causes(room)
        assert all(torch.equal(now.view(torch.uint8), was)
                   for now, was in zip(pair.decodes[0].pool.k, before, strict=True))  # fmt: skip


def test_what_is_stored_does_not_wait_for_a_forward_that_a_gather_waits_for() -> None:
    stage = HandlerStage(slots=1, route="pages", maps=True)
    try:
        data, endless = inside(stage.prefills[0]).data, FakeEvent()
        endless.mark = Mark()
        data.streams.stream.wait_event(endless)  # a gather was launched behind a forward that hangs
        data.streams.stream.put(("gather",), list)
        room = stage.begin(2, at_once=False, paged=True)
        stage.settled()
        stage.judge()
        assert data.stats["mapped"] == 2
        assert [outcome.cause for (_, _, of), outcome in stage.outcomes.items() if of == room] == [0, 0]
        endless.mark.passed = True
        assert stage.end()
    finally:
        stage.close()


class Slow:
    """Work that is over when the test says so."""

    def __init__(self) -> None:
        self.over = self.broken = False

    def done(self) -> bool:
        if self.broken:
            raise RuntimeError("illegal address")
        return self.over


def two() -> tuple[MemoryTransport, MemoryTransport, PeerId, np.ndarray[Any, Any]]:
    fabric = Fabric(auto=True)
    writer, reader = MemoryTransport(fabric, maps=True), MemoryTransport(fabric, maps=True)
    memory = np.zeros(64, np.uint8)
    reader.register(memory.ctypes.data, 64)
    writer.register(memory.ctypes.data + 32, 32)
    return writer, reader, writer.connect(reader.endpoint()), memory


def test_a_write_of_a_kernel_is_in_the_books_until_it_ends() -> None:
    writer, _, peer, memory = two()
    assert writer.maps(peer) == {0: memory.ctypes.data}
    assert writer.maps(peer) is writer.maps(peer)
    work = Slow()
    handle = writer.run(peer, lambda: work, (0,))
    assert writer.poll() == [] and writer.busy() and not writer.quiescent(handle)
    with pytest.raises(Busy):
        writer.disconnect(peer)
    with pytest.raises(Busy):
        writer.deregister(writer._table.regions()[0])
    behind = Slow()
    behind.over = True
    later = writer.run(peer, lambda: behind, ())
    assert writer.poll() == [], "they end in the order in which they were launched"
    work.over = True
    assert writer.poll() == [Completed(handle), Completed(later)]
    assert writer.quiescent(handle) and not writer.busy()
    writer.disconnect(peer)
    assert writer.maps(peer) is None


def test_a_kernel_that_fails_ends_its_write_and_one_that_cannot_be_launched_is_none() -> None:
    writer, _, peer, _ = two()
    work = Slow()
    work.broken = True
    handle = writer.run(peer, lambda: work, ())
    (told,) = writer.poll()
    assert isinstance(told, Failed) and told.handle == handle and told.quiescent

    def refuse() -> Slow:
        raise RuntimeError("no such stream")

    with pytest.raises(RuntimeError, match="no such stream"):
        writer.run(peer, refuse, ())
    assert not writer.busy()


def test_a_kernel_outlives_its_transport_and_that_is_said() -> None:
    writer, _, peer, _ = two()
    work = Slow()
    handle = writer.run(peer, lambda: work, ())
    writer.close(drain_s=0.0)
    (told,) = writer.poll()
    assert isinstance(told, Failed) and told.handle == handle and not told.quiescent
    assert not writer.quiescent(handle) and writer.busy()
    work.over = True
    assert writer.poll() == [] and writer.quiescent(handle) and not writer.busy()


def test_what_is_launched_is_waited_for_where_a_launch_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    class Stream:
        cuda_stream = 7

        def synchronize(self) -> None:
            calls.append("waited")

    def refuse(stream: int) -> None:
        raise RuntimeError(f"no launch on {stream}")

    calls = list[object]()
    monkeypatch.setattr(triton, "INTERPRETED", False)
    monkeypatch.setattr(triton, "use_device", lambda _place: nullcontext())
    with pytest.raises(RuntimeError, match="no launch on 7"):
        triton.TritonKernels().launch(0, [calls.append, refuse], Stream(), None)
    assert calls == [7, "waited"]


def test_a_lost_peers_kernels_are_in_doubt_until_they_end() -> None:
    writer, reader, peer, _ = two()
    work = Slow()
    handle = writer.run(peer, lambda: work, ())
    writer.fabric.cut(writer.instance, reader.instance)
    told = writer.poll()
    assert [type(each).__name__ for each in told] == ["Failed", "PeerLost"]
    assert not writer.quiescent(handle)
    work.over = True
    assert writer.poll() == [] and writer.quiescent(handle)


def test_the_part_of_a_joint_chunk_is_made_once_of_both_and_anew_when_either_is() -> None:
    here, other_peer = PeerId("1"), PeerId("2")
    maps: dict[PeerId, Any] = {here: {0: 1}, other_peer: {0: 2}}
    transport: Any = SimpleNamespace(maps=maps.get)
    parts = MappedPages(transport, cast("Any", None), cast("Any", None), (), Placement((), ()))
    plan = Plan(layout(1), layout(1), CHUNK_TOKENS)
    (tokens,) = plan.duties(0)
    state = replace(tokens, src_layer=1)
    blocks = Block(tokens, 0, 8, at_end=False), Block(state, 256, 8, at_end=True)

    def part(peer: PeerId, *sources: int) -> MappedPart:
        return MappedPart(cast("Any", None), sources, 4, 4, maps[peer])

    def ends(peer: PeerId, *sources: int) -> MappedEnd:
        return MappedEnd((), sources, maps[peer])

    made: Any = parts._made
    for peer in maps:
        made[peer, tokens, False] = part(peer, 1, 2)
        assert parts.of(peer, blocks) is None, "what travels at the end is not mapped"
        assert parts.of(peer, blocks[:1]) is made[peer, tokens, False]
        made[peer, state, True] = ends(peer, 2, 3)
    both, other = parts.of(here, blocks), parts.of(other_peer, blocks)
    assert isinstance(both, MappedJoint) and isinstance(other, MappedJoint)
    assert both.sources == (1, 2, 3) and both.maps is maps[here] and other.maps is maps[other_peer]
    assert parts.of(here, blocks) is both and parts.of(other_peer, blocks) is other
    # Parts of the same tokens, or of the same state, that are one chunk with others.
    others = replace(tokens, src_layer=2), replace(tokens, src_layer=3)
    made[here, others[0], False], made[here, others[1], True] = part(here, 8), ends(here, 9)
    for one, another in ((others[0], state), (tokens, others[1])):
        found = parts.of(here, (Block(one, 0, 8, at_end=False), Block(another, 256, 8, at_end=True)))
        assert isinstance(found, MappedJoint) and found is not both
        assert parts.of(here, blocks) is both
    del made[here, others[0], False]
    assert parts.of(here, (Block(others[0], 0, 8, at_end=False), blocks[1])) is None, "its tokens are not mapped"
    for kind, anew in ((tokens, part(here, 4)), (state, ends(here, 5))):
        made[here, kind, kind is state] = anew
        found = parts.of(here, blocks)
        assert isinstance(found, MappedJoint) and found is not both and anew in (found.tokens, found.at_end)
        both = found
    parts.forget(here)
    assert parts.of(here, blocks) is None and parts.of(other_peer, blocks) is other and len(parts._joint) == 1
    parts.move(cast("Any", None), Placement((), ()))
    assert parts.of(other_peer, blocks) is None and not parts._joint


def test_no_store_is_bound_to_a_page_table_that_could_not_be_placed(monkeypatch: pytest.MonkeyPatch) -> None:
    with MappedPair(of(1), of(1), chunk_tokens=8, settings=PATIENT) as pair:
        data = inside(pair.prefills[0]).data
        monkeypatch.setattr(data.streams, "place_all", lambda: None)
        with pytest.raises(KernelError, match="page table could not be put on the device"):
            data._bind(cast("Any", None), RoomEntry(8, NO_TABLE, NO_PAGES, 0), cast("Any", None))

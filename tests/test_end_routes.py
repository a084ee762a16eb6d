"""State and windows without the ring, by mapped memory or by the transport's pieces."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import pytest
import test_end_rooms as ends
import test_state_rooms as states
import test_window_rooms as windows
from msgspec.structs import replace
from test_end_caches import LONG, SHORT, STATE
from test_endpoint_caches import CachePair
from test_engine_pages import HostEngine

from kvproto import ArgumentError, CachePool, Layout, Pool, Room
from kvproto.data import mapped_pages, mapped_parts
from kvproto.data.end_pages import of_cache, packed, unpacked
from kvproto.data.prefill_data import NoRouteError
from kvproto.endpoint.endpoint import Endpoint
from kvproto.io.kernels.crossing import Crossing
from kvproto.io.kernels.engine_pages import page_runs
from kvproto.io.transports.base import UsageError
from kvproto.layout.costs import Costs, Estimate
from kvproto.layout.cut import Cut
from kvproto.layout.end_share import why_end_staged
from kvproto.layout.placement import Placement, fault
from kvproto.layout.plan import Plan
from kvproto.protocol import effects as do
from kvproto.protocol.events import Target
from kvproto.protocol.states import Cause
from kvproto.rank import prefill_links
from kvproto.settings import Settings
from kvproto.verify.testing.access import inside

StatePair, WindowPair, EndsPair = states.StatePair, windows.WindowPair, ends.EndsPair
#: the ring takes none of it
OVER_PAGES = Settings(ring_bytes=1 << 14, route="pages", window=1)
#: pages of one size on both sides
ALIKE = [case for case in windows.CASES if case[0].page_size == case[1].page_size]
MAPS = [False, True]


def at_end(both: CachePair) -> Plan:
    """The plan of what travels at the end."""
    assert both.plan.state is not None
    return both.plan.state


def placement_of(endpoint: Endpoint) -> Placement:
    """Return a rank's own placement, as it is told to peers."""
    told = inside(endpoint).rank.placement
    assert told is not None
    return told


def ways(both: CachePair) -> list[dict[str, int]]:
    return [inside(prefill).data.stats for prefill in both.prefills]


def all_over_pages(both: CachePair, *, maps: bool) -> None:
    for each in ways(both):
        assert each["writes"] == 0 and each["mapped" if maps else "pages"] + each["direct"] > 0
        assert not each["pages" if maps else "mapped"]
    moved = [inside(decode).data.moved for decode in both.decodes]
    assert not any(each["staged"] for each in moved)
    if len(both.plan.prefill.ends) == 1:  # between blocks of several caches lie bytes of alignment
        assert sum(each["pages"] for each in moved) == sum(each["bytes"] for each in ways(both))


@pytest.mark.parametrize("pair", states.CASES, ids=[f"{a.tp}x{a.pp} to {b.tp}x{b.pp}" for a, b in states.CASES])
@pytest.mark.parametrize("maps", MAPS)
def test_every_byte_of_state_goes_into_its_slot(pair: list[Layout], *, maps: bool) -> None:
    with StatePair(*pair, chunk_tokens=8, settings=OVER_PAGES, digests=False, maps=maps) as both:
        states.moved(both)
        all_over_pages(both, maps=maps)
        both.rest()


@pytest.mark.parametrize("pair", ALIKE, ids=[f"{a.tp}x{a.pp} to {b.tp}x{b.pp} {a.order}" for a, b in ALIKE])
@pytest.mark.parametrize("maps", MAPS)
def test_every_byte_of_windows_goes_into_its_pages(pair: list[Layout], *, maps: bool) -> None:
    with WindowPair(*pair, chunk_tokens=8, settings=OVER_PAGES, digests=False, maps=maps) as both:
        rooms = [both.open(21), both.open(14, prefix=8), both.open(7), both.open(16, prefix=16)]
        both.finish(*rooms)
        both.check(*rooms)
        all_over_pages(both, maps=maps)
        both.rest()


@pytest.mark.parametrize("maps", MAPS)
def test_windows_with_pages_of_one_token_go_into_the_pages_that_are_named(*, maps: bool) -> None:
    pair = windows.sides(windows.FULL, windows.LOCAL, tp=(1, 1), page=(1, 1))
    with WindowPair(*pair, chunk_tokens=8, settings=OVER_PAGES, digests=False, maps=maps) as both:
        rooms = [both.open(21), both.open(7)]
        both.finish(*rooms)
        both.check(*rooms)
        all_over_pages(both, maps=maps)


def test_long_rows_of_state_go_by_copy_engines_and_short_ones_by_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    made = list[HostEngine]()

    def make(crossings: Sequence[Crossing], _place: int, **_: bool) -> HostEngine | None:
        runs = page_runs(crossings)
        if min((run.nbytes for run in runs), default=0) < 256:
            return None
        made.append(HostEngine(runs))
        return made[-1]

    monkeypatch.setattr(mapped_pages, "engine_pages", make)
    monkeypatch.setattr(mapped_parts, "LONG", 0)
    pair = states.sides(states.FULL, states.state(0, 2), tp=(2, 1))
    with StatePair(*pair, chunk_tokens=8, settings=OVER_PAGES, digests=False, maps=True) as both:
        rooms = [both.open(8), both.open(21)]
        for room in rooms:
            both.compute(room)
        both.finish(*rooms)
        both.check(*rooms)
        assert sum(each.launches for each in made) == len(rooms) * len(both.prefills)
        assert {each.page_bytes for each in made} == {2 * 2 * 256}, "two heads of two layers"


SEVERAL = [
    ends.sides(STATE, LONG, SHORT, tp=(2, 4)), ends.sides(*ends.CUT, tp=(2, 1)),
    ends.sides(STATE, LONG, SHORT, tp=(1, 2), pp=(3, 1)), ends.sides(LONG, SHORT, tp=(4, 1)),
]  # fmt: skip


@pytest.mark.parametrize("pair", SEVERAL)
@pytest.mark.parametrize("maps", MAPS)
@pytest.mark.parametrize("length", [(21, 12), (9, 8), (16, 16)])
def test_several_caches_at_the_end_go_each_to_its_own_rows(
    pair: list[Layout], length: tuple[int, int], *, maps: bool
) -> None:
    with EndsPair(*pair, room=length, chunk_tokens=8, settings=OVER_PAGES, digests=False, maps=maps) as both:
        room = both.one()
        both.finish(room)
        both.check(room)
        all_over_pages(both, maps=maps)
        both.rest()


def test_a_room_with_several_tables_of_a_cache_has_its_end_staged() -> None:
    pair, tables = ends.sides(STATE, LONG, tp=(1, 2)), ends.CASES[-1][2]
    settings = Settings(ring_bytes=1 << 16)
    with EndsPair(*pair, room=(21, 12), tables=tables, chunk_tokens=8, settings=settings, digests=False) as both:
        room = both.one()
        both.finish(room)
        both.check(room)
        rank = inside(both.prefills[0]).rank
        (peer, *_) = rank.peers.values()
        told = why_end_staged(both.plan, at_end(both).share(0, 0), rank.placement, peer.placement)
        assert told == "the pool of the prefill rank is closed: a room has its long in 3 slots or tables"
        assert ways(both)[0]["writes"] == 2 * 2, "one of tokens and a joint one, to each decode rank"


class MixedPair(states.StatePair):
    """The second of two prefill ranks has a room's state in two slots, of one number; the first in one."""

    def pool(self, layout: Layout, index: int, seed: int) -> Pool:
        parts = self.parts(layout, index, seed)
        tensors = {f"{name} {at}": view for name, views in parts.items() for at, view in enumerate(views)}
        return CachePool(layout, index, parts, tensors, slot_of=(0, 1) if layout.tp > 1 and index else ())

    def open_prefill(self, room: Room, ranks: list[int] | None = None) -> None:
        ours, _, tokens, _ = self.tables[room]
        slot = self.slots(room)[0]
        for index in (0, 1) if ranks is None else ranks:
            self.prefills[index].open(room, tokens, ours, slot=(slot,) * (1 + index))
            self.prefills[index].prefetch(room)


@pytest.mark.parametrize("first", [0, 1])
def test_one_writer_of_a_state_takes_the_pages_and_another_one_the_ring(first: int) -> None:
    """A launch is made dear: the writer that has a way over pages takes it, and asks first or last."""
    pair = states.sides(states.FULL, states.state(0, 2), tp=(2, 1))
    settings = Settings(ring_bytes=1 << 16, costs=Costs(launch=1.0))
    with MixedPair(*pair, chunk_tokens=8, settings=settings, digests=False) as both:
        room = both.name(8)
        both.compute(room)
        both.open_decode(room)
        for index in (first, 1 - first):
            both.open_prefill(room, [index])
            both.settle()
        both.finish(room)
        assert both.causes(room) == {Cause.NONE}
        both.check(room)
        assert [each["writes"] for each in ways(both)] == [0, 1]
        both.rest()


def test_windows_in_pages_of_two_sizes_are_staged_and_say_so() -> None:
    sides = windows.sides(windows.FULL, windows.LOCAL, tp=(1, 1), page=(2, 8))
    with WindowPair(*sides, chunk_tokens=8, settings=windows.SMALL_RING, digests=False, maps=True) as both:
        room = both.open(21)
        both.finish(room)
        both.check(room)
        rank = inside(both.prefills[0]).rank
        (peer,) = rank.peers.values()
        told = why_end_staged(both.plan, at_end(both).share(0, 0), rank.placement, peer.placement)
        assert told == "pages of local have 2 tokens on the prefill side and 8 on the decode side"
        assert ways(both)[0]["writes"] > 0


def test_with_digests_what_travels_at_the_end_is_staged() -> None:
    case = states.CASES[0]
    with pytest.raises(Exception, match="no way into slots or windows: digests are made of what is staged"):
        StatePair(*case, chunk_tokens=8, settings=OVER_PAGES, digests=True)


def test_by_cost_a_small_ring_takes_nothing_from_a_room() -> None:
    """A ring that holds no chunk of the state, by the route that costs decide: it goes into the slot."""
    pair = states.sides(states.FULL, states.state(0, 2), tp=(2, 1))
    with StatePair(*pair, chunk_tokens=8, settings=Settings(ring_bytes=1 << 10), digests=False) as both:
        room = both.open(21)
        both.compute(room)
        both.finish(room)
        both.check(room)
        state = sum(both.plan.part_bytes(share, Cut(21, 0, state=True)) for share in at_end(both).shares)
        assert inside(both.decodes[0]).data.moved["pages"] >= state
        assert not any(each["direct"] for each in ways(both)), "tokens go in a half of each page, and a state has none"


def test_a_part_at_the_end_is_counted_apart_and_without_a_way_names_the_side_that_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pair = states.sides(states.FULL, states.state(0, 2), tp=(1, 1))
    with StatePair(*pair, chunk_tokens=8, digests=False) as both:
        data: Any = inside(both.prefills[0]).data
        ((link, peer),) = data.link_peer.items()
        open_ = data.rank.peers[link].placement
        data.rank.peers[link].placement, data.entries[5] = Placement((), (), "shut"), None
        cut = Cut(8, 0, state=True)
        effect = do.PreparePages(5, 1, 0, Target(link, 7, cut, both.plan.part(0, 0, cut)), b"")
        with monkeypatch.context() as patch:
            patch.setattr(data, "_far", lambda _: (b"", ()))
            patch.setattr(data.rank.peers[link], "placement", open_)
            patch.setattr(data.page_writes, "end_batches", lambda *_: ["a batch"])
            assert [*data._batches(effect, peer)] == ["a batch"]
        assert (data.stats["pages"], data.stats["direct"]) == (1, 0), "rows and slots are no pages"
        with pytest.raises(NoRouteError, match="the pool of the decode rank is closed: shut: give it a larger ring"):
            data._batches(effect, peer)
        del data.entries[5]


def test_a_peer_that_opens_no_slots_gets_its_state_by_the_ring(monkeypatch: pytest.MonkeyPatch) -> None:
    """An earlier build sends no placement of them."""
    pair = states.sides(states.FULL, states.state(0, 2), tp=(1, 1))
    with StatePair(*pair, chunk_tokens=8, settings=Settings(ring_bytes=1 << 16), digests=False, ready=False) as both:
        rank = inside(both.decodes[0]).rank
        monkeypatch.setattr(rank, "placement", replace(placement_of(both.decodes[0]), ends=()))
        both.pump(both.decodes[0].ready)
        room = both.open(8)
        both.compute(room)
        both.finish(room)
        both.check(room)
        assert ways(both)[0]["writes"] > 0


def test_a_withdrawal_waits_for_what_reads_the_slot_and_the_room_goes_on() -> None:
    pair = states.sides(states.FULL, states.state(0, 2), tp=(2, 1))
    with StatePair(*pair, chunk_tokens=8, settings=OVER_PAGES, digests=False, maps=True) as both:
        room = both.open(21)
        ours, _, _, _ = both.tables[room]
        for prefill in both.prefills:
            prefill.produced(room, 16)
            prefill.withdraw(room, 8)
            with pytest.raises(ArgumentError, match="still reads pages that were withdrawn"):
                prefill.produced(room, 8, slot=(both.slots(room)[0] + 1) % states.SLOTS)
        both.pump(lambda: all(prefill.withdrawn(room) for prefill in both.prefills))
        both.compute(room)
        for prefill in both.prefills:
            prefill.produced(room, 21, pages=ours[2:])
            prefill.aux(room, b"token")
        both.finish(room)
        both.check(room)


def test_why_it_is_staged_names_the_side() -> None:
    sides = states.sides(states.FULL, states.state(0, 2), tp=(2, 1))
    with StatePair(*sides, chunk_tokens=8, digests=False) as both:
        ours, theirs = placement_of(both.prefills[0]), placement_of(both.decodes[0])
    plan, share = both.plan, at_end(both).share(1, 0)
    shut, bare = Placement((), (), "shut"), replace(theirs, ends=())
    assert why_end_staged(plan, share, ours, theirs) == ""
    assert why_end_staged(plan, share, shut, theirs) == "the pool of the prefill rank is closed: shut"
    assert why_end_staged(plan, share, ours, shut) == "the pool of the decode rank is closed: shut"
    several = Placement((), (), "several")
    for prefill, decode, side in ((replace(ours, ends=(several,)), theirs, "prefill"),
                                  (ours, replace(theirs, ends=(several,)), "decode")):  # fmt: skip
        told = f"the pool of the {side} rank is closed: several"
        assert why_end_staged(plan, share, prefill, decode) == told
    for none in (None, bare):
        assert why_end_staged(plan, share, ours, none) == "the decode rank has not opened what travels at the end"
        assert why_end_staged(plan, share, none, theirs) == "the prefill rank has not opened what travels at the end"


def test_an_answer_names_the_rows_of_each_cache() -> None:
    both = WindowPair(*windows.CASES[0], chunk_tokens=8, settings=OVER_PAGES, digests=False)
    with both:
        room = both.open(21)
        entry = inside(both.decodes[0]).entries[room.key]
        told = packed(both.plan.decode, both.decodes[0].pool, entry)
        mine = both.windows[room][1]
        assert told == struct.pack(f"<{1 + len(mine)}I", len(mine), *mine)
        assert unpacked(told) == [told[4:]] and of_cache([told[4:]], 0) == told[4:]
        both.finish(room)


@pytest.mark.parametrize(("pages", "at", "why"), [
    (struct.pack("<II", 3, 7), 0, "3 pages at the end are announced, and 1 came"),
    (struct.pack("<II", 1, 7), 1, "names no page of cache 1 at the end, of 1"),
    (struct.pack("<I", 0), 0, "names no page of cache 0"),
])  # fmt: skip
def test_a_wrong_answer_is_told(pages: bytes, at: int, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        of_cache(unpacked(pages), at)


def test_a_wrong_placement_of_slots_is_no_placement() -> None:
    layout = states.sides(states.FULL, states.state(0, 2), tp=(1, 1))[0]
    with StatePair(layout, layout, chunk_tokens=8, digests=False) as both:
        right = inside(both.decodes[0]).rank.placement
    assert right is not None and fault(right, layout, 0) == ""
    (mine,) = right.ends
    assert "placements of 2 caches at the end, of which the layout has 1" in fault(
        replace(right, ends=(mine, mine)), layout, 0
    )  # fmt: skip
    assert "a placement of 0 strides" in fault(replace(right, ends=(Placement((), ()),)), layout, 0)
    assert fault(replace(right, ends=(Placement((), (), "no"),)), layout, 0) == ""


@pytest.mark.parametrize("settings", [
    Settings(ring_bytes=1 << 16, slot_bytes=64), Settings(ring_bytes=1 << 16, route="pages"),
])  # fmt: skip
def test_a_prefill_rank_without_a_slot_for_it_uses_the_open_way(settings: Any) -> None:
    pair = states.sides(states.FULL, states.state(0, 2), tp=(1, 1))
    with StatePair(*pair, chunk_tokens=8, settings=Settings(ring_bytes=1 << 16), digests=False, ready=False) as both:
        inside(both.prefills[0]).rank.settings = settings
        both.pump(both.decodes[0].ready)
        room = both.open(8)
        both.compute(room)
        both.finish(room)
        both.check(room)


def test_a_closed_pool_has_no_way_into_slots() -> None:
    pair = states.sides(states.FULL, states.state(0, 2), tp=(1, 1))
    with pytest.raises(ArgumentError, match="ring_bytes is 256, and there is no way into slots or windows"):
        StatePair(*pair, chunk_tokens=8, settings=Settings(ring_bytes=256, route="staged"), digests=False)


def test_what_travels_at_the_end_is_estimated_by_the_routes_that_are_open(monkeypatch: pytest.MonkeyPatch) -> None:
    pair, asked = states.sides(states.FULL, states.state(0, 2), tp=(1, 1)), list[tuple[Any, ...]]()

    def note(costs: Any, nbytes: int, pieces: int, chunks: int, **ways: Any) -> Estimate:
        asked.append((costs, nbytes, pieces > 0, chunks, *ways.values()))
        return Estimate(1.0, 2.0)

    with StatePair(*pair, chunk_tokens=8, settings=Settings(ring_bytes=1 << 16), digests=False) as both:
        room, rank = both.open(21), inside(both.prefills[0]).rank
        both.pump(lambda: both.prefills[0].opened_by_all(room))
        ((_, to),) = rank.peers.items()
        monkeypatch.setattr(prefill_links, "estimate", note)
        monkeypatch.setattr(prefill_links, "at_the_port", lambda *_: 3.0)
        to.estimates.clear()
        assert rank.end_estimate(room.key, 0) is rank.end_estimate(room.key, 0) and len(asked) == 1
        (share,) = at_end(both).shares
        largest = both.plan.part(0, 0, both.plan.whole_state[0]).nbytes
        groups, nbytes = both.plan.state_groups, both.plan.part_bytes(share, Cut(0, 0, state=True))
        usual, closed = rank.settings, replace(placement_of(both.prefills[0]), ends=())
        assert asked.pop() == (rank.costs, nbytes, True, groups, True, True, False, 1.0)
        for settings, placement, mapped, ways in (
            (replace(usual, route="staged"), rank.placement, False, (False, groups, True, False, False, 1.0)),
            (replace(usual, route="pages"), rank.placement, True, (True, groups, False, True, True, 3.0)),
            (replace(usual, slot_bytes=nbytes - 1), rank.placement, False, (True, groups, False, True, False, 1.0)),
            # the largest chunk at the end is a joint one, and this is none
            (replace(usual, slot_bytes=nbytes), rank.placement, False, (True, groups, True, True, False, 1.0)),
            (replace(usual, slot_bytes=largest), closed, False, (False, groups, True, False, False, 1.0)),
        ):
            to.estimates.clear()
            to.mapped, to.costs = mapped, Costs() if mapped else None
            monkeypatch.setattr(rank, "settings", settings)
            with monkeypatch.context() as patch:
                patch.setattr(rank, "placement", placement)
                rank.end_estimate(room.key, 0)
            assert asked.pop() == (to.costs or rank.costs, nbytes, *ways)
            few, why = settings.slot_bytes in (nbytes - 1, nbytes), rank._no_slot(both.plan, 0)
            told = f"a part of {largest} bytes of state or window fits no slot of {settings.slot_bytes} (Settings.slot_"
            assert why.startswith(told) and "joint=False" in why if few else not why
        assert rank.end_estimate(room.key, 7) == prefill_links.STAGED_ONLY, "no such rank is linked"
        monkeypatch.setattr(rank, "settings", usual)
        to.mapped, to.costs = False, None
        monkeypatch.undo()
        both.compute(room)
        both.finish(room)

"""Rooms with state and windows of two lengths at the end, between real endpoints."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from ends_judge import Side, truth_of
from msgspec.structs import replace
from test_end_caches import FULL, LAYERS, LONG, SHORT, STATE
from test_endpoint_caches import CachePair

from kvproto import ArgumentError, Layout, Room
from kvproto.endpoint.endpoint import Endpoint
from kvproto.endpoint.resume_point import resume_prefix
from kvproto.io.kernels.base import Pool
from kvproto.io.kernels.differing import Place, differing
from kvproto.layout.caches import ALL, END, Cache, CachePart
from kvproto.protocol.states import Cause
from kvproto.settings import PREFILL_GROUP, Settings
from kvproto.verify.testing.access import inside

SMALL_RING = Settings(ring_bytes=1 << 16)
DRAFT = Cache("draft", (CachePart("latent", 1, 36),), (0, 2, 4, 5))
CUT = tuple(replace(each, groups=2) for each in (STATE, LONG, SHORT))


def sides(*caches: Cache, tp: tuple[int, int], pp: tuple[int, int] = (1, 1), page: tuple[int, int] = (4, 4)) -> Any:
    return [
        Layout.of_caches((FULL, DRAFT, *caches), layers=LAYERS, page_size=size, tp=each, pp=stages)
        for each, stages, size in zip(tp, pp, page, strict=True)
    ]


class EndsPair(CachePair):
    """Two groups whose pools are a judge's, with one room at a time."""

    def __init__(self, *args: Any, room: tuple[int, int], tables: dict[str, tuple[int, ...]] | None = None,
                 **more: Any) -> None:  # fmt: skip
        tokens, prefix = room
        self.sides = [Side(each, tokens, prefix, at + 1, tables or {}) for at, each in enumerate(args)]
        self.wanted = Side(args[1], tokens, prefix, 2, tables or {})
        truth = truth_of(args[0], tokens, 7)
        self.sides[0].put(truth, below=True)
        self.wanted.put(truth, below=False)
        self.length = tokens, prefix
        super().__init__(*args, **more)

    def pool(self, layout: Layout, index: int, seed: int) -> Pool:
        return self.sides[seed - 1].pool(index)

    def lent(self, endpoint: Endpoint, side: int) -> dict[str, Any]:
        found: dict[str, dict[str, Any]] = {}
        for end in endpoint.pool.ends:
            mine, name = self.sides[side].last[end.end.name][: end.room_slots], end.end.name
            if end.end.window:
                found.setdefault("window", {})[name] = mine if end.room_slots > 1 else mine[0]
            else:
                found.setdefault("slot", {})[name] = [table[0] for table in mine]
        return found

    def name(self, tokens: int, **more: Any) -> Room:
        room = super().name(tokens, **more)
        self.tables[room] = self.sides[0].pages, self.sides[1].pages, tokens, self.length[1]
        return room

    def open_prefill(self, room: Room, ranks: list[int] | None = None) -> None:
        for endpoint in self.prefills if ranks is None else [self.prefills[i] for i in ranks]:
            endpoint.open(room, self.length[0], self.sides[0].pages, **self.lent(endpoint, 0))
            endpoint.prefetch(room)

    def open_decode(self, room: Room, ranks: list[int] | None = None) -> None:
        tokens, prefix = self.length
        for endpoint in self.decodes if ranks is None else [self.decodes[i] for i in ranks]:
            pages, more = self.sides[1].pages, self.lent(endpoint, 1)
            endpoint.open(room, tokens, pages, prefix=prefix, group=PREFILL_GROUP, **more)

    def one(self) -> Room:
        return self.open(self.length[0])

    def every(self, room: Room) -> list[Place]:
        tokens, prefix = self.length
        ends = {(tokens, layer, unit, f"{cache.name}.{part.name}")
                for cache in self.plan.prefill.named if cache.travels != ALL
                for part in cache.parts for layer in cache.layers for unit in range(part.units)}  # fmt: skip
        return sorted({*super().every(room), *ends}) if tokens > prefix else sorted(ends)

    def check(self, *rooms: Room) -> None:
        for rank, (found, wanted) in enumerate(zip(self.sides[1].views, self.wanted.views, strict=True)):
            for place, view in wanted.items():
                assert torch.equal(found[place], view), f"decode rank {rank}: {place}"


CASES = [
    (sides(STATE, LONG, SHORT, tp=(1, 1)), (21, 0), {}), (sides(STATE, LONG, tp=(4, 1)), (21, 12), {}),
    (sides(LONG, SHORT, tp=(1, 4), page=(4, 2)), (21, 8), {}), (sides(STATE, LONG, SHORT, tp=(2, 4)), (16, 16), {}),
    # the first stage of three has no short window, the last one no long one; pages of two sizes
    (sides(STATE, LONG, SHORT, tp=(2, 1), pp=(3, 1), page=(2, 8)), (13, 8), {}),
    (sides(*CUT, tp=(2, 1)), (21, 12), {"long": (1, 0, 2, 1), "state": (1, 0, 1)}),
]  # fmt: skip


@pytest.mark.parametrize(("pair", "room", "tables"), CASES)
def test_every_byte_arrives_and_both_sides_have_the_same_digests(
    pair: list[Layout], room: tuple[int, int], tables: dict[str, tuple[int, ...]]
) -> None:
    """Pages of one size and of two, stages that lack a cache, a full hit, and several tables."""
    with EndsPair(*pair, room=room, tables=tables, chunk_tokens=8, settings=SMALL_RING) as both:
        one = both.one()
        both.finish(one)
        assert set(both.causes(one)) == {Cause.NONE}
        both.check(one)
        assert both.places(both.prefills, one) == both.places(both.decodes, one) == both.every(one)
        assert differing(*(both.seen[endpoint, one] for endpoint in both.endpoints)) == []
        both.rest()


def test_all_of_it_is_one_write_of_each_writer_and_leaves_behind_the_last_token() -> None:
    with EndsPair(*sides(STATE, LONG, SHORT, tp=(2, 1)), room=(16, 0), chunk_tokens=16, settings=SMALL_RING) as both:
        room = both.one()
        both.produce(room, 15)
        both.settle()
        assert [inside(each).data.stats["writes"] for each in both.prefills] == [0, 0]
        both.finish(room)
        both.check(room)
        assert [inside(each).data.stats["writes"] for each in both.prefills] == [2, 2], "the tokens, and all at the end"


def test_an_abort_between_two_chunks_at_the_end_fails_the_room_and_gives_everything_back() -> None:
    settings = Settings(ring_bytes=1 << 13, window=1, slots=1)
    with EndsPair(*sides(*CUT, tp=(1, 1)), room=(21, 16), chunk_tokens=8, settings=settings) as both:
        room = both.one()
        both.produce(room)
        stats = inside(both.prefills[0]).data.stats
        both.pump(lambda: inside(both.prefills[0]).data.stats["writes"] == 2)
        assert stats["writes"] < 3, "a chunk of tokens, and the first one at the end"
        both.decodes[0].abort(room)
        both.pump(partial(both.over, room))
        assert set(both.causes(room)) == {Cause.DECODE_ABORTED}
        both.rest()


def test_a_withdrawal_takes_back_all_that_has_not_left_and_other_slots_come_with_the_tokens() -> None:
    with EndsPair(*sides(STATE, LONG, tp=(2, 1)), room=(16, 0), chunk_tokens=8, settings=SMALL_RING) as both:
        room = both.name(16)
        for endpoint in both.prefills:
            endpoint.open(room, 16, both.sides[0].pages)
            endpoint.prefetch(room)
            with pytest.raises(ArgumentError, match="window: 0 pages of 4 tokens of long"):
                endpoint.produced(room, 16, slot=0)
            endpoint.produced(room, 16, slot=(both.sides[0].last["state"][0][0] + 1) % 5, window=[0, 1, 2])
            endpoint.withdraw(room, 8)
        both.open_decode(room)
        both.settle()
        assert not both.outcomes
        for endpoint in both.prefills:
            assert endpoint.withdrawn(room)
            endpoint.produced(room, 16, pages=both.sides[0].pages[2:], **both.lent(endpoint, 0))
            endpoint.aux(room, b"")
        both.pump(partial(both.over, room))
        both.check(room)


def test_states_and_windows_are_given_by_name_where_there_are_several() -> None:
    with EndsPair(*sides(STATE, LONG, SHORT, tp=(1, 1)), room=(12, 0), chunk_tokens=8, settings=SMALL_RING) as both:
        decode, pages = both.decodes[0], both.sides[1].pages
        with pytest.raises(ArgumentError, match="window: this rank's pool has long, short: give a dict of these names"):
            decode.open(Room(1), 12, pages, slot=1, window=[0, 1, 2])
        with pytest.raises(ArgumentError, match="window of state: this rank's pool has long, short"):
            decode.open(Room(1), 12, pages, slot=1, window={"state": [0]})
        with pytest.raises(ArgumentError, match=r"window: 0 pages of 4 tokens of short; tokens 9 .. 11"):
            decode.open(Room(1), 12, pages, slot=1, window={"long": [0, 1, 2]})
        with pytest.raises(ArgumentError, match="this rank's pool has state: give the room its slot"):
            decode.open(Room(1), 12, pages, window={"long": [0, 1, 2], "short": [3]})


def test_tables_of_a_window_are_counted() -> None:
    tables: dict[str, tuple[int, ...]] = {"long": (1, 0, 1, 1)}
    pair = sides(LONG, tp=(1, 1))
    with EndsPair(*pair, room=(12, 0), tables=tables, chunk_tokens=8, settings=SMALL_RING) as both:
        told = pytest.raises(ArgumentError, match="window: 3 tables, and the long of a room is in 2 of this pool")
        with told:
            both.decodes[0].open(Room(1), 12, both.sides[1].pages, window=[[0], [1], [2]])


def test_a_ring_too_small_for_all_of_it_is_refused() -> None:
    two = replace(STATE, name="other", travels=END)
    with pytest.raises(ArgumentError, match=r"takes \d+ bytes, and Settings.ring_bytes is 1024, and there is no way"):
        EndsPair(*sides(STATE, two, tp=(1, 1)), room=(4, 0), chunk_tokens=4, settings=Settings(ring_bytes=1024))


def resumed(both: EndsPair, dead: Room) -> Room:
    """The room that goes on with what both sides agree has arrived, in the pages of the one before it."""
    tokens, point = both.length[0], min((each.resume_point(dead) for each in both.decodes), key=lambda each: each.upto)
    ours, theirs = (side.pages for side in both.sides)
    receivers = [each.digest_pages(point, theirs) for each in both.decodes]
    found = resume_prefix(receivers, [each.digest_pages(point, ours) for each in both.prefills])
    assert found.why == "" or point.upto == point.prefix  # a cell that was not whole
    room = Room(dead.id, dead.gen + 1)
    both.tables[room] = ours, theirs, tokens, found.prefix
    for decode in both.decodes:
        decode.open(room, tokens, theirs, prefix=found.prefix, resumes=dead, **both.lent(decode, 1))
    for prefill in both.prefills:
        prefill.open(room, tokens, ours, resumes=dead, **both.lent(prefill, 0))
    return room


@pytest.mark.parametrize(("pair", "room", "tables"), [case for case in CASES if case[1][0] > case[1][1]])
@pytest.mark.parametrize("when", ["during the transfer", "after it"])
def test_a_room_that_is_taken_over_has_its_state_and_its_windows_sent_anew(
    pair: list[Layout], room: tuple[int, int], tables: dict[str, tuple[int, ...]], when: str
) -> None:
    with EndsPair(*pair, room=room, tables=tables, chunk_tokens=8, settings=SMALL_RING) as both:
        dead = both.one()
        if when == "after it":
            both.finish(dead)
        else:
            upto = room[1] + (room[0] - room[1]) // 8 * 8
            for prefill in both.prefills:
                prefill.produced(dead, upto)
            both.pump(lambda: all(each.resume_point(dead).upto >= upto for each in both.decodes))
            both.prefills[0].abort(dead)
            both.pump(partial(both.over, dead))
        before = Side(pair[1], *room, 2, tables)  # what was there before the dead room
        for views, noise in zip(both.sides[1].views, before.views, strict=True):
            for place, view in views.items():
                if place[0] in before.last:
                    view.copy_(noise[place])
        again = resumed(both, dead)
        both.finish(again)
        assert set(both.causes(again)) == {Cause.NONE}
        both.check(again)
        both.rest()

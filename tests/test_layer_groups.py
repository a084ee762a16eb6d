"""Layer by layer: a cell cut into groups of layers, each a chunk, that leave during the forward."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

import pytest
import torch

from kvproto import Layout, Room
from kvproto.data.room_entry import MARKS, RoomEntry
from kvproto.endpoint.validation import why_unprepared
from kvproto.errors import ArgumentError
from kvproto.layout.costs import GROUP_LAUNCHES, PROFILES, layer_groups
from kvproto.layout.cut import Cut, chunks, cut_at, layers_of
from kvproto.layout.plan import Plan, Share
from kvproto.layout.sharding import LayoutError
from kvproto.protocol import messages as msg
from kvproto.protocol.states import Cause
from kvproto.room import Outcome
from kvproto.settings import Settings
from kvproto.verify.testing.access import inside
from kvproto.verify.testing.engines import Engines
from kvproto.verify.testing.fake_device import FakeEvent, Mark
from kvproto.verify.testing.pair import Pair
from kvproto.verify.testing.task import rows_of, views

CHUNK_TOKENS, TOKENS, AHEAD = 8, 21, 13


def model(tp: int, pp: int = 1, *, page: int = 4, v_dim: int = 2, stages: tuple[int, ...] = ()) -> Layout:
    return Layout(
        layers=5, heads=2, k_dim=4, v_dim=v_dim, itemsize=2, dtype="bfloat16", page_size=page, tp=tp, pp=pp,
        stages=stages,
    )  # fmt: skip


#: fan-in, fan-out over other pages, stages on either side (uneven ones, too), replicas of a single head without V
SHAPES = {
    "2-1": (model(2), model(1)), "1-2": (model(1), model(2, page=8)), "1x2-2": (model(1, 2), model(2)),
    "2-1x2": (model(2), model(1, 2, stages=(2, 3))), "mla": (model(4, v_dim=0), model(1, v_dim=0)),
    "1-1": (model(1), model(1)),
}  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("groups", [1, 2])
def test_chunks_of_a_cell_cover_each_layer_once(shape: str, groups: int) -> None:
    plan = Plan(*SHAPES[shape], CHUNK_TOKENS)
    for share in plan.shares:
        parts = [layers_of(share, group, groups) for group in range(groups)]
        held = [layer for part in parts for layer in range(part.src_layer, part.src_layer + part.layers)]
        assert held == list(range(share.src_layer, share.src_layer + share.layers))
        assert {part.dst_layer - part.src_layer for part in parts} == {share.dst_layer - share.src_layer}
        assert parts[-1].layers == min(part.layers for part in parts)  # what is left when the forward ends
    for reader in range(plan.decode.ranks):
        for group in range(groups):
            ends = [0]
            for share in plan.writers(reader):
                start = plan.part_offset(reader, share.writer, Cut(0, 7, group, groups))
                assert start >= ends[-1] > start - 256
                ends.append(start + plan.part_bytes(layers_of(share, group, groups), Cut(0, 7)))
            assert plan.grant_bytes(reader, Cut(0, 7, group, groups)) == -(ends[-1] // -256) * 256


def test_chunks_are_numbered_cell_by_cell() -> None:
    assert chunks(21, 4, CHUNK_TOKENS, 3) == 9
    found = [cut_at(k, 21, 4, CHUNK_TOKENS, 3) for k in (0, 2, 3, 8)]
    assert found == [Cut(4, 8, 0, 3), Cut(4, 8, 2, 3), Cut(12, 8, 0, 3), Cut(20, 1, 2, 3)]
    with pytest.raises(LayoutError, match="no-such-chunk"):
        cut_at(9, 21, 4, CHUNK_TOKENS, 3)
    plan = Plan(*SHAPES["2-1x2"], CHUNK_TOKENS)
    assert plan.fewest_layers == min(share.layers for share in plan.shares) == 2
    assert Plan(model(1, 2, stages=(4, 1)), model(1, 2, stages=(2, 3)), CHUNK_TOKENS).fewest_layers == 1
    for group, groups in ((2, 2), (-1, 2), (3, 4)):
        with pytest.raises(LayoutError, match="layer-groups"):
            layers_of(plan.shares[0], group, groups)


class Forwards(Engines):
    """Engines whose forward puts one layer after the other into the pages, and says so."""

    def __init__(self, shape: str, route: Any, groups: int) -> None:
        settings = Settings(ring_bytes=1 << 14, window=8, slots=32, route=route)
        super().__init__(*SHAPES[shape], chunk_tokens=CHUNK_TOKENS, settings=settings)
        self.tasks, self.groups, self.staged = {}, groups, route == "staged"
        self.pages_of = {"P": list(range(self.pages)), "D": list(range(self.pages))}
        self.last_of = {"P": {}, "D": {}}
        self.room = self.name(TOKENS)
        self.tasks[self.room].layer_groups = groups
        self.open_decode(self.room)
        self.open_prefill(self.room)

    def forward(self, first: int, upto: int) -> list[int]:
        """The tokens up to there, layer by layer; after each layer, once they have left: how many parts have."""
        left: list[int] = []
        for done in range(1, max(endpoint.pool.layers for endpoint in self.prefills) + 1):
            self.produce(self.room, upto, aux=None, layers=done)
            left.append(self._ready(first, upto, done))
            self.pump(lambda: self.parts() == left[-1])
        return left

    def parts(self) -> int:
        ways = "writes", "pages", "direct", "mapped"
        return sum(inside(each).data.stats[way] for each in self.prefills for way in ways)

    def _ready(self, first: int, upto: int, done: int) -> int:
        """Parts whose tokens are there in all of their layers; staged, of chunks of which every part is."""
        found = 0
        for reader in range(self.plan.decode.ranks):
            shares = self.plan.writers(reader)
            for chunk in range(chunks(TOKENS, 0, CHUNK_TOKENS, self.groups)):
                end = cut_at(chunk, TOKENS, 0, CHUNK_TOKENS, self.groups).end
                there = [end <= (upto if self._deep(share, chunk, done) else first) for share in shares]
                found += len(shares) * all(there) if self.staged else sum(there)
        return found

    def _deep(self, share: Share, chunk: int, done: int) -> bool:
        part = layers_of(share, chunk % self.groups, self.groups)
        return min(done, self.prefills[share.writer].pool.layers) >= part.src_layer + part.layers

    def give_aux(self) -> None:
        for endpoint in self.prefills:
            endpoint.aux(self.room, b"row")
        self.pump(lambda: len(self.outcomes) == len(self.endpoints))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("route", ["staged", "pages"])
def test_kv_leaves_while_later_layers_are_computed(shape: str, route: str) -> None:
    stage = Forwards(shape, route, 2)
    first, second = stage.forward(0, AHEAD), stage.forward(AHEAD, TOKENS)
    stage.give_aux()
    assert 0 < first[-2] < first[-1] < second[-2] < second[-1] == stage.parts()
    assert second[-1] == len(stage.plan.shares) * chunks(TOKENS, 0, CHUNK_TOKENS, 2)
    task, layout = stage.tasks[stage.room], stage.plan.decode
    rows = rows_of(task.pages["D"], 0, TOKENS, layout.page_size)
    for index, endpoint in enumerate(stage.decodes):
        assert stage.outcomes["D", index, stage.room] == Outcome(stage.room, Cause.NONE, b"row")
        for view, whole in zip(views(endpoint.pool), task.part(layout, index), strict=True):
            assert torch.equal(view[rows], whole)


def test_layers_that_go_over_pages_wait_for_the_forward_that_computes_them() -> None:
    stage = Forwards("2-1", "pages", 2)
    marks, (rank, _) = (Mark(), Mark()), stage.prefills
    for layers, mark in zip((3, 5), marks, strict=True):
        event = FakeEvent()
        event.mark = mark
        more = stage.tasks[stage.room].more_pages(stage.plan.prefill, 0, CHUNK_TOKENS)
        rank.produced(stage.room, CHUNK_TOKENS, event, pages=more,
                      layers=layers)  # fmt: skip
    writes = inside(rank).data.writes
    stage.pump(lambda: len(writes.unposted) == 2)
    for left, mark in zip((1, 0), marks, strict=True):
        mark.passed = True
        stage.pump(partial(lambda left: len(writes.unposted) == left, left))
        stage.turn()
        assert len(writes.unposted) == left


def test_layers_that_are_said_of_a_room_that_is_not_cut_wait_for_the_last() -> None:
    stage = Forwards("2-1", "staged", 1)
    posted = stage.forward(0, TOKENS)
    assert posted[-2] == 0 < posted[-1]
    stage.give_aux()


def test_layers_and_tokens_only_grow() -> None:
    stage = Forwards("2-1", "staged", 2)
    one = stage.prefills[0]
    table = stage.tables[stage.room][0]
    for layers in (0, 6, -1):
        with pytest.raises(ArgumentError, match="5 that this rank holds"):
            one.produced(stage.room, AHEAD, pages=table, layers=layers)
    one.produced(stage.room, AHEAD, pages=table, layers=3)
    for tokens, layers in ((AHEAD, 2), (AHEAD - 1, 4), (TOKENS, 1)):
        with pytest.raises(ArgumentError, match="3 of 5 layers of the first 13 tokens are there"):
            one.produced(stage.room, tokens, layers=layers)
    one.produced(stage.room, AHEAD)
    one.produced(stage.room, TOKENS, layers=1)
    one.withdraw(stage.room, 4)  # what was begun is forgotten
    stage.pump(lambda: one.withdrawn(stage.room))
    one.produced(stage.room, AHEAD, pages=table[1:], layers=1)


def test_who_opens_is_looked_at() -> None:
    stage = Pair(*SHAPES["2-1x2"], chunk_tokens=CHUNK_TOKENS)
    for groups in (0, 3, 1 << 10):
        with pytest.raises(ArgumentError, match=r"from 1 to 2"):
            stage.decodes[0].open(Room(1), TOKENS, range(8), layer_groups=groups)
    rank = inside(stage.prefills[0]).rank
    link = next(iter(rank.peers))
    rank.receive(link, rank.links[link].epoch, Room(3).key, msg.Open(TOKENS, 0, layer_groups=3), 0.0)
    assert rank.counts["rooms cut too finely"] == 1
    assert rank.value_of(Room(3).key) is None


def test_a_room_in_groups_without_kernels_is_refused_at_the_call() -> None:
    settings = Settings(ring_bytes=1 << 20, slot_bytes=1 << 18, layer_groups=2)
    with Pair(model(2), model(1), chunk_tokens=CHUNK_TOKENS, settings=settings) as stage:
        decode = stage.decodes[0]
        decode._data.compiles = True  # as on a GPU, where the loop would compile them
        for groups in (3, 4):
            with pytest.raises(ArgumentError, match=rf"{groups} layer groups: kernels are compiled for 1, 2,"):
                decode.open(Room(1), TOKENS, range(8), layer_groups=groups)
        decode.open(Room(1), TOKENS, range(8), layer_groups=2)


def test_a_room_in_groups_without_kernels_at_the_prefill_ranks_is_told_why_on_both_sides() -> None:
    with Pair(model(2), model(1), chunk_tokens=CHUNK_TOKENS) as stage:
        for prefill in stage.prefills:
            inside(prefill).rank.unprepared = partial(why_unprepared, most=1)  # as on a GPU
        opened, unopened = stage.name(TOKENS), stage.name(TOKENS)
        stage.open_prefill(opened)
        for room in (opened, unopened):
            stage.decodes[0].open(room, TOKENS, stage.tables[room][1], layer_groups=2)
        ends = [("D", 0, opened), ("D", 0, unopened), ("P", 0, opened), ("P", 1, opened)]
        stage.pump(lambda: all(end in stage.outcomes and stage.releases[end] for end in ends))
        for end in ends:
            assert stage.outcomes[end].cause is Cause.REFUSED
            assert re.search(r"said: 2 layer groups: kernels are compiled for 1,", stage.outcomes[end].reason)
        rank = inside(stage.prefills[0]).rank
        assert rank.counts["rooms cut too finely"] >= 2


def test_decode_ranks_that_cut_a_room_in_two_ways_are_told() -> None:
    stage = Pair(model(1), model(2), chunk_tokens=CHUNK_TOKENS)
    stage.prefills[0].open(Room(1), TOKENS, range(8))
    for endpoint, groups in zip(stage.decodes, (1, 2), strict=True):
        endpoint.open(Room(1), TOKENS, range(8), layer_groups=groups)
    stage.pump(lambda: len(stage.outcomes) == len(stage.endpoints))
    assert {outcome.cause for outcome in stage.outcomes.values()} == {Cause.PLAN_MISMATCH}


def test_as_many_groups_as_pay() -> None:
    costs = PROFILES["rdma"]
    pays = 1 + int(GROUP_LAUNCHES * costs.launch * costs.rate)
    assert [layer_groups(costs, size * pays, 8) for size in (1, 2, 3, 4, 100)] == [1, 2, 2, 4, 8]
    assert layer_groups(costs, 100 * pays, 7) == 4
    settings = Settings(ring_bytes=1 << 20, slot_bytes=1 << 18, layer_groups=4, costs="tcp")
    stage = Pair(model(2), model(1), chunk_tokens=CHUNK_TOKENS, settings=settings)
    for asked, found in ((None, 1), (3, 3)):
        room = stage.name(TOKENS)
        stage.decodes[0].open(room, TOKENS, stage.tables[room][1], layer_groups=asked)
        stage.turn()
        assert inside(stage.decodes[0]).rank.value_of(room.key).terms.layer_groups == found


def test_a_gather_waits_for_the_first_event_that_is_enough() -> None:
    empty = torch.zeros(1, dtype=torch.int64)
    entry = RoomEntry(TOKENS, empty, empty.numpy(), 1)
    assert entry.after(8, 5) is None
    for tokens, layers, event in ((8, 2, "a"), (8, 5, "b"), (16, 2, "c"), (21, 5, "d")):
        entry.mark(tokens, layers, event)
    found = [entry.after(*what) for what in ((8, 1), (8, 2), (8, 3), (16, 2), (16, 3), (21, 5), (22, 5))]
    assert found == ["a", "a", "b", "c", "d", "d", "d"]
    entry.forget_marks(8, 5)
    assert entry.marks == [(8, 5, "d")]
    for tokens in range(2 * MARKS):
        entry.mark(tokens, 5, tokens)
    assert len(entry.marks) == MARKS
    assert entry.after(0, 1) == MARKS

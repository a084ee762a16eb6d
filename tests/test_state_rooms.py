"""State rooms: real endpoints move state; every byte of pages and slots, what leaves when, refusals."""

from __future__ import annotations

from functools import partial
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from msgspec.structs import replace
from test_endpoint_caches import LAYERS, CachePair

from kvproto import ArgumentError, Layout, LayoutError, Pool, Room
from kvproto.data.chunk_launch import end_rows
from kvproto.io.kernels.differing import Place, differing
from kvproto.io.kernels.pool import KernelError
from kvproto.layout.caches import END, Cache, CachePart
from kvproto.layout.cut import Cut
from kvproto.layout.plan import Plan
from kvproto.protocol import effects as do
from kvproto.protocol.events import Target
from kvproto.protocol.states import Cause
from kvproto.settings import PREFILL_GROUP, Settings
from kvproto.verify.testing.access import inside

SLOTS = 7
FULL = Cache("full", (CachePart("k", 4, 16), CachePart("v", 4, 24)), (1,), "bfloat16")
#: a segment of heads, one of one group on every rank, and the heads of a recurrence
SEGMENTS = (CachePart("x", 4, 48), CachePart("B", 1, 36), CachePart("ssm", 4, 256))
#: KV of two heads over four ranks: replicas write tokens, and others write the state
FEW = Cache("full", (CachePart("k", 2, 16), CachePart("v", 2, 24)), (1,), "bfloat16")
SMALL_RING = Settings(ring_bytes=1 << 16)


def state(*layers: int) -> Cache:
    return Cache("state", SEGMENTS, layers, "bfloat16, float32", END)


def sides(*caches: Cache, tp: tuple[int, int], pp: tuple[int, int] = (1, 1)) -> list[Layout]:
    return [
        Layout.of_caches(caches, layers=LAYERS, page_size=4, tp=each, pp=stages)
        for each, stages in zip(tp, pp, strict=True)
    ]


class StatePair(CachePair):
    """Two groups whose models keep state; a room has other slots on the two sides."""

    def slots(self, room: Room) -> tuple[int, int]:
        return room.id % SLOTS, (room.id * 3 + 1) % SLOTS

    def parts(self, layout: Layout, index: int, seed: int) -> dict[str, list[torch.Tensor]]:
        parts = super().parts(layout, index, seed)
        bits = torch.Generator().manual_seed(seed << 8 | index)
        for kind in layout.ends[0].kinds:
            shape = SLOTS, layout.units_of(kind, index)[1], kind.row
            layers = range(layout.rows_of(kind, index)[1])
            parts[kind.name] = [torch.randint(0, 256, shape, dtype=torch.uint8, generator=bits) for _ in layers]
        return parts

    def truth_of(self, room: Room) -> dict[tuple[str, int], torch.Tensor]:
        """The room's state by part and layer of the model, as [unit, byte]."""
        bits, found = torch.Generator().manual_seed(room.id), {}
        for cache in self.plan.prefill.named:
            for part in cache.parts if cache.travels == END else ():
                for layer in cache.layers:
                    shape = part.units, part.row_bytes
                    rows = torch.randint(0, 256, shape, dtype=torch.uint8, generator=bits)
                    found[f"{cache.name}.{part.name}", layer] = rows
        return found

    def mine(self, layout: Layout, index: int, pool: Pool) -> dict[tuple[str, int], torch.Tensor]:
        """A rank's views of its state by part and layer, [slot, unit, byte]."""
        if not pool.ends:
            return {}
        stage = torch.tensor_split(torch.arange(layout.layers), layout.pp)[index // layout.tp].tolist()
        found: dict[tuple[str, int], torch.Tensor] = {}
        for kind, views in zip(layout.ends[0].kinds, pool.ends[0].kinds, strict=True):
            layers = [layer for layer in kind.layers if layer in stage]
            found |= {(kind.name, layer): view[:, 0] for layer, view in zip(layers, views, strict=True)}
        return found

    def units(self, layout: Layout, index: int, whole: torch.Tensor) -> torch.Tensor:
        units = torch.arange(len(whole)).repeat_interleave(max(1, layout.tp // len(whole)))
        return whole[units.tensor_split(layout.tp)[index % layout.tp]]

    def compute(self, room: Room) -> None:
        """The forward puts the room's state into every prefill rank's slot."""
        layout, truth = self.plan.prefill, self.truth_of(room)
        for index, endpoint in enumerate(self.prefills):
            for key, view in self.mine(layout, index, endpoint.pool).items():
                view[self.slots(room)[0]] = self.units(layout, index, truth[key])

    def open_prefill(self, room: Room, ranks: list[int] | None = None) -> None:
        ours, _, tokens, _ = self.tables[room]
        for endpoint in self.prefills if ranks is None else [self.prefills[i] for i in ranks]:
            slot = self.slots(room)[0] if endpoint.pool.ends else None
            endpoint.open(room, tokens, ours, slot=slot)
            endpoint.prefetch(room)

    def open_decode(self, room: Room, ranks: list[int] | None = None) -> None:
        _, theirs, tokens, prefix = self.tables[room]
        for endpoint in self.decodes if ranks is None else [self.decodes[i] for i in ranks]:
            slot = self.slots(room)[1] if endpoint.pool.ends else None
            endpoint.open(room, tokens, theirs, prefix=prefix, group=PREFILL_GROUP, slot=slot)

    def every(self, room: Room) -> list[Place]:
        tokens = self.tables[room][2]
        state = {(tokens, layer, unit, name) for (name, layer), rows in self.truth_of(room).items()
                 for unit in range(len(rows))}  # fmt: skip
        return sorted({*super().every(room), *state})

    def check(self, *rooms: Room) -> None:
        super().check(*rooms)
        layout = self.plan.decode
        for index, endpoint in enumerate(self.decodes):
            found = self.mine(layout, index, endpoint.pool)
            wanted = {key: view.clone() for key, view in self.mine(layout, index, self.before[index]).items()}
            for room in rooms:
                for key, whole in self.truth_of(room).items():
                    if key in wanted:
                        wanted[key][self.slots(room)[1]] = self.units(layout, index, whole)
            for key, view in wanted.items():
                assert torch.equal(found[key], view), f"decode rank {index}: {key}"


def moved(both: StatePair) -> list[Room]:
    """Move rooms of several chunks, behind a prefix, a full hit and a joint chunk; judge every byte."""
    rooms = [both.open(21), both.open(14, prefix=4), both.open(8, prefix=8), both.open(7, prefix=4)]
    for room in rooms:
        both.compute(room)
    both.finish(*rooms)
    assert {cause for room in rooms for cause in both.causes(room)} == {Cause.NONE}
    both.check(*rooms)
    return rooms


CASES = [
    sides(FULL, state(0, 2), tp=(1, 1)), sides(FULL, state(0, 2), tp=(4, 1)), sides(FULL, state(0, 2), tp=(1, 4)),
    sides(FULL, state(0, 1, 2), tp=(2, 4)), sides(FEW, state(0, 2), tp=(4, 4)), sides(FEW, state(0, 2), tp=(4, 2)),
    # a stage of state alone, one of tokens alone, one of both; and so on the other side
    sides(FULL, state(0, 2), tp=(2, 1), pp=(3, 1)), sides(FULL, state(0, 2), tp=(1, 2), pp=(1, 3)),
    sides(FULL, state(0, 2), tp=(1, 1), pp=(3, 3)),
]  # fmt: skip


@pytest.mark.parametrize("pair", CASES, ids=[f"{a.tp}x{a.pp} to {b.tp}x{b.pp}" for a, b in CASES])
@pytest.mark.parametrize("route", ["staged", "cost"])
def test_every_byte_of_pages_and_slots_arrives(pair: list[Layout], route: Any) -> None:
    """Rooms of several chunks, behind a prefix, of a full hit, and more than slots and windows hold."""
    settings = Settings(ring_bytes=1 << 14, route=route, window=1, slots=2)
    with StatePair(*pair, chunk_tokens=8, settings=settings) as both:
        for room in moved(both):
            assert both.places(both.prefills, room) == both.places(both.decodes, room) == both.every(room)
            assert differing(*(both.seen[endpoint, room] for endpoint in both.endpoints)) == []
        both.rest()


@pytest.mark.parametrize("pair", [sides(FULL, state(0, 2), tp=tp) for tp in ((1, 1), (2, 1), (1, 2))])
def test_without_digests_rooms_share_one_table_of_all_slots(pair: list[Layout]) -> None:
    with StatePair(*pair, chunk_tokens=8, digests=False) as both:
        rooms = [both.open(21), both.open(14, prefix=4), both.open(8, prefix=8)]
        tables = [inside(both.decodes[0]).entries[room.key].end_tables for room in rooms]
        assert tables == [(None,)] * len(rooms)
        for room in rooms:
            both.compute(room)
        both.finish(*rooms)
        both.check(*rooms)
        both.rest()


@pytest.mark.parametrize("digests", [False, True])
def test_a_pool_that_is_attached_later_has_tables_and_kernels_as_the_first_one(
    monkeypatch: pytest.MonkeyPatch, *, digests: bool
) -> None:
    with StatePair(*CASES[0], chunk_tokens=8, digests=digests) as both:
        for endpoint in both.endpoints:
            endpoint.detach()
        both.pump(lambda: all(endpoint.detached for endpoint in both.endpoints))
        for endpoint in both.endpoints:
            rank = inside(endpoint).rank
            pool = both.pool(rank.layout, rank.index, 3)
            pool.ends[0].digested = not digests  # as an endpoint of the other kind has left it
            made = Mock()
            monkeypatch.setattr(inside(endpoint).data.kernels, "prepare", made)
            endpoint.attach(pool)
            assert endpoint.pool is pool and pool.ends[0].digested is digests
            side = "gather" if rank.side == "prefill" else "scatter"
            assert {each.args[:2] for each in made.mock_calls} == {(pool, side), (pool.ends[0], side)}


def test_another_state_has_other_digests() -> None:
    """A decode rank that has read the state of a forward before the last one is found out."""
    with StatePair(*sides(FULL, state(0, 2), tp=(2, 1)), chunk_tokens=8, settings=SMALL_RING) as both:
        right, wrong = both.open(8), both.open(8)
        both.compute(right)
        both.finish(right, wrong)
        made = [both.seen[endpoint, right] for endpoint in both.prefills]
        found = both.seen[both.decodes[0], wrong]
        places = {place for place in differing(*made, found) if str(place[-1]).startswith("state.")}
        assert places == {place for place in both.every(right) if str(place[-1]).startswith("state.")}


def test_state_is_cut_into_as_many_chunks_as_its_cache_says() -> None:
    """Two layers of 304 bytes of each of four ranks and 36 of all, beside chunks of 16 times 40 bytes."""
    for groups, part in ((1, 608), (2, 304)):
        ours, theirs = sides(FULL, replace(state(0, 2), groups=groups), tp=(4, 1))
        with StatePair(ours, theirs, chunk_tokens=16, settings=SMALL_RING) as both:
            plan = both.plan
            cut = Cut(16, 0, 0, groups, state=True)
            assert plan.state_groups == groups and plan.part(0, 0, cut).nbytes == part
            assert inside(both.prefills[0]).data.slot_bytes == (
                680 + 4 * 40 + 256 if groups == 1 else 16 * 40
            ), "with a quarter more than the state of all ranks, in tokens, behind what aligns them"
            room = both.open(16)
            both.compute(room)
            both.finish(room)
            both.check(room)
            # one chunk of tokens, and those of state
            assert sum(inside(each).data.stats["writes"] for each in both.prefills) == 4 * (1 + groups)


@pytest.mark.parametrize("route", ["staged", "pages"])
def test_few_last_tokens_are_one_chunk_with_the_state(route: Any) -> None:
    """Three tokens are a quarter of the state; a ring that holds no two such chunks gets none."""
    ours, theirs = sides(FULL, state(0, 2), tp=(4, 1))
    small, large = replace(SMALL_RING, route=route), replace(SMALL_RING, slot_bytes=1500, route=route)
    two = 2 * theirs.slot_bytes(0, 8)
    rings = [replace(SMALL_RING, ring_bytes=size, route=route) for size in (two, two - 1)]
    for tokens, prefix, sizes, each in (
        (3, 0, small, 1), (4, 0, small, 2), (19, 0, small, 3), (7, 4, small, 1), (3, 0, large, 1),
        (3, 0, rings[0], 1), (3, 0, rings[1], 2),
    ):  # fmt: skip
        with StatePair(ours, theirs, chunk_tokens=8, settings=sizes, digests=route == "staged") as both:
            room = both.open(tokens, prefix=prefix)
            both.compute(room)
            both.finish(room)
            both.check(room)
            sent = sum(inside(one).data.stats[way] for one in both.prefills for way in ("writes", "pages", "direct"))
            assert sent == 4 * each, (tokens, prefix, sizes)
            moved = inside(both.decodes[0]).data.moved["staged" if route == "staged" else "pages"]
            assert moved == (tokens - prefix) * 160 + 2 * (4 * 48 + 36 + 4 * 256), "and not what aligns them"


def test_more_groups_of_state_than_the_smallest_share_has_layers_are_refused() -> None:
    cut = replace(state(0, 2), groups=2)
    prefill, decode = sides(FULL, cut, tp=(1, 1), pp=(3, 1))
    with pytest.raises(LayoutError, match="2 groups of state, and the smallest share has 1 layers"):
        Plan(prefill, decode, 8)
    with pytest.raises(LayoutError, match="it has 2 groups; there are 1 to 1, more than one only of what"):
        sides(replace(FULL, groups=2), tp=(1, 1))
    with pytest.raises(LayoutError, match="cache 'state': groups is 1 on the prefill side and 2 on the decode side"):
        Plan(sides(FULL, state(0, 2), tp=(1, 1))[0], sides(FULL, cut, tp=(1, 1))[0], 8)


def test_state_leaves_when_all_tokens_are_computed_and_not_before() -> None:
    with StatePair(*sides(FULL, state(0, 2), tp=(2, 1)), chunk_tokens=8, settings=SMALL_RING) as both:
        room = both.open(16)
        both.produce(room, 15)
        both.settle()
        sent = [inside(each).data.stats["writes"] for each in both.prefills]
        assert sent == [1, 1], "the first chunk of tokens"
        both.compute(room)
        both.finish(room)
        both.check(room)


def test_a_withdrawal_takes_back_state_that_has_not_left() -> None:
    """The forward is preempted before its state is read: that of the repeated one is sent."""
    with StatePair(*sides(FULL, state(0, 2), tp=(2, 1)), chunk_tokens=8, settings=SMALL_RING) as both:
        room = both.name(16)
        both.open_prefill(room)
        both.produce(room)  # nobody has opened it on the other side: nothing leaves
        for endpoint in both.prefills:
            endpoint.withdraw(room, 8)
        both.open_decode(room)
        both.settle()
        assert not both.outcomes
        assert [inside(each).data.stats["writes"] for each in both.prefills] == [1, 1]
        both.compute(room)
        ours = both.tables[room][0]
        for endpoint in both.prefills:
            assert endpoint.withdrawn(room)
            endpoint.produced(room, 16, pages=ours[2:])
        both.pump(partial(both.over, room))
        both.check(room)


def test_a_prefill_room_s_slot_may_come_with_its_last_token_and_be_another_after_a_withdrawal() -> None:
    class Late(StatePair):
        def open_prefill(self, room: Room, ranks: list[int] | None = None) -> None:
            ours, _, tokens, _ = self.tables[room]
            for endpoint in self.prefills:
                endpoint.open(room, tokens, ours)
                endpoint.prefetch(room)

    with Late(*sides(FULL, state(0, 2), tp=(2, 1)), chunk_tokens=8, settings=SMALL_RING) as both:
        room = both.name(16)
        both.open_prefill(room)
        slot, ours = both.slots(room)[0], both.tables[room][0]
        one = both.prefills[0]
        one.produced(room, 8)
        with pytest.raises(ArgumentError, match=r"has state: give the room its slot \(slots are 0 .. 6\)"):
            one.produced(room, 16)
        with pytest.raises(ArgumentError, match="slot 7 of a pool of state"):
            one.produced(room, 16, slot=7)
        for endpoint in both.prefills:
            endpoint.produced(room, 16, slot=(slot + 1) % SLOTS)
        both.settle()
        with pytest.raises(ArgumentError, match=r"its state is in slot \d, not \d: withdraw it first"):
            one.produced(room, 16, slot=slot)
        for endpoint in both.prefills:
            endpoint.withdraw(room, 8)
        both.open_decode(room)
        both.settle()
        both.compute(room)
        for endpoint in both.prefills:
            endpoint.produced(room, 16, pages=ours[2:], slot=slot)
            endpoint.aux(room, b"")
        both.pump(partial(both.over, room))
        both.check(room)


def test_a_launch_that_was_prepared_for_another_slot_is_forgotten() -> None:
    with StatePair(*sides(FULL, state(0, 2), tp=(1, 1)), chunk_tokens=8, digests=False) as both:
        room, prefill = both.name(21), both.prefills[0]
        prefill.open(room, 21, both.tables[room][0][:2], slot=3)
        entry, prepared = inside(prefill).entries[room.key], inside(prefill).data.prepared
        assert (entry.ends, entry.end_tables, entry.given) == (((3,),), (None,), 2)
        effect, made = do.LaunchGather(room.key, 0, 0, Target(), 0, 0, 0), Mock()
        for slot, kept in ((3, True), (4, False)):
            prepared.kept[effect] = made
            prefill.produced(room, 8, slot=slot)
            prefill.poll()
            assert (effect in prepared) is kept and entry.ends == ((slot,),)


def test_no_launch_is_prepared_for_a_slot_that_is_not_known() -> None:
    with StatePair(*sides(FULL, state(0, 2), tp=(1, 1)), chunk_tokens=8, settings=SMALL_RING) as both:
        prefill = both.prefills[0]
        prefill.open(Room(1), 8, [0, 1])
        entry = inside(prefill).entries[Room(1).key]
        with pytest.raises(KernelError, match="no slot and no window yet"):
            end_rows(prefill.pool, entry, 0)
        prefill.produced(Room(1), 8, slot=3)
        both.settle()
        pool, table, first, rows = end_rows(prefill.pool, entry, 0)
        assert (pool, table[first].item(), rows) == (prefill.pool.ends[0], 3, 1)


def test_two_rooms_whose_slots_cross_get_their_own() -> None:
    class Crossing(StatePair):
        def slots(self, room: Room) -> tuple[int, int]:
            return (1, 2) if room.id % 2 else (2, 1)

    with Crossing(*sides(FULL, state(0, 2), tp=(1, 2)), chunk_tokens=8, settings=SMALL_RING) as both:
        rooms = [both.open(9), both.open(11)]
        for room in rooms:
            both.compute(room)
        both.finish(*rooms)
        both.check(*rooms)


def test_a_slot_is_asked_for_by_name() -> None:
    with StatePair(*sides(FULL, state(0, 2), tp=(1, 1)), chunk_tokens=8, settings=SMALL_RING) as both:
        decode, prefill = both.decodes[0], both.prefills[0]
        with pytest.raises(ArgumentError, match=r"has state: give the room its slot \(slots are 0 .. 6\)"):
            decode.open(Room(1), 4, [0])
        with pytest.raises(ArgumentError, match=r"slot 7 of a pool of state for 7 requests"):
            prefill.open(Room(1), 4, [0], slot=7)
        with pytest.raises(ArgumentError, match="slot -1 of a pool"):
            prefill.open(Room(1), 4, [0], slot=-1)
    with CachePair(*sides(FULL, tp=(1, 1)), chunk_tokens=8, settings=SMALL_RING) as plain:
        told = pytest.raises(ArgumentError, match="slot 0: this rank's pool has no state")
        with told:
            plain.decodes[0].open(Room(1), 4, [0], slot=0)


def test_a_ring_too_small_for_a_chunk_of_state_is_refused_at_connect() -> None:
    with pytest.raises(ArgumentError, match=r"takes \d+ bytes, and Settings.ring_bytes is 256, and there is no way"):
        StatePair(*sides(FULL, state(0, 2), tp=(1, 1)), chunk_tokens=8, settings=Settings(ring_bytes=256))


@pytest.mark.parametrize(("settings", "why"), [
    (Settings(slot_bytes=64), "fits no slot of 64 .*joint=False.*, and over pages there is no way: the pool"),
    (Settings(route="pages"), "staged here .Settings.route., and over pages there is no way: .* digests are made"),
])  # fmt: skip
def test_a_prefill_rank_that_cannot_stage_state_refuses_the_link(settings: Settings, why: str) -> None:
    with StatePair(*sides(FULL, state(0, 2), tp=(1, 1)), chunk_tokens=8, settings=SMALL_RING, ready=False) as both:
        prefill = inside(both.prefills[0])
        prefill.rank.settings = settings
        with pytest.raises(Exception, match=why):
            both.pump(both.decodes[0].ready)

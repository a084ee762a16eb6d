"""Window rooms: real endpoints move the last window of a cache; what leaves when, refusals."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from msgspec.structs import replace
from test_endpoint_caches import LAYERS, CachePair

from kvproto import ArgumentError, Layout, LayoutError, Pool, Room
from kvproto.layout.caches import END, WINDOW, Cache, CachePart
from kvproto.layout.plan import Plan
from kvproto.protocol.states import Cause
from kvproto.settings import PREFILL_GROUP, Settings
from kvproto.verify.testing.access import inside

#: tokens of the window, and pages of a pool of windows
TOKENS, WINDOWS = 10, 60
FULL = Cache("full", (CachePart("k", 4, 16), CachePart("v", 4, 24)), (1,), "bfloat16")
LOCAL = Cache("local", (CachePart("k", 4, 48), CachePart("v", 4, 16)), (0, 2), "bfloat16", WINDOW, window=TOKENS)
#: one latent, on every rank
LATENT = Cache("local", (CachePart("latent", 1, 36),), (0, 2), "bfloat16", WINDOW, window=TOKENS)
SMALL_RING = Settings(ring_bytes=1 << 16)


def sides(*caches: Cache, tp: tuple[int, int], pp: tuple[int, int] = (1, 1), page: tuple[int, int] = (4, 4),
          order: Any = "NHD") -> list[Layout]:  # fmt: skip
    return [
        Layout.of_caches(caches, layers=LAYERS, page_size=size, tp=each, pp=stages, order=order)
        for each, stages, size in zip(tp, pp, page, strict=True)
    ]


def rows(layout: Layout, seed: int) -> dict[tuple[str, int], torch.Tensor]:
    """Every row of the model's windows by part and layer, as [page of the pool, token in it, unit, byte]."""
    last = next(cache for cache in layout.named if cache.travels == WINDOW)
    found = {}
    for at, (part, layer) in enumerate((part, layer) for part in last.parts for layer in last.layers):
        shape = WINDOWS, layout.page_size, part.units, part.row_bytes
        bits = torch.Generator().manual_seed(seed << 8 | at)
        found[f"{last.name}.{part.name}", layer] = torch.randint(0, 256, shape, dtype=torch.uint8, generator=bits)
    return found


class WindowPair(CachePair):
    """Two groups with a cache of which the last window travels, in other pages than the room's."""

    def __init__(self, *args: Any, **more: Any) -> None:
        self.free_windows = [*range(0, WINDOWS, 2), *range(1, WINDOWS, 2)]  # no two of a table lie side by side
        self.windows: dict[Room, tuple[list[int], list[int]]] = {}
        super().__init__(*args, **more)

    def name(self, tokens: int, **more: Any) -> Room:
        room = super().name(tokens, **more)
        first, sizes = max(0, tokens - TOKENS), (self.plan.prefill.page_size, self.plan.decode.page_size)
        ours, theirs = ([self.free_windows.pop() for _ in range(first // size, -(-tokens // size))] for size in sizes)
        self.windows[room] = ours, theirs
        return room

    def parts(self, layout: Layout, index: int, seed: int) -> dict[str, list[torch.Tensor]]:
        parts = super().parts(layout, index, seed)
        parts |= {kind.name: [] for end in layout.ends for kind in end.kinds}
        for (name, _), held in self.held(layout, index, rows(layout, seed)).items():
            parts[name].append(held if layout.order == "NHD" else held.transpose(1, 2).contiguous())
        return parts

    def window_of(self, endpoint: Any, room: Room, side: int) -> list[int] | None:
        return self.windows[room][side] if endpoint.pool.ends else None

    def open_prefill(self, room: Room, ranks: list[int] | None = None) -> None:
        ours, _, tokens, _ = self.tables[room]
        for endpoint in self.prefills if ranks is None else [self.prefills[i] for i in ranks]:
            endpoint.open(room, tokens, ours, window=self.window_of(endpoint, room, 0))
            endpoint.prefetch(room)

    def open_decode(self, room: Room, ranks: list[int] | None = None) -> None:
        _, theirs, tokens, prefix = self.tables[room]
        for endpoint in self.decodes if ranks is None else [self.decodes[i] for i in ranks]:
            window = self.window_of(endpoint, room, 1)
            endpoint.open(room, tokens, theirs, prefix=prefix, group=PREFILL_GROUP, window=window)

    def check(self, *rooms: Room) -> None:
        super().check(*rooms)
        prefill, decode = self.plan.prefill, self.plan.decode
        sent = rows(prefill, 1)
        for index, endpoint in enumerate(self.decodes):
            wanted, mine = self.held(decode, index, rows(decode, 2)), self.held(decode, index, sent)
            for room in rooms:
                (ours, theirs), tokens = self.windows[room], self.tables[room][2]
                first = max(0, tokens - TOKENS)
                for token in range(first, tokens):
                    page, slot = divmod(token, prefill.page_size)
                    to, there = divmod(token, decode.page_size)
                    for key, held in mine.items():
                        source = held[ours[page - first // prefill.page_size], slot]
                        wanted[key][theirs[to - first // decode.page_size], there] = source
            found = self.mine(decode, endpoint.pool)
            for (name, layer), view in wanted.items():
                here = found[name].pop(0)
                here = here if decode.order == "NHD" else here.transpose(1, 2)
                assert torch.equal(here, view), f"decode rank {index}: {name} of layer {layer}"

    @staticmethod
    def mine(layout: Layout, pool: Pool) -> dict[str, list[torch.Tensor]]:
        ends = zip(layout.ends, pool.ends, strict=True) if pool.ends else ()
        return {kind.name: list(views) for end, held in ends for kind, views in zip(end.kinds, held.kinds, strict=True)}


CASES = [
    sides(FULL, LOCAL, tp=(1, 1)), sides(FULL, LOCAL, tp=(4, 1)), sides(FULL, LOCAL, tp=(1, 4)),
    sides(FULL, LOCAL, tp=(2, 4)), sides(FULL, LATENT, tp=(4, 2)), sides(FULL, replace(LOCAL, groups=2), tp=(2, 1)),
    # pages of other sizes: the window begins at another place in the first one
    sides(FULL, LOCAL, tp=(1, 1), page=(2, 8)), sides(FULL, LOCAL, tp=(2, 1), page=(8, 1)),
    sides(FULL, LOCAL, tp=(2, 1), order="HND"),
    # stages of windows alone, of tokens alone, of both
    sides(FULL, LOCAL, tp=(2, 1), pp=(3, 1)), sides(FULL, LOCAL, tp=(1, 2), pp=(1, 3)),
]  # fmt: skip
NAMES = [f"{i}: {a.tp}x{a.pp} to {b.tp}x{b.pp}" for i, (a, b) in enumerate(CASES)]


@pytest.mark.parametrize("pair", CASES, ids=NAMES)
@pytest.mark.parametrize("route", ["staged", "cost"])
def test_every_byte_of_pages_and_windows_arrives(pair: list[Layout], route: Any) -> None:
    """Rooms longer and shorter than the window, behind a prefix inside it, and of a full hit."""
    settings = Settings(ring_bytes=1 << 14, route=route, window=1, slots=2)
    with WindowPair(*pair, chunk_tokens=8, settings=settings) as both:
        rooms = [both.open(21), both.open(14, prefix=8), both.open(7), both.open(16, prefix=16)]
        both.finish(*rooms)
        assert {cause for room in rooms for cause in both.causes(room)} == {Cause.NONE}
        both.check(*rooms)
        both.rest()


@pytest.mark.parametrize("tokens", range(1, 26))
def test_a_window_begins_anywhere_in_a_page(tokens: int) -> None:
    with WindowPair(*sides(FULL, LOCAL, tp=(2, 1), page=(4, 8)), chunk_tokens=8, settings=SMALL_RING) as both:
        room = both.open(tokens)
        both.finish(room)
        both.check(room)


def test_slots_and_regions_are_for_the_whole_window() -> None:
    """Two layers of ten tokens of 64 bytes of each head, beside chunks of eight of 40; seven may join."""
    with WindowPair(*sides(FULL, LOCAL, tp=(4, 1)), chunk_tokens=8, settings=SMALL_RING) as both:
        window, (last,) = 2 * TOKENS * 64, both.plan.whole_state
        assert inside(both.prefills[0]).data.slot_bytes == window + 256 + 7 * 40
        assert both.plan.part(0, 0, last.only(at_end=True)).nbytes == window
        assert both.plan.part(0, 0, last).nbytes == window + 512
        assert both.plan.grant_bytes(0, last) == 4 * (window + 512), "280 bytes, aligned"
        room = both.open(7)
        both.finish(room)
        moved = sum(inside(each).data.moved["staged"] for each in both.decodes)
        assert moved == 7 * 4 * (2 * 64 + 40), "of a short room as many rows as it has tokens"


def test_a_window_leaves_when_all_tokens_are_computed_and_not_before() -> None:
    with WindowPair(*sides(FULL, LOCAL, tp=(2, 1)), chunk_tokens=8, settings=SMALL_RING) as both:
        room = both.open(16)
        both.produce(room, 15)
        both.settle()
        assert [inside(each).data.stats["writes"] for each in both.prefills] == [1, 1], "the first chunk of tokens"
        both.finish(room)
        both.check(room)


def test_a_rank_that_owes_windows_alone_explains_what_they_cost() -> None:
    full = Cache("full", (CachePart("latent", 1, 36),), (1,), "bfloat16")  # the second of two replicas sends it
    with WindowPair(*sides(full, LOCAL, tp=(2, 1)), chunk_tokens=8, settings=SMALL_RING) as both:
        room = both.open(16)
        both.settle()
        costs = [each.explain(room).count("decode rank 0: staged") for each in both.prefills]
        assert costs == [1, 2]
        assert "; at the end to decode rank 0: staged" in both.prefills[0].explain(room)
        both.finish(room)
        both.check(room)


def test_pages_of_a_window_may_come_with_the_last_token_and_be_others_after_a_withdrawal() -> None:
    class Late(WindowPair):
        def open_prefill(self, room: Room, ranks: list[int] | None = None) -> None:
            ours, _, tokens, _ = self.tables[room]
            for endpoint in self.prefills:
                endpoint.open(room, tokens, ours)
                endpoint.prefetch(room)

    with Late(*sides(FULL, LOCAL, tp=(2, 1)), chunk_tokens=8, settings=SMALL_RING) as both:
        room = both.name(16)
        both.open_prefill(room)
        right, ours = both.windows[room][0], both.tables[room][0]
        wrong, one = right[::-1], both.prefills[0]
        one.produced(room, 8)
        with pytest.raises(ArgumentError, match=r"window: 0 pages of 4 tokens of local; tokens 6 .. 15 of the"):
            one.produced(room, 16)
        for endpoint in both.prefills:
            endpoint.produced(room, 16, window=wrong)
            endpoint.produced(room, 16, window=wrong)
        with pytest.raises(ArgumentError, match=r"its local is in pages .*, not .*: withdraw it first"):
            one.produced(room, 16, window=right)
        for endpoint in both.prefills:
            endpoint.withdraw(room, 8)
        both.open_decode(room)
        both.settle()
        for endpoint in both.prefills:
            assert endpoint.withdrawn(room)
            with pytest.raises(ArgumentError, match="99 layers produced of the 3 that this rank holds"):
                endpoint.produced(room, 16, pages=ours[2:], window=right, layers=99)  # and changes nothing
            endpoint.produced(room, 16, pages=ours[2:], window=right)
            endpoint.aux(room, b"")
        both.pump(partial(both.over, room))
        both.check(room)


def test_what_is_not_the_window_s_is_refused_by_name() -> None:
    with WindowPair(*sides(FULL, LOCAL, tp=(1, 1)), chunk_tokens=8, settings=SMALL_RING) as both:
        decode, prefill = both.decodes[0], both.prefills[0]
        with pytest.raises(ArgumentError, match=r"0 pages of 4 tokens of local; tokens 2 .. 11 of the prompt lie"):
            decode.open(Room(1), 12, [0, 1, 2])
        with pytest.raises(ArgumentError, match=r"4 pages of 4 tokens of local; tokens 5 .. 14 of the prompt lie in 3"):
            prefill.open(Room(1), 15, [0, 1, 2, 3], window=[0, 1, 2, 3])
        for pages in ([0, 1, 60], [0, -1, 2]):
            with pytest.raises(ArgumentError, match=r"window: pages of local are 0 .. 59, and not all of"):
                prefill.open(Room(1), 12, [0, 1, 2], window=pages)
        with pytest.raises(ArgumentError, match="slot 0: this rank's pool has no state"):
            prefill.open(Room(1), 12, [0, 1, 2], slot=0, window=[0, 1, 2])
    told = pytest.raises(ArgumentError, match="window: no cache of this rank's pool has one")
    with CachePair(*sides(FULL, tp=(1, 1)), chunk_tokens=8, settings=SMALL_RING) as plain, told:
        plain.decodes[0].open(Room(1), 4, [0], window=[0])


@pytest.mark.parametrize(("cache", "why"), [
    (replace(LOCAL, window=0), "its window has 0 tokens; where 'window' travels it has 1 to"),
    (replace(LOCAL, window=1 << 25), "its window has 33554432 tokens"),
    (replace(FULL, name="local", window=4), "its window has 4 tokens; where 'all' travels it has 0 to 0"),
    (replace(LOCAL, travels=END), "its window has 10 tokens; where 'end' travels it has 0 to 0"),
])  # fmt: skip
def test_a_window_has_a_length_and_nothing_else_has(cache: Cache, why: str) -> None:
    with pytest.raises(LayoutError, match=why):
        sides(FULL, cache, tp=(1, 1))


def test_windows_of_other_lengths_are_refused() -> None:
    ours, theirs = sides(FULL, LOCAL, tp=(1, 1))[0], sides(FULL, replace(LOCAL, window=12), tp=(1, 1))[1]
    with pytest.raises(LayoutError, match="cache 'local': window is 10 on the prefill side and 12 on the decode side"):
        Plan(ours, theirs, 8)


def test_a_ring_too_small_for_a_window_is_refused_at_connect() -> None:
    with pytest.raises(ArgumentError, match=r"takes 5120 bytes, and Settings.ring_bytes is 4096, .* digests"):
        WindowPair(*sides(FULL, LOCAL, tp=(1, 1)), chunk_tokens=8, settings=Settings(ring_bytes=4096))

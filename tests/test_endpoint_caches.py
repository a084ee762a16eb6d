"""Named caches between real endpoints, by every route: each byte of every decode pool is right."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest
import torch
from cache_case import SCALED, SPARSE

from kvproto import ArgumentError, CachePool, Layout, LayoutError, Pool, Room
from kvproto.endpoint.decode_endpoint import DecodeEndpoint
from kvproto.endpoint.endpoint import Endpoint
from kvproto.endpoint.prefill_endpoint import PrefillEndpoint
from kvproto.endpoint.validation import check_pool
from kvproto.io.kernels.base import StagedPart
from kvproto.io.kernels.differing import Place, differing
from kvproto.io.kernels.digesting import DigestingKernels
from kvproto.io.kernels.torch import TorchKernels
from kvproto.io.transports.base import Transport
from kvproto.io.transports.memory import MemoryTransport
from kvproto.layout.caches import ALL, Cache, CachePart
from kvproto.protocol.states import Cause
from kvproto.room import Status
from kvproto.settings import DECODE_GROUP, PREFILL_GROUP, Settings
from kvproto.verify.testing.access import inside
from kvproto.verify.testing.pair import Pair
from kvproto.verify.trace.judged import breaches

LAYERS, PAGES = 3, 80
#: two parts of one form
SCALES = (Cache("kv", (CachePart("k", 4, 4), CachePart("v", 4, 4))),)


def by_token(layout: Layout) -> list[Cache]:
    return [cache for cache in layout.named if cache.travels == ALL]


def truth(layout: Layout, seed: int) -> dict[tuple[str, int], torch.Tensor]:
    """Every row of the model's caches by part and layer, as [page of the pool, token in it, unit, byte]."""
    found = {}
    for cache in by_token(layout):
        for number, part in enumerate(cache.parts):
            for layer in cache.layers or range(layout.layers):
                bits = torch.Generator().manual_seed(hash((seed, len(cache.name), number, layer)))
                shape = (PAGES, layout.page_size, part.units, part.row_bytes)
                rows = torch.randint(0, 256, shape, dtype=torch.uint8, generator=bits)
                found[f"{cache.name}.{part.name}", layer] = rows
    return found


class CachePair(Pair):
    """Two groups whose pools are of named caches."""

    def __init__(self, *args: Any, maps: bool = False, digests: bool = True, **more: Any) -> None:
        self.maps, self.digests = maps, digests
        self.seen: dict[tuple[Endpoint, Room], dict[Place, int]] = {}
        super().__init__(*args, pages=PAGES, **more)

    def make_prefill(self, index: int) -> PrefillEndpoint:
        plan, pool = self.plan, self.pool(self.plan.prefill, index, 1)
        return PrefillEndpoint(plan.prefill, index, pool, self.transport(), chunk_tokens=plan.chunk_tokens,
                               group=PREFILL_GROUP, settings=self.settings, digests=self.digests)  # fmt: skip

    def make_decode(self, index: int) -> DecodeEndpoint:
        plan, pool = self.plan, self.pool(self.plan.decode, index, 2)
        return DecodeEndpoint(plan.decode, index, pool, self.transport(), chunk_tokens=plan.chunk_tokens,
                              group=DECODE_GROUP, settings=self.settings, digests=self.digests)  # fmt: skip

    def collect(self) -> None:
        for endpoint in self.endpoints if self.digests else ():
            for room in self.tables:
                known = room.key in inside(endpoint).entries and (endpoint, room) not in self.seen
                if known and endpoint.status(room) is Status.SUCCESS:
                    self.seen[endpoint, room] = endpoint.digests(room)
        super().collect()

    def places(self, group: Sequence[Endpoint], room: Room) -> list[Place]:
        return sorted({place for endpoint in group for place in self.seen[endpoint, room]})

    def every(self, room: Room) -> list[Place]:
        """The places of all that the room moves, by the model alone."""
        _, _, tokens, prefix = self.tables[room]
        return sorted(
            (first, layer, unit, f"{cache.name}.{part.name}")
            for first in range(prefix, tokens, self.plan.chunk_tokens)
            for cache in by_token(self.plan.prefill) for part in cache.parts
            for layer in cache.layers or range(LAYERS) for unit in range(part.units)
        )  # fmt: skip

    def transport(self) -> Transport:
        return MemoryTransport(self.fabric, maps=self.maps)

    def pool(self, layout: Layout, index: int, seed: int) -> Pool:
        parts = self.parts(layout, index, seed)
        tensors = {f"{name} {at}": view for name, views in parts.items() for at, view in enumerate(views)}
        return CachePool(layout, index, parts, tensors)

    def parts(self, layout: Layout, index: int, seed: int) -> dict[str, list[torch.Tensor]]:
        parts: dict[str, list[torch.Tensor]] = {kind.name: [] for kind in layout.kinds}
        for (name, _), rows in self.held(layout, index, truth(layout, seed)).items():
            parts[name].append(rows if layout.order == "NHD" else rows.transpose(1, 2).contiguous())
        return parts

    def held(
        self, layout: Layout, index: int, rows: dict[tuple[str, int], torch.Tensor]
    ) -> dict[tuple[str, int], torch.Tensor]:  # fmt: skip
        """The rank's own rows: layers of its stage, and its units, each repeated where there are more ranks."""
        stage, place = divmod(index, layout.tp)
        layers = torch.tensor_split(torch.arange(layout.layers), layout.pp)[stage].tolist()
        found = {}
        for (name, layer), whole in rows.items():
            if layer in layers:
                units = torch.arange(whole.shape[2]).repeat_interleave(max(1, layout.tp // whole.shape[2]))
                found[name, layer] = whole[:, :, units.tensor_split(layout.tp)[place]].clone()
        return found

    def check(self, *rooms: Room) -> None:
        assert not [told for endpoint in self.endpoints for told in breaches(inside(endpoint).rank)]
        layout = self.plan.decode
        sent = truth(self.plan.prefill, 1)
        for index, endpoint in enumerate(self.decodes):
            wanted, mine = self.held(layout, index, truth(layout, 2)), self.held(layout, index, sent)
            # a rank's own rows of what was sent, by tokens: the two sides' pages may differ in size
            for room in rooms:
                ours, theirs, tokens, prefix = self.tables[room]
                for token in range(prefix, tokens):
                    page, slot = divmod(token, self.plan.prefill.page_size)
                    to, there = divmod(token, layout.page_size)
                    for key, rows in mine.items():
                        wanted[key][theirs[to], there] = rows[ours[page], slot]
            parts = {kind.name: list(tensors) for kind, tensors in zip(layout.kinds, endpoint.pool.kinds, strict=True)}
            for (name, layer), rows in wanted.items():
                found = parts[name].pop(0)
                found = found if layout.order == "NHD" else found.transpose(1, 2)
                assert torch.equal(found, rows), f"decode rank {index}: {name} of layer {layer}"


def sides(caches: tuple[Cache, ...], *tp: int, **more: Any) -> list[Layout]:
    return [Layout.of_caches(caches, layers=LAYERS, page_size=4, tp=each, **more) for each in tp]


CASES: list[tuple[list[Layout], str, bool]] = [
    (sides(SPARSE, 1, 1), "staged", False),
    (sides(SPARSE, 4, 1), "staged", False),
    (sides(SPARSE, 2, 4), "pages", False),
    (sides(SPARSE, 4, 2), "pages", True),
    (sides(SCALED, 2, 4, order="HND"), "staged", False),
    (sides(SCALED, 4, 1), "pages", False),
    (sides(SCALED, 1, 2), "pages", True),
    ([*sides(SCALED, 2, pp=3), *sides(SCALED, 1)], "staged", False),
    ([*sides(SCALED, 1), *sides(SCALED, 2, pp=3)], "pages", False),
]


@pytest.mark.parametrize(("pair", "route", "maps"), CASES)
def test_every_byte_of_a_room_arrives(pair: list[Layout], route: Any, maps: bool) -> None:
    settings = Settings(ring_bytes=1 << 20, route=route)
    with CachePair(*pair, chunk_tokens=8, settings=settings, maps=maps) as both:
        rooms = [both.open(21), both.open(14, prefix=4)]
        both.finish(*rooms)
        assert {cause for room in rooms for cause in both.causes(room)} == {Cause.NONE}
        both.check(*rooms)
        for room in rooms:
            assert both.places(both.prefills, room) == both.places(both.decodes, room) == both.every(room)
            assert differing(*(both.seen[endpoint, room] for endpoint in both.endpoints)) == []
        stats = [inside(endpoint).data.stats for endpoint in both.prefills]
        assert any(each["mapped" if maps else "writes" if route == "staged" else "pages"] for each in stats) or (
            route == "pages" and any(each["direct"] for each in stats)
        )
        both.rest()


@pytest.mark.parametrize("tp", [(4, 2), (2, 4), (1, 1)])
def test_parts_that_changed_places_in_the_ring_are_named_by_both_sides_together(tp: tuple[int, int]) -> None:
    class Swapping(TorchKernels):
        """K's scales come where V's are, of one token of the first staged layer: both have four bytes a unit."""

        def scatter(
            self, pool: Any, table: torch.Tensor, first: int, tokens: int, parts: Sequence[StagedPart], **options: Any
        ) -> Any:
            cut = pool.cut("scatter", tuple(share for share, _ in parts))
            for part, (_, staged) in zip(cut.slices, parts, strict=True):
                begins, width = [tokens * sum(kind.layers * kind.width for kind in part.kinds[:at]) for at in (0, 1)], 4
                first_k, first_v = (staged[at : at + width].clone() for at in begins)
                staged[begins[0] :][:width], staged[begins[1] :][:width] = first_v, first_k
            return super().scatter(pool, table, first, tokens, parts, **options)

    with CachePair(*sides(SCALES, *tp), chunk_tokens=8, settings=Settings(ring_bytes=1 << 20, route="staged")) as both:
        for endpoint in both.decodes:
            kernels = inside(endpoint).data.kernels
            assert isinstance(kernels, DigestingKernels)
            kernels._inner = Swapping()
        room = both.open(8)
        both.finish(room)
        wrong = differing(*(both.seen[endpoint, room] for endpoint in both.endpoints))
        assert {place[3] for place in wrong if len(place) == 4} == {"kv.k", "kv.v"}


def test_layers_leave_when_they_are_computed_and_not_before() -> None:
    """Rows of a layer come into the prefill pages only when the engine says that the layer is computed."""
    with CachePair(*sides(SCALED, 2, 1), chunk_tokens=8, settings=Settings(ring_bytes=1 << 20, route="staged")) as both:
        room = both.name(16)
        kept = []
        for endpoint in both.prefills:
            kept.append([[tensor.clone() for tensor in tensors] for tensors in endpoint.pool.kinds])
            for tensors in endpoint.pool.kinds:
                for tensor in tensors:
                    tensor.zero_()
        _, theirs, tokens, _ = both.tables[room]
        both.decodes[0].open(room, tokens, theirs, group=1, layer_groups=3)
        both.open_prefill(room)
        for layer in range(LAYERS):
            for endpoint, whole in zip(both.prefills, kept, strict=True):
                for kind, tensors, before in zip(both.plan.prefill.kinds, endpoint.pool.kinds, whole, strict=True):
                    if layer in kind.layers:
                        at = list(kind.layers).index(layer)
                        tensors[at].copy_(before[at])
                endpoint.produced(room, tokens, layers=layer + 1)
                endpoint.aux(room, b"aux")
            both.settle(5)
        both.pump(partial(both.over, room))
        both.check(room)


def test_an_endpoint_refuses_another_layout_s_pool() -> None:
    ours, wide = sides(SPARSE, 1, 2)
    plain = Layout(LAYERS, 1, 656, 0, 1, "uint8", 4, 1)
    pool = CachePair.pool(object.__new__(CachePair), ours, 0, 1)
    k_only = Pool([torch.zeros((PAGES, 4, 1, 656), dtype=torch.uint8)] * LAYERS, [])
    check_pool(ours, 0, pool, 8)
    with pytest.raises(ArgumentError, match="the pool is one of K and V: make a CachePool"):
        check_pool(ours, 0, k_only, 8)
    with pytest.raises(ArgumentError, match="make it for rank 1 of the layout"):
        check_pool(wide, 1, pool, 8)
    with pytest.raises(ArgumentError, match="make it for rank 0 of the layout"):
        check_pool(plain, 0, pool, 8)
    with pytest.raises(LayoutError, match="not whole pages"):
        check_pool(ours, 0, pool, 6)

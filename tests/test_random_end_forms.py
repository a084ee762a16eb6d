"""Rooms of random layouts: caches at the end, cuts, pages, routes, prefixes; every byte is judged."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from support.night import by_night
from test_end_caches import FULL, LAYERS, LONG, SHORT, STATE
from test_end_rooms import DRAFT, EndsPair

from kvproto import Layout
from kvproto.layout.caches import Cache
from kvproto.layout.plan import Plan
from kvproto.layout.sharding import LayoutError
from kvproto.protocol.states import Cause
from kvproto.settings import Route, Settings

CHUNK_TOKENS = 8
SIZES, CUTS = st.sampled_from([1, 2, 4, 8]), st.sampled_from([1, 2, 4])
STAGES = st.sampled_from([(1, 1), (3, 1), (1, 3), (2, 1)])
ENDS = st.lists(st.sampled_from([STATE, LONG, SHORT]), min_size=1, max_size=3, unique=True)
ROUTES = st.sampled_from(["cost", "pages", "staged"])


def drawn(ends: Sequence[Cache], page: int, tp: int, pp: int, *, joint: bool) -> Layout:
    """Return a side; a draft has the layers that no other cache has."""
    free = set(range(LAYERS)) - {layer for each in (FULL, *ends) for layer in each.layers}
    draft = replace(DRAFT, layers=tuple(sorted({*DRAFT.layers, *free})))
    return Layout.of_caches((FULL, draft, *ends), layers=LAYERS, page_size=page, tp=tp, pp=pp, joint=joint)


@settings(max_examples=by_night(600, by_day=60), deadline=None, suppress_health_check=list(HealthCheck))
@given(
    ends=ENDS, groups=st.sampled_from([1, 1, 2]), pages=st.tuples(SIZES, SIZES), alike=st.booleans(),
    tps=st.tuples(CUTS, CUTS), pps=STAGES, joint=st.booleans(), tokens=st.integers(1, 30), hit=st.floats(0, 1),
    maps=st.booleans(), route=ROUTES,
)  # fmt: skip
def test_every_byte_of_a_room_of_any_form_arrives(
    ends: list[Cache], groups: int, pages: tuple[int, int], alike: bool, tps: tuple[int, int], pps: tuple[int, int],
    joint: bool, tokens: int, hit: float, maps: bool, route: Route,
) -> None:  # fmt: skip
    sizes = (pages[0],) * 2 if alike else pages
    assume(route != "pages" or sizes[0] == sizes[1])  # windows whose pages differ are staged
    cut = [replace(each, groups=groups) for each in ends]
    try:
        sides = [drawn(cut, *each, joint=joint) for each in zip(sizes, tps, pps, strict=True)]
        Plan(sides[0], sides[1], CHUNK_TOKENS)
    except LayoutError:  # more groups than layers, or a stage without any
        assume(False)
    prefix = int(hit * tokens) // sizes[1] * sizes[1] if hit < 1 else tokens
    form = Settings(ring_bytes=1 << 15, route=route, window=1, slots=2)
    size, drawn_room = CHUNK_TOKENS, (tokens, prefix)
    with EndsPair(*sides, room=drawn_room, chunk_tokens=size, settings=form, digests=False, maps=maps) as both:
        room = both.one()
        both.finish(room)
        assert set(both.causes(room)) == {Cause.NONE}
        both.check(room)

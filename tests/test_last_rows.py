"""Last rows: what a room has of caches that travel at the end, and the ring and kernels for it."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace
from support.stories import layout
from test_end_caches import LONG, STATE, of
from test_state_rooms import FULL, state

from kvproto.endpoint.last_rows import need_last_rows_by_end, need_ring_for_last_rows, prepare_ends
from kvproto.errors import ArgumentError
from kvproto.layout.placement import Placement
from kvproto.layout.plan import Plan
from kvproto.layout.sharding import Layout
from kvproto.settings import Settings
from kvproto.verify.testing.pools import empty_caches, noise


def plan(*state_layers: int, groups: int = 1) -> Plan:
    caches = [FULL, replace(state(*state_layers), groups=groups)]
    prefill, decode = (Layout.of_caches(caches, layers=4, page_size=4, tp=each) for each in (2, 1))
    return Plan(prefill, decode, 8)


#: of ranks whose state nobody writes into, of some of whose it is so, and of open ones
CLOSED, OPEN = Placement((), ()), Placement((), (), ends=(Placement((), ()),))
ONE_CLOSED = Placement((), (), ends=(Placement((), ()), Placement((), (), "no")))
WAY = "and there is no way into slots or windows"


def largest(made: Plan) -> int:
    """Bytes of the largest chunk of state."""
    return max(made.grant_bytes(0, cut) for cut in made.whole_state)


@pytest.mark.parametrize("groups", [1, 2])
def test_the_largest_chunk_of_state_just_fits_in_the_ring(groups: int) -> None:
    made = plan(0, 2, 3, groups=groups)
    sizes = [made.grant_bytes(0, cut) for cut in made.whole_state]
    assert len(sizes) == groups and (groups == 1 or min(sizes) < max(sizes))
    need_ring_for_last_rows(made, 0, Settings(ring_bytes=largest(made)), CLOSED)
    with pytest.raises(ArgumentError, match=f"takes {largest(made)} bytes, and Settings.ring_bytes .*they are not"):
        need_ring_for_last_rows(made, 0, Settings(ring_bytes=largest(made) - 1), CLOSED)
    need_ring_for_last_rows(made, 0, Settings(ring_bytes=largest(made) - 1), OPEN)


def test_closed_state_has_no_way_over_pages_and_kv_alone_needs_none() -> None:
    over_pages = Settings(ring_bytes=1 << 20, route="pages")
    for ours, why in ((CLOSED, "they are not open"), (ONE_CLOSED, "no"), (Placement((), (), "shut"), "shut")):
        with pytest.raises(ArgumentError, match=re.escape(f"nothing is staged here (Settings.route), {WAY}: {why}")):
            need_ring_for_last_rows(plan(0), 0, over_pages, ours)
    need_ring_for_last_rows(plan(0), 0, over_pages, OPEN)
    need_ring_for_last_rows(Plan(layout(2), layout(1), 8), 0, over_pages, CLOSED)


def test_kernels_are_prepared_for_what_each_chunk_of_the_end_moves() -> None:
    made, asked = plan(0, 2, 3, groups=2), list[tuple[Any, ...]]()
    kernels: Any = SimpleNamespace(prepare=lambda *about: asked.append(about))
    pool = empty_caches(made.decode, 0, 8)
    assert made.state is not None
    prepare_ends(kernels, "scatter", pool, made.state_cuts(made.state.writers(0)))
    assert [(end, side) for end, side, _ in asked] == [(pool.ends[0], "scatter")] * 2
    assert all(shares for *_, shares in asked)
    asked.clear()
    prepare_ends(kernels, "scatter", pool, iter([[]]))  # nobody writes anything of it
    assert asked == []


def test_one_launch_is_prepared_for_several_caches_at_the_end_and_for_tokens_beside_them() -> None:
    joined = list[tuple[str, list[Any]]]()
    kernels: Any = SimpleNamespace(
        prepare=lambda *_: None, prepare_joint=lambda side, chunk: joined.append((side, [pool for pool, _ in chunk]))
    )
    one, two = of(FULL, STATE, page_size=4), of(FULL, LONG, STATE, page_size=4)
    for side, with_tokens, wanted in ((one, False, []), (one, True, [2]), (two, False, [2]), (two, True, [2, 3])):
        made = Plan(side, side, 8)
        pool = empty_caches(side, 0, 8)
        assert made.state is not None
        cuts, tokens = made.state_cuts(made.state.writers(0)), made.writers(0) if with_tokens else ()
        prepare_ends(kernels, "gather", pool, cuts, tokens)
        chunks = [[*pool.ends], [pool, *pool.ends]]
        assert joined == [("gather", chunk) for chunk in chunks if len(chunk) in wanted]
        joined.clear()


@pytest.mark.parametrize(("slot", "window"), [(3, None), (None, [1, 2])])
def test_of_a_pool_without_such_caches_nothing_is_named(slot: Any, window: Any) -> None:
    entry: Any = SimpleNamespace(ends=(), tokens=8, full=0)
    pool = noise(layout(1), 0, 4, 1)
    assert need_last_rows_by_end("the room", entry, 8, None, None, pool) == ()
    with pytest.raises(ArgumentError, match=r"this rank's pool has no state|no cache of this rank's pool"):
        need_last_rows_by_end("the room", entry, 8, slot, window, pool)


def test_a_slot_that_is_named_late_is_needed_with_the_last_token_alone() -> None:
    pool = empty_caches(plan(0).decode, 0, 32)
    entry: Any = SimpleNamespace(ends=((),), tokens=8, full=0)
    assert need_last_rows_by_end("the room", entry, 4, None, None, pool) == ((),)
    with pytest.raises(ArgumentError, match="give the room its slot"):
        need_last_rows_by_end("the room", entry, 8, None, None, pool)
    assert need_last_rows_by_end("the room", entry, 8, 2, None, pool) == ((2,),)

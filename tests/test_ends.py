"""Ends: layouts, plans and estimates of a prefill rank of what travels at the end, by numbers.

The model has state and windows of 11 and 3 tokens beside a cache of which every token travels; so many bytes each layer
has of them (state, the long window, the short one): 310 + 1232, 1232, 310 + 1232, 1232 + 54, 310 + 54, 54.
"""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import UNSET
from msgspec.structs import replace
from test_end_caches import FULL, LONG, SHORT, STATE, of
from test_layout import layout as of_heads
from test_rank_costs import CLOSED, COSTS, caller
from test_rank_links import DIGEST, FIRST, LEASE, OWN, say
from test_rank_queues import act

from kvproto.layout import plan as plans
from kvproto.layout.caches import Cache, CachePart
from kvproto.layout.costs import NO_ROUTE, PROFILES, at_the_port, estimate, page_form
from kvproto.layout.cut import Cut, layers_of
from kvproto.layout.end_share import end_shares
from kvproto.layout.placement import Placement, dense
from kvproto.layout.plan import Plan
from kvproto.layout.sharding import Layout, LayoutError
from kvproto.protocol import effects as do
from kvproto.protocol import events as ev
from kvproto.protocol import messages as msg
from kvproto.protocol.events import Claim, Target
from kvproto.protocol.states import PLink, PSend
from kvproto.protocol.tables.prefill_send import PSendValue
from kvproto.rank.decode import DecodeRank
from kvproto.rank.prefill import PrefillRank
from kvproto.rank.prefill_links import STAGED_ONLY
from kvproto.settings import Settings

REST = Cache("rest", (CachePart("latent", 1, 36),), (0, 2, 4, 5))
BYTES = [1542, 1232, 1542, 1286, 364, 54]
CHUNK, ROOM, TOKENS = 8, 5, 21


def model(groups: int = 1, **cut: Any) -> Layout:
    return of(FULL, REST, *(replace(each, groups=groups) for each in (STATE, LONG, SHORT)), **cut)


def at_end_of(layout: Layout) -> Layout:
    assert layout.state is not None
    return layout.state


# ------------------------------------------------------------------------------------------------ layouts
def test_a_group_of_layers_has_the_bytes_of_the_heaviest_and_of_the_gaps_between_caches() -> None:
    for groups, heaviest in ((1, sum(BYTES)), (2, 1542 + 1542 + 1286), (4, 1542 + 1542)):
        assert at_end_of(model(groups)).group_bytes(0) == model(groups).slot_bytes(0, 1) == heaviest + 2 * 16
    staged = at_end_of(of(FULL, REST, *(replace(each, layers=(0, 2)) for each in (STATE, LONG)), pp=3))
    assert [staged.group_bytes(rank) for rank in range(3)] == [1542 + 16, 1542 + 16, 0]


def test_the_rows_of_a_window_begin_in_a_page_and_state_has_one() -> None:
    ends = {each.name: each for each in model().ends}
    assert [(tokens, ends["long"].first_row(tokens)) for tokens in (9, 11, 12, 13, 17)] == [
        (9, 0), (11, 0), (12, 1), (13, 2), (17, 2),
    ]  # fmt: skip
    assert ends["state"].first_row(13) == 0
    at_end = at_end_of(model())
    assert (at_end.window, at_end.page_size, ends["state"].page_size) == (11, 4, 1)
    assert of_heads().window == 0


def test_a_stage_without_any_cache_is_refused_where_others_have_state() -> None:
    with pytest.raises(LayoutError, match=r"no cache has a layer of stage 2 \(4\.\.5\)"):
        of(FULL, replace(STATE, layers=(0, 2)), pp=3)


@pytest.mark.parametrize("stages", [[], None, 0])
def test_stages_that_are_no_tuple_are_none(stages: Any) -> None:
    with pytest.raises(LayoutError, match="it must be a tuple of layers a stage"):
        of_heads(stages=stages)


# -------------------------------------------------------------------------------------------------- plans
def test_a_plan_keeps_what_it_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plans, "PARTS", 2)
    plan = Plan(model(), model(), CHUNK)
    for asked in (plan.duties, plan.writers, plan.linked_to):
        assert asked(0) is asked(0)
    first, _ = plan.part(0, 0, Cut(0, 8)), plan.part(0, 0, Cut(0, 7))
    assert plan.part(0, 0, Cut(8, 8)) is first
    plan.part(0, 0, Cut(0, 6))
    assert len(plan._parts) == 1, "a full table is emptied"


def test_the_end_of_a_room_is_cut_as_its_caches_say() -> None:
    plan = Plan(model(2), model(2, tp=2), CHUNK)
    assert plan.whole_state == (Cut(11, 0, 0, 2, state=True), Cut(11, 0, 1, 2, state=True))
    assert Cut(13, 0, 1, 2, state=True).of_end(11) == Cut(0, 11, 1, 2)
    tokens_alone = Plan(of_heads(), of_heads(), 64)
    assert (tokens_alone.state_groups, tokens_alone.whole_state) == (0, ())


def test_whoever_has_state_of_a_rank_is_linked_to_it_and_the_lowest_writer_leads() -> None:
    tokens, at_end = replace(FULL, layers=(3, 4, 5)), replace(STATE, layers=(0, 1, 2))
    by_stages, by_heads = of(tokens, at_end, pp=2), of(tokens, at_end, tp=2)
    assert [Plan(by_stages, of(tokens, at_end), CHUNK).linked(writer) for writer in (0, 1)] == [(0,), (0,)]
    turned = Plan(of(tokens, at_end), by_stages, CHUNK)
    assert turned.linked(0) == (0, 1) and [turned.linked_to(reader) for reader in (0, 1)] == [(0,), (0,)]
    assert Plan(by_heads, of(tokens, at_end), CHUNK).lead(0) == 0


def test_a_share_of_one_cache_is_whole_without_the_others() -> None:
    apart = of(replace(FULL, layers=(0, 1, 2)), replace(REST, layers=(3, 4, 5)), pp=2)
    plan = Plan(apart, apart, CHUNK)
    assert [plan.direct(plan.share(rank, rank)) for rank in (0, 1)] == [True, True]


def test_layers_of_a_later_stage_s_share_are_counted_from_its_own() -> None:
    alike = replace(FULL, layers=tuple(range(6)))
    plan = Plan(of(alike), of(alike, pp=2), CHUNK)
    parts = [layers_of(plan.share(0, 1), group, 3) for group in range(3)]
    assert [(each.src_layer, each.dst_layer, each.layers) for each in parts] == [(3, 0, 1), (4, 1, 1), (5, 2, 1)]


def test_a_page_s_pieces_are_of_each_side_s_own_placement() -> None:
    plan = Plan(of_heads(page_size=4), of_heads(page_size=4, pp=2), CHUNK)
    share = plan.share(0, 1)
    assert page_form(plan, share, dense(plan.prefill, 0), dense(plan.decode, 1)) == page_form(plan, share)


# ------------------------------------------------------------------------------------------ a prefill rank
def open_to(layout: Layout, rank: int, **changed: Any) -> Placement:
    """The placement of a pool whose caches at the end may be written, too."""
    return replace(dense(layout, rank), ends=tuple(dense(each, rank) for each in layout.ends), **changed)


def linked(theirs: Placement | None, held: Layout, ours: Layout = model(2), **changed: Any) -> PrefillRank:  # noqa: B008
    """A prefill rank that the second of two decode ranks calls, with room 5 of that group."""
    settings = Settings(**{"costs": COSTS, **changed})
    rank = PrefillRank(ours, 0, group=OWN, chunk_tokens=CHUNK, incarnation=1, settings=settings)
    rank.placement = open_to(ours, 0)
    rank.hello(msg.Hello(msg.VERSION, DIGEST, 7 << 16 | 1, FIRST, 1, held, CHUNK, LEASE, b"", theirs), 0.0, b"there")
    rank.handle(ev.WiredUp(1, 7 << 16 | 1, "wire"), 0.0)
    rank.handle(ev.EngineOpened(ROOM, TOKENS, Claim(FIRST)), 0.0)
    if rank.links[1].state is PLink.UP:
        say(rank, 1, msg.Open(TOKENS, 0), ROOM)
    return rank


THEIRS, BY_STAGES = model(2, tp=2), model(2, pp=2)
OPEN = open_to(THEIRS, 1)


@pytest.mark.parametrize(
    ("held", "theirs", "changed", "ring", "open_"),
    [
        (THEIRS, OPEN, {}, True, True), (THEIRS, OPEN, {"route": "pages"}, False, True),
        (THEIRS, OPEN, {"route": "staged"}, True, False), (THEIRS, None, {}, True, False),
        (THEIRS, OPEN, {"slot_bytes": 8}, False, True), (BY_STAGES, open_to(BY_STAGES, 1), {}, True, True),
    ],
)  # fmt: skip
def test_the_end_of_a_room_costs_what_its_windows_and_state_do(
    held: Layout, theirs: Placement | None, changed: dict[str, Any], ring: bool, open_: bool
) -> None:
    rank = linked(theirs, held, **changed)
    assert (rank.links[1].life, rank.links[1].why) == (7, "")
    plan = rank.peers[1].plan
    assert plan is not None and plan.state is not None
    share, costs = plan.state.share(0, 1), []
    for tokens in (2, 11, TOKENS):
        rank.rooms[ROOM] = replace(rank.rooms[ROOM], tokens=tokens)
        pieces = 0
        for each in end_shares(plan, share, rank.placement, theirs) if open_ else ():
            form = page_form(each.plan, each.share, each.ours, each.theirs)
            pieces += form.pieces(each.plan.prefill.last_rows(tokens), 0)
        costs.append(rank.end_estimate(ROOM, 1))
        nbytes = plan.part_bytes(share, Cut(tokens, 0, state=True))
        assert costs[-1] == estimate(COSTS, nbytes, pieces, 2, ring=ring, open_=open_)
        assert (costs[-1].staged < NO_ROUTE, costs[-1].pages < NO_ROUTE) == (ring, open_)
    assert costs[1] is costs[2] != costs[0], "rooms longer than every window are alike"


@pytest.mark.parametrize(
    ("tokens", "prefix", "last"), [(19, 0, 3), (21, 4, 1), (12, 0, 4), (4, 0, 4), (7, 4, 3), (16, 0, 0), (21, 0, 0)]
)
@pytest.mark.parametrize("open_", [True, False])
def test_a_room_whose_last_tokens_join_its_end_costs_what_its_other_tokens_and_that_chunk_do(
    tokens: int, prefix: int, last: int, open_: bool
) -> None:
    held = model(tp=2, page_size=1)
    theirs = open_to(held, 1) if open_ else dense(held, 1)  # its pages are open, and what travels at the end is not
    rank = linked(theirs, held, model(page_size=1))
    plan, room = rank.peers[1].plan, rank.rooms[ROOM]
    assert plan is not None and plan.state is not None and plan.joint_tokens == room.terms.joint_tokens == 4
    facts = replace(room.facts, runs=3, their_runs=2)  # four runs at most, of all its tokens
    rank.rooms[ROOM] = replace(room, tokens=tokens, prefix=prefix, facts=facts)
    share, state = plan.share(0, 1), plan.state.share(0, 1)
    form, before = page_form(plan, share, rank.placement, theirs), tokens - prefix - last
    nbytes, cells = plan.part_bytes(share, Cut(0, before)), -(-before // CHUNK)
    found = rank.estimate(ROOM, 1)
    assert found == estimate(COSTS, nbytes, form.pieces(before, 4, cells), cells) and found.pages < NO_ROUTE
    assert rank.estimate(ROOM, 1) is found
    pieces = form.pieces(last, -(-4 * last // (tokens - prefix))) if last else 0
    for each in end_shares(plan, state, rank.placement, theirs) if open_ else ():
        at_end = page_form(each.plan, each.share, each.ours, each.theirs)
        pieces += at_end.pieces(each.plan.prefill.last_rows(tokens), 0)
    nbytes = plan.part(0, 1, Cut(tokens - last, last, state=True)).nbytes
    found = rank.end_estimate(ROOM, 1)
    assert found == estimate(COSTS, nbytes, pieces, 1, open_=open_) and rank.end_estimate(ROOM, 1) is found


def test_the_plan_of_a_cache_at_the_end_is_always_the_same_one() -> None:
    """Prepared lists are found by it, however many other plans are asked for meanwhile."""
    plan = Plan(of(FULL, STATE, LONG), of(FULL, STATE, LONG), 8)
    kept = [plan.end_plan(at) for at in range(len(plan.prefill.ends))]
    plans.plan_between.cache_clear()
    assert [plan.end_plan(at) for at in range(len(kept))] == kept and len({id(each) for each in kept}) == 2
    assert [(each.prefill.name, each.decode.name) for each in kept] == [(each.name,) * 2 for each in plan.prefill.ends]


def test_a_joint_chunk_that_is_stored_waits_for_the_busier_port_of_its_two_parts() -> None:
    held = model(pp=2)
    rank = linked(open_to(held, 1), held, model(), costs="")
    rank.rooms[ROOM] = replace(rank.rooms[ROOM], tokens=12)
    rank.reach(1, PROFILES["mapped"], mapped=True)
    plan, cut = rank.peers[1].plan, Cut(8, 4, state=True)
    assert plan is not None and plan.state is not None
    ports = at_the_port(plan, plan.share(0, 1)), at_the_port(plan.state, plan.state.share(0, 1))
    assert ports[0] < ports[1]
    found = estimate(PROFILES["mapped"], plan.part(0, 1, cut).nbytes, 0, 1, mapped=True, port=ports[1])
    assert rank.end_estimate(ROOM, 1).staged == found.staged


def test_a_send_s_timer_knows_how_much_longer_pages_take_of_its_tokens_or_of_its_joint_chunk() -> None:
    held = model(tp=2, page_size=1)
    rank = linked(open_to(held, 1), held, model(page_size=1))
    rank.rooms[ROOM] = replace(rank.rooms[ROOM], tokens=19)
    plan, sends = rank.peers[1].plan, dict[int, PSendValue]()
    assert plan is not None
    for chunk, cut in ((0, Cut(0, 8)), (2, Cut(16, 3, state=True))):
        to = Target(1, rank.links[1].epoch, cut, plan.part(0, 1, cut))
        sends[chunk << 16 | 1] = PSendValue(PSend.AWAIT_GRANT, to=to)
    rank.sends[ROOM] = sends
    tokens, at_end = (each.pages_extra_s for each in (rank.estimate(ROOM, 1), rank.end_estimate(ROOM, 1)))
    assert 0.0 < at_end != tokens > 0.0
    timers = [rank.send_timer(ROOM, chunk << 16 | 1, 0) for chunk in (0, 1, 2)]
    assert [each.pages_extra_s for each in timers] == [tokens, tokens, at_end]


def test_a_decode_rank_has_joint_chunks_where_its_ring_holds_two_of_their_largest_parts() -> None:
    held = model(tp=2)
    size = 2 * held.slot_bytes(1, CHUNK)
    for ring, joint in ((size, True), (size - 1, UNSET)):
        settings = Settings(ring_bytes=ring)
        rank = DecodeRank(held, 1, group=OWN, chunk_tokens=CHUNK, incarnation=1, settings=settings)
        assert rank.layout.joint is joint


def test_a_replica_that_owes_tokens_or_state_has_joint_chunks_and_one_that_owes_nothing_has_none() -> None:
    small = replace(STATE, parts=(CachePart("x", 1, 12),))
    ours, held, joint = of(REST, small, tp=8), of(REST, small), list[tuple[bool, int]]()
    for index in range(8):
        rank = PrefillRank(ours, index, group=OWN, chunk_tokens=CHUNK, incarnation=1)
        rank.hello(msg.Hello(msg.VERSION, DIGEST, 1, FIRST, 0, held, CHUNK, LEASE, b"", None), 0.0, b"there")
        terms = rank.peers[1].terms
        assert terms is not None
        joint.append((bool(terms.writes or terms.state_writes), terms.joint_tokens))
        assert joint[-1] in ((True, Plan(ours, held, CHUNK).joint_tokens), (False, 0))
    assert {owes for owes, _ in joint} == {True, False}


def test_without_a_plan_or_state_nothing_at_the_end_has_a_way_over_pages() -> None:
    assert caller().end_estimate(5, 0) is STAGED_ONLY
    rank = linked(OPEN, THEIRS)
    rank.peers[1].plan = None
    assert rank.end_estimate(ROOM, 1) is STAGED_ONLY


def test_a_slot_has_to_take_the_largest_part_of_the_end_where_there_is_no_way_over_pages() -> None:
    plan = Plan(model(2), THEIRS, CHUNK)
    sizes = [plan.part(0, 1, cut).nbytes for cut in plan.whole_state]
    assert sizes[0] > sizes[1]
    closed = replace(OPEN, closed="it is virtual")
    told = f"a part of {sizes[0]} bytes of state or window fits no slot of {sizes[1]} (Settings.slot_bytes), and over"
    for theirs, size, why in (
        (closed, sizes[0], ""), (OPEN, sizes[1], ""),
        (closed, sizes[1], f"{told} pages there is no way: the pool of the decode rank is closed: it is virtual"),
    ):  # fmt: skip
        rank = linked(theirs, THEIRS, slot_bytes=size)
        assert rank.links[1].why == why and (rank.links[1].state is PLink.REFUSED) == bool(why)


def test_the_first_window_of_a_room_without_tokens_to_send_opens_sends_of_its_end() -> None:
    rank = linked(OPEN, THEIRS)
    rank.native_notify = True
    plan, cost = rank.peers[1].plan, rank.end_estimate(ROOM, 1)
    assert plan is not None
    at_end = replace(rank.rooms[ROOM].terms, state_writes=0b10)
    rank.rooms[ROOM] = replace(rank.rooms[ROOM], prefix=TOKENS, terms=at_end)
    rank._out.clear()
    found = act(rank, do.OpenWindow(ROOM, 0, 2, aux=False))
    for chunk, event in enumerate(found):
        cut = Cut(TOKENS, 0, chunk, 2, state=True)
        to = Target(1, rank.links[1].epoch, cut, plan.part(0, 1, cut))
        assert event == ev.SendOpened(ROOM, chunk, 1, to, False, True, False, cost.staged, cost.pages, False)
    assert len(found) == 2
    rank.rooms[ROOM] = replace(rank.rooms[ROOM], terms=replace(at_end, state_writes=0))
    assert act(rank, do.OpenWindow(ROOM, 0, 2, aux=False)) == []


def test_the_terms_of_a_rank_without_state_have_no_chunks_of_it() -> None:
    for most in (1, 2):
        caches = FULL, REST, replace(STATE, layers=(0, 2), groups=most)
        plan = Plan(of(*caches), of(*caches, pp=2), CHUNK)
        assert bool(plan.joint_tokens) is (most == 1)
        for index, groups in ((0, most), (1, 0)):
            rank = DecodeRank(plan.decode, index, group=OWN, chunk_tokens=CHUNK, incarnation=1)
            terms = rank.terms(FIRST, plan)
            assert (terms.state_groups, terms.state_writes) == (groups, int(groups > 0))
            assert terms.joint_tokens == plan.joint_tokens, "a stage without state has the tokens of it"


@pytest.mark.parametrize("theirs", [None, CLOSED])
def test_a_send_is_told_that_its_pool_is_closed(theirs: Placement | None) -> None:
    rank = caller(theirs=theirs)
    rank._out.clear()
    rank._queue.clear()
    found = act(rank, do.OpenWindow(5, 0, 1, aux=False))
    assert [each.closed for each in found if isinstance(each, ev.SendOpened)] == [theirs is not None]

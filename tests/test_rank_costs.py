"""The cost of each route for a prefill rank, and what it cannot take: by plan, pools and settings."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from test_rank_links import DIGEST, FIRST, LEASE, OWN, say
from test_rank_queues import act

from kvproto.layout.costs import NO_ROUTE, PROFILES, Costs, Estimate, at_the_port, estimate, page_form
from kvproto.layout.cut import Cut
from kvproto.layout.placement import Placement, dense
from kvproto.layout.plan import Plan
from kvproto.layout.sharding import Layout
from kvproto.protocol import effects as do
from kvproto.protocol import events as ev
from kvproto.protocol import messages as msg
from kvproto.protocol.events import Claim, Target
from kvproto.protocol.states import PLink, PSend
from kvproto.protocol.tables.prefill_send import PSendValue
from kvproto.rank import prefill_links
from kvproto.rank.prefill import PrefillRank
from kvproto.rank.prefill_links import STAGED_ONLY
from kvproto.settings import Settings

MODEL = Layout(layers=4, heads=4, k_dim=8, v_dim=8, itemsize=2, dtype="bfloat16", page_size=4, tp=1)
COSTS = Costs(piece=1e-3, rate=1e6, piece_rate=2e6, launch=1e-2, copy=3e6)
CLOSED = replace(dense(MODEL, 0), closed="it is virtual")


def caller(
    *, ours: Placement | None = None, theirs: Placement | None = None, tp: int = 1, page_size: int = 4, **changed: Any
) -> PrefillRank:
    """A prefill rank with one link to a decode rank, and room 5 of 3 pages of it."""
    rank = PrefillRank(
        MODEL, 0, group=OWN, chunk_tokens=8, incarnation=1, settings=Settings(**{"costs": COSTS, **changed})
    )
    rank.placement = ours
    held = replace(MODEL, tp=tp, page_size=page_size)
    said = msg.Hello(msg.VERSION, DIGEST, 1, FIRST, 0, held, 8, LEASE, b"", theirs)
    rank.hello(said, 0.0, b"there")
    rank.handle(ev.WiredUp(1, 1, "wire"), 0.0)
    rank.handle(ev.EngineOpened(5, 18, Claim(FIRST), runs=2), 0.0)
    if rank.links[1].state is PLink.UP:
        say(rank, 1, msg.Open(18, 1, runs=3), 5)
    return rank


def told(
    rank: PrefillRank, *, ring: bool = True, open_: bool = True, costs: Costs = COSTS, port: float = 1.0
) -> Estimate:
    """The room's estimate by formula, from its plan."""
    plan = rank.peers[1].plan
    assert plan is not None
    share = plan.share(0, 0)
    pieces = page_form(plan, share, rank.placement, rank.peers[1].placement).pieces(17, 4, 3) if open_ else 0
    return estimate(costs, plan.part_bytes(share, Cut(0, 17)), pieces, 3, ring=ring, open_=open_, port=port)


def test_a_room_s_estimate_is_of_its_tokens_runs_parts_and_pools() -> None:
    part = Plan(MODEL, MODEL, 8).part_bytes(Plan(MODEL, MODEL, 8).share(0, 0), Cut(0, 8))
    apart = replace(dense(MODEL, 0), planes=tuple((1, 4096 * at) for at in range(8)))
    strided = replace(apart, strides=tuple(replace(each, token=each.token * 2) for each in apart.strides))
    spaced = replace(apart, strides=tuple(replace(each, page=each.page * 2) for each in apart.strides))
    for rank, ring, open_ in (
        (caller(), True, True),
        (caller(route="pages"), False, True),
        (caller(route="staged"), True, False),
        (caller(slot_bytes=part), True, True),
        (caller(slot_bytes=part - 1), False, True),
        (caller(ours=CLOSED), True, False),
        (caller(theirs=CLOSED), True, False),
        (caller(ours=strided), True, True),
        (caller(theirs=strided), True, True),
        (caller(tp=2), True, True),
        (caller(tp=2, ours=strided), True, True),
        (caller(page_size=8, ours=spaced), True, True),
    ):
        found = rank.estimate(5, 0)
        assert found == told(rank, ring=ring, open_=open_) and found is rank.estimate(5, 0)
        assert (found.staged == NO_ROUTE, found.pages == NO_ROUTE) == (not ring, not open_)
    assert len({str(caller(ours=each).estimate(5, 0)) for each in (None, strided)}) == 2, (
        "the pools' forms make a difference"
    )
    rank = caller(layer_groups=4)
    rank.rooms[5] = replace(rank.rooms[5], terms=replace(rank.rooms[5].terms, layer_groups=4))
    plan = rank.peers[1].plan
    assert plan is not None
    share = plan.share(0, 0)
    pieces = page_form(plan, share).pieces(17, 4, 3)
    assert rank.estimate(5, 0) == estimate(COSTS, plan.part_bytes(share, Cut(0, 17)), pieces, 12)
    quarter = caller(slot_bytes=part // 4)
    assert quarter.estimate(5, 0).staged == NO_ROUTE
    quarter.rooms[5] = replace(quarter.rooms[5], terms=replace(quarter.rooms[5].terms, layer_groups=4))
    assert quarter.estimate(5, 0).staged < NO_ROUTE, "a part of a layer group fits"


def test_what_goes_by_a_link_costs_what_was_told_last_of_it() -> None:
    rank = caller(costs=COSTS)
    rank.reach(1, COSTS, mapped=False)
    before = rank.estimate(5, 0)
    for costs, mapped in ((PROFILES["mapped"], True), (COSTS, True), (replace(COSTS, rate=1e8), False)):
        rank.reach(1, costs, mapped=mapped)
        found = rank.estimate(5, 0)
        assert found == replace(told(rank, costs=costs), mapped=mapped) and rank.peers[1].mapped == mapped
        rank.reach(1, costs, mapped=mapped)
        assert rank.estimate(5, 0) is found, "an unchanged link keeps its estimates"
    rank.reach(1, COSTS, mapped=False)
    assert rank.estimate(5, 0) == before and rank.estimate(5, 0) is not before
    rank = caller(tp=2, costs="")
    rank.reach(1, PROFILES["mapped"], mapped=True)
    assert rank.estimate(5, 0) == replace(told(rank, costs=PROFILES["mapped"], port=2.0), mapped=True)


@pytest.mark.parametrize(
    ("prefill", "decode", "times"), [(1, 1, 1), (2, 2, 1), (2, 1, 2), (1, 2, 2), (2, 4, 2), (4, 1, 4)]
)
def test_links_of_one_room_share_the_port_of_the_rank_that_has_most_of_them(
    prefill: int, decode: int, times: int
) -> None:
    plan = Plan(replace(MODEL, tp=prefill), replace(MODEL, tp=decode), 8)
    assert {at_the_port(plan, share) for share in plan.shares} == {times}


@pytest.mark.parametrize(("prefill", "decode"), [(1, 1), (2, 2), (2, 1), (1, 2), (2, 4), (4, 2)])
@pytest.mark.parametrize("mib", [4, 64, 1024, 1 << 16])
def test_rooms_of_any_size_are_stored_into_mapped_pages_however_many_ranks_share_them(
    prefill: int, decode: int, mib: int
) -> None:
    model = Layout(layers=32, heads=8, k_dim=128, v_dim=128, itemsize=2, dtype="bfloat16", page_size=16, tp=1)
    tokens, chunk_tokens = mib * 8, 1024
    plan = Plan(replace(model, tp=prefill), replace(model, tp=decode), chunk_tokens)
    for share in plan.shares:
        nbytes, chunks = plan.part_bytes(share, Cut(0, tokens)), -(-tokens // chunk_tokens)
        found = estimate(PROFILES["mapped"], nbytes, 0, chunks, mapped=True, port=at_the_port(plan, share))
        assert found.pages_extra_s == 0.0 and found.pages < found.staged, str(found)


def test_two_ranks_that_write_to_a_third_take_as_long_as_one_that_writes_the_bytes_of_both() -> None:
    size, costs = 320 << 20, PROFILES["mapped"]
    alone, together, whole = (
        estimate(costs, size * at, 1, 4, mapped=True, port=port) for at, port in ((1, 1.0), (1, 2.0), (2, 1.0))
    )
    assert together.pages == whole.pages == pytest.approx(2 * alone.pages)


def test_nobody_writes_to_a_rank_that_no_link_leads_to_or_that_was_refused() -> None:
    rank = caller()
    assert rank.estimate(5, 1) is STAGED_ONLY
    rank.peers[1].plan = None
    assert rank.estimate(5, 0) is STAGED_ONLY


def test_estimates_and_equal_numbers_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    rank = caller()
    monkeypatch.setattr(prefill_links, "ESTIMATES", 3)
    sizes = list[int]()
    for tokens in (21, 22, 23, 24, 25):
        rank.rooms[5] = replace(rank.rooms[5], tokens=tokens)
        rank.estimate(5, 0)
        sizes.append(len(rank.peers[1].estimates))
    assert sizes == [1, 2, 3, 1, 2]
    monkeypatch.setattr(prefill_links, "KEPT", 3)
    rank._equals.clear()
    kept = [(rank.shared(1000 + at), len(rank._equals)) for at in range(5)]
    assert kept == [(1000, 1), (1001, 2), (1002, 3), (1003, 1), (1004, 2)]
    rank._equals.clear()
    assert rank.claim(7, b"") is rank.claim(7, b"") and rank.claim(7, b"secret") == Claim(7, b"secret")


@pytest.mark.parametrize(
    ("ours", "theirs", "changed", "why"),
    [
        (None, CLOSED, {}, ""),
        (
            None,
            CLOSED,
            {"route": "pages"},
            "over pages there is no way: the pool of the decode rank is closed: it is v",
        ),
        (CLOSED, None, {"route": "pages"}, "over pages there is no way: the pool of the prefill rank is closed: it is"),
        (None, None, {"route": "pages"}, ""),
        (
            None,
            CLOSED,
            {"slot_bytes": 4095},
            "a part of 4096 bytes fits no slot of 4095 (Settings.slot_bytes), and over",
        ),
        (None, CLOSED, {"slot_bytes": 4096}, ""),
        (None, None, {"slot_bytes": 1}, ""),
        (None, CLOSED, {"slot_bytes": 1}, "a part of 4096 bytes fits no slot of 1 "),
        (CLOSED, replace(CLOSED, closed="", planes=()), {}, "a placement of 2 strides and 0 planes"),
        (
            None,
            replace(CLOSED, closed="", planes=()),
            {},
            "a placement of 2 strides and 0 planes for a rank of 8 planes",
        ),
    ],
)
def test_a_caller_whose_pool_nothing_leads_to_is_refused(
    ours: Placement | None, theirs: Placement | None, changed: dict[str, Any], why: str
) -> None:
    rank = caller(ours=ours, theirs=theirs, **changed)
    found = rank.links[1].why
    said, plan = rank._call
    assert plan is not None and rank._no_way(plan, said) == found
    assert (why in found and rank.links[1].state is PLink.REFUSED) if why else rank.links[1].state is PLink.UP, found


def test_to_whom_nothing_is_owed_nobody_asks_for_a_way() -> None:
    """Two prefill ranks hold the same head: one writes it, the other has nothing to do with the pool."""
    heads = replace(MODEL, heads=1, tp=2)
    for index in range(2):
        rank = PrefillRank(heads, index, group=OWN, chunk_tokens=8, incarnation=1, settings=Settings(route="pages"))
        theirs = replace(dense(replace(MODEL, heads=1), 0), closed="it is virtual")
        said = msg.Hello(msg.VERSION, DIGEST, 1, FIRST, 0, replace(MODEL, heads=1), 8, LEASE, b"", theirs)
        rank.hello(said, 0.0, b"there")
        owes = bool(Plan(heads, replace(MODEL, heads=1), 8).duties(index))
        assert rank.links[1].state is (PLink.REFUSED if owes else PLink.AWAIT_WIRE_UP)
        if not owes:
            terms = rank.peers[1].terms
            assert terms is not None and (terms.everyone, terms.writes) == (0b1, 0b0), "it takes part, no more"


def test_sends_wait_by_the_clock_of_what_they_wait_for() -> None:
    rank = caller(page_writes=1, costs=Costs(piece=1.0))
    rank.links[1] = replace(rank.links[1], mark_round=2, mark_tail=64)
    timer = rank.send_timer(5, 3 << 16, 4)
    assert timer == ev.TimerFired(
        5, 3, 0, 4, mark=2 << 48 | 64, full=False, pages_extra_s=rank.estimate(5, 0).pages_extra_s
    )
    act(rank, do.TakePermit(5, 0, 0))
    assert rank.send_timer(5, 3 << 16, 4).full and rank.send_timer(5, 3 << 16 | 1, 4) == ev.TimerFired(5, 3, 1, 4)
    assert rank.send_timer(5, -1 << 16, 0).pages_extra_s == 0.0 < rank.send_timer(5, 0, 0).pages_extra_s


def test_a_send_without_a_way_over_pages_or_whose_rank_holds_all_other_permits_goes_on_waiting() -> None:
    rank = caller(page_writes=2, costs=Costs(piece=1.0))
    link, plan, key = rank.links[1], rank.peers[1].plan, 0
    assert plan is not None
    to = Target(1, link.epoch, Cut(0, 8), plan.part(0, 0, Cut(0, 8)))
    rank.sends[5] = {key: PSendValue(PSend.AWAIT_GRANT, to=to)}
    extra = rank.estimate(5, 0).pages_extra_s
    assert 0.0 < extra < NO_ROUTE and rank.send_timer(5, key, 0).pages_extra_s == extra
    rank.sends[5][key] = replace(rank.sends[5][key], closed=True)
    assert rank.send_timer(5, key, 0).pages_extra_s == NO_ROUTE
    rank.links[2] = link  # another decode rank
    act(rank, do.TakePermit(5, 0, 0))
    assert rank.send_timer(5, key, 0).full, "the last permit is for the other decode rank"
    rank.permits.clear()
    assert not rank.send_timer(5, key, 0).full

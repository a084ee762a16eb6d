"""The route that a send takes, by the cost of each from both sides' tables, in numbers."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from kvproto.errors import ArgumentError
from kvproto.fsm.machine import Machine
from kvproto.layout.byte_runs import descriptors
from kvproto.layout.costs import (
    NO_ROUTE,
    PROFILES,
    Costs,
    Estimate,
    PageForm,
    estimate,
    layer_groups,
    page_form,
    runs_between,
)
from kvproto.layout.cut import Cut
from kvproto.layout.plan import Plan
from kvproto.layout.sharding import Layout
from kvproto.protocol import events as ev
from kvproto.protocol.states import PSend
from kvproto.protocol.tables.prefill_send import PSendValue, prefill_send
from kvproto.protocol.timing import Timing
from kvproto.room import Room
from kvproto.settings import Settings
from kvproto.verify.testing.access import inside
from kvproto.verify.testing.pair import SMALL, Pair

LARGE = Layout(layers=32, heads=8, k_dim=128, v_dim=128, itemsize=2, dtype="bfloat16", page_size=16, tp=1)
STEP = Machine(prefill_send, Timing()).step


def cut(tp: int, size: int = 16, order: str = "NHD") -> Layout:
    return replace(LARGE, tp=tp, page_size=size, order=order)


def chosen(profile: str, ours: Layout, theirs: Layout, tokens: int, runs: int) -> str:
    plan = Plan(ours, theirs, 512)
    share = plan.duties(0)[0]
    pieces = page_form(plan, share).pieces(tokens, runs, -(-tokens // 512))
    told = estimate(PROFILES[profile], plan.part_bytes(share, Cut(0, tokens)), pieces, -(-tokens // 512))
    return "staged" if told.staged <= told.pages else "pages"


FLAT = replace(LARGE, layers=4)
DECISIONS = [
    ("cuda_ipc", cut(1), cut(1), 8192, 0, "staged"),
    ("cuda_ipc", cut(1), cut(1), 8192, 512, "staged"),
    ("cuda_ipc", cut(1), cut(1), 8192, 1, "staged"),
    ("cuda_ipc", FLAT, FLAT, 16, 1, "pages"),
    ("cuda_ipc", FLAT, FLAT, 8192, 0, "staged"),
    ("cuda_ipc", cut(2), cut(1), 8192, 1, "staged"),
    ("cuda_ipc", cut(1), cut(1), 16, 1, "pages"),
    ("cuda_ipc", cut(1), cut(1), 512, 1, "pages"),
    ("cuda_ipc", cut(1), cut(1), 512, 0, "staged"),
    ("cuda_ipc", cut(1), cut(1), 32, 0, "pages"),
    ("rdma", cut(1), cut(1), 8192, 0, "pages"),
    ("rdma", cut(1, 1), cut(1, 1), 8192, 0, "staged"),
    ("rdma", cut(2), cut(1), 8192, 0, "staged"),
    ("rdma", cut(4, 64, "HND"), cut(8, 64, "HND"), 8192, 0, "pages"),
    ("shm", cut(1), cut(1), 8192, 0, "pages"),
    ("shm", cut(2), cut(1), 8192, 0, "staged"),
    ("tcp", cut(1), cut(1), 8192, 1, "pages"),
    ("tcp", cut(1, 1), cut(1, 1), 8192, 0, "staged"),
    ("free", cut(1), cut(1), 8192, 1, "staged"),
]


@pytest.mark.parametrize(("profile", "ours", "theirs", "tokens", "runs", "route"), DECISIONS)
def test_the_cheaper_route_is_chosen(
    profile: str, ours: Layout, theirs: Layout, tokens: int, runs: int, route: str
) -> None:
    assert chosen(profile, ours, theirs, tokens, runs) == route


@pytest.mark.parametrize("order", ["NHD", "HND"])
@pytest.mark.parametrize(("ours", "theirs"), [((1, 4), (1, 4)), ((2, 4), (1, 4)), ((2, 4), (4, 4)), ((2, 2), (2, 4))])
def test_pieces_are_those_that_are_written(ours: tuple[int, int], theirs: tuple[int, int], order: str) -> None:
    small = replace(LARGE, layers=2, heads=4, k_dim=8, v_dim=8, order=order)
    plan = Plan(replace(small, tp=ours[0], page_size=ours[1]), replace(small, tp=theirs[0], page_size=theirs[1]), 16)
    share, random = plan.duties(0)[0], Random(7)
    form = page_form(plan, share)
    apart = [[2 * page for page in random.sample(range(64), 16)] for _ in range(2)]
    rows = [list(range(16))] * 2
    for (source, target), runs in ((apart, 0), (rows, 1)):
        told = len(list(descriptors(plan, share, source, target, 0, 16)))
        assert told <= form.pieces(16, runs) <= 2 * told
        if ours[1] == theirs[1]:
            assert form.pieces(16, runs) == told


def test_runs_of_two_tables_cut_each_other() -> None:
    assert (runs_between(3, 4), runs_between(0, 4), runs_between(1, 1)) == (6, 0, 1)
    assert PageForm(16, 4, 4).pieces(160, 99) == PageForm(16, 4, 4).pieces(160, 0) == 40


def test_pieces_are_saved_where_pages_follow_one_another() -> None:
    form = PageForm(16, 4, 3)
    assert [form.pieces(160, runs) for runs in (0, 1, 3, 10, 99)] == [40, 13, 19, 40, 40]
    assert [form.pieces(160, runs, 4) for runs in (0, 1, 9)] == [40, 22, 40], "a chunk ends a run"
    assert (form.pieces(161, 3), form.pieces(1, 1), form.pieces(0, 0)) == (20, 4, 0)
    assert [runs_between(*each) for each in ((0, 0), (3, 0), (0, 3), (3, 3))] == [0, 0, 0, 5]
    for ours, theirs, wanted in (
        (cut(1), cut(1), PageForm(16, 64, 64)),  # K and V of 32 layers
        (cut(1, 16), cut(1, 4), PageForm(4, 64, 64)),
        (cut(1, 2), cut(2, 4), PageForm(2, 2 * 64, 0)),
    ):
        plan = Plan(ours, theirs, 16)
        assert page_form(plan, plan.shares[0]) == wanted


def test_an_estimate_is_this_formula() -> None:
    costs = Costs(piece=1e-3, rate=1e6, piece_rate=2e6, launch=1e-2, copy=3e6, message=0.5)
    kernel = 1e-2 + 2000 / 3e6
    assert estimate(costs, 6000, 5, 3).staged == pytest.approx(0.5 + 2 * kernel + 2e-3 + 2 * kernel)
    assert estimate(costs, 6000, 5, 3, port=9.0).staged == pytest.approx(0.5 + 2 * kernel + 18e-3 + 2 * 18e-3)
    least = 0.5 + 2 * (1e-2 + 60 / 3e6) + 1e-3
    assert estimate(costs, 60, 5, 0).staged == pytest.approx(least), "no write is less than a piece"
    assert [estimate(costs, 6000, pieces, 3, port=2.0).pages for pieces in (5, 50)] == pytest.approx([12e-3, 56e-3])
    assert Estimate(1.0, 3.0).pages_extra_s == 2.0
    assert [Estimate(*each).pages_extra_s for each in ((3.0, 1.0), (NO_ROUTE, 1.0))] == [0.0] * 2
    assert (Estimate(1.0, 2.0).way, Estimate(1.0, 2.0, mapped=True).way) == ("pages", "mapped")


def test_a_cell_is_cut_into_as_many_groups_as_outlast_a_quarter_of_a_launch_each() -> None:
    costs = Costs(rate=1e6, launch=2.0)
    sizes = 0, 999_999, 1_000_000, 1_999_999, 4_000_000
    assert [layer_groups(costs, nbytes, 64) for nbytes in sizes] == [1, 1, 2, 2, 8]
    assert [layer_groups(costs, 4_000_000, most) for most in (1, 2, 3, 4, 7, 8, 9)] == [1, 2, 2, 4, 4, 8, 8]


def test_a_route_that_is_closed_is_never_worth_to_leave_the_ring_for() -> None:
    costs = Costs()
    assert estimate(costs, 1 << 20, 1 << 20, 1, open_=False).pages == NO_ROUTE
    assert estimate(costs, 1 << 20, 1 << 20, 1, open_=False).pages_extra_s > 3e7, "a year"
    assert estimate(costs, 1 << 20, 1, 1, ring=False).staged == NO_ROUTE
    assert str(Estimate(0.0007, 0.11)) == "staged 0.7 ms, pages 110 ms"
    assert str(Estimate(NO_ROUTE, 0.11)) == "staged impossible, pages 110 ms"


@pytest.mark.parametrize(
    ("staged", "pages", "then"),
    [(1.0, 2.0, PSend.AWAIT_KV), (1.0, 1.0, PSend.AWAIT_KV), (2.0, 1.0, PSend.AWAIT_PAGES)],
)
def test_a_row_chooses(staged: float, pages: float, then: PSend) -> None:
    told = ev.SendOpened(7, 0, 0, ev.Target(), ready=False, staged_cost=staged, pages_cost=pages)
    assert STEP(PSendValue(PSend.NEW), told, 0.0)[0].state is then


@pytest.mark.parametrize(("waited", "then"), [(4.9, PSend.AWAIT_TURN), (5.0, PSend.AWAIT_PAGES)])
def test_the_ring_is_left_when_waiting_was_as_dear_as_pages(waited: float, then: PSend) -> None:
    value = PSendValue(PSend.AWAIT_TURN, kv=True, tries=9, asked=100.0)
    told = ev.TimerFired(7, 0, 0, 2, pages_extra_s=5.0)
    assert STEP(value, told, 100.0 + waited)[0].state is then


QUICK = Costs(piece=3.5e-6, launch=15e-6)
ALIKE = replace(LARGE, layers=2, heads=2, k_dim=16, v_dim=16, page_size=4)


@pytest.mark.parametrize(
    ("costs", "pages", "staged"),
    [
        (QUICK, range(30), 0),
        (QUICK, range(58, -2, -2), 4),
        (replace(QUICK, launch=1.0), range(58, -2, -2), 0),
        (PROFILES["cuda_ipc"], range(58, -2, -2), 0),
        (replace(PROFILES["cuda_ipc"], piece=1e-4), range(58, -2, -2), 4),
        (PROFILES["rdma"], range(58, -2, -2), 0),
    ],
    ids=["in a row", "at random", "at random, dear kernels", "few over NVLink", "dear pieces", "over RDMA"],
)
def test_equal_groups_stage_what_would_be_many_pieces(costs: Costs, pages: range, staged: int) -> None:
    settings = replace(SMALL, costs=replace(costs, rate=1e9, copy=1e12))
    with Pair(ALIKE, ALIKE, chunk_tokens=32, settings=settings) as pair:
        room = Room(1)
        pair.tables[room] = (list(pages), list(pages), 4 * len(pages), 0)
        pair.open_decode(room)
        pair.open_prefill(room)
        pair.finish(room)
        told = inside(pair.prefills[0]).data.stats
    assert told["writes"] == staged, (told, pages)


def test_what_was_estimated_can_be_read() -> None:
    with Pair(ALIKE, ALIKE, chunk_tokens=8, settings=replace(SMALL, costs="cuda_ipc")) as pair:
        pair.finish(pair.open(20))
        rank = inside(pair.prefills[0]).rank
        (peer,) = rank.peers.values()
        (told,) = peer.estimates.values()
    assert 0 < told.staged < NO_ROUTE and 0 < told.pages < NO_ROUTE


@pytest.mark.parametrize(
    ("name", "value"),
    [("piece", -1e-9), ("piece", 60.5), ("launch", 61.0), ("launch", True), ("message", -1.0), ("rate", 0.5),
     ("rate", "fast"), ("copy", 0.0), ("piece_rate", float("nan"))],
)  # fmt: skip
def test_what_cannot_be_a_cost_is_refused_by_its_name(name: str, value: Any) -> None:
    with pytest.raises(ArgumentError, match=f"Costs.{name} is {value!r}"):
        Costs(**{name: value})
    assert Costs(piece=0, launch=60.0, rate=1.0, copy=float("inf")).launch == 60.0


def test_what_nvlink_is_said_to_cost_is_what_was_measured() -> None:
    told = PROFILES["cuda_ipc"]
    for value, least, most in (
        (told.rate, 350e9, 400e9), (told.copy, 1.5e12, 2.5e12), (told.message, 1e-4, 4e-4), (told.launch, 2e-4, 4e-4),
    ):  # fmt: skip
        assert least < value < most
    assert str(told) == "a piece 4 us, a large write 390 GB/s"


def test_settings_name_a_profile() -> None:
    assert Settings(costs="rdma").costs_of("shm") == PROFILES["rdma"]
    assert Settings().costs_of("shm") == PROFILES["shm"]
    assert Settings(costs=Costs(piece=1e-3)).costs_of("shm").piece == 1e-3

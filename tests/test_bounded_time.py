"""Every room has a bounded time on an idle machine, for any ring, slots, window, groups and routes.

The bound is computed: all of the room's parts one after the other, each with its messages, its kernels and its write. A
room that takes longer waits for a timer, or for something that only it could give. A room whose KV is not computed lies
beside it and has no end: the bound does not know of it. The ranks are the product's, and time is simulated.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import combinations, product, starmap
from random import Random
from typing import ClassVar, NamedTuple

import pytest
from msgspec.structs import replace
from support.night import NIGHT, by_night

from kvproto.layout.costs import Costs, page_form
from kvproto.layout.cut import Cut, layers_of
from kvproto.layout.plan import Plan
from kvproto.layout.sharding import Layout
from kvproto.protocol import effects as do
from kvproto.protocol import events as ev
from kvproto.protocol.states import Cause
from kvproto.rank.decode import DecodeRank
from kvproto.rank.prefill import PrefillRank
from kvproto.settings import Route, Settings
from kvproto.verify.check.mutations.registry import MUTANTS
from kvproto.verify.framework.table_patching import TablePatch
from kvproto.verify.sim.hardware import Queues
from kvproto.verify.sim.member import FaultChances, Side
from kvproto.verify.sim.timed import TimedInstance, TimedRank, TimedWorld

COSTS = Costs(piece=1e-6, rate=16 * 1e5, launch=1e-3, copy=16e6)
CHUNK_TOKENS, CHUNKS, LAYERS, LATENCY = 64, 5, 5, 1e-4
TOKENS = CHUNKS * CHUNK_TOKENS - 7
READY, COMPUTES = 1, 2
ROUTES: tuple[Route, ...] = ("staged", "cost")
#: messages of one part, one after the other: request, deferral, grant, watermark, notification, confirmation; and as
#: many again for a request that is repeated
ROUND = 12


class Case(NamedTuple):
    """One machine.

    `ring`: in cells (0: one region of the largest layer group); `lean`: one request and one write over pages at a time,
    and no promise ahead of the watermark; `beside`: the prefill instance where the other room's forward runs.
    """

    prefill: tuple[int, int]
    decode: int
    ring: int
    slots: int
    window: int
    groups: int
    route: Route
    lean: bool = False
    beside: str = "nowhere"


EVERY = starmap(Case, product(
    ((1, 1), (2, 1), (4, 1), (1, 2), (2, 2)), (1, 2, 4), (0, 1, 3), (1, 4), (1, 2, 4), (1, 2, 3, 5), (*ROUTES, "pages"),
    (False, True), ("nowhere", "here", "there"),
))  # fmt: skip
#: a room has no more layer groups than the smallest pipeline stage has layers
ALL = [case for case in EVERY if case.groups <= LAYERS // case.prefill[1]]
PARTS = by_night(100, by_day=2)
#: three fields by their places, and values of theirs; and the cases that are looked at for each that is chosen
Meeting = tuple[tuple[int, ...], tuple[object, ...]]
TRIED = 12
#: two unequal groups and a ring for one cell: a later, smaller chunk must not pass an older one of its room
CRAWL = [Case((tp, 1), 1, 1, 2, window, 2, route) for tp in (1, 2, 4) for window in (1, 4) for route in ROUTES]


def meetings(cases: Sequence[Case]) -> set[Meeting]:
    """Return each three fields with the values that some case has there."""
    columns = [*zip(*cases, strict=True)]
    return {
        (at, values) for at in combinations(range(len(columns)), 3)
        for values in zip(*(columns[each] for each in at), strict=True)
    }  # fmt: skip


def covering(cases: Sequence[Case]) -> list[Case]:
    """Choose few cases in which all values meet that meet in any three fields of some case."""
    left, random, found = meetings(cases), Random(0), list[Case]()
    while left:
        at, values = min(left, key=repr)
        able = [case for case in cases if tuple(case[each] for each in at) == values]
        found.append(max(random.sample(able, min(TRIED, len(able))), key=lambda case: len(meetings([case]) & left)))
        left -= meetings(found[-1:])
    return found


@cache
def day() -> list[Case]:
    """Choose the cases of a day."""
    return covering(ALL)


def layout(tp: int, pp: int = 1) -> Layout:
    return Layout(layers=LAYERS, heads=4, k_dim=4, v_dim=4, itemsize=2, dtype="bfloat16", page_size=16, tp=tp, pp=pp)


class Engine(TimedInstance):
    """An engine that keeps how rooms end."""

    def __init__(self, world: TimedWorld, number: int, ends: list[tuple[str, int, Cause]]) -> None:
        super().__init__(world, number)
        self.ends = ends

    def heard_outcome(self, rank: TimedRank, news: do.AnnounceOutcome) -> None:
        self.ends.append((rank.name, news.room, news.cause))


class Prefill(Engine):
    side: ClassVar[Side] = "P"


class Decode(Engine):
    side: ClassVar[Side] = "D"


def ring_bytes(plan: Plan, case: Case) -> int:
    regions = [
        [plan.grant_bytes(rank, Cut(0, CHUNK_TOKENS, group, case.groups)) for group in range(case.groups)]
        for rank in range(plan.decode.ranks)
    ]
    return case.ring * max(map(sum, regions)) or max(map(max, regions))


def one_after_the_other(plan: Plan, groups: int) -> float:
    """Seconds of a room whose parts never overlap, each by the route that takes longer."""
    queues, seconds = Queues(COSTS), (2 * plan.prefill.ranks + 2) * LATENCY
    for writer in range(plan.prefill.ranks):
        for share in plan.duties(writer):
            for group in range(groups):
                cut = layers_of(share, group, groups)
                nbytes = plan.part_bytes(cut, Cut(0, CHUNK_TOKENS))
                pieces = page_form(plan, cut).pieces(CHUNK_TOKENS, 0)
                write = max(queues.write_seconds(nbytes, 1), queues.write_seconds(nbytes, pieces))
                kernel = COSTS.launch + nbytes / COSTS.copy
                seconds += CHUNKS * (ROUND * LATENCY + 2 * kernel + write)
    return seconds


def build(case: Case) -> tuple[TimedWorld, list[tuple[str, int, Cause]]]:
    prefill, decode = layout(*case.prefill), layout(case.decode)
    settings = Settings(
        costs=COSTS,
        ring_bytes=ring_bytes(Plan(prefill, decode, CHUNK_TOKENS), case),
        slots=case.slots,
        window=case.window,
        route=case.route,
        layer_groups=case.groups,
    )
    if case.lean:
        settings = replace(settings, ring_rounds_ahead=0, max_unanswered_requests=1, page_writes=1)
    world = TimedWorld(
        1, prefill, decode, chunk_tokens=CHUNK_TOKENS, settings=settings, chances=FaultChances(),
        closed=case.route == "staged",
        latency=LATENCY,
    )  # fmt: skip
    ends: list[tuple[str, int, Cause]] = []
    for number in range(2):
        world.add(Prefill(world, number, ends))
    world.add(Decode(world, 0, ends))
    world.connect()
    return world, ends


def open_room(world: TimedWorld, room: int, instance: int, groups: int) -> None:
    """Open a room on both sides and schedule its forward."""
    source, target = world.instances["P"][instance], world.instances["D"][0]
    for node in target.ranks:
        assert isinstance(node.rank, DecodeRank)
        node.opened.add(room)
        world.tell(node, ev.RoomOpened(room, node.rank.terms(source.group, world.plan, groups), TOKENS, 0))
    for node in source.ranks:
        assert isinstance(node.rank, PrefillRank)
        node.opened.add(room)
        world.tell(node, ev.EngineOpened(room, TOKENS, node.rank.claim(target.group, b"")))
        world.tell(node, ev.ForwardScheduled(room))


def seconds_of(case: Case) -> tuple[float, float]:
    """Return what the ready room takes on this machine, and what it may take."""
    world, ends = build(case)
    if case.beside != "nowhere":
        open_room(world, COMPUTES, int(case.beside == "there"), case.groups)
        quiet = world.now + 1.0
        world.run(lambda: world.now > quiet)
    begun, may = world.now, one_after_the_other(world.plan, case.groups)
    open_room(world, READY, 0, case.groups)
    for node in world.instances["P"][0].ranks:
        world.tell(node, ev.TokensProduced(READY, TOKENS))
        world.tell(node, ev.AuxProvided(READY))
    ranks = len(world.instances["P"][0].ranks) + len(world.instances["D"][0].ranks)
    world.run(lambda: len(ends) == ranks or world.now > begun + 10 * may)
    assert [(room, cause) for _, room, cause in ends] == [(READY, Cause.NONE)] * len(ends), (case, ends)
    return (world.now - begun if len(ends) == ranks else float("inf")), may


@pytest.mark.parametrize("part", range(PARTS))
def test_every_room_has_a_bounded_time_however_the_machine_is_set(part: int) -> None:
    """Every three values together by day, and all combinations by night."""
    cases = (ALL if NIGHT else day())[part::PARTS]
    late = [(case, took, may) for case in cases for took, may in [seconds_of(case)] if took > may]
    assert not late, late[0]


def test_every_three_values_of_a_machine_meet_by_day() -> None:
    assert meetings(day()) == meetings(ALL) and len(day()) < len(ALL) // 100


@pytest.mark.parametrize("case", CRAWL, ids=str)
def test_unequal_layer_groups_do_not_lock_a_ring_for_one_cell(case: Case) -> None:
    took, may = seconds_of(case)
    assert took <= may


def test_a_ring_that_is_asked_for_before_the_kv_is_there_exceeds_the_bound() -> None:
    """Planted prefetch-starves-ready: the other room's empty regions fill a ring for one cell."""
    cases = [Case((1, 1), 1, 1, 4, 4, 1, "staged", beside=beside) for beside in ("here", "there")]
    with TablePatch() as bench:
        MUTANTS["prefetch-starves-ready"].apply(bench)
        assert [seconds_of(case)[0] for case in cases] == [float("inf")] * len(cases)
    assert all(took <= may for took, may in map(seconds_of, cases))

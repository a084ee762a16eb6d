"""Times of writes correct what the links of a peer are said to cost."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import exp, inf, log

import pytest
from msgspec.structs import replace

from kvproto.data.write_times import (
    FAR,
    LAUNCH,
    MESSAGE,
    MOST,
    NEW,
    PAGES,
    SCATTERS,
    SHORTEST_S,
    STAGED,
    TwoCosts,
    WriteTimes,
)  # fmt: skip
from kvproto.io.transports.base import PeerId
from kvproto.io.transports.nixl import NixlTransport
from kvproto.layout.costs import PROFILES, Costs
from kvproto.layout.sharding import Layout
from kvproto.metrics.metrics import measure
from kvproto.verify.testing.access import inside
from kvproto.verify.testing.pair import SMALL, Pair

PEER, OTHER = PeerId("peer"), PeerId("other")
PROFILE = Costs(piece=1e-6, rate=1e9, piece_rate=1e9)
PIECES, NBYTES = 500, 1 << 20


@dataclass
class Host:
    """A clock that is turned by hand, and what was told."""

    now: float = 100.0
    told: list[tuple[PeerId, Costs]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.times = WriteTimes(lambda: self.now, lambda peer, costs: self.told.append((peer, costs)))

    def write(self, seconds: float, route: str = PAGES, *, pieces: int = PIECES, ok: bool = True) -> None:
        self.times.posted(PEER, route)
        self.now += seconds
        self.times.over(PEER, pieces, NBYTES, ok=ok)

    def write_as_said(self) -> None:
        """A staged write that takes what the profile says."""
        self.write(PROFILE.piece + NBYTES / PROFILE.rate, STAGED, pieces=1)

    @property
    def costs(self) -> Costs:
        return self.times.begin(PEER, PROFILE)


def taken(costs: Costs, pieces: int, nbytes: int) -> float:
    return pieces * costs.piece + nbytes / costs.piece_rate


@pytest.fixture
def host() -> Host:
    made = Host()
    assert made.costs == PROFILE
    return made


@pytest.mark.parametrize(("times", "near"), [(0.02, 0.1), (0.3, 0.1), (5.0, 0.1), (200.0, 0.5)])
def test_pages_cost_after_a_few_rooms_what_they_take(host: Host, times: float, near: float) -> None:
    real = Costs(piece=1e-6 * times, rate=1e9, piece_rate=1e9 / times)
    for _ in range(15):
        for pieces in (PIECES, 4 * PIECES):
            host.write(taken(real, pieces, NBYTES), pieces=pieces)
    assert taken(host.costs, PIECES, NBYTES) == pytest.approx(taken(real, PIECES, NBYTES), rel=near)
    assert host.costs.rate == pytest.approx(PROFILE.rate), "nothing was staged"
    assert host.told[-1] == (PEER, host.costs) and len(host.told) > 1


def test_pieces_and_bytes_are_told_apart_by_writes_of_different_pieces(host: Host) -> None:
    real = Costs(piece=9e-6, rate=1e9, piece_rate=0.5e9)
    for at in range(60):
        pieces = 1 + PIECES * (at % 3)
        host.write(taken(real, pieces, NBYTES), pieces=pieces)
    assert host.costs.piece == pytest.approx(real.piece, rel=0.05)
    assert host.costs.piece_rate == pytest.approx(real.piece_rate, rel=0.1)


@pytest.mark.parametrize("rate", [2e7, 5e10])
def test_the_rate_is_that_of_staged_writes(host: Host, rate: float) -> None:
    for _ in range(40):
        host.write(NBYTES / rate, STAGED, pieces=1)
    assert host.costs.rate == pytest.approx(rate, rel=0.1)
    assert host.costs.piece == pytest.approx(PROFILE.piece), "nothing was written page by page"


def test_what_is_as_it_was_said_is_told_to_nobody(host: Host) -> None:
    for _ in range(20):
        host.write(taken(PROFILE, PIECES, NBYTES))
        host.write(NBYTES / PROFILE.rate, STAGED, pieces=1)
    assert not host.told and host.costs is PROFILE


def test_a_route_that_is_not_taken_is_tried_again(host: Host) -> None:
    dear = 50 * taken(PROFILE, PIECES, NBYTES)
    for _ in range(20):
        host.write(dear)
    assert taken(host.costs, PIECES, NBYTES) > 0.9 * dear
    for _ in range(3000):
        host.write(NBYTES / PROFILE.rate, STAGED, pieces=1)
    assert taken(host.costs, PIECES, NBYTES) < 1.2 * taken(PROFILE, PIECES, NBYTES)


@pytest.mark.parametrize("launch", [8e-5, 4e-3])
def test_a_launch_and_a_copied_byte_cost_what_gathers_take(host: Host, launch: float) -> None:
    copy = PROFILE.copy / 100
    for at in range(80):
        nbytes = NBYTES << (at % 3 * 5)
        host.times.called(PEER, LAUNCH, launch + nbytes / copy, nbytes)
    assert host.costs is PROFILE and not host.told, "each would make all estimates anew"
    host.write_as_said()
    assert host.costs.launch == pytest.approx(launch, rel=0.6)
    assert host.costs.copy == pytest.approx(copy, rel=0.3)
    assert (host.costs.piece, host.costs.message) == (PROFILE.piece, PROFILE.message)


def test_a_gather_of_nothing_says_nothing(host: Host) -> None:
    host.times.called(PEER, LAUNCH, 5.0)
    host.times.called(OTHER, LAUNCH, 5.0, NBYTES)
    host.write_as_said()
    assert not host.told


@pytest.mark.parametrize("seconds", [0.0, 3e-3])
def test_a_region_that_is_waited_for_is_dear_and_one_that_is_there_cheap(host: Host, seconds: float) -> None:
    for _ in range(30):
        host.times.called(PEER, MESSAGE, seconds)
    host.write_as_said()
    assert host.costs.message == pytest.approx(max(seconds, SHORTEST_S), rel=SCATTERS[MESSAGE])
    dear = host.costs.message
    for _ in range(200):
        host.write(NBYTES / PROFILE.rate, STAGED, pieces=1)
    assert host.costs.message == dear, "the ring is in use"
    for _ in range(2000):
        host.write(taken(PROFILE, PIECES, NBYTES))
    near = pytest.approx(PROFILE.message, rel=SCATTERS[MESSAGE])
    assert host.costs.message == near, "forgotten where pages are written"


def test_an_observation_without_a_gap_ends_after_so_many_writes_each_time(host: Host) -> None:
    host.times.posted(PEER, PAGES)
    seen = list[int]()
    for at in range(1, 3 * MOST + 1):
        host.times.posted(PEER, PAGES)
        host.now += 100 * taken(PROFILE, PIECES, NBYTES)
        before = len(host.told)
        host.times.over(PEER, PIECES, NBYTES, ok=True)
        seen += [at] * (len(host.told) > before)
    assert seen == [MOST, 2 * MOST, 3 * MOST]


def test_writes_that_overlap_share_their_time(host: Host) -> None:
    real = taken(PROFILE, PIECES, NBYTES)
    for _ in range(8):
        for _ in range(4):
            host.times.posted(PEER, PAGES)
        for _ in range(4):
            host.now += real
            host.times.over(PEER, PIECES, NBYTES, ok=True)
    assert not host.told, "four took as long as four"


def test_a_peer_that_is_never_without_a_write_is_observed_as_well(host: Host) -> None:
    dear = 10 * taken(PROFILE, PIECES, NBYTES)
    host.times.posted(PEER, PAGES)
    for _ in range(20 * MOST):
        host.times.posted(PEER, PAGES)
        host.now += dear
        host.times.over(PEER, PIECES, NBYTES, ok=True)
    assert taken(host.costs, PIECES, NBYTES) == pytest.approx(dear, rel=0.1)


def test_a_time_of_two_routes_or_with_a_failure_says_nothing(host: Host) -> None:
    for _ in range(10):
        host.write(1e3, ok=False)
        host.write(1e3, "mapped")
        host.times.posted(PEER, STAGED)
        host.write(1e3)
        host.times.over(PEER, 1, NBYTES, ok=True)
        host.times.posted(PEER, PAGES)
        host.write(1e3, STAGED)
        host.times.over(PEER, 1, NBYTES, ok=True)
    assert not host.told


def test_no_time_and_no_piece_say_nothing(host: Host) -> None:
    for _ in range(10):
        host.write(0.0)
        host.write(1.0, pieces=0)
    assert not host.told


def test_a_figure_is_bounded(host: Host) -> None:
    for seconds, bound in ((1e9, exp(FAR)), (1e-12, exp(-FAR))):
        for _ in range(400):
            host.now = 0.0
            host.write(seconds)
            host.write(seconds, STAGED)
        assert PROFILE.piece_rate / host.costs.piece_rate == pytest.approx(bound, rel=NEW)
        assert PROFILE.rate / host.costs.rate == pytest.approx(bound, rel=NEW)
        assert exp(-FAR) <= host.costs.piece / PROFILE.piece <= exp(FAR)


def test_launches_and_messages_that_scatter_a_little_are_no_news(host: Host) -> None:
    for at in range(40):
        host.times.called(PEER, MESSAGE, PROFILE.message * (0.6, 1.6)[at % 2])
        host.times.called(PEER, LAUNCH, PROFILE.launch * (1.6, 0.6)[at % 2], 1)
        host.write_as_said()
    assert not host.told


def test_each_figure_fades_by_itself() -> None:
    line = TwoCosts(1.0, 1.0)
    line.observe(100, 1, 1e6)
    before = line.figures
    line.fade()
    assert [log(after) / log(figure) for after, figure in zip(line.figures, before, strict=True)] == [
        pytest.approx(0.995)] * 2  # fmt: skip
    assert log(before[0]) > 10 * log(before[1]) > 0


def test_of_writes_without_a_gap_each_so_many_are_one_observation(host: Host) -> None:
    for _ in range(3 * MOST):
        host.times.posted(PEER, PAGES)
    for number in range(1, 2 * MOST + 1):
        host.now += 5 * taken(PROFILE, PIECES, NBYTES)
        host.times.over(PEER, PIECES, NBYTES, ok=True)
        assert len(host.told) == number // MOST


def test_what_ends_before_it_was_observed_to_begin_is_none(host: Host) -> None:
    for _ in range(2):
        host.times.over(PEER, PIECES, NBYTES, ok=True)
    host.write(5.0)
    host.write(5.0)
    assert len(host.told) == 2


@pytest.mark.parametrize("profile", [PROFILES["free"], Costs(piece=1e-6)])
def test_a_link_that_costs_nothing_now_has_nothing_left_of_what_it_cost(host: Host, profile: Costs) -> None:
    profile = replace(profile, rate=inf)
    assert host.times.begin(PEER, profile) is profile
    host.write(5.0)
    host.write(5.0, STAGED)
    assert not host.told


def test_one_stall_is_soon_forgotten(host: Host) -> None:
    usual = taken(PROFILE, PIECES, NBYTES)
    host.write(1000 * usual)
    assert usual < taken(host.costs, PIECES, NBYTES) < 2 * usual
    for _ in range(5):
        host.write(usual)
    assert taken(host.costs, PIECES, NBYTES) == pytest.approx(usual, rel=0.12)


def test_bytes_that_cost_nothing_beside_their_pieces_go_on_to_do_so() -> None:
    line = TwoCosts(1e-6, 0.0)
    for _ in range(30):
        line.observe(PIECES, NBYTES, 1e-2)
    piece, byte = line.figures
    assert piece == pytest.approx(1e-2 / PIECES, rel=0.01) and not byte
    host = Host()
    assert host.times.begin(PEER, PROFILES["rdma"]) == PROFILES["rdma"]
    host.write(1.0)
    assert host.told[-1][1].piece_rate == inf


def test_who_is_not_observed_is_none_of_our_business() -> None:
    host = Host()
    for profile in (PROFILES["free"], PROFILES["mapped"]):
        assert host.times.begin(PEER, profile) is profile
        host.write(5.0)
    assert host.times.begin(PEER, PROFILE) is PROFILE
    host.write(5.0)
    assert host.costs is not PROFILE, "it is known from before"
    assert host.times.begin(OTHER, PROFILE) is PROFILE
    host.times.over(OTHER, 1, 1, ok=True)
    host.times.forget(PEER)
    host.write(5.0)
    assert len(host.told) == 1 and host.costs is PROFILE


def test_another_profile_begins_anew(host: Host) -> None:
    host.write(5.0)
    assert host.times.begin(PEER, PROFILES["tcp"]) is PROFILES["tcp"]
    assert host.costs is PROFILE


class NixlPair(Pair):
    """Over NIXL, between two agents of this process."""

    def transport(self) -> NixlTransport:
        """Every rank has an agent of its own."""
        return NixlTransport()


def test_rooms_over_nixl_correct_a_profile_that_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = Costs(piece=1e-9, rate=4e9, piece_rate=1e15)
    monkeypatch.setitem(PROFILES, "shm", wrong)
    layout = Layout(layers=2, heads=2, k_dim=8, v_dim=8, itemsize=2, dtype="bfloat16", page_size=4, tp=1)
    with NixlPair(layout, layout, chunk_tokens=8, pages=128) as pair:
        (link,) = inside(pair.prefills[0]).rank.peers.values()
        assert link.costs == wrong
        rooms = []
        for _ in range(12):
            rooms.append(pair.open(16))
            pair.finish(rooms[-1])
        pair.check(*rooms)
        assert inside(pair.prefills[0]).data.stats["direct"] > 0, "it went page to page, by what was said of pages"
        assert link.costs.piece > 100 * wrong.piece
        told = {each.labels[2]: each.value for each in measure(pair.prefills[0]) if each.name == "kvproto_cost_seconds"}
        assert told["piece"] == link.costs.piece


@pytest.mark.parametrize("ahead", [False, True], ids=["asked for when it is ready", "granted ahead"])
def test_rooms_of_the_ring_tell_what_launches_and_messages_cost(*, ahead: bool) -> None:
    layout = Layout(layers=2, heads=2, k_dim=8, v_dim=8, itemsize=2, dtype="bfloat16", page_size=4, tp=1)
    with NixlPair(layout, layout, chunk_tokens=64, pages=128, settings=replace(SMALL, route="staged")) as pair:
        (link,) = inside(pair.prefills[0]).rank.peers.values()
        for _ in range(12):
            room = pair.open(16) if ahead else pair.name(16)
            if not ahead:
                pair.open_decode(room)
                pair.prefills[0].open(room, 16, pair.tables[room][0])
            pair.settle(looks=2)
            pair.finish(room)
        assert link.costs is not None
        assert link.costs.launch != PROFILES["shm"].launch and link.costs.message != PROFILES["shm"].message
        assert not ahead or link.costs.message < PROFILES["shm"].message

"""Data-parallel attention in SGLang's backend: a card and a group a rank, and rooms that stray."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Callable
from functools import partial
from itertools import count
from queue import Empty
from types import SimpleNamespace
from typing import Any, Self

import msgspec
import pytest
from support.scripted_sglang import Request, SGLang

from kvproto import Layout
from kvproto.adapters.card import MAX_DATA_PARALLEL, data_parallel_group, group_of
from kvproto.adapters.card_trust import CardTrust
from kvproto.adapters.sglang import room_reporter
from kvproto.adapters.sglang.bootstrap import KVProtoBootstrapServer, signature_of
from kvproto.adapters.sglang.bootstrap_ranks import Rank, Ranks, TakenError
from kvproto.adapters.sglang.room_directory import ALL, AWAITED_S, KEPT_S, MOST, RoomDirectory, RoomReport
from kvproto.adapters.sglang.room_reporter import RoomReporter
from kvproto.errors import ArgumentError
from kvproto.io.clock import ManualClock
from kvproto.io.transports.fabric import Fabric

ROOMS = count(1)
LAYOUT = Layout(layers=2, heads=4, k_dim=8, v_dim=8, itemsize=1, dtype="bf16", page_size=16, tp=2)


class Fleet:
    """A prefill and a decode instance of (data-parallel ranks, attention ranks in each)."""

    def __init__(self, prefill: tuple[int, int], decode: tuple[int, int], *, by_room: bool = True) -> None:
        self.fabric, self.http = Fabric(auto=True), KVProtoBootstrapServer("127.0.0.1", 0)
        self.server = f"127.0.0.1:{self.http.port}"
        self.prefills, self.decodes = (
            [
                SGLang(self.fabric, side, tp, 4, 8, self.server, data_parallel=dp, dp_rank=rank, by_room=by_room)
                for rank in range(dp)
            ]
            for side, (dp, tp) in (("prefill", prefill), ("decode", decode))
        )

    def run(self, done: Callable[[], bool] | None = None, seconds: float = 20.0) -> None:
        """All schedulers, until nothing is under way, or as `done` says."""
        end, sides = time.monotonic() + seconds, [*self.prefills, *self.decodes]
        while not (done or (lambda: not any(side.live for side in sides)))():
            for side in sides:
                side.turn()
            live = [(side.side, each.room, each.at) for side in sides for each in side.live]
            assert time.monotonic() < end, f"not over after {seconds} s: {live}"
            time.sleep(1e-4)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.http.close()
        for side in [*self.prefills, *self.decodes]:
            side.close()


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room_reporter, "LOOK_S", 0.02)


# ------------------------------------------------------------------------------------------- what arrives
SHAPES = [((1, 2), (2, 1)), ((2, 1), (1, 2)), ((2, 1), (2, 1)), ((2, 2), (1, 1))]


@pytest.mark.parametrize(("prefill", "decode"), SHAPES)
def test_rooms_are_carried_between_data_parallel_ranks(prefill: tuple[int, int], decode: tuple[int, int]) -> None:
    with Fleet(prefill, decode) as fleet:
        for at in range(6):
            room = next(ROOMS)
            fleet.prefills[room % prefill[0]].add(Request(room, 20 + 13 * at))
            fleet.decodes[at % decode[0]].add(Request(room, 20 + 13 * at))
        fleet.run()
        assert {how for side in [*fleet.prefills, *fleet.decodes] for how in side.ended.values()} == {"well"}


def test_a_decode_instance_that_cannot_compute_the_rank_asks_for_it_and_is_answered_at_once() -> None:
    with Fleet((2, 1), (1, 1), by_room=False) as fleet:
        for at in (1, 0, 0, 1):
            room = next(ROOMS)
            fleet.prefills[at].add(Request(room, 40))
            fleet.decodes[0].add(Request(room, 40))
        fleet.run()
        assert set(fleet.decodes[0].ended.values()) == {"well"}


def test_a_rank_that_the_router_names_to_both_is_taken_wherever_the_room_would_be() -> None:
    with Fleet((2, 1), (1, 1)) as fleet:
        for _ in range(2):
            room = next(ROOMS)
            fleet.prefills[1].add(Request(room, 40, told=1))
            fleet.decodes[0].add(Request(room, 40, told=1))
        fleet.run()
        assert set(fleet.decodes[0].ended.values()) == {"well"}


# ----------------------------------------------------------------------------------------- what goes astray
@pytest.mark.parametrize("named", ["decode", "both"])
def test_a_room_that_is_awaited_at_another_rank_fails_at_once_on_both_sides(named: str) -> None:
    with Fleet((2, 1), (1, 1)) as fleet:
        room = 2 * next(ROOMS)
        fleet.prefills[0].add(Request(room, 40, told=0 if named == "both" else None))
        fleet.decodes[0].add(Request(room, 40, told=1))
        fleet.run(seconds=10.0)
        at_decode, at_prefill = fleet.decodes[0].ended[room], fleet.prefills[0].ended[room]
        assert "the prefill instance has the request at data-parallel rank 0, not at 1" in at_decode
        assert "the decode instance awaits the room at data-parallel rank 1, not at 0" in at_prefill
        assert "disagg_prefill_dp_rank" in at_decode and "disagg_prefill_dp_rank" in at_prefill


def test_a_request_that_was_sent_where_no_decode_instance_looks_fails_before_anybody_waits() -> None:
    with Fleet((2, 1), (1, 1)) as fleet:
        room = 2 * next(ROOMS)
        fleet.prefills[1].add(Request(room, 40))
        fleet.prefills[1].turn()
        assert "awaits the room at data-parallel rank 0, not at 1" in fleet.prefills[1].ended[room]


def test_a_decode_instance_that_waits_hears_of_a_request_that_failed_elsewhere_before_it_was_reported() -> None:
    with Fleet((2, 1), (1, 1)) as fleet:
        room = 2 * next(ROOMS)
        fleet.decodes[0].add(Request(room, 40))
        fleet.run(lambda: any(each.at == "transfer" for each in fleet.decodes[0].live))
        fleet.prefills[1].add(Request(room, 40))
        fleet.run(seconds=10.0)
        assert "the prefill instance has the request at data-parallel rank 1, not at 0" in fleet.decodes[0].ended[room]


def test_a_rank_that_the_prefill_instance_has_not_is_refused_by_its_number() -> None:
    with Fleet((2, 1), (1, 1)) as fleet:
        fleet.decodes[0].add(Request(next(ROOMS), 40, told=2))
        fleet.run(seconds=10.0)
        (why,) = fleet.decodes[0].ended.values()
        assert "has 2 data-parallel ranks, counted from 0: there is no 2" in why


# -------------------------------------------------------------------------------------------- the bootstrap
def rank(dp_rank: int, index: int, data_parallel: int = 2, by_room: bool = True) -> bytes:
    address = f"tcp://127.0.0.1:{6000 + 10 * dp_rank + index}"
    return msgspec.json.encode(Rank(index, address, 7, 1, LAYOUT, 64, dp_rank, data_parallel, by_room))


def test_each_data_parallel_rank_has_a_card_when_all_ranks_of_all_are_there() -> None:
    ranks = Ranks()
    for place in ((1, 0), (0, 1), (1, 1)):
        ranks.put(rank(*place))
        assert ranks.card() is None and ranks.card(1) is None
    ranks.put(rank(0, 0))
    zero, one = ranks.card(), ranks.card(1)
    assert zero is not None and one is not None
    assert [card.addresses[1] for card in (zero, one)] == ["tcp://127.0.0.1:6001", "tcp://127.0.0.1:6011"]
    assert (zero.group, one.group) == (data_parallel_group(7, 0, 2), data_parallel_group(7, 1, 2))
    assert (one.data_parallel, one.by_room) == (2, True)
    with pytest.raises(ArgumentError, match="data-parallel rank 2: this instance has 2, counted from 0"):
        ranks.card(2)


@pytest.mark.parametrize("other", [{"data_parallel": 4}, {"by_room": False}])
def test_ranks_of_one_server_agree_on_data_parallelism(other: dict[str, Any]) -> None:
    ranks = Ranks()
    ranks.put(rank(1, 0))
    with pytest.raises(TakenError, match="as another instance or layout"):
        ranks.put(rank(0, 1, **other))


@pytest.mark.parametrize("numbers", [(2, 2), (-1, 2), (0, 0), (0, MAX_DATA_PARALLEL + 1)])
def test_a_number_that_no_data_parallel_rank_has_is_refused(numbers: tuple[int, int]) -> None:
    with pytest.raises(ArgumentError, match=f"data-parallel rank {numbers[0]} of {numbers[1]}"):
        Ranks().put(rank(numbers[0], 0, numbers[1]))


def test_an_instance_of_one_rank_keeps_the_group_of_its_name() -> None:
    assert data_parallel_group(7, 0, 1) == 7
    assert len({7, *(data_parallel_group(7, at, 2) for at in range(2)), group_of("7_dp2")}) == 4


@pytest.mark.parametrize(
    ("method", "path", "body", "answer"),
    [
        ("GET", "/card?dp_rank=one", b"", "400 GET /card?dp_rank=NUMBER"),
        ("GET", "/card?dp_rank=1234567", b"", "400 GET /card?dp_rank=NUMBER"),
        ("GET", "/card?dp_rank=1", b"", "503 some prefill rank has not announced itself"),
        ("POST", "/query_dp_ranks", b'{"bootstrap_rooms": [3, 4]}', '200 {"3": 1}'),
        ("POST", "/query_dp_ranks", b'{"bootstrap_rooms": [-1]}', "400 this is no query of rooms"),
        ("POST", "/register_dp_rank", b'{"dp_rank": 0, "awaited": [3]}', '200 {"3": 1}'),
        ("POST", "/register_dp_rank", b'{"dp_rank": -1}', "400 this is no report of rooms"),
        ("POST", "/register_dp_rank", b'{"more": ' + b"[" * 100_000, "400 this is no report of rooms"),
        ("POST", "/query_dp_ranks", b'{"more": ' + b"[" * 100_000, "400 this is no query of rooms"),
        ("POST", "/elsewhere", b"{}", "404 GET /card"),
    ],
)
def test_the_routes_of_data_parallel_ranks_answer(method: str, path: str, body: bytes, answer: str) -> None:
    server = KVProtoBootstrapServer("127.0.0.1", 0)
    try:
        server.rooms.report(msgspec.json.encode(RoomReport(1, (3,))))
        line = http.client.HTTPConnection("127.0.0.1", server.port, timeout=5.0)
        line.request(method, path, body)
        told = line.getresponse()
        assert f"{told.status} {told.read().decode()}".startswith(answer)
        line.close()
    finally:
        server.close()


def test_with_a_card_secret_a_report_must_be_signed() -> None:
    trust = CardTrust(b"0123456789abcdef")
    server, body = KVProtoBootstrapServer("127.0.0.1", 0), msgspec.json.encode(RoomReport(1, (3,)))
    try:
        server.ranks.trust = trust
        for headers, status in (({}, 400), (signature_of(body, trust), 200)):
            line = http.client.HTTPConnection("127.0.0.1", server.port, timeout=5.0)
            line.request("POST", "/register_dp_rank", body, headers)
            assert line.getresponse().status == status
            line.close()
    finally:
        server.close()


# ------------------------------------------------------------------------------------------- the directory
def test_both_halves_of_a_room_are_told_where_the_other_is() -> None:
    directory = RoomDirectory()
    assert directory.report(msgspec.json.encode(RoomReport(0, (5, 6)))) == {}
    assert directory.report(msgspec.json.encode(RoomReport(1, (), (5,)))) == {"5": 0}
    assert directory.report(msgspec.json.encode(RoomReport(0, (5, 6)))) == {"5": 1}
    assert directory.find(b'{"bootstrap_rooms": [5, 6, 7]}') == {"5": 0, "6": 0}


def test_a_room_that_is_sent_again_is_not_held_to_where_it_was_awaited_before() -> None:
    clock = ManualClock()
    directory = RoomDirectory(clock.now)
    directory.report(msgspec.json.encode(RoomReport(1, (), (5,))))
    assert directory.report(msgspec.json.encode(RoomReport(0, (5,)))) == {"5": 1}
    clock.advance(AWAITED_S + 0.1)
    assert directory.report(msgspec.json.encode(RoomReport(0, (5,)))) == {}


def test_the_directory_forgets_what_is_old_and_what_is_too_much() -> None:
    clock = ManualClock()
    directory = RoomDirectory(clock.now)
    directory.report(msgspec.json.encode(RoomReport(0, (1,))))
    clock.advance(KEPT_S + 1.0)
    directory.report(msgspec.json.encode(RoomReport(0, (2,))))
    assert directory.find(b'{"bootstrap_rooms": [1, 2]}') == {"2": 0}
    for first in range(10, 10 + ALL + MOST, MOST):
        directory.report(msgspec.json.encode(RoomReport(1, tuple(range(first, first + MOST)))))
    assert len(directory._at) == ALL and directory.find(b'{"bootstrap_rooms": [2]}') == {}
    with pytest.raises(ArgumentError, match="this is no report of rooms"):
        directory.report(msgspec.json.encode(RoomReport(0, tuple(range(MOST + 1)))))


# -------------------------------------------------------------------------------------------- the reporter
def test_a_reporter_says_nothing_while_nothing_waits_and_outlives_a_server_that_does_not_answer() -> None:
    sent: list[bytes] = []
    refused: list[tuple[int, int]] = []

    def send(body: bytes) -> tuple[int, bytes]:
        sent.append(body)
        if len(sent) == 1:
            raise ConnectionRefusedError
        return 200, b'{"8": 1, "9": 1, "10": 0}'

    made = RoomReporter(0, send, list, lambda *each: refused.append(each))
    made.report(set(), set())
    assert sent == []
    made.add(8, at_once=False)
    made.report({8}, {9})
    assert (made.elsewhere(8), refused) == (None, [])
    made.report({8, 10}, {9})
    assert (made.elsewhere(8), made.elsewhere(10), refused) == (1, None, [(9, 1)])
    made.forget(8)
    assert made.elsewhere(8) is None


def test_a_room_that_is_over_before_it_was_reported_is_reported_until_it_was_heard() -> None:
    answers, sent = [503, 200, 200], list[bytes]()

    def send(body: bytes) -> tuple[int, bytes]:
        sent.append(body)
        if len(sent) == len(answers):
            reporter.stop()
        return answers[len(sent) - 1], b"{}"

    reporter = RoomReporter(1, send, lambda: {9}, lambda _room, _place: None)
    reporter.add(7, at_once=True)
    reporter.forget(7)
    reporter.start()
    reporter.join(10.0)
    rooms = [json.loads(body)["rooms"] for body in sent]
    assert rooms == [[7], [7], []], "the first answer was none"


def test_a_reporter_ends_when_it_is_told_to_or_its_rank_does() -> None:
    for lives in (partial(bool, 1), partial(bool, 0)):
        made = RoomReporter(0, lambda _: (200, b"{}"), list, lambda *_: None, lives)
        made.start()
        made.stop()
        made.join(5.0)
        assert not made.is_alive()


def test_rooms_that_are_reported_at_once_wake_the_reporter_and_are_bounded() -> None:
    made: Any = RoomReporter(0, lambda _: (200, b"{}"), list, lambda *_: None)
    assert made.daemon
    made.add(1, at_once=False)
    assert made._wakes.empty()
    for room in range(2, MOST + 2):
        made.add(room, at_once=True)
    assert made._wakes.qsize() == 1 and len(made._once) == MOST
    made.add(MOST + 2, at_once=True)
    assert len(made._once) == MOST and 2 not in made._once, "the oldest is forgotten"
    made._wakes.get()
    assert not made._over
    made.stop()
    assert made._wakes.qsize() == 1 and made._over


def test_a_reporter_waits_for_news_and_looks_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    lives, seen, waits = iter((True, True, False)), list[tuple[set[int], set[int]]](), list[float]()
    made = RoomReporter(0, lambda _: (200, b"{}"), lambda: {3, 4}, lambda *_: None, lambda: next(lives))

    def get(timeout: float) -> None:
        waits.append(timeout)
        if len(waits) == 2:
            raise Empty

    monkeypatch.setattr(made, "_wakes", SimpleNamespace(get=get, empty=lambda: True, put=lambda _: None))
    monkeypatch.setattr(made, "report", lambda rooms, awaited: seen.append((rooms, awaited)))
    made.add(3, at_once=True)
    made.add(5, at_once=False)
    made._refused = {4, 9}
    made.run()
    assert waits == [room_reporter.LOOK_S] * 2
    assert seen == [({5}, set())] * 2 and made._refused == {4}


def test_a_room_that_is_refused_here_is_refused_once_and_the_rest_of_an_answer_counts() -> None:
    refused = list[tuple[int, int]]()
    made = RoomReporter(0, lambda _: (200, b'{"7": 0, "8": 1, "9": 1}'), list, lambda *each: refused.append(each))
    made.add(9, at_once=False)
    made.report({9}, {7, 8})
    assert refused == [(8, 1)] and made._refused == {8} and made.elsewhere(9) == 1 and made.elsewhere(7) is None


def test_a_room_that_is_reported_again_is_the_newest_that_the_directory_has() -> None:
    clock = ManualClock()
    directory = RoomDirectory(clock.now)
    for room in (1, 2):
        directory.report(msgspec.json.encode(RoomReport(0, (room,))))
    clock.advance(KEPT_S - 1.0)
    directory.report(msgspec.json.encode(RoomReport(0, (1,))))
    clock.advance(1.0)
    directory.report(msgspec.json.encode(RoomReport(0, ())))
    assert [*directory._at] == [2, 1], "it is no older than what is kept"
    clock.advance(0.5)
    directory.report(msgspec.json.encode(RoomReport(0, ())))
    assert [*directory._at] == [1]

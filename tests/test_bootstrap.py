"""The bootstrap server over real HTTP: registration, kept places, and recovery."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from http import HTTPStatus
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from msgspec.structs import replace

from kvproto import Layout
from kvproto.adapters.card import MAX_TEXT, Card
from kvproto.adapters.card_trust import SECRET_FILE, CardTrust
from kvproto.adapters.sglang import bootstrap, http_server
from kvproto.adapters.sglang.bootstrap import SIGNATURE, Announcer, Cards, KVProtoBootstrapServer, announce
from kvproto.adapters.sglang.bootstrap_ranks import LIVES_S, Rank, Ranks
from kvproto.adapters.sglang.http_server import HEAD, HttpServer
from kvproto.adapters.sglang.lacking_cards import GONE_S, LackingCards
from kvproto.errors import ArgumentError
from kvproto.io.clock import ManualClock

HELD = Layout(layers=2, heads=4, k_dim=8, v_dim=8, itemsize=2, dtype="bfloat16", page_size=4, tp=2)
LOG = logging.getLogger("test.bootstrap")


def ranks_of(group: int, port: int, incarnation: int = 100) -> list[Rank]:
    return [Rank(at, f"tcp://10.0.0.1:{port + at}", group, incarnation, HELD, 8) for at in range(2)]


ONE, TWO = ranks_of(1, 5000), ranks_of(2, 6000, 101)


class Server:
    """A server whose time stands, and what it is asked."""

    def __init__(self, port: int = 0) -> None:
        self.server, self.clock = KVProtoBootstrapServer("127.0.0.1", port), ManualClock(100.0)
        self.server.ranks._clock = self.clock.now
        self.where = f"127.0.0.1:{self.server.port}"

    def ask(self, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None) -> str:
        line = http.client.HTTPConnection(self.where, timeout=5)
        line.request(method, path, body, headers or {})
        answer = line.getresponse()
        found = f"{answer.status} {answer.read().decode()}"
        line.close()
        return found

    def put(self, rank: Rank, headers: dict[str, str] | None = None) -> str:
        return self.ask("PUT", "/rank", msgspec.json.encode(rank), headers)

    def register(self, *ranks: Rank) -> list[Rank]:
        """These ranks, with the nonces that they were given."""
        found = []
        for rank in ranks:
            status, _, nonce = self.put(rank).partition(" ")
            assert status == "200", nonce
            found.append(replace(rank, nonce=nonce))
        return found

    def card(self) -> Card | None:
        status, _, text = self.ask("GET", "/card").partition(" ")
        return Card.decode(text) if int(status) == HTTPStatus.OK else None


@pytest.fixture
def at() -> Iterator[Server]:
    made = Server()
    yield made
    made.server.close()


def until(done: Callable[[], object]) -> None:
    end = time.monotonic() + 10.0
    while not done():
        assert time.monotonic() < end
        time.sleep(0.005)


@pytest.fixture
def announcers(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Announcer]]:
    """Announcers that end with the test, and beat quickly."""
    monkeypatch.setattr(bootstrap, "BEAT", 0.02)
    monkeypatch.setattr(bootstrap, "AGAIN", 0.02)
    made = list[Announcer]()
    yield made
    for each in made:
        each.stop()
        each.join(5.0)
        assert not each.is_alive()


# -------------------------------------------------------------------------------------- who keeps a place
def test_ranks_of_another_group_are_refused_by_name_while_the_first_one_lives(at: Server) -> None:
    first = at.register(*ONE)
    for other in TWO:
        assert at.put(other).startswith("409 prefill rank")
        assert "--disaggregation-bootstrap-port of its own" in at.put(other)
    at.clock.advance(LIVES_S - 1.0)
    at.register(*first)
    at.clock.advance(LIVES_S - 1.0)
    assert at.put(TWO[0]).startswith("409")
    card = at.card()
    assert card is not None and (card.group, card.addresses) == (1, tuple(rank.address for rank in ONE))


def test_one_rank_that_lives_keeps_the_server_for_its_group(at: Server) -> None:
    at.register(ONE[0])
    assert at.put(TWO[1]).startswith("409 group 1 is registered here and lives")
    assert at.card() is None


def test_the_place_of_an_instance_that_has_ended_is_free(at: Server) -> None:
    at.register(*ONE)
    at.clock.advance(LIVES_S + 0.1)
    at.register(TWO[0])
    assert at.card() is None, "nothing of the former instance is left"
    at.register(TWO[1])
    card = at.card()
    assert card is not None and card.group == 2


@pytest.mark.parametrize(
    "change",
    [{}, {"nonce": "guess"}, {"nonce": "ä"}, {"address": "tcp://10.9.9.9:1"}, {"incarnation": 1 << 40},
     {"chunk_tokens": 16},
     {"layout": replace(HELD, tp=4), "rank": 3}, {"layout": replace(HELD, heads=8)}],
)  # fmt: skip
def test_a_stranger_s_announcement_changes_nothing(at: Server, change: dict[str, object]) -> None:
    at.register(*ONE)
    before = at.card()
    assert before is not None
    assert at.put(replace(ONE[0], **change)).startswith("409")
    assert at.card() == before


def test_who_shows_the_nonce_changes_its_own_place(at: Server) -> None:
    first, _ = at.register(*ONE)
    moved = replace(first, address="tcp://10.0.0.1:7000", incarnation=102)
    assert at.register(moved)[0].nonce == first.nonce
    card = at.card()
    assert card is not None and (card.addresses[0], card.incarnation) == ("tcp://10.0.0.1:7000", 102)
    assert at.put(replace(ONE[1], nonce=first.nonce)).startswith("409"), "a nonce is for one rank"


@pytest.mark.parametrize("length", ["many", "-1", "0", "9" * 20, "\uff11"])
def test_a_length_that_is_none_is_refused(at: Server, length: str) -> None:
    line = http.client.HTTPConnection(at.where, timeout=5)
    line.putrequest("PUT", "/rank")
    line.putheader("Content-Length", length.encode())
    line.endheaders()
    assert line.getresponse().status == HTTPStatus.BAD_REQUEST


# ------------------------------------------------------------------------------------ what comes back by itself
def test_an_entry_that_was_wiped_comes_back(at: Server, announcers: list[Announcer]) -> None:
    announcers += [announce(at.where, rank, LOG) for rank in ONE]
    until(at.card)
    at.server.ranks._known.clear()
    until(at.card)


def test_a_server_that_starts_anew_knows_the_ranks_again(
    announcers: list[Announcer], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    first = Server()
    announcers += [announce(first.where, rank, LOG) for rank in ONE]
    until(first.card)
    first.server.close()
    second = Server(first.server.port)
    try:
        until(second.card)
        until(lambda: "has started anew, or has lost this rank" in caplog.text)
    finally:
        second.server.close()


def test_a_second_instance_is_told_at_once_and_has_the_server_when_the_first_has_ended(
    at: Server, announcers: list[Announcer], caplog: pytest.LogCaptureFixture
) -> None:
    at.register(*ONE)
    announcers += [announce(at.where, rank, LOG) for rank in TWO]
    until(lambda: sum("cannot announce" in each.message for each in caplog.records) == len(TWO))
    time.sleep(0.1)
    assert len(caplog.records) == len(TWO), "the same refusal is logged once"
    at.clock.advance(LIVES_S + 0.1)
    until(lambda: (card := at.card()) is not None and card.group == 2)


def test_a_rank_shows_the_nonce_that_it_was_given(at: Server) -> None:
    announcer = Announcer(at.where, ONE[0], LOG)
    assert [announcer._tell(), announcer._tell()] == [(HTTPStatus.OK, "")] * 2


def test_what_failed_is_announced_again_soon_and_what_lives_as_long_as_it_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers, waits = [(0, "nobody there"), (HTTPStatus.OK, ""), (HTTPStatus.OK, "")], list[float]()
    announcer = Announcer("here", ONE[0], LOG, lives=lambda: bool(answers))
    monkeypatch.setattr(announcer, "_tell", lambda: answers.pop(0))
    monkeypatch.setattr(announcer._over, "wait", waits.append)
    announcer.run()
    assert waits == [bootstrap.AGAIN, bootstrap.BEAT, bootstrap.BEAT] and bootstrap.AGAIN < bootstrap.BEAT


def test_a_card_is_asked_for_once_a_second_and_stays_where_there_is_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    card, now, asked = Card(1, 100, HELD, 8, ("tcp://a:1", "tcp://a:2")), [100.0], list[str]()
    answers: list[Card | str] = [card, "it does not answer", replace(card, incarnation=101)]

    def submit(_fetch: object, address: str, _dp_rank: int) -> Future[Card | str]:
        asked.append(address)
        answer = Future[Card | str]()
        answer.set_result(answers[len(asked) - 1])
        return answer

    monkeypatch.setattr(bootstrap, "time", SimpleNamespace(monotonic=lambda: now[0]))
    cards, found = Cards(), list[object]()
    monkeypatch.setattr(cards, "_threads", SimpleNamespace(submit=submit))
    assert cards.get("here") == card
    for count in (2, 3):
        now[0] += bootstrap.AGAIN
        cards.get("here", again=True)
        found.append(cards.get("here", again=True))
        assert len(asked) == count
    assert found == [card, replace(card, incarnation=101)], "what fails displaces no card, and another card does"


def test_an_instance_is_gone_when_nobody_has_answered_for_long_while_it_was_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    card, now = Card(1, 100, HELD, 8, ("tcp://a:1", "tcp://a:2")), [100.0]
    answers: list[Card | str] = [card, *["refused"] * 60, card, "refused"]
    found = list[str]()

    def submit(_fetch: object, _address: str, _dp_rank: int) -> Future[Card | str]:
        answer = Future[Card | str]()
        answer.set_result(answers.pop(0))
        return answer

    def ask_for(seconds: float) -> str:
        """Ask once a second."""
        for _ in range(round(seconds)):
            now[0] += bootstrap.AGAIN
            cards.get("here", again=True)
        assert cards.get("here") == card
        return cards.gone("here")

    monkeypatch.setattr(bootstrap, "time", SimpleNamespace(monotonic=lambda: now[0]))
    cards = Cards()
    monkeypatch.setattr(cards, "_threads", SimpleNamespace(submit=submit))
    cards.get("here")
    assert [ask_for(GONE_S), ask_for(2.0)] == ["", "refused"] and cards.gone("elsewhere") == ""
    now[0] += 2 * GONE_S
    assert [cards.gone("here"), ask_for(GONE_S), ask_for(2.0)] == ["", "", "refused"], "what was long ago is no answer"
    found += [ask_for(1.0) for _ in range(len(answers))]
    assert found[-3:] == ["refused", "", ""], "a card ends the count"


def test_a_server_lacks_cards_from_the_moment_on_and_until_another_one() -> None:
    lacking, server = LackingCards(), ("here", 0)
    for when in (0.0, GONE_S):
        lacking.note(server, when, "refused")
    assert lacking.why(server, 2 * GONE_S) == "refused"
    assert lacking.why(server, 2 * GONE_S + 0.001) == ""
    lacking.forget(server)
    lacking.note(server, GONE_S + 1.0, "refused")
    assert lacking.why(server, GONE_S + 1.0) == ""


def test_of_addresses_without_number_the_oldest_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bootstrap, "KEPT", 2)
    cards = Cards()
    monkeypatch.setattr(cards, "_threads", SimpleNamespace(submit=lambda *_: Future[Card | str]()))
    for address in ("a", "b", "c"):
        cards.get(address)
    assert [address for address, _ in cards._asked] == ["b", "c"]


def test_servers_that_do_not_answer_hold_up_no_other(at: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bootstrap, "ANSWER", 1.0)
    at.register(*ONE)
    with socket.create_server(("127.0.0.1", 0)) as silent:  # the system takes its connections, and nobody reads them
        cards, where = Cards(), f"127.0.0.1:{silent.getsockname()[1]}"
        for dp_rank in range(bootstrap.ASKERS - 1):
            assert cards.get(where, dp_rank) is None
        assert isinstance(cards.get(at.where, wait=0.9 * bootstrap.ANSWER), Card)
        until(lambda: "timed out" in str(cards.get(where)))


def test_an_answer_that_trickles_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bootstrap, "ANSWER", 0.2)
    over = threading.Event()

    def trickle(listener: socket.socket) -> None:
        line, _ = listener.accept()
        with line, contextlib.suppress(OSError):
            line.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
            while not over.wait(0.02):
                line.sendall(b" ")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=trickle, args=(listener,), daemon=True).start()
        cards, where = Cards(), f"127.0.0.1:{listener.getsockname()[1]}"
        until(lambda: "timed out" in str(cards.get(where)))
        over.set()


class Trickle:
    """A connection of which each byte takes a second."""

    def __init__(self, piece: bytes = b"x") -> None:
        self.now, self.piece, self.timeouts = 0.0, piece, list[float]()

    def settimeout(self, timeout_s: float) -> None:
        self.timeouts.append(timeout_s)

    def recv(self, _most: int) -> bytes:
        self.now += 1.0
        return self.piece


def read(line: Trickle, monkeypatch: pytest.MonkeyPatch) -> bytes:
    monkeypatch.setattr(bootstrap, "time", SimpleNamespace(monotonic=lambda: line.now))
    return bootstrap._read(cast("socket.socket", line))


def test_an_answer_has_its_time_in_all_and_each_byte_what_is_left_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    line = Trickle()
    monkeypatch.setattr(bootstrap, "ANSWER", 3.0)
    with pytest.raises(TimeoutError, match="timed out"):
        read(line, monkeypatch)
    assert line.timeouts == [3.0, 2.0, 1.0, bootstrap.SHORTEST]


def test_the_longest_answer_is_read_with_its_head_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bootstrap, "ANSWER", 1e6)
    most = MAX_TEXT + HEAD
    assert most <= len(read(Trickle(bytes(HEAD)), monkeypatch)) < most + HEAD


def test_whoever_has_asked_closes_and_says_so(at: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    heard = list[object]()

    class Line(http.client.HTTPConnection):
        def request(self, method: str, url: str, body: Any = None, headers: Any = None, **more: Any) -> None:
            heard.append(dict(headers))
            super().request(method, url, body, headers, **more)

        def close(self) -> None:
            heard.append("closed")
            super().close()

    monkeypatch.setattr(http.client, "HTTPConnection", Line)
    assert bootstrap.ask(at.where, "GET", "/health", headers={"X-One": "1"}) == (200, b"kvproto")
    assert heard == [{"X-One": "1", "Connection": "close"}, "closed"]


def test_a_rank_is_put_to_its_place_and_with_a_body(at: Server) -> None:
    for path, body in (("/rank", b""), ("/elsewhere", msgspec.json.encode(ONE[0]))):
        assert at.ask("PUT", path, body) == "400 PUT /rank, with a rank as JSON"


def test_announcing_ends_when_it_is_told_to(at: Server) -> None:
    announcer = announce(at.where, ONE[0], LOG)
    announcer.stop()
    announcer.join(5.0)
    assert announcer not in threading.enumerate()


# ----------------------------------------------------------------------------------------------- connections
def test_idle_connections_take_no_threads_and_no_answer_from_others(at: Server) -> None:
    before = threading.active_count()
    idle = [socket.create_connection(("127.0.0.1", at.server.port)) for _ in range(200)]
    try:
        at.register(*ONE)
        card = at.card()
        assert card is not None and card.group == 1
        assert threading.active_count() <= before
    finally:
        for each in idle:
            each.close()


def test_a_connection_beyond_the_bound_is_refused_and_the_next_one_is_answered() -> None:
    server = HttpServer("127.0.0.1", 0, lambda *_: (HTTPStatus.OK, "here"), longest=8, connections=2)
    try:
        idle = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(2)]
        until(lambda: asked(server.port).startswith("503 more than 2 connections"))
        idle.pop().close()
        until(lambda: asked(server.port) == "200 here")
        idle.pop().close()
    finally:
        server.close()
        server.close()
    assert not server.is_alive()


def test_a_caller_that_does_not_read_keeps_no_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "SECONDS", 0.2)
    text = "x" * (1 << 25)  # more than the system takes
    asked_for = threading.Event()

    def respond(*_: object) -> tuple[HTTPStatus, str]:
        asked_for.set()
        return HTTPStatus.OK, text

    server = HttpServer("127.0.0.1", 0, respond, longest=8)
    try:
        with socket.create_connection(("127.0.0.1", server.port), timeout=10.0) as line:
            line.sendall(b"GET /card HTTP/1.1\r\n\r\n")
            assert asked_for.wait(10.0)
            until(lambda: server._open == 0)
            read = 0
            with contextlib.suppress(ConnectionError):
                while piece := line.recv(1 << 20):
                    read += len(piece)
            assert read < len(text)
    finally:
        server.close()


def asked(port: int) -> str:
    """The answer to a GET; empty: the connection was cut."""
    line = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        line.request("GET", "/health")
        answer = line.getresponse()
        return f"{answer.status} {answer.read().decode()}"
    except OSError:
        return ""
    finally:
        line.close()


def test_a_connection_that_says_nothing_is_closed_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "SECONDS", 0.05)
    server = HttpServer("127.0.0.1", 0, lambda *_: (HTTPStatus.OK, "here"), longest=8)
    try:
        with socket.create_connection(("127.0.0.1", server.port), timeout=10.0) as line:
            assert line.recv(1) == b""
    finally:
        server.close()


@pytest.mark.parametrize(
    ("said", "status"),
    [
        (b"\x16\x03\x01 no HTTP\r\n\r\n", 400), (b"GET /card HTTP/2.0\r\n\r\n", 400),
        (b"PUT /rank HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 400),
        (b"PUT /rank HTTP/1.1\r\nContent-Length: 12345678\r\n\r\n", 400),
        (b"PUT /rank HTTP/1.1\r\nContent-Length: 1000000\r\n\r\n", 400),
        (b"PUT /elsewhere HTTP/1.1\r\nContent-Length: 1\r\n\r\nx", 400), (b"PUT /rank HTTP/1.1\r\n\r\n", 400),
        (b"DELETE /card HTTP/1.1\r\n\r\n", 404), (b"GET /health HTTP/1.1\r\n\r\n", 200),
    ],
)  # fmt: skip
def test_whatever_is_said_is_answered(at: Server, said: bytes, status: int) -> None:
    with socket.create_connection(("127.0.0.1", at.server.port), timeout=10.0) as line:
        line.sendall(said)
        with line.makefile("rb") as answer:
            assert answer.readline().startswith(f"HTTP/1.1 {status} ".encode())


@pytest.mark.parametrize("said", [b"GET /" + b"x" * (1 << 15), b"PUT /rank HTTP/1.1\r\nContent-Length: 9\r\n\r\nx"])
def test_a_request_that_does_not_end_costs_the_server_nothing_else(at: Server, said: bytes) -> None:
    with socket.create_connection(("127.0.0.1", at.server.port), timeout=10.0) as line:
        line.sendall(said)
        line.shutdown(socket.SHUT_WR)
        with contextlib.suppress(ConnectionError):
            assert line.recv(1) == b""
    at.register(*ONE)


# ------------------------------------------------------------------------------------------------- signatures
def test_with_a_card_secret_announcements_and_cards_are_signed(
    tmp_path: Path, announcers: list[Announcer], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "card.secret"
    path.write_bytes(b"0123456789abcdef")
    path.chmod(0o600)
    monkeypatch.setenv(SECRET_FILE, str(path))
    trust, at = CardTrust.read(), Server()
    try:
        assert at.put(ONE[0]).startswith("400 the announcement is not signed")
        assert at.put(ONE[0], {SIGNATURE: "0" * 64}).startswith("400 the announcement is not signed")
        announcers += [announce(at.where, rank, LOG, trust) for rank in ONE]
        until(at.card)
        card = at.card()
        assert card is not None
        trust.check(card)
    finally:
        at.server.close()


# ---------------------------------------------------------------- how a rank is announced, call by call
def announced(monkeypatch: pytest.MonkeyPatch, answers: list[tuple[int, str]]) -> list[tuple[str, str]]:
    """Return the log of a rank that gets these answers."""
    logged = list[tuple[str, str]]()
    log = SimpleNamespace(**{kind: lambda text, *of, kind=kind: logged.append((kind, text % of))
                             for kind in ("warning", "info")})  # fmt: skip
    announcer = Announcer("here:9", ONE[1], log, lives=lambda: bool(answers))
    assert announcer.daemon, "a process that ends does not wait for it"
    monkeypatch.setattr(announcer, "_tell", lambda: answers.pop(0))
    monkeypatch.setattr(announcer._over, "wait", lambda _: None)
    announcer.run()
    return logged


def test_a_refusal_is_logged_at_once_and_a_server_that_does_not_answer_after_5_50_and_500_tries(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    what = "prefill rank 1 to the bootstrap server at here:9"
    taken = ("warning", f"cannot announce {what}: taken")
    assert announced(monkeypatch, [(409, "taken")] * 9) == [taken]
    assert announced(monkeypatch, [(409, "taken"), (200, ""), (200, ""), (409, "taken")]) == [
        taken, ("info", f"announced {what}"), taken,
    ]  # fmt: skip
    gone = ("warning", f"cannot announce {what}: gone")
    assert announced(monkeypatch, [(0, "gone")] * 4) == [] and announced(monkeypatch, [(0, "gone")] * 600) == [gone]
    assert announced(monkeypatch, [(0, "gone")] * 4 + [(200, "")] + [(0, "gone")] * 4) == []
    told = announced(monkeypatch, [(0, f"try {at}") for at in range(1, 601)])
    assert [text.rpartition(" ")[2] for _, text in told] == ["5", "50", "500"], "a reason that changes all the time"


@pytest.mark.parametrize(
    ("error", "why"), [(ConnectionRefusedError("refused"), "refused"), (TimeoutError(), "TimeoutError")]
)
def test_a_server_that_does_not_answer_is_told_by_the_error_or_its_kind(
    monkeypatch: pytest.MonkeyPatch, error: OSError, why: str
) -> None:
    def ask(*_: object) -> None:
        raise error

    monkeypatch.setattr(bootstrap, "ask", ask)
    assert Announcer("here:9", ONE[0], LOG)._tell() == (0, why)


def test_a_nonce_is_kept_as_it_is_given_and_another_one_is_logged(monkeypatch: pytest.MonkeyPatch) -> None:
    answers, logged = [b"a" * 70, b"a" * 64, b"b"], list[str]()
    monkeypatch.setattr(bootstrap, "ask", lambda *_: (HTTPStatus.OK, answers.pop(0)))
    announcer = Announcer("here:9", ONE[0], SimpleNamespace(info=lambda text, *_: logged.append(text)))
    for nonce, count in (("a" * 64, 0), ("a" * 64, 0), ("b", 1)):
        assert announcer._tell() == (HTTPStatus.OK, "") and announcer.rank.nonce == nonce and len(logged) == count


def test_a_card_that_is_there_is_asked_for_where_it_is_wanted_and_a_forgotten_one_is_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bootstrap, "KEPT", 1)
    now, asked, waits = [100.0], list[str](), list[float]()

    class Answer(Future[Card | str]):
        def result(self, timeout: float | None = None) -> Card | str:
            waits.append(-1.0 if timeout is None else timeout)
            return super().result(timeout)

    def submit(_fetch: object, address: str, _dp_rank: int) -> Future[Card | str]:
        asked.append(address)
        answer = Answer()
        answer.set_result(Card(1, 100, HELD, 8, ("tcp://a:1", "tcp://a:2")) if address == "here" else "nobody")
        return answer

    monkeypatch.setattr(bootstrap, "time", SimpleNamespace(monotonic=lambda: now[0]))
    cards = Cards()
    monkeypatch.setattr(cards, "_threads", SimpleNamespace(submit=submit))
    assert isinstance(cards.get("here", wait=0.5), Card) and waits[0] == 0.5
    now[0] += 9.0
    cards.get("here")
    assert asked == ["here"], "it is asked for anew where it is wanted"
    assert cards.get("there") == "nobody" and [*cards._known] == [("there", 0)]
    cards.get("there")
    now[0] += bootstrap.AGAIN
    cards.get("there")
    assert asked == ["here", "there", "there"], "of one that has no card another answer may come"


@pytest.mark.parametrize(("query", "status"), [("dp_rank=0", 200), ("dp_rank=000000", 200), ("dp_rank=0000000", 400),
                                               ("dp_rank=x", 400), ("dp_rank=1", 400)])  # fmt: skip
def test_the_number_of_a_data_parallel_rank_has_its_digits_and_its_bound(at: Server, query: str, status: int) -> None:
    at.register(*ONE)
    assert at.ask("GET", f"/card?{query}").startswith(str(status))


@pytest.mark.parametrize(("place", "of", "well"), [(0, 1, True), (1, 1, False), (1, 2, True), (-1, 2, False),
                                                   (0, 4096, True), (0, 4097, False), (0, 0, False)])  # fmt: skip
def test_a_data_parallel_rank_is_one_of_its_instance_s(place: int, of: int, well: bool) -> None:
    ranks, body = Ranks(), msgspec.json.encode(replace(ONE[0], dp_rank=place, data_parallel=of))
    if well:
        assert len(ranks.put(body)) == 32, "a nonce of 16 bytes"
    else:
        with pytest.raises(ArgumentError, match="data-parallel rank"):
            ranks.put(body)


def test_ranks_are_kept_by_the_trust_that_they_are_given_and_one_that_the_instance_has_not_is_refused() -> None:
    strict, clock = CardTrust(b"0123456789abcdef"), ManualClock(0.0)
    assert Ranks(strict).trust is strict and Ranks().trust == CardTrust()
    ranks = Ranks(clock=clock.now)
    for dp_rank in range(2):
        for rank in ONE:
            ranks.put(msgspec.json.encode(replace(rank, dp_rank=dp_rank, data_parallel=2)))
    assert ranks.card(1) is not None
    with pytest.raises(ArgumentError, match="data-parallel rank 2: this instance has 2"):
        ranks.card(2)
    clock.advance(LIVES_S + 1.0)
    ranks.put(msgspec.json.encode(replace(ONE[0], data_parallel=2)))
    assert len(ranks._known) == 4, "an instance that starts anew as it was keeps what it had"
    ranks._known[0, 1].rank = replace(ranks._known[0, 1].rank, chunk_tokens=16)
    clock.advance(LIVES_S + 1.0)
    ranks.put(msgspec.json.encode(replace(ONE[0], data_parallel=2)))
    assert len(ranks._known) == 1, "one of another kind is none of it"


@pytest.mark.parametrize(
    ("said", "status"),
    [(b"GET /health\r\n\r\n", 400), (b"GET /health SPDY/3\r\n\r\n", 400), (b"GET /health HTTP/1.0\r\n\r\n", 200),
     (b"PUT /rank HTTP/1.1\r\nContent-Length: 0000001\r\n\r\nx", 400),
     (b"PUT /rank HTTP/1.1\r\nContent-Length: 00000001\r\n\r\nx", 400)],
)  # fmt: skip
def test_a_first_line_and_a_length_are_as_http_has_them(at: Server, said: bytes, status: int) -> None:
    with socket.create_connection(("127.0.0.1", at.server.port), 5.0) as line:
        line.sendall(said)
        answer = b"".join(iter(lambda: line.recv(4096), b""))
    assert answer.startswith(b"HTTP/1.1 %d " % status)
    long = b"00000001" in said
    assert (b"and a body with a Content-Length" in answer) == (long or b"SPDY" in said)


def test_a_body_may_be_as_long_as_the_server_takes_and_no_longer() -> None:
    server = HttpServer("127.0.0.1", 0, lambda _m, _p, _h, body: (HTTPStatus.OK, str(len(body))), longest=4)
    assert server.daemon
    try:
        for size, status in ((4, 200), (5, 400)):
            line = http.client.HTTPConnection("127.0.0.1", server.port, timeout=5)
            line.request("PUT", "/", b"x" * size)
            assert line.getresponse().status == status
            line.close()
    finally:
        server.close()


def test_as_many_callers_as_there_may_be_are_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    server = HttpServer("127.0.0.1", 0, lambda *_: (HTTPStatus.OK, "here"), longest=8, connections=1)
    try:
        assert asked(server.port) == "200 here"
    finally:
        server.close()
    read, written = list[int](), bytearray()

    async def take(count: int) -> bytes:
        read.append(count)
        return b""

    monkeypatch.setattr(server, "_most", 0)
    line: Any = SimpleNamespace(read=take, write=written.extend, transport=SimpleNamespace(abort=lambda: None))
    asyncio.run(server._connected(line, line))
    assert read == [HEAD] and written.startswith(b"HTTP/1.1 503"), "it may send the rest, and then read the answer"

"""Bootstrap server of SGLang: gives decode instances the card of a prefill instance, over HTTP.

SGLang's requests name a prefill instance by the address of its bootstrap server, which every backend provides.  Each
prefill rank registers its address (`PUT /rank`); when all of them have, the server answers with the card (`GET /card`,
503 until then; `?dp_rank=1`: the one of that data-parallel rank).  Input and output are validated by name and bounded
in size, and so are connections (`HttpServer`).  Two routes of SGLang's own name tell at which data-parallel rank a room
is (`RoomDirectory`): `POST /register_dp_rank` takes reports of prefill ranks, `POST /query_dp_ranks` questions.

A rank that lives keeps its place (`Ranks`): the server answers its first registration with a nonce, later ones show it.
With a card secret announcements are signed, so a stranger cannot take a place that is free either.  The identity of a
rank is proved by the keys of its links, not here.

A prefill rank announces itself every two seconds on a thread of its own (`Announcer`).  A decode rank fetches cards on
threads, too (`Cards`): its scheduler asks in every pass and must not block.  A card is fetched again while a link to
its instance is not up, because an instance that restarts listens elsewhere.
"""

from __future__ import annotations

import contextlib
import http.client
import io
import json
import socket
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from email.message import Message
from http import HTTPStatus
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from kvproto.adapters.card import MAX_TEXT, Card, CardError
from kvproto.adapters.card_trust import CardTrust
from kvproto.adapters.sglang.bootstrap_ranks import LIVES_S, Rank, Ranks, TakenError
from kvproto.adapters.sglang.http_server import HEAD, HttpServer
from kvproto.adapters.sglang.lacking_cards import LackingCards, Source
from kvproto.adapters.sglang.options import Options
from kvproto.adapters.sglang.room_directory import RoomDirectory
from kvproto.errors import ArgumentError, one_line

#: seconds: for an answer, between two tries, between two questions for the same card
ANSWER, AGAIN = 5.0, 1.0
#: seconds that a read waits at least; none would be a socket that does not wait at all
SHORTEST = 1e-3
#: seconds between two announcements of a rank, of which a few may be lost before its place is free
BEAT = LIVES_S / 3
#: the header of a signed announcement
SIGNATURE = "X-Kvproto-Signature"
#: cards of prefill instances that a decode rank remembers
KEPT = 4096
#: bootstrap servers that are asked at a time: those that do not answer take `ANSWER` seconds each
ASKERS = 16
#: of the number of a data-parallel rank
DIGITS = 6


class KVProtoBootstrapServer:
    """The bootstrap server, on a thread of its own; SGLang makes it with its configured address."""

    def __init__(self, host: str, port: int) -> None:
        """Listen there; OSError: the address cannot be had."""
        self.ranks, self.rooms = Ranks(Options.read().trust()), RoomDirectory()
        self._server = HttpServer(host, port, self._respond, longest=MAX_TEXT)
        self.port = self._server.port

    def close(self) -> None:
        self._server.close()

    def _respond(self, method: str, path: str, headers: Message, body: bytes) -> tuple[HTTPStatus, str]:
        signature = headers.get(SIGNATURE, "")
        if method == "PUT":
            return self._register(path, body, signature)
        what, _, query = path.partition("?")
        try:
            if (method, what) == ("GET", "/health"):
                return HTTPStatus.OK, "kvproto"
            if (method, what) == ("GET", "/card"):
                return self._card(query)
            if (method, what) == ("POST", "/query_dp_ranks"):
                return HTTPStatus.OK, json.dumps(self.rooms.find(body))
            if (method, what) == ("POST", "/register_dp_rank"):
                self.ranks.need_signed(body, signature)
                return HTTPStatus.OK, json.dumps(self.rooms.report(body))
        except ArgumentError as error:
            return HTTPStatus.BAD_REQUEST, str(error)
        return HTTPStatus.NOT_FOUND, "GET /card: this prefill instance is carried by kvproto"

    def _card(self, query: str) -> tuple[HTTPStatus, str]:
        dp_rank = query.removeprefix("dp_rank=") or "0"
        if not dp_rank.isdecimal() or len(dp_rank) > DIGITS:
            return HTTPStatus.BAD_REQUEST, "GET /card?dp_rank=NUMBER"
        card = self.ranks.card(int(dp_rank))
        if card is None:
            return HTTPStatus.SERVICE_UNAVAILABLE, "some prefill rank has not announced itself"
        return HTTPStatus.OK, card.encode()

    def _register(self, path: str, body: bytes, signature: str) -> tuple[HTTPStatus, str]:
        if path != "/rank" or not body:
            return HTTPStatus.BAD_REQUEST, "PUT /rank, with a rank as JSON"
        try:
            return HTTPStatus.OK, self.ranks.put(body, signature)
        except TakenError as error:
            return HTTPStatus.CONFLICT, str(error)
        except ArgumentError as error:
            return HTTPStatus.BAD_REQUEST, str(error)


def ask(
    address: str, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
) -> tuple[int, bytes]:  # fmt: skip
    """Return status and body of an answer.  OSError or HTTPException: there is none in `ANSWER` seconds."""
    line = http.client.HTTPConnection(address, timeout=ANSWER)
    try:
        line.request(method, path, body, {**(headers or {}), "Connection": "close"})
        answer = http.client.HTTPResponse(_Said(_read(line.sock)))  # type: ignore[arg-type]  # all that it needs
        answer.begin()
        return answer.status, answer.read(MAX_TEXT)
    except UnicodeError as error:  # of a host that cannot be a name
        raise OSError(f"it names no host: {error}") from error
    finally:
        line.close()


def _read(connection: socket.socket) -> bytes:
    """Read to the end, for `ANSWER` seconds in all: a socket's own timeout begins anew with each byte."""
    said, end = bytearray(), time.monotonic() + ANSWER
    while len(said) < MAX_TEXT + HEAD:
        connection.settimeout(max(end - time.monotonic(), SHORTEST))
        if not (piece := connection.recv(HEAD)):
            break
        said += piece
        if time.monotonic() > end:
            raise TimeoutError("timed out")  # as the socket says it
    return bytes(said)


class _Said(NamedTuple):
    data: bytes

    def makefile(self, *_: object) -> io.BytesIO:
        return io.BytesIO(self.data)


def signature_of(body: bytes, trust: CardTrust) -> dict[str, str]:
    """Return the headers that sign a message to a bootstrap server, if there is a card secret."""
    return {SIGNATURE: trust.signature_of(body)} if trust.secret else {}


class Announcer(threading.Thread):
    """Announces a prefill rank to its bootstrap server for as long as it runs.

    A server that starts anew, or has lost the rank, knows it again within `BEAT` seconds.
    """

    def __init__(
        self, address: str, rank: Rank, log: Any, trust: CardTrust | None = None,
        lives: Callable[[], bool] = lambda: True,
    ) -> None:  # fmt: skip
        """`log`: told why the server refuses the rank, at once, or that it does not answer, after a few tries;
        `lives`: whether the rank still does, asked before each announcement.
        """
        super().__init__(name="kvproto-announce", daemon=True)
        self.address, self.rank, self.log, self.trust = address, rank, log, trust or CardTrust()
        self._over, self._lives = threading.Event(), lives

    def run(self) -> None:
        """Announce until `stop` is called or the rank is closed; its place is then free for others."""
        tries, told = 0, ""
        while not self._over.is_set() and self._lives():
            status, why = self._tell()
            tries = tries + 1 if why else 0
            if why != told and (status or tries in {5, 50, 500}):
                what = f"prefill rank {self.rank.rank} to the bootstrap server at {self.address}"
                self.log.warning("cannot announce %s: %s", what, why) if why else self.log.info("announced %s", what)
                told = why
            self._over.wait(AGAIN if why else BEAT)

    def _tell(self) -> tuple[int, str]:
        """Return the answer's status (0: none), and why the server does not know the rank (empty: it does)."""
        body = msgspec.json.encode(self.rank)
        signature = signature_of(body, self.trust)
        try:
            status, text = ask(self.address, "PUT", "/rank", body, signature)
        except (OSError, http.client.HTTPException) as error:
            return 0, str(error) or type(error).__name__
        if status == HTTPStatus.OK:
            nonce = text.decode(errors="replace")[:64]
            if self.rank.nonce not in ("", nonce):
                self.log.info("the bootstrap server at %s has started anew, or has lost this rank", self.address)
            self.rank = replace(self.rank, nonce=nonce)
            return status, ""
        return status, one_line(text.decode(errors="replace"))

    def stop(self) -> None:
        """Announce no more."""
        self._over.set()


def announce(
    address: str, rank: Rank, log: Any, trust: CardTrust | None = None, lives: Callable[[], bool] = lambda: True
) -> Announcer:  # fmt: skip
    """Keep the bootstrap server told of this rank, from a thread of its own, for as long as it `lives`."""
    announcer = Announcer(address, rank, log, trust, lives)
    announcer.start()
    return announcer


class Cards:
    """The cards that a decode rank knows, by bootstrap server and dp rank; asked for on threads."""

    def __init__(self) -> None:
        self._known: dict[Source, Card | str] = {}
        self._lacking = LackingCards()
        self._asked: dict[Source, tuple[float, Future[Card | str]]] = {}
        self._threads = ThreadPoolExecutor(ASKERS, "kvproto-cards")

    def get(self, address: str, dp_rank: int = 0, *, again: bool = False, wait: float = 0.0) -> Card | str | None:
        """The card; a sentence that says why there is none; None: the answer is on its way.

        `again`: have it asked for anew, once a second at most; a card stays until there is another one.  `wait`:
        seconds, for an answer to the first question.
        """
        source = address, dp_rank
        asked = self._asked.get(source)
        if asked is None:
            asked = self._ask(source, wait)
        when, future = asked
        if future.done():
            found, known = future.result(), self._known.get(source)
            self._lacking.note(source, when, found)
            if isinstance(found, Card) or not isinstance(known, Card):
                self._known[source] = found
            if time.monotonic() - when >= AGAIN and (again or isinstance(found, str)):
                self._ask(source, 0.0)
        return self._known.get(source)

    def gone(self, address: str, dp_rank: int = 0) -> str:
        """Return why there has been no card for long, although it was asked for; empty: there is one."""
        return self._lacking.why((address, dp_rank), time.monotonic())

    def _ask(self, source: Source, wait: float) -> tuple[float, Future[Card | str]]:
        while len(self._asked) >= KEPT:
            gone = next(iter(self._asked))
            self._asked.pop(gone)[1].cancel()  # where it still waits for a thread
            self._known.pop(gone, None)
            self._lacking.forget(gone)
        future = self._threads.submit(_fetch, *source)
        with contextlib.suppress(TimeoutError):
            future.result(wait)
        self._asked[source] = time.monotonic(), future
        return self._asked[source]


def _fetch(address: str, dp_rank: int) -> Card | str:
    try:
        status, body = ask(address, "GET", f"/card?dp_rank={dp_rank}" if dp_rank else "/card")
        if status == HTTPStatus.OK:
            return Card.decode(body)
        return one_line(f"the bootstrap server at {address} answers {status}: {body[:200].decode(errors='replace')}")
    except (OSError, http.client.HTTPException, CardError) as error:
        return f"no card from the bootstrap server at {address}: {error}"

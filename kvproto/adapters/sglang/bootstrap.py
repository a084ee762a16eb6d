"""Bootstrap server of SGLang: gives decode instances the card of a prefill instance, over HTTP.

SGLang's requests name a prefill instance by the address of its bootstrap server, which every backend provides.  Each
prefill rank registers its address (`PUT /rank`); when all of them have, the server answers with the card (`GET /card`,
503 until then).  Input and output are validated by name and bounded in size.  The identity of a rank is proved by the
keys of its links, not here.

A prefill rank announces itself on a thread of its own, with retries (`announce`).  A decode rank fetches cards on a
thread, too (`Cards`): its scheduler asks in every pass and must not block.  A card is fetched again while a link to its
instance is not up, because an instance that restarts listens elsewhere.
"""

from __future__ import annotations

import contextlib
import http.client
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import msgspec

from kvproto.adapters.card import MAX_TEXT, Card, CardError
from kvproto.errors import ArgumentError
from kvproto.layout.sharding import Layout, LayoutError

#: seconds: for an answer, between two announcements, between two questions for the same card
ANSWER, AGAIN = 5.0, 1.0
#: addresses of prefill instances that a decode rank remembers
KEPT = 4096


class Rank(msgspec.Struct, frozen=True):
    """A prefill rank, as it announces itself."""

    rank: int
    address: str
    group: int
    incarnation: int
    layout: Layout
    grid: int


class Ranks:
    """The ranks of one prefill instance that have announced themselves; any thread."""

    def __init__(self) -> None:
        self._known: dict[int, Rank] = {}
        self._lock = threading.Lock()

    def put(self, body: bytes) -> None:
        """Note a rank; ArgumentError: it is none, or not of the group that the others are of."""
        try:
            rank = msgspec.json.decode(body, type=Rank)
        except (msgspec.MsgspecError, LayoutError) as error:
            raise ArgumentError(f"this is no prefill rank: {error}") from error
        if not 0 <= rank.rank < rank.layout.ranks:
            raise ArgumentError(f"rank {rank.rank} of {rank.layout.ranks}")
        with self._lock:
            if any((r.group, r.layout, r.grid) != (rank.group, rank.layout, rank.grid) for r in self._known.values()):
                self._known.clear()  # the instance has started with other options
            self._known[rank.rank] = rank

    def card(self) -> Card | None:
        """The card; None: a rank is missing."""
        with self._lock:
            ranks = [self._known[index] for index in sorted(self._known)]
        if not ranks or len(ranks) < ranks[0].layout.ranks:
            return None
        one = ranks[0]
        incarnation = max(rank.incarnation for rank in ranks)
        return Card(one.group, incarnation, one.layout, one.grid, tuple(rank.address for rank in ranks))


class KVProtoBootstrapServer:
    """The bootstrap server, on a thread of its own; SGLang makes it with its configured address."""

    def __init__(self, host: str, port: int) -> None:  # noqa: C901  # two questions and their answers
        ranks = self.ranks = Ranks()

        class Handler(BaseHTTPRequestHandler):
            timeout = ANSWER
            protocol_version = "HTTP/1.1"

            def do_PUT(self) -> None:
                size = int(self.headers.get("Content-Length") or 0)
                if self.path != "/rank" or not 0 < size <= MAX_TEXT:
                    self.answer(HTTPStatus.BAD_REQUEST, "PUT /rank, with a rank as JSON")
                    return
                try:
                    ranks.put(self.rfile.read(size))
                except ArgumentError as error:
                    self.answer(HTTPStatus.BAD_REQUEST, str(error))
                else:
                    self.answer(HTTPStatus.OK, "noted")

            def do_GET(self) -> None:
                card = ranks.card()
                if self.path == "/health":
                    self.answer(HTTPStatus.OK, "kvproto")
                elif self.path != "/card":
                    self.answer(HTTPStatus.NOT_FOUND, "GET /card: this prefill instance is carried by kvproto")
                elif card is None:
                    self.answer(HTTPStatus.SERVICE_UNAVAILABLE, "some prefill rank has not announced itself")
                else:
                    self.answer(HTTPStatus.OK, card.encode())

            def answer(self, status: HTTPStatus, text: str) -> None:
                body = text.encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                """The engine has a log of its own."""

        self._server = ThreadingHTTPServer((host, port), Handler)
        self.port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, name="kvproto-bootstrap", daemon=True).start()

    def close(self) -> None:
        """Stop."""
        self._server.shutdown()
        self._server.server_close()


def _ask(address: str, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
    """Status and body of an answer; OSError or HTTPException: there is none."""
    line = http.client.HTTPConnection(address, timeout=ANSWER)
    try:
        line.request(method, path, body)
        answer = line.getresponse()
        return answer.status, answer.read(MAX_TEXT)
    finally:
        line.close()


def announce(address: str, rank: Rank, log: Any) -> threading.Thread:
    """Tell the bootstrap server of this rank, until it has heard, from a thread of its own."""
    body, what = msgspec.json.encode(rank), f"prefill rank {rank.rank} to the bootstrap server at {address}"

    def tell() -> None:
        tries = 0
        while True:
            try:
                status, text = _ask(address, "PUT", "/rank", body)
                why = "" if status == HTTPStatus.OK else text.decode(errors="replace")
            except (OSError, http.client.HTTPException) as error:
                why = str(error)
            if not why:
                return
            if tries in {5, 50, 500}:
                log.warning("cannot announce %s: %s", what, why)
            tries += 1
            time.sleep(AGAIN)

    thread = threading.Thread(target=tell, name="kvproto-announce", daemon=True)
    thread.start()
    return thread


class Cards:
    """The cards that a decode rank knows, by the address of the bootstrap server; asked for on a thread."""

    def __init__(self) -> None:
        self._known: dict[str, Card | str] = {}
        self._asked: dict[str, tuple[float, Future[Card | str]]] = {}
        self._thread = ThreadPoolExecutor(1, "kvproto-cards")

    def get(self, address: str, *, again: bool = False, wait: float = 0.0) -> Card | str | None:
        """The card; a sentence that says why there is none; None: the answer is on its way.

        `again`: have it asked for anew, once a second at most; a card stays until there is another one.  `wait`:
        seconds, for an answer to the first question.
        """
        asked = self._asked.get(address)
        if asked is None:
            asked = self._ask(address, wait)
        when, future = asked
        if future.done():
            found, known = future.result(), self._known.get(address)
            if isinstance(found, Card) or not isinstance(known, Card):
                self._known[address] = found
            if time.monotonic() - when >= AGAIN and (again or isinstance(found, str)):
                self._ask(address, 0.0)
        return self._known.get(address)

    def _ask(self, address: str, wait: float) -> tuple[float, Future[Card | str]]:
        while len(self._asked) >= KEPT:
            gone = next(iter(self._asked))
            del self._asked[gone]
            self._known.pop(gone, None)
        future = self._thread.submit(_fetch, address)
        with contextlib.suppress(TimeoutError):
            future.result(wait)
        self._asked[address] = time.monotonic(), future
        return self._asked[address]


def _fetch(address: str) -> Card | str:
    try:
        status, body = _ask(address, "GET", "/card")
        if status == HTTPStatus.OK:
            return Card.decode(body)
        return f"the bootstrap server at {address} answers {status}: {body[:200].decode(errors='replace')}"
    except (OSError, http.client.HTTPException, CardError) as error:
        return f"no card from the bootstrap server at {address}: {error}"

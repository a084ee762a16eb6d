"""ExploreServer: a world to click through without an end, on this machine alone.

The page asks for one way at a time, as the numbers of its steps, and is answered with the states on it.  So the server
keeps nothing of a page, and its record can begin anew whenever it has grown.  Each address begins with a token of this
run: no other page can guess it, and a name that is made to lead here does not help either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from secrets import compare_digest, token_urlsafe
from threading import Lock
from typing import Any

import msgspec

from kvproto.fsm.errors import ArgumentError
from kvproto.verify.framework.explore.exploration import Exploration, Recorder, read_way
from kvproto.verify.framework.explore.explore_page import page_with

HOST = "127.0.0.1"
#: states at which the record begins anew: some 150 MiB
MOST_STATES = 50_000
HEADERS = {
    "Cache-Control": "no-store", "Referrer-Policy": "no-referrer", "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
                               "connect-src 'self'; frame-ancestors 'none'",
}  # fmt: skip


class ExploreServer(ThreadingHTTPServer):
    """Serves the page of one world, and answers it."""

    daemon_threads = True  # a browser keeps connections open on which it asks nothing

    def __init__(
        self, port: int, make: Callable[[], Exploration], protocol: str, *, way: Iterable[Any] = (),
        choices: Sequence[int] = (), command: str = "kvproto explore --serve",
    ) -> None:  # fmt: skip
        """`port`: 0 takes any that is free; `make`: makes the world; the others as for `explore_page`.

        ArgumentError: the port cannot be had, or there is no such way.
        """
        self._make, self._lock = make, Lock()
        self._recorder = Recorder(make())
        graph = self._recorder.along(way=way, choices=choices)
        self.page = page_with(self._recorder.world, protocol, graph, command, live=True)
        self.token = token_urlsafe(16)
        try:
            super().__init__((HOST, port), _Handler)
        except OSError as error:
            raise ArgumentError(f"--port {port}: {error.strerror}: name another, or none to take any") from error

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.server_port}/{self.token}/"

    def along(self, text: str) -> bytes:
        """Answer a way (`0.2.1`).  ArgumentError: there is none such."""
        choices = read_way(text) if text else ()
        with self._lock:
            if len(self._recorder.states) > MOST_STATES:
                self._recorder = Recorder(self._make())
            return msgspec.json.encode(self._recorder.along(choices=choices))


class _Handler(BaseHTTPRequestHandler):
    server: ExploreServer
    timeout = 10.0

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        _, token, what = [*path.split("/", 2), "", ""][:3]
        here = f"{HOST}:{self.server.server_port}"
        if self.headers["Host"] != here or not compare_digest(token.encode(), self.server.token.encode()):
            self._answer(403, "text/plain", b"this address is not of this run: kvproto explore prints its own")
        elif what == "way":
            try:
                self._answer(200, "application/json", self.server.along(query))
            except ArgumentError as error:
                self._answer(400, "text/plain", str(error).encode())
        elif what:
            self._answer(404, "text/plain", b"there is nothing here")
        else:
            self._answer(200, "text/html", self.server.page.encode())

    def _answer(self, code: int, kind: str, body: bytes) -> None:
        self.send_response(code)
        for name, value in {**HEADERS, "Content-Type": f"{kind}; charset=utf-8", "Content-Length": len(body)}.items():
            self.send_header(name, str(value))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Print nothing: the terminal has the address."""

"""HttpServer: answers small HTTP requests on one thread, over a bounded number of connections.

A thread for each connection would let anybody who reaches the port take as many threads of an engine as he opens
connections.  Here a connection that says nothing costs one task of an event loop, for `SECONDS` at most.  Beyond
`CONNECTIONS` a caller is refused with 503.  A connection carries one request, whose head and body are bounded.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import io
import socket
import threading
from collections.abc import Callable
from email.message import Message
from http import HTTPStatus
from typing import Final

#: connections at a time, and seconds from the first byte of one until it is answered
CONNECTIONS: Final = 512
SECONDS: Final = 5.0
#: seconds in which a caller that is refused may take the answer; closing a socket with unread bytes would take it back
REFUSED_S: Final = 0.1
#: bytes of a request's head; digits of the length of its body
HEAD, DIGITS = 1 << 14, 7

#: gives an answer to (method, path, headers, body): a status and a text
Respond = Callable[[str, str, Message, bytes], tuple[HTTPStatus, str]]


class HttpServer(threading.Thread):
    """A server that runs from its construction to `close`."""

    def __init__(
        self, host: str, port: int, respond: Respond, *, longest: int, connections: int = CONNECTIONS
    ) -> None:
        """Listen at once; OSError: the address cannot be had.

        Args:
            host: name or address of an interface
            port: TCP port; 0: any free one (`port` has it)
            respond: called on the server's thread; must not block
            longest: bytes of a body, at most
            connections: connections at a time, at most

        """
        super().__init__(name="kvproto-bootstrap", daemon=True)
        self._respond, self._longest, self._most = respond, longest, connections
        self._listener = socket.create_server((host, port), backlog=connections)
        self.port: int = self._listener.getsockname()[1]
        self._loop, self._over, self._open = asyncio.new_event_loop(), asyncio.Event(), 0
        self.start()

    def run(self) -> None:
        """Serve until `close`, on this thread."""
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    def close(self) -> None:
        """Stop, and close every connection.  Any thread; a second call does nothing."""
        with contextlib.suppress(RuntimeError):  # the loop is closed already
            self._loop.call_soon_threadsafe(self._over.set)
        self.join()

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._connected, sock=self._listener, limit=HEAD)
        await self._over.wait()
        server.close()  # the runner cancels what is still open

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open += 1
        try:
            if self._open > self._most:
                self._answer(writer, HTTPStatus.SERVICE_UNAVAILABLE, f"more than {self._most} connections: try again")
                await asyncio.wait_for(reader.read(HEAD), REFUSED_S)
            else:
                async with asyncio.timeout(SECONDS):
                    self._answer(writer, *await self._asked(reader))
                    writer.close()
                    await writer.wait_closed()  # a caller that does not read would keep the rest, and a descriptor
        except (OSError, EOFError, asyncio.LimitOverrunError):  # TimeoutError is an OSError
            pass  # the caller has gone, says nothing, or says no HTTP
        finally:
            self._open -= 1
            writer.transport.abort()

    async def _asked(self, reader: asyncio.StreamReader) -> tuple[HTTPStatus, str]:
        """Read a request, and return what is answered."""
        first, _, rest = (await reader.readuntil(b"\r\n\r\n")).partition(b"\r\n")
        words = first.decode("latin-1").split(" ")
        try:
            method, path, version = words
            headers = http.client.parse_headers(io.BytesIO(rest))
        except (ValueError, http.client.HTTPException):
            return HTTPStatus.BAD_REQUEST, "this is no HTTP request"
        said = headers.get("Content-Length", "0")
        if not version.startswith("HTTP/1.") or not (said.isdecimal() and len(said) <= DIGITS):
            return HTTPStatus.BAD_REQUEST, "HTTP/1.1, and a body with a Content-Length"
        if int(said) > self._longest:
            return HTTPStatus.BAD_REQUEST, f"a body of {said} bytes: {self._longest} at most"
        return self._respond(method, path, headers, await reader.readexactly(int(said)))

    @staticmethod
    def _answer(writer: asyncio.StreamWriter, status: HTTPStatus, text: str) -> None:
        body = text.encode()
        head = f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        writer.write(head.encode() + body)

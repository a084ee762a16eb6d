"""Router answers: an instance's answer on its way to the client, and what makes it none.

An instance that cannot be asked, fails, or gives a request up is away: it is passed over for a while, and the request
may go to another one.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import AsyncIterator
from http import HTTPStatus

import aiohttp
from aiohttp import web

from kvproto.adapters.vllm.router_workers import Instance
from kvproto.errors import KvprotoError

#: bytes of an answer that streams
PIECE = 1 << 16
#: seconds for which an instance that failed is passed over
PAUSE_S = 5.0
#: vLLM's answer to a request that it gives up as it shuts down, with status 200; a text that says so has its quotes
#: escaped, and a piece may end within these bytes
GIVEN_UP, LONGEST_WORD = re.compile(rb'"finish_reason": ?"abort"'), 24
#: why a choice ended, or an error; a stream that ends with neither, and with the usage alone, was given up before its
#: first token: vLLM leaves out a piece that has no tokens, and so the word for it
ENDED, DONE = re.compile(rb'"finish_reason": ?"|"error": ?[{"]'), b"data: [DONE]"
USAGE = re.compile(rb'"choices": ?\[\]')
#: of a client's request, those that an instance needs
PASSED = ("Authorization", "X-Request-Id", "traceparent", "tracestate")


class AwayError(KvprotoError):
    """An instance cannot be asked, and is passed over for a while; the request may go to another one."""

    def __init__(self, instance: Instance, why: str) -> None:
        super().__init__(f"{instance.url}: {why}")
        self.instance = instance
        instance.paused = time.monotonic() + PAUSE_S


async def pieces(said: aiohttp.ClientResponse, instance: Instance) -> AsyncIterator[bytes]:
    """Yield an answer's pieces as they come, of a stream; any other answer is one piece.

    AwayError: the instance has given the request up.
    """
    if said.content_type != "text/event-stream":
        demand_end(body := await said.read(), instance)
        if body:
            yield body
        return
    end, held, ended = b"", b"", False
    async for piece in said.content.iter_chunked(PIECE):
        demand_end(end := end + piece, instance)
        ended = ended or ENDED.search(end) is not None
        if DONE in end and not ended:
            raise AwayError(instance, "its answer ends without a reason")
        held += piece
        if not USAGE.search(end):
            yield held
            held = b""
        end = end[-LONGEST_WORD:]
    if held:
        yield held


def demand_end(body: bytes, instance: Instance) -> None:
    """AwayError if the instance has given the request up in this answer, or in this end of a part of it."""
    if GIVEN_UP.search(body):
        raise AwayError(instance, "it has given the request up")


def kind_of(said: aiohttp.ClientResponse) -> dict[str, str]:
    """The header that says what an instance's answer is."""
    return {"Content-Type": said.headers.get("Content-Type", "application/json")}


def passed(request: web.Request) -> dict[str, str]:
    """The client's headers that an instance gets."""
    return {name: request.headers[name] for name in PASSED if name in request.headers}


def problem(status: HTTPStatus, why: str) -> web.Response:
    """An error in vLLM's own form."""
    error = {"message": why, "type": status.phrase.replace(" ", ""), "param": None, "code": status.value}
    return web.Response(status=status, text=json.dumps({"error": error}), content_type="application/json")

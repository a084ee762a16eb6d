"""RouterWorkers: the instances behind a router, which an operator adds, drains and removes.

    GET    /workers                        all: url, worker_type, state, requests in flight
    POST   /workers                        {"url", "worker_type": "prefill" or "decode", "card"}: add an instance, or
                                           have one that drains take requests again; `card` is a prefill one's file
    POST   /workers/drain?url=...&wait=S   send it no further request; 200: it has none, 202: some are left after S
    DELETE /workers?url=...                forget it; 409: it has requests

A prefill instance with data-parallel ranks is one entry a rank, of one url, each with the card that this rank leaves
(`prefill.card_dp1`).  The calls that name a url are about all ranks of it: a process ends with all of its ranks.

The calls have the names of SGLang's gateway.  They are served on a port of their own, on the loopback interface alone:
whoever may add an instance sees every prompt.  A request keeps its prefill instance until its answer has ended, so a
drained prefill instance has no KV left that a decode instance may fetch.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import re
import time
from collections.abc import AsyncIterator, Callable, Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Any

from aiohttp import web

#: seconds that a call may wait for an instance to have no request
LONGEST_WAIT_S = 3600.0
#: numbers the requests of all instances
TURNS = itertools.count(1)
#: the end of the name of a data-parallel rank's card
OF_RANK = re.compile(r"_dp(\d+)$")


class Instance:
    """One of vLLM, or a data-parallel rank; `card`: the file in which a prefill instance leaves its card."""

    def __init__(self, url: str, card: Path | None = None) -> None:
        self.url, self.card = url.rstrip("/"), card
        of_rank = OF_RANK.search(card.name) if card else None
        #: what has vLLM give a request to the rank that the card is of: another one has no such room
        self.headers = {"X-data-parallel-rank": of_rank[1]} if of_rank else {}
        #: requests that it is asked now; until when it is passed over; whether it gets no further request
        self.asked, self.paused, self.draining = 0, 0.0, False
        #: the number of its last request among those of all instances
        self.turn = 0
        self.idle = asyncio.Event()
        self.idle.set()

    @contextlib.contextmanager
    def request(self) -> Iterator[None]:
        self.asked += 1
        self.turn = next(TURNS)
        self.idle.clear()
        try:
            yield
        finally:
            self.asked -= 1
            if not self.asked:
                self.idle.set()


class RouterWorkers:
    """The instances of both sides, and the calls that change them."""

    def __init__(self, prefills: list[Instance], decodes: list[Instance]) -> None:
        """Change these lists, which are the router's own."""
        self.sides = {"prefill": prefills, "decode": decodes}

    def app(self) -> web.Application:
        """The calls, to be served where only an operator comes."""
        app = web.Application()
        app.router.add_get("/workers", self.list_all)
        app.router.add_post("/workers", self.add)
        app.router.add_post("/workers/drain", self.drain)
        app.router.add_delete("/workers", self.remove)
        return app

    def served_on(self, port: int) -> Callable[[web.Application], AsyncIterator[None]]:
        """Serve the calls on this port as long as the router's own application runs."""

        async def serve(_: web.Application) -> AsyncIterator[None]:
            runner = web.AppRunner(self.app())
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", port).start()
            yield
            await runner.cleanup()

        return serve

    async def list_all(self, _: web.Request) -> web.Response:
        """All instances, those that drain included."""
        told = [self._told(side, one) for side, instances in self.sides.items() for one in instances]
        return web.json_response({"workers": told})

    async def add(self, request: web.Request) -> web.Response:
        """Add an instance, or have one that is known take requests again."""
        try:
            body = json.loads(await request.read())
        except (ValueError, RecursionError) as error:
            return refused(HTTPStatus.BAD_REQUEST, f"the body is no JSON: {error}")
        if why := fault(body):
            return refused(HTTPStatus.BAD_REQUEST, why)
        made = Instance(body["url"], Path(body["card"]) if "card" in body else None)
        side = body["worker_type"]
        known, ranks = self._known(made.url)
        if ranks and known != side:
            return refused(HTTPStatus.CONFLICT, f"{made.url} is a {known} instance: remove it first")
        if (one := next((rank for rank in ranks if rank.headers == made.headers), None)) is None:
            self.sides[side].append(made)
            return web.json_response(self._told(side, made), status=HTTPStatus.CREATED)
        one.card, one.draining, one.paused = made.card, False, 0.0
        return web.json_response(self._told(side, one))

    async def drain(self, request: web.Request) -> web.Response:
        """Send the instance no further request, and wait for those that it has."""
        side, ranks = self._known(request.query.get("url", ""))
        if not ranks:
            return self._unknown(request)
        try:
            wait = min(max(0.0, float(request.query.get("wait", "0"))), LONGEST_WAIT_S)
        except ValueError:
            return refused(HTTPStatus.BAD_REQUEST, "wait is a number of seconds")
        for one in ranks:
            one.draining = True
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.gather(*(one.idle.wait() for one in ranks)), wait)
        left = sum(one.asked for one in ranks)
        told = {**self._told(side, ranks[0]), "requests": left}
        return web.json_response(told, status=HTTPStatus.ACCEPTED if left else HTTPStatus.OK)

    async def remove(self, request: web.Request) -> web.Response:
        """Forget the instance."""
        side, ranks = self._known(request.query.get("url", ""))
        if not ranks:
            return self._unknown(request)
        if left := sum(one.asked for one in ranks):
            return refused(HTTPStatus.CONFLICT, f"{ranks[0].url} has {left} requests: drain it first")
        for one in ranks:
            self.sides[side].remove(one)
        return web.json_response(self._told(side, ranks[0]))

    def _known(self, url: str) -> tuple[str, list[Instance]]:
        """Return the side of this url's instance, and its data-parallel ranks; none: it is unknown."""
        url = url.rstrip("/")
        found = ((side, [one for one in instances if one.url == url]) for side, instances in self.sides.items())
        return next((each for each in found if each[1]), ("", []))

    @staticmethod
    def _unknown(request: web.Request) -> web.Response:
        said = request.query.get("url")
        why = f"there is no instance {said}: GET /workers lists them" if said else "name the instance: ?url=http://..."
        return refused(HTTPStatus.NOT_FOUND if said else HTTPStatus.BAD_REQUEST, why)

    @staticmethod
    def _told(side: str, one: Instance) -> dict[str, Any]:
        state = "draining" if one.draining else "paused" if one.paused > time.monotonic() else "active"
        card = {"card": str(one.card)} if one.card else {}
        return {"url": one.url, "worker_type": side, "state": state, "requests": one.asked, **card}


def fault(body: Any) -> str:
    """Why this is no instance; empty: it is one."""
    if not isinstance(body, dict) or not all(isinstance(value, str) for value in body.values()):
        return "the body is an object of texts: url, worker_type, and the card of a prefill instance"
    if unknown := body.keys() - {"url", "worker_type", "card"}:
        return f"{min(unknown)} is unknown: there are url, worker_type and card"
    if not body.get("url", "").startswith(("http://", "https://")):
        return "url is http://HOST:PORT"
    if (side := body.get("worker_type")) not in ("prefill", "decode"):
        return "worker_type is prefill or decode"
    if (side == "prefill") != bool(body.get("card")):
        return "a prefill instance has a card, the file in which it leaves it; a decode instance has none"
    return ""


def refused(status: HTTPStatus, why: str) -> web.Response:
    """A call that changes nothing, and why."""
    return web.json_response({"error": why}, status=status)

r"""Router in front of prefill and decode instances of vLLM, which asks one of each at once.

    python -m kvproto.adapters.vllm.router --prefill http://127.0.0.1:8100 --card /tmp/prefill-0.card \
        --decode http://127.0.0.1:8200

It draws a room for each request and has read the prefill instance's card, so the decode instance need not wait for the
prefill instance's answer: its blocks are allocated and grants are asked for while the prompt is still computed.  The
client gets the decode instance's answer; if the client leaves, both instances are told.  A card is read anew for each
request: a prefill instance that was replaced has another one.

There may be several of each (`--prefill` and `--card` in the same order).  Each request takes the instances with the
fewest requests.  One that cannot be reached, fails (5xx) or gives the request up (as vLLM does when it shuts down) is
passed over for `PAUSE_S`, and the request goes to another one as long as the client has got nothing of an answer: of
one that streams, as long as no piece of it has come.  What either instance refuses (4xx) is passed on as it is.  An
answer that breaks off does so for the client, too, and `kv_transfer_params` of a client are dropped.  `/health` is
answered here, `/metrics` has the router's own counts, any other GET goes to a decode instance.  With `--admin-port`
instances are added, drained and removed at run time (`router_workers`).  A prefill instance with data-parallel ranks is
given once for each rank, with that rank's card (`--card /tmp/prefill-0.card_dp1`).
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from argparse import Namespace
from collections.abc import AsyncIterator, Sequence
from http import HTTPStatus
from pathlib import Path

import aiohttp
from aiohttp import web

from kvproto.adapters.vllm.router_answers import AwayError, demand_end, kind_of, passed, pieces, problem
from kvproto.adapters.vllm.router_metrics import RouterMetrics
from kvproto.adapters.vllm.router_requests import Params, needs_no_prefill, params_for, prefill_body
from kvproto.adapters.vllm.router_workers import Instance, RouterWorkers
from kvproto.command_line import CommandLine
from kvproto.errors import KvprotoError

LOG = logging.getLogger("kvproto.router")
#: bytes of a request: images travel in it
LONGEST = 1 << 28
#: seconds in which an instance must answer a question for its health
HEALTH_S = 5.0
#: seconds in which an instance must take a connection: a host that is gone does not even refuse it
CONNECT_S = 5.0
#: seconds for which an idle connection to an instance is used again: vLLM closes it after 5, and a request that is on
#: its way at that moment is lost
KEPT_S = 2.5


class RefusedError(KvprotoError):
    """The prefill instance's answer to a request that it does not take."""

    def __init__(self, answer: web.Response) -> None:
        super().__init__(answer.status)
        self.answer = answer


class Router:
    """Completions and chat completions, forwarded."""

    def __init__(self, prefills: Sequence[Instance], decodes: Sequence[Instance]) -> None:
        self.prefills, self.decodes, self.metrics = list(prefills), list(decodes), RouterMetrics()
        self.workers = RouterWorkers(self.prefills, self.decodes)
        self.session: aiohttp.ClientSession

    def app(self) -> web.Application:
        app = web.Application(client_max_size=LONGEST)
        app.router.add_post("/v1/completions", self.handle)
        app.router.add_post("/v1/chat/completions", self.handle)
        app.router.add_get("/health", self.health)
        app.router.add_get("/metrics", self.counted)
        app.router.add_get("/{path:.*}", self.forward)
        app.cleanup_ctx.append(self._with_session)
        return app

    async def _with_session(self, _: web.Application) -> AsyncIterator[None]:
        # a bound on connections would be a bound on requests; an answer takes as long as it takes
        connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=KEPT_S)
        timeout = aiohttp.ClientTimeout(None, sock_connect=CONNECT_S)
        async with aiohttp.ClientSession(timeout=timeout, connector=connector) as self.session:
            yield

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Ask a prefill and a decode instance; another pair if one of them is away."""
        try:
            # Without its charset: JSON says itself how it is encoded, and the name of a charset may be anything.
            body = json.loads(await request.read())
        except (ValueError, RecursionError, web.RequestPayloadError) as error:
            return problem(HTTPStatus.BAD_REQUEST, f"the body is no JSON: {error}")
        if not isinstance(body, dict):
            return problem(HTTPStatus.BAD_REQUEST, "the body is no JSON object")
        body.pop("kv_transfer_params", None)  # its card would have a decode instance call any address
        with self.metrics.request() as told:
            try:
                answer = await self._answered(request, body)
            except AwayError as error:
                LOG.warning("an answer broke off: %s", error)
                told.status, answer = "broken", web.Response()
                if request.transport is not None:
                    request.transport.abort()  # an end in good order would make the answer look whole
            else:
                told.status = str(answer.status)
        return answer

    async def _answered(self, request: web.Request, body: Params) -> web.StreamResponse:
        """Return an instance's answer; AwayError: it broke off when the client had some of it."""
        why = "no instance"
        for _ in range(max(len(self.prefills), len(self.decodes)) + 1):
            prefill, decode, answer = least(self.prefills), least(self.decodes), web.StreamResponse()
            if prefill is None or decode is None:
                side = "decode" if prefill else "prefill"
                return problem(HTTPStatus.SERVICE_UNAVAILABLE, f"no {side} instance takes requests")
            try:
                with prefill.request(), decode.request():
                    return await self._once(request, body, prefill, decode, answer)
            except RefusedError as refused:
                return refused.answer
            except AwayError as error:
                if answer.prepared:
                    raise
                why = str(error)
                self.metrics.retried(error.instance.url)
        return problem(HTTPStatus.BAD_GATEWAY, why)

    async def _once(
        self, request: web.Request, body: Params, prefill: Instance, decode: Instance, answer: web.StreamResponse
    ) -> web.StreamResponse:
        """Ask this pair; `answer`: what the client gets, prepared once there is something of it."""
        if needs_no_prefill(body):
            return await self._decode(request, decode, body, answer)
        assert prefill.card is not None
        try:
            card = prefill.card.read_text()
        except (OSError, UnicodeError) as error:
            raise AwayError(prefill, f"it has left no card: {error}") from error
        if not card:
            raise AwayError(prefill, "it has left no card: the file is empty")
        for_prefill, for_decode = params_for(card)
        ahead = asyncio.create_task(self._prefill(request, prefill, prefill_body(body, for_prefill)))
        told = asyncio.create_task(self._decode(request, decode, {**body, "kv_transfer_params": for_decode}, answer))
        try:
            done, _ = await asyncio.wait((ahead, told), return_when=asyncio.FIRST_COMPLETED)
            if told not in done and not answer.prepared:
                await ahead
            return await told
        finally:  # also when the client has left: whoever is still asked is told
            ahead.cancel()
            told.cancel()
            await asyncio.gather(ahead, told, return_exceptions=True)

    async def _prefill(self, request: web.Request, prefill: Instance, body: Params) -> None:
        try:
            headers = passed(request) | prefill.headers
            async with self.session.post(prefill.url + request.path, json=body, headers=headers) as said:
                text = await said.read()
        except aiohttp.ClientError as error:
            raise AwayError(prefill, str(error) or type(error).__name__) from error
        if said.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            raise AwayError(prefill, f"it answers {said.status}")
        if said.status != HTTPStatus.OK:
            raise RefusedError(web.Response(status=said.status, body=text, headers=kind_of(said)))
        demand_end(text, prefill)

    async def _decode(
        self, request: web.Request, decode: Instance, body: Params, answer: web.StreamResponse
    ) -> web.StreamResponse:
        try:
            async with self.session.post(decode.url + request.path, json=body, headers=passed(request)) as said:
                if said.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
                    raise AwayError(decode, f"it answers {said.status}")
                answer.set_status(said.status)
                answer.headers.update(kind_of(said))
                # Not before there is a piece: vLLM sends the head of a stream before it has the prompt's KV.
                async for piece in pieces(said, decode):
                    if not answer.prepared:
                        await answer.prepare(request)
                    await answer.write(piece)
        except aiohttp.ClientError as error:
            raise AwayError(decode, str(error) or type(error).__name__) from error
        if not answer.prepared:
            await answer.prepare(request)
        await answer.write_eof()
        return answer

    async def forward(self, request: web.Request) -> web.StreamResponse:
        """Any other question, as `/v1/models`: a decode instance's answer."""
        why = "no decode instance"
        for _ in self.decodes:
            if (decode := least(self.decodes)) is None:
                break
            try:
                async with self.session.get(decode.url + request.path_qs, headers=passed(request)) as said:
                    return web.Response(status=said.status, body=await said.read(), headers=kind_of(said))
            except aiohttp.ClientError as error:
                why = str(AwayError(decode, str(error)))
        return problem(HTTPStatus.BAD_GATEWAY, why)

    async def health(self, _: web.Request) -> web.Response:
        """Whether a prefill and a decode instance are well; 503 says which side is not."""
        for side, instances in (("prefill", self.prefills), ("decode", self.decodes)):
            taking = [one for one in instances if not one.draining]
            if not any(await asyncio.gather(*map(self._well, taking))):
                return problem(HTTPStatus.SERVICE_UNAVAILABLE, f"no {side} instance is well")
        return web.Response()

    async def _well(self, instance: Instance) -> bool:
        try:
            timeout = aiohttp.ClientTimeout(HEALTH_S)
            async with self.session.get(f"{instance.url}/health", timeout=timeout) as said:
                return said.status == HTTPStatus.OK
        except (aiohttp.ClientError, TimeoutError):
            return False

    async def counted(self, _: web.Request) -> web.Response:
        """The router's own counts, for Prometheus."""
        return web.Response(text=self.metrics.text(), content_type="text/plain")


def least(instances: Sequence[Instance]) -> Instance | None:
    """The instance with the fewest requests, of those that are not passed over; of all, if all are.

    Of several it is the one that was asked longest ago: else the first would have all where load is light.  One that
    drains is none of them; None: all drain.
    """
    now, ready = time.monotonic(), [one for one in instances if not one.draining]

    def rank(at: Instance) -> tuple[bool, float, int, int]:
        away = at.paused > now
        return away, at.paused if away else 0.0, at.asked, at.turn

    return min(ready, key=rank, default=None)


def parse(argv: Sequence[str] | None = None) -> Namespace:
    """Read the command line."""
    parser = CommandLine(description="a router that asks a prefill and a decode instance at once")
    parser.add_argument("--prefill", required=True, action="append", help="a prefill instance, http://HOST:PORT")
    parser.add_argument("--card", required=True, action="append", type=Path, help="the file with its card")
    parser.add_argument("--decode", required=True, action="append", help="a decode instance")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--admin-port", type=int, help="where instances are added, drained and removed, on 127.0.0.1")
    args = parser.parse_args(argv)
    if len(args.card) != len(args.prefill):
        counts = f"{len(args.prefill)} prefill instances and {len(args.card)} cards"
        parser.error(f"{counts}: give each --prefill its --card")
    return args


def main() -> None:
    """Serve until it is interrupted."""
    args = parse()
    prefills = [Instance(url, card) for url, card in zip(args.prefill, args.card, strict=True)]
    router = Router(prefills, [Instance(url) for url in args.decode])
    app = router.app()
    if args.admin_port is not None:
        app.cleanup_ctx.append(router.workers.served_on(args.admin_port))
    web.run_app(app, host=args.host, port=args.port, handler_cancellation=True)


if __name__ == "__main__":
    main()

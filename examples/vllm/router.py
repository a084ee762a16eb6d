"""A router in front of a prefill and a decode instance of vLLM, which asks both at once.

    python -m examples.vllm.router --prefill http://127.0.0.1:8100 --decode http://127.0.0.1:8200 --card prefill.card

It draws a room for each request and has read the prefill instance's card, so the decode instance need not wait for the
prefill instance's answer: its blocks are allocated and grants are asked for while the prompt is still computed.  What
the client gets is the decode instance's answer; if the client leaves, both instances are told.

The card is read anew when its file has changed: a prefill instance that was replaced has another one.
"""

from __future__ import annotations

import argparse
import asyncio
import secrets
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

Params = dict[str, Any]
#: of an answer that streams
PIECE = 1 << 16


def params_for(card: str) -> tuple[Params, Params]:
    """`kv_transfer_params` of one request, to the prefill instance with this card and to a decode instance.

    The room is drawn here, so it is unique; the secret is shown by whoever fetches the KV: these two alone know it.
    """
    room, secret = secrets.randbits(63), secrets.token_hex(16)
    return (
        {"do_remote_decode": True, "room": room, "secret": secret},
        {"do_remote_prefill": True, "room": room, "secret": secret, "card": card},
    )


def prefill_body(body: Params, params: Params) -> Params:
    """The request as the prefill instance gets it: one token, no stream."""
    plain = {name: value for name, value in body.items() if name not in ("stream_options", "max_completion_tokens")}
    return {**plain, "max_tokens": 1, "stream": False, "kv_transfer_params": params}


class Router:
    """Completions and chat completions, forwarded."""

    def __init__(self, prefill: str, decode: str, card: Path) -> None:
        self.prefill, self.decode, self.card = prefill, decode, card

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Ask both, answer with what the decode instance says; 502: the prefill instance does not take it."""
        body = await request.json()
        for_prefill, for_decode = params_for(self.card.read_text())
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(None)) as session:
            asked = session.post(self.prefill + request.path, json=prefill_body(body, for_prefill))
            ahead = asyncio.create_task(self._prefill(asked))
            told = asyncio.create_task(self._decode(session, request, {**body, "kv_transfer_params": for_decode}))
            try:
                await asyncio.wait((ahead, told), return_when=asyncio.FIRST_EXCEPTION)
                if ahead.done() and ahead.exception() is not None and not told.done():
                    return web.Response(status=502, text=f"the prefill instance: {ahead.exception()}")
                return await told
            finally:  # also when the client has left: whoever is still asked is told
                ahead.cancel()
                told.cancel()
                await asyncio.gather(ahead, told, return_exceptions=True)

    @staticmethod
    async def _prefill(asked: Any) -> None:
        async with asked as answer:
            answer.raise_for_status()
            await answer.read()

    async def _decode(self, session: aiohttp.ClientSession, request: web.Request, body: Params) -> web.StreamResponse:
        async with session.post(self.decode + request.path, json=body) as answer:
            kind = answer.headers.get("Content-Type", "application/json")
            told = web.StreamResponse(status=answer.status, headers={"Content-Type": kind})
            await told.prepare(request)
            async for piece in answer.content.iter_chunked(PIECE):
                await told.write(piece)
            await told.write_eof()
            return told


def main() -> None:
    """Serve until it is interrupted."""
    parser = argparse.ArgumentParser(description="a router that asks a prefill and a decode instance at once")
    parser.add_argument("--prefill", required=True, help="the prefill instance's address, http://HOST:PORT")
    parser.add_argument("--decode", required=True, help="the decode instance's address")
    parser.add_argument("--card", required=True, type=Path, help="the file in which the prefill instance left its card")
    parser.add_argument("--port", type=int, default=8000)
    args = parser.parse_args()
    router, app = Router(args.prefill.rstrip("/"), args.decode.rstrip("/"), args.card), web.Application()
    app.router.add_post("/v1/completions", router.handle)
    app.router.add_post("/v1/chat/completions", router.handle)
    web.run_app(app, port=args.port, handler_cancellation=True)


if __name__ == "__main__":
    main()

"""Instances that come, drain and go behind the router, over real HTTP; they are stand-ins of vLLM's."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

aiohttp = pytest.importorskip("aiohttp", reason="the router needs aiohttp, which vLLM brings")
from aiohttp import web
from support.ports import free_port
from test_vllm_router import BODY, STREAM, StandIn, after_a_while, fleet, serve, slow

from kvproto.adapters.vllm.router import Router, parse
from kvproto.adapters.vllm.router_workers import Instance


@contextlib.asynccontextmanager
async def administered(folder: Path, prefills: list[StandIn], decodes: list[StandIn]) -> AsyncIterator[Any]:
    """A router in front of these; yields a session that asks it, and one that administers it."""
    async with fleet(folder, prefills, decodes) as (session, router):
        runner, url = await serve(router.workers.app())
        try:
            async with aiohttp.ClientSession(url) as admin:
                yield session, admin
        finally:
            await runner.cleanup()


async def said(admin: Any, method: str, path: str, **how: Any) -> tuple[int, Any]:
    async with admin.request(method, path, **how) as answer:
        return answer.status, await answer.json()


async def by(session: Any) -> str:
    """The stand-in that answers a completion."""
    async with session.post("/v1/completions", json=BODY) as answer:
        return str((await answer.json()).get("by", answer.status))


def test_all_instances_are_listed_with_their_side_state_and_requests(tmp_path: Path) -> None:
    async def play() -> None:
        prefill, decode = StandIn("p"), StandIn("d", slow)
        async with administered(tmp_path, [prefill], [decode]) as (session, admin):
            asked = asyncio.create_task(by(session))
            async with asyncio.timeout(10.0):
                while not decode.bodies:  # noqa: ASYNC110  # the stand-in's own task fills it
                    await asyncio.sleep(0.01)
            status, told = await said(admin, "GET", "/workers")
            asked.cancel()
        assert (status, told) == (200, {"workers": [
            {"url": prefill.url, "worker_type": "prefill", "state": "active", "requests": 1,
             "card": str(tmp_path / "p")},
            {"url": decode.url, "worker_type": "decode", "state": "active", "requests": 1},
        ]})  # fmt: skip

    asyncio.run(play())


@pytest.mark.parametrize("side", ["prefill", "decode"])
def test_an_instance_that_drains_gets_no_further_request_until_it_is_added_again(tmp_path: Path, side: str) -> None:
    async def play() -> None:
        one, two, other = StandIn("one"), StandIn("two"), StandIn("other")
        sides = ([one, two], [other]) if side == "prefill" else ([other], [one, two])
        more = {"card": str(tmp_path / "one")} if side == "prefill" else {}
        async with administered(tmp_path, *sides) as (session, admin):
            async with asyncio.timeout(20.0):  # less than it may wait: it has no request
                status, told = await said(admin, "POST", f"/workers/drain?url={one.url}&wait=60")
            assert (status, told["state"], told["requests"]) == (200, "draining", 0)
            for _ in range(4):
                assert await by(session) == ("other" if side == "prefill" else "two")
            assert not one.bodies and len(two.bodies) == 4
            body = {"url": one.url + "/", "worker_type": side, **more}
            status, told = await said(admin, "POST", "/workers", json=body)
            assert (status, told["state"]) == (200, "active")
            for _ in range(4):
                await by(session)
            assert one.bodies

    asyncio.run(play())


def test_a_drained_instance_ends_its_requests_and_the_call_waits_for_them(tmp_path: Path) -> None:
    go = asyncio.Event()

    async def waiting(_: web.Request) -> web.Response:
        await go.wait()
        return web.json_response({"by": "d"})

    async def play() -> None:
        decode = StandIn("d", waiting)
        async with administered(tmp_path, [StandIn("p")], [decode]) as (session, admin):
            asked = asyncio.create_task(by(session))
            async with asyncio.timeout(10.0):
                while not decode.bodies:  # noqa: ASYNC110  # the stand-in's own task fills it
                    await asyncio.sleep(0.01)
            place = f"/workers/drain?url={decode.url}"
            status, told = await said(admin, "POST", f"{place}&wait=0.1")
            assert (status, told["requests"]) == (202, 1)
            assert (await said(admin, "DELETE", f"/workers?url={decode.url}"))[0] == 409, "it has a request"
            drained = asyncio.create_task(said(admin, "POST", f"{place}&wait=60"))
            await asyncio.sleep(0.1)
            assert not drained.done()
            go.set()
            assert await asked == "d"
            async with asyncio.timeout(20.0):  # less than it may wait
                status, told = await drained
            assert (status, told["requests"]) == (200, 0)

    asyncio.run(play())


def test_an_instance_is_added_and_removed_while_the_router_serves(tmp_path: Path) -> None:
    async def play() -> None:
        first, second = StandIn("first"), StandIn("second")
        runner, second.url = await serve(second.app())
        async with administered(tmp_path, [StandIn("p")], [first]) as (session, admin):
            status, told = await said(admin, "POST", "/workers", json={"url": second.url, "worker_type": "decode"})
            assert (status, told["worker_type"]) == (201, "decode")
            status, told = await said(admin, "DELETE", f"/workers?url={first.url}")
            assert (status, told["url"]) == (200, first.url)
            assert await by(session) == "second" and not first.bodies
            _, told = await said(admin, "GET", "/workers")
            assert [each["url"] for each in told["workers"] if each["worker_type"] == "decode"] == [second.url]
        await runner.cleanup()

    asyncio.run(play())


@pytest.mark.parametrize("side", ["prefill", "decode"])
def test_without_an_instance_that_takes_requests_the_answer_is_503_and_names_the_side(
    tmp_path: Path, side: str
) -> None:
    async def play() -> None:
        prefill, decode = StandIn("p"), StandIn("d")
        async with administered(tmp_path, [prefill], [decode]) as (session, admin):
            place = f"url={prefill.url if side == 'prefill' else decode.url}"
            await said(admin, "POST", f"/workers/drain?{place}")
            for gone in (False, True):
                if gone:
                    assert (await said(admin, "DELETE", f"/workers?{place}"))[0] == 200
                async with session.post("/v1/completions", json=BODY) as answer:
                    assert answer.status == 503
                    assert (await answer.json())["error"]["message"] == f"no {side} instance takes requests"
                async with session.get("/health") as answer:
                    assert answer.status == 503, "one that drains serves nobody new"
                async with session.get("/v1/models") as answer:
                    assert answer.status == (502 if side == "decode" else 200)
        assert not prefill.bodies and not decode.bodies

    asyncio.run(play())


def test_an_instance_that_was_passed_over_is_asked_at_once_when_it_is_added_again(tmp_path: Path) -> None:
    async def play() -> None:
        one, other = StandIn("one"), StandIn("other")
        async with fleet(tmp_path, [StandIn("p")], [one, other]) as (session, router):
            runner, url = await serve(router.workers.app())
            router.decodes[0].paused = float("inf")
            async with aiohttp.ClientSession(url) as admin:
                _, told = await said(admin, "GET", "/workers")
                assert [each["state"] for each in told["workers"]] == ["active", "paused", "active"]
                await said(admin, "POST", "/workers", json={"url": one.url, "worker_type": "decode"})
            assert await by(session) == "one"
            await runner.cleanup()

    asyncio.run(play())


def test_of_data_parallel_ranks_that_drain_the_requests_of_all_are_told() -> None:
    ranks = [Instance("http://one", Path(f"card_dp{rank}")) for rank in range(2)]
    router = Router([], [])
    router.workers.sides["prefill"] = ranks
    request: Any = SimpleNamespace(query={"url": "http://one"})
    with ranks[1].request(), ranks[1].request():
        answer = asyncio.run(router.workers.drain(request))
    assert (answer.status, json.loads(answer.text or "")["requests"]) == (202, 2)


def test_a_data_parallel_rank_is_asked_by_its_own_card_and_all_ranks_drain_and_go_at_once(tmp_path: Path) -> None:
    ranks = list[str | None]()

    async def answer(request: web.Request) -> web.Response:
        ranks.append(request.headers.get("X-data-parallel-rank"))
        return web.json_response({"by": "p"})

    async def play() -> None:
        prefill, decode = StandIn("p.card_dp0", answer), StandIn("d", after_a_while)
        (tmp_path / "p.card_dp1").write_text("card of another rank")
        async with administered(tmp_path, [prefill], [decode]) as (session, admin):
            body = {"url": prefill.url, "worker_type": "prefill", "card": str(tmp_path / "p.card_dp1")}
            for status in (201, 200):  # the second time it is known
                assert (await said(admin, "POST", "/workers", json=body))[0] == status
            await asyncio.gather(by(session), by(session))
            assert sorted(map(str, ranks)) == ["0", "1"]
            ours, theirs = ([asked["kv_transfer_params"] for asked in each.bodies] for each in (prefill, decode))
            rank_of = {params["room"]: rank for rank, params in zip(ranks, ours, strict=True)}
            cards = {rank_of[params["room"]]: params["card"] for params in theirs}
            assert cards == {"0": "card of p.card_dp0", "1": "card of another rank"}
            status, told = await said(admin, "POST", f"/workers/drain?url={prefill.url}&wait=60")
            assert (status, told["state"], told["requests"]) == (200, "draining", 0)
            assert await by(session) == "503"
            assert (await said(admin, "DELETE", f"/workers?url={prefill.url}"))[0] == 200
            _, told = await said(admin, "GET", "/workers")
            assert [each["worker_type"] for each in told["workers"]] == ["decode"]

    asyncio.run(play())
    assert Instance("http://p", Path("/some_dp7/card")).headers == {}  # its folder's name


CARD = {"card": "/tmp/c"}  # noqa: S108  # no file: a name
WRONG: tuple[tuple[Any, int, str], ...] = (
    (b"{", 400, "no JSON"), (b"[" * 100_000, 400, "no JSON"), ([], 400, "an object"),
    ({"url": 1, "worker_type": "decode"}, 400, "an object of texts"), ({"worker_type": "decode"}, 400, "http://HOST"),
    ({"url": "127.0.0.1:8100", "worker_type": "decode"}, 400, "http://HOST:PORT"),
    ({"url": "http://x", "worker_type": "regular"}, 400, "prefill or decode"),
    ({"url": "http://x", "worker_type": "prefill"}, 400, "has a card"),
    ({"url": "http://x", "worker_type": "decode", **CARD}, 400, "has a card"),
    ({"url": "http://x", "worker_type": "prefill", **CARD, "bootstrap_port": "1"}, 400, "bootstrap_port is unknown"),
)  # fmt: skip


@pytest.mark.parametrize(("body", "status", "why"), WRONG)
def test_what_is_no_instance_is_refused_with_its_reason(tmp_path: Path, body: Any, status: int, why: str) -> None:
    async def play() -> None:
        async with administered(tmp_path, [StandIn("p")], [StandIn("d")]) as (_, admin):
            how = {"data": body} if isinstance(body, bytes) else {"json": body}
            code, told = await said(admin, "POST", "/workers", **how)
            assert code == status and why in told["error"]
            _, told = await said(admin, "GET", "/workers")
            assert len(told["workers"]) == 2

    asyncio.run(play())


def test_calls_about_an_unknown_instance_are_refused(tmp_path: Path) -> None:
    async def play() -> None:
        decode = StandIn("d")
        async with administered(tmp_path, [StandIn("p")], [decode]) as (_, admin):
            for method, path in (("POST", "/workers/drain"), ("DELETE", "/workers")):
                status, told = await said(admin, method, path)
                assert status == 400 and "?url=" in told["error"]
                status, told = await said(admin, method, f"{path}?url=http://unknown:1")
                assert status == 404 and "http://unknown:1" in told["error"]
            status, told = await said(admin, "POST", f"/workers/drain?url={decode.url}&wait=long")
            assert status == 400 and "seconds" in told["error"]
            body = {"url": decode.url, "worker_type": "prefill", **CARD}
            status, told = await said(admin, "POST", "/workers", json=body)
            assert status == 409 and "is a decode instance" in told["error"]

    asyncio.run(play())


def test_the_calls_are_served_on_a_port_of_their_own_and_never_beside_a_client_s() -> None:
    async def play() -> None:
        port = free_port()
        router = Router([Instance("http://p", Path("c"))], [Instance("http://127.0.0.1:9")])
        app = router.app()
        app.cleanup_ctx.append(router.workers.served_on(port))
        runner, url = await serve(app)
        async with aiohttp.ClientSession() as session:
            assert (await said(session, "GET", f"http://127.0.0.1:{port}/workers"))[0] == 200
            for method in ("POST", "DELETE"):
                async with session.request(method, f"{url}/workers") as answer:
                    assert answer.status in (404, 405)
        await runner.cleanup()
        with socket.socket() as gone, pytest.raises(ConnectionRefusedError):
            gone.connect(("127.0.0.1", port))

    asyncio.run(play())
    words = ["--prefill", "p", "--card", "c", "--decode", "d"]
    assert parse(words).admin_port is None and parse([*words, "--admin-port", "8001"]).admin_port == 8001


# ------------------------------------------------------------------- requests that vLLM gives up when it shuts down
GIVEN_UP = {"choices": [{"index": 0, "text": "", "finish_reason": "abort"}]}


@pytest.mark.parametrize("side", ["prefill", "decode"])
def test_a_request_that_an_instance_gives_up_goes_to_another_one(tmp_path: Path, side: str) -> None:
    """VLLM answers it with status 200 and an empty text."""

    async def giving_up(_: web.Request) -> web.Response:
        return web.json_response(GIVEN_UP)

    async def late(_: web.Request) -> web.Response:
        await asyncio.sleep(0.2)
        return web.json_response({"by": "other"})

    async def play() -> None:
        bad, good, other = StandIn("bad", giving_up), StandIn("good"), StandIn("other", late)
        sides = ([bad, good], [other]) if side == "prefill" else ([other], [bad, good])
        async with administered(tmp_path, *sides) as (session, _):
            assert await by(session) == ("other" if side == "prefill" else "good")
            async with session.get("/metrics") as answer:
                assert f'kvproto_router_retries_total{{instance="{bad.url}"}} 1' in await answer.text()

    asyncio.run(play())


@pytest.mark.parametrize("begun", [False, True])
def test_a_stream_that_is_given_up_is_begun_anew_or_breaks_off(tmp_path: Path, begun: bool) -> None:
    """The sentence may be cut in two by a piece's end."""

    async def giving_up(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse(headers=STREAM)
        await answer.prepare(request)
        last = b'data: {"choices":[{"index":0,"text":"","finish_reason":"abort"}]}\n\n'
        pieces = (b"data: 1\n\n", last[:50], last[50:]) if begun else (last,)
        for piece in pieces:
            await answer.write(piece)
            await asyncio.sleep(0.1)
        return answer

    async def play() -> None:
        async with (
            administered(tmp_path, [StandIn("p")], [StandIn("bad", giving_up), StandIn("good")]) as (session, _),
            session.post("/v1/completions", json=BODY) as answer,
        ):
            if begun:
                with pytest.raises(aiohttp.ClientError):
                    await answer.read()
            else:
                assert await answer.json() == {"by": "good"}

    asyncio.run(play())


def test_a_text_about_giving_up_is_no_giving_up(tmp_path: Path) -> None:
    async def quoting(_: web.Request) -> web.Response:
        return web.json_response({"by": "d", "text": '"finish_reason":"abort"'})

    async def play() -> None:
        async with administered(tmp_path, [StandIn("p")], [StandIn("d", quoting)]) as (session, _):
            assert await by(session) == "d"

    asyncio.run(play())


def test_an_answer_at_once_that_breaks_off_is_asked_of_another_instance(tmp_path: Path) -> None:
    async def breaking(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse(headers={"Content-Type": "application/json"})
        await answer.prepare(request)
        await answer.write(b'{"choices": [')
        assert request.transport is not None
        request.transport.abort()
        return answer

    async def play() -> None:
        async with administered(tmp_path, [StandIn("p")], [StandIn("bad", breaking), StandIn("good")]) as (session, _):
            assert await by(session) == "good"

    asyncio.run(play())

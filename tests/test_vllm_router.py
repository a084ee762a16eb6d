"""The router, over real HTTP, in front of stand-ins of vLLM's instances that keep their requests."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

aiohttp = pytest.importorskip("aiohttp", reason="the router needs aiohttp, which vLLM brings")
from aiohttp import web
from support.ports import free_port

from kvproto.adapters.vllm import router_metrics, router_requests
from kvproto.adapters.vllm.router import Router, least, main, parse
from kvproto.adapters.vllm.router_answers import PASSED
from kvproto.adapters.vllm.router_metrics import RouterMetrics
from kvproto.adapters.vllm.router_requests import needs_no_prefill, params_for, prefill_body
from kvproto.adapters.vllm.router_workers import Instance

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


class StandIn:
    """One instance: what it was asked, what it answers, and whether a client left it."""

    def __init__(self, name: str, answer: Answer | None = None) -> None:
        self.name, self.answer, self.bodies = name, answer, list[dict[str, Any]]()
        self.left, self.well, self.url = 0, True, ""

    async def complete(self, request: web.Request) -> web.StreamResponse:
        self.bodies.append(await request.json())
        try:
            return await self.answer(request) if self.answer else web.json_response({"by": self.name})
        except asyncio.CancelledError:
            self.left += 1
            raise

    async def said(self, request: web.Request) -> web.Response:
        if request.path == "/health":
            return web.Response(status=200 if self.well else 500)
        return web.json_response({"path": request.path_qs, "by": self.name})

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_post("/v1/{kind:.*}", self.complete)
        app.router.add_get("/{path:.*}", self.said)
        return app


async def slow(_: web.Request) -> web.Response:
    await asyncio.sleep(60.0)
    return web.Response()


def refusing(status: int) -> Answer:
    async def answer(_: web.Request) -> web.Response:
        return web.json_response({"error": status}, status=status)

    return answer


async def serve(app: web.Application) -> tuple[web.AppRunner, str]:
    runner = web.AppRunner(app, handler_cancellation=True)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    return runner, f"http://127.0.0.1:{runner.addresses[0][1]}"


@contextlib.asynccontextmanager
async def fleet(folder: Path, prefills: list[StandIn], decodes: list[StandIn]) -> AsyncIterator[Any]:
    """A router in front of these; yields a session that asks it, and the router."""
    made, instances = [], dict[str, Instance]()
    for each in [*prefills, *decodes]:
        runner, each.url = await serve(each.app())
        made.append(runner)
        card = folder / each.name
        card.write_text(f"card of {each.name}")
        instances[each.name] = Instance(each.url, card if each in prefills else None)
    router = Router(*([instances[each.name] for each in side] for side in (prefills, decodes)))
    front, url = await serve(router.app())
    try:
        async with aiohttp.ClientSession(url) as session:
            yield session, router
    finally:
        for served in [front, *made]:
            await served.cleanup()


async def after_a_while(_: web.Request) -> web.Response:
    await asyncio.sleep(0.1)
    return web.json_response({"by": "one"})


STREAM = {"Content-Type": "text/event-stream"}
BODY = {"model": "m", "prompt": [1, 2, 3], "max_tokens": 16, "min_tokens": 8, "n": 2, "stream": True}


def test_a_connection_that_an_instance_may_close_any_moment_is_not_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kvproto.adapters.vllm.router.KEPT_S", 0.2)
    last = dict[Any, float]()

    async def closing(request: web.Request) -> web.Response:
        """Drop what comes on a connection that was idle for .4 s, as when it is closed that moment."""
        now, transport = time.monotonic(), request.transport
        idle, last[transport] = now - last.get(transport, now), now
        if idle > 0.4 and transport is not None:
            transport.abort()
        return web.json_response({"by": "d"})

    async def play() -> None:
        prefill, decode = StandIn("p", closing), StandIn("d", closing)
        async with fleet(tmp_path, [prefill], [decode]) as (session, router):
            for pause in (0.0, 0.0, 0.6):
                await asyncio.sleep(pause)
                async with session.post("/v1/completions", json=BODY) as answer:
                    assert answer.status == 200
            assert "kvproto_router_retries_total{" not in router.metrics.text()
        assert [len(each.bodies) for each in (prefill, decode)] == [3, 3]
        assert 1 < len(last) <= 4  # those of the first two are the same

    asyncio.run(play())


def test_both_instances_are_asked_with_one_room_and_the_decode_instance_answers(tmp_path: Path) -> None:
    async def play() -> None:
        prefill, decode = StandIn("p"), StandIn("d")
        async with (
            fleet(tmp_path, [prefill], [decode]) as (session, _),
            session.post("/v1/completions", json=BODY) as a,
        ):
            assert (a.status, await a.json()) == (200, {"by": "d"})
        (ours,), (theirs,) = prefill.bodies, decode.bodies
        to_prefill, to_decode = ours.pop("kv_transfer_params"), theirs.pop("kv_transfer_params")
        assert ours == {"model": "m", "prompt": [1, 2, 3], "max_tokens": 1, "stream": False}
        assert theirs == BODY
        assert to_prefill["do_remote_decode"] and to_decode["do_remote_prefill"] and to_decode["card"] == "card of p"
        assert all(to_prefill[name] == to_decode[name] for name in ("room", "secret"))

    asyncio.run(play())


@pytest.mark.parametrize("status", [400, 404, 422])
def test_what_the_prefill_instance_refuses_is_passed_on_and_the_decode_instance_is_told(
    tmp_path: Path, status: int
) -> None:
    async def play() -> None:
        prefill, decode = StandIn("p", refusing(status)), StandIn("d", slow)
        async with (
            fleet(tmp_path, [prefill], [decode]) as (session, _),
            session.post("/v1/completions", json=BODY) as a,
        ):
            assert (a.status, await a.json()) == (status, {"error": status})
        assert decode.left == 1

    asyncio.run(play())


def test_what_the_decode_instance_refuses_is_passed_on_at_once_and_the_prefill_instance_is_told(tmp_path: Path) -> None:
    async def play() -> None:
        prefill, decode = StandIn("p", slow), StandIn("d", refusing(400))
        async with (
            fleet(tmp_path, [prefill], [decode]) as (session, _),
            session.post("/v1/completions", json=BODY) as a,
        ):
            assert a.status == 400
        assert prefill.left == 1

    asyncio.run(play())


@pytest.mark.parametrize("side", ["prefill", "decode"])
@pytest.mark.parametrize("how", ["5xx", "gone"])
def test_an_instance_that_is_away_is_passed_over_and_the_request_goes_to_the_other(
    tmp_path: Path, side: str, how: str
) -> None:
    async def play() -> None:
        bad, good, one = StandIn("bad", refusing(503)), StandIn("good"), StandIn("one", after_a_while)
        sides = ([bad, good], [one]) if side == "prefill" else ([one], [bad, good])
        async with fleet(tmp_path, *sides) as (session, router):
            if how == "gone":
                (router.prefills if side == "prefill" else router.decodes)[0].url = "http://127.0.0.1:9"
            for _ in range(3):
                async with session.post("/v1/completions", json=BODY) as a:
                    assert (a.status, await a.json()) == (200, {"by": "one" if side == "prefill" else "good"})
            async with session.get("/metrics") as a:
                text = await a.text()
        assert len(bad.bodies) == (how == "5xx"), "it is asked once"
        assert 'kvproto_router_requests_total{status="200"} 3' in text and "kvproto_router_in_flight 0" in text
        assert "kvproto_router_retries_total{" in text

    asyncio.run(play())


def test_where_all_instances_are_away_the_client_is_told_which_and_why(tmp_path: Path) -> None:
    async def play() -> None:
        prefill = StandIn("p", refusing(500))
        async with (
            fleet(tmp_path, [prefill], [StandIn("d", slow)]) as (session, _),
            session.post("/v1/completions", json=BODY) as a,
        ):
            assert a.status == 502 and "it answers 500" in (await a.json())["error"]["message"]
        async with fleet(tmp_path, [StandIn("q")], [StandIn("d", slow)]) as (session, router):
            router.prefills[0].card.unlink()
            async with session.post("/v1/completions", json=BODY) as a:
                assert a.status == 502 and "it has left no card" in (await a.json())["error"]["message"]

    asyncio.run(play())


def test_both_instances_are_told_when_the_client_leaves(tmp_path: Path) -> None:
    async def play() -> None:
        prefill, decode = StandIn("p", slow), StandIn("d", slow)
        async with fleet(tmp_path, [prefill], [decode]) as (session, _):
            asked = asyncio.create_task(session.post("/v1/completions", json=BODY))
            async with asyncio.timeout(10.0):
                while not (prefill.bodies and decode.bodies):  # noqa: ASYNC110  # the servers' own tasks fill them
                    await asyncio.sleep(0.01)
                asked.cancel()
                while not (prefill.left and decode.left):  # noqa: ASYNC110  # the servers' own tasks end it
                    await asyncio.sleep(0.01)
            async with session.get("/metrics") as a:
                assert 'requests_total{status="left"} 1' in await a.text()

    asyncio.run(play())


def test_an_answer_streams_as_it_comes(tmp_path: Path) -> None:
    go = asyncio.Event()

    async def stream(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
        await answer.prepare(request)
        await answer.write(b"data: 1\n\n")
        await go.wait()
        await answer.write(b"data: 2\n\n")
        return answer

    async def play() -> None:
        async with (
            fleet(tmp_path, [StandIn("p")], [StandIn("d", stream)]) as (session, _),
            session.post("/v1/chat/completions", json=BODY) as a,
        ):
            assert a.headers["Content-Type"] == "text/event-stream; charset=utf-8"
            assert await a.content.readany() == b"data: 1\n\n"
            go.set()
            assert await a.content.read() == b"data: 2\n\n"

    asyncio.run(play())


@pytest.mark.parametrize("status", [503, 422])
def test_a_stream_without_a_piece_yet_is_no_answer(tmp_path: Path, status: int) -> None:
    """vLLM sends the head of a stream at once; its first piece comes when the prompt's KV is there."""
    asked = asyncio.Event()

    async def fail_late(request: web.Request) -> web.StreamResponse:
        await asked.wait()
        return await refusing(status)(request)

    async def stream(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse(headers=STREAM)
        await answer.prepare(request)
        if not asked.is_set():
            asked.set()
            await asyncio.sleep(60.0)
        await answer.write(b"data: 1\n\n")
        return answer

    async def play() -> None:
        bad, good = StandIn("bad", fail_late), StandIn("good")
        async with (
            fleet(tmp_path, [bad, good], [StandIn("d", stream)]) as (session, _),
            asyncio.timeout(20.0),
            session.post("/v1/completions", json=BODY) as a,
        ):
            said = a.status, await a.text()
        assert said == ((200, "data: 1\n\n") if status == 503 else (422, '{"error": 422}'))

    asyncio.run(play())


def test_an_answer_that_breaks_off_does_so_for_the_client_and_is_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def stream(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse(headers=STREAM)
        await answer.prepare(request)
        await answer.write(b"data: 1\n\n")
        assert request.transport is not None
        request.transport.abort()
        return answer

    async def play() -> None:
        async with fleet(tmp_path, [StandIn("p")], [StandIn("d", stream)]) as (session, _):
            async with session.post("/v1/completions", json=BODY) as a:
                with pytest.raises(aiohttp.ClientError):
                    await a.read()
            async with session.get("/metrics") as a:
                assert 'requests_total{status="broken"} 1' in await a.text()

    asyncio.run(play())
    assert [record.message.partition(":")[0] for record in caplog.records] == ["an answer broke off"]


def events(*said: str) -> Answer:
    """A stream of these, each in a piece of its own."""

    async def answer(request: web.Request) -> web.StreamResponse:
        stream = web.StreamResponse(headers=STREAM)
        await stream.prepare(request)
        for each in said:
            await stream.write(f"data: {each}\n\n".encode())
            await asyncio.sleep(0.01)
        return stream

    return answer


SOME = '{"choices":[{"index":0,"text":"a","finish_reason":null}]}'
LAST = '{"choices":[{"index":0,"text":"b","finish_reason":"length"}]}'
TOLD = '{"choices":[],"usage":{"prompt_tokens":3}}'


@pytest.mark.parametrize("first", [(TOLD, "[DONE]"), ("[DONE]",)])
def test_a_stream_that_ends_without_a_token_or_a_reason_goes_to_another_instance(
    tmp_path: Path, first: tuple[str, ...]
) -> None:
    """So vLLM ends one that it gives up, as it shuts down, before the first token."""
    whole = SOME, LAST, TOLD, "[DONE]"

    async def play() -> None:
        one, other = StandIn("one", events(*first)), StandIn("other", events(*whole))
        async with fleet(tmp_path, [StandIn("p")], [one, other]) as (session, _):
            async with session.post("/v1/completions", json=BODY) as a:
                assert (a.status, await a.text()) == (200, "".join(f"data: {each}\n\n" for each in whole))
            async with session.get("/metrics") as a:
                assert f'kvproto_router_retries_total{{instance="{one.url}"}} 1' in await a.text()
        assert len(one.bodies) == len(other.bodies) == 1

    asyncio.run(play())


def test_a_stream_that_ends_without_a_reason_after_tokens_breaks_off(tmp_path: Path) -> None:
    async def play() -> None:
        decode = StandIn("d", events(SOME, TOLD, "[DONE]"))
        async with (
            fleet(tmp_path, [StandIn("p")], [decode]) as (session, _),
            session.post("/v1/completions", json=BODY) as a,
        ):
            with pytest.raises(aiohttp.ClientError):
                await a.read()

    asyncio.run(play())


@pytest.mark.parametrize("said", [
    (SOME, '{"error":{"message":"why"}}', "[DONE]"), ('{"error":"why"}', "[DONE]"), (TOLD, SOME, LAST, "[DONE]"),
    (SOME, LAST, TOLD, "[DONE]"), (TOLD,),
], ids=["error", "an old error", "usage first", "whole", "no end"])  # fmt: skip
def test_any_other_stream_is_passed_on(tmp_path: Path, said: tuple[str, ...]) -> None:
    async def play() -> None:
        async with (
            fleet(tmp_path, [StandIn("p")], [StandIn("d", events(*said))]) as (session, _),
            session.post("/v1/completions", json=BODY) as a,
        ):
            assert (a.status, await a.text()) == (200, "".join(f"data: {each}\n\n" for each in said))

    asyncio.run(play())


@pytest.mark.parametrize("alone", [True, False])
def test_a_client_names_no_card(tmp_path: Path, alone: bool) -> None:
    async def play() -> None:
        decode, prompt = StandIn("d"), ["a", "b"] if alone else "a"
        body = {"prompt": prompt, "kv_transfer_params": {"do_remote_prefill": True, "room": 1, "card": "forged"}}
        async with (
            fleet(tmp_path, [StandIn("p")], [decode]) as (session, _),
            session.post("/v1/completions", json=body) as a,
        ):
            assert a.status == 200
        assert decode.bodies[0].get("kv_transfer_params", {}).get("card") == (None if alone else "card of p")

    asyncio.run(play())


@pytest.mark.parametrize(
    ("data", "headers", "status"),
    [
        (b"[" * 100_000, {}, 400), (b'{"a":' * 50_000, {}, 400), (b"\xff", {}, 400), (b"", {}, 400),
        (b"9" * 5000, {}, 400),
        (b'{"prompt": "a"}', {"Content-Encoding": "gzip"}, 400),
        (b'{"prompt": "a"}', {"Content-Type": "application/json; charset=none"}, 200),
        ('{"prompt": "\u00e9"}'.encode("utf-16"), {}, 200),
    ],
)  # fmt: skip
def test_whatever_a_client_sends_is_an_answer_to_it_alone(
    tmp_path: Path, data: bytes, headers: dict[str, str], status: int
) -> None:
    async def play() -> None:
        async with (
            fleet(tmp_path, [StandIn("p")], [StandIn("d")]) as (session, _),
            session.post("/v1/completions", data=data, headers=headers) as a,
        ):
            assert a.status == status

    asyncio.run(play())


def test_a_host_that_takes_no_connection_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvproto.adapters.vllm.router.CONNECT_S", 0.3)

    async def play() -> None:
        with socket.socket() as full:  # with one connection that nobody takes the system ignores further ones
            full.bind(("127.0.0.1", 0))
            full.listen(0)
            waiting = [socket.socket() for _ in range(4)]
            for each in waiting:
                each.setblocking(False)
                each.connect_ex(full.getsockname())
            async with fleet(tmp_path, [StandIn("p")], [StandIn("gone"), StandIn("d")]) as (session, router):
                router.decodes[0].url = f"http://127.0.0.1:{full.getsockname()[1]}"
                async with asyncio.timeout(20.0), session.post("/v1/completions", json=BODY) as a:
                    assert await a.json() == {"by": "d"}
            for each in waiting:
                each.close()

    asyncio.run(play())


@pytest.mark.parametrize("card", [b"", b"\xff\xfe"])
def test_a_card_that_is_no_text_is_none(tmp_path: Path, card: bytes) -> None:
    async def play() -> None:
        async with fleet(tmp_path, [StandIn("p")], [StandIn("d", slow)]) as (session, _):
            (tmp_path / "p").write_bytes(card)
            async with session.post("/v1/completions", json=BODY) as a:
                assert a.status == 502 and "it has left no card" in await a.text()

    asyncio.run(play())


def test_other_questions_go_to_a_decode_instance_and_health_is_that_of_both_sides(tmp_path: Path) -> None:
    async def play() -> None:
        prefill, away, decode = StandIn("p"), StandIn("away"), StandIn("d")
        async with fleet(tmp_path, [prefill], [away, decode]) as (session, router):
            router.decodes[0].url = "http://127.0.0.1:9"
            async with session.get("/v1/models?x=1") as a:
                assert await a.json() == {"path": "/v1/models?x=1", "by": "d"}
            async with session.get("/health") as a:
                assert a.status == 200
            prefill.well = False
            async with session.get("/health") as a:
                assert a.status == 503 and "no prefill instance is well" in await a.text()
            router.decodes[1].url = "http://127.0.0.1:9"
            async with session.get("/v1/models") as a:
                assert a.status == 502
            for wrong in (b"{", b"[]"):
                async with session.post("/v1/completions", data=wrong) as a:
                    assert a.status == 400

    asyncio.run(play())


@pytest.mark.parametrize(
    ("body", "alone"),
    [
        ({"prompt": [1, 2]}, False), ({"prompt": "a"}, False), ({"prompt": ["a"]}, False),
        ({"prompt": [[1, 2]]}, False),
        ({"prompt": ["a", "b"]}, True), ({"prompt": [[1], [2]]}, True), ({"prompt": "a", "prompt_logprobs": 0}, True),
        ({"prompt": "a", "echo": True}, False), ({"prompt": "a", "echo": True, "logprobs": 1}, True),
        ({"prompt": "a", "use_beam_search": True}, True), ({"messages": []}, False),
        ({"prompt": "a", "prompt_embeds": "AAAA"}, True),
    ],
)  # fmt: skip
def test_a_prompt_that_is_no_single_room_is_computed_at_decode(tmp_path: Path, body: Any, alone: bool) -> None:
    assert needs_no_prefill(body) is alone

    async def play() -> None:
        prefill, decode = StandIn("p"), StandIn("d")
        async with (
            fleet(tmp_path, [prefill], [decode]) as (session, _),
            session.post("/v1/completions", json=body) as a,
        ):
            assert a.status == 200
        assert bool(prefill.bodies) is not alone and ("kv_transfer_params" in decode.bodies[0]) is not alone

    if isinstance(body.get("prompt"), list):
        asyncio.run(play())


def test_rooms_are_drawn_and_the_least_asked_instance_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    rooms = {params_for("c")[0]["room"] for _ in range(8)}
    assert len(rooms) == 8 and all(0 <= room < 1 << 63 for room in rooms)
    assert prefill_body({"max_completion_tokens": 4, "top_k": 1}, {}) == {
        "top_k": 1, "max_tokens": 1, "stream": False, "kv_transfer_params": {},
    }  # fmt: skip
    monkeypatch.setattr(time, "monotonic", lambda: 10.0)
    one, two, three = (Instance(f"http://{each}/") for each in "abc")
    one.asked, two.asked, three.paused = 2, 1, 12.0
    assert least([one, two, three]) is two and two.url == "http://b"
    one.paused = two.paused = 13.0
    assert least([one, two, three]) is three


@pytest.mark.parametrize(
    ("choice", "asked"),
    [
        ("required", "none"), ({"type": "function", "function": {"name": "f"}}, "none"), ("auto", "auto"),
        ("none", "none"),
    ],
)  # fmt: skip
def test_a_prefill_instance_need_not_call_a_tool_with_its_one_token(choice: Any, asked: str) -> None:
    tools = [{"type": "function", "function": {"name": "f"}}]
    body = prefill_body({"messages": [], "tools": tools, "tool_choice": choice}, {})
    assert (body["tools"], body["tool_choice"]) == (tools, asked)
    assert "tool_choice" not in prefill_body({"messages": []}, {})


def test_each_prefill_instance_has_its_card(capsys: pytest.CaptureFixture[str]) -> None:
    told = parse(["--prefill", "a", "--card", "x", "--prefill", "b", "--card", "y", "--decode", "c"])
    assert (told.prefill, told.card, told.decode, told.port) == (["a", "b"], [Path("x"), Path("y")], ["c"], 8000)
    with pytest.raises(SystemExit):
        parse(["--prefill", "a", "--card", "x", "--prefill", "b", "--decode", "c"])
    assert "2 prefill instances and 1 cards: give each --prefill its --card" in capsys.readouterr().err


# ------------------------------------------------------------------------------- which instance, how often, how counted
def test_of_instances_that_are_passed_over_the_first_to_be_back_is_taken_and_of_others_the_least_asked() -> None:
    now = time.monotonic()
    one, two = Instance("http://one"), Instance("http://two")
    assert (one.asked, one.paused) == (0, 0.0)
    one.paused, two.paused = now + 90.0, now + 60.0
    assert least([one, two]) is two
    one.paused, two.paused, two.asked = now - 9.0, 0.0, 1
    assert least([one, two]) is one, "a pause that is over counts no more"
    one.paused, two.paused, one.asked = 0.0, now - 9.0, 2
    assert least([one, two]) is two


def test_instances_without_a_request_are_asked_in_turn() -> None:
    all_three, asked = [Instance(f"http://{each}") for each in "abc"], list[str]()
    for _ in range(6):
        one = least(all_three)
        assert one is not None
        asked.append(one.url[-1])
        with one.request():
            pass
    assert "".join(asked) == "abcabc"


def test_requests_of_an_instance_are_counted_while_it_is_asked() -> None:
    one = Instance("http://one")
    with one.request():
        assert one.asked == 1
        with one.request():
            assert one.asked == 2
        assert not one.idle.is_set()
    assert one.asked == 0 and one.idle.is_set()


@pytest.mark.parametrize(("bad", "good"), [(1, 1), (3, 1), (1, 3)])
def test_a_request_is_tried_once_more_than_there_are_instances_of_a_side(tmp_path: Path, bad: int, good: int) -> None:
    async def play() -> None:
        prefills = [StandIn(f"p{at}", refusing(503)) for at in range(bad)]
        decodes = [StandIn(f"d{at}", slow) for at in range(good)]
        async with (
            fleet(tmp_path, prefills, decodes) as (session, _),
            session.post("/v1/completions", json=BODY) as a,
        ):
            assert a.status == 502
        assert sum(len(each.bodies) for each in prefills) == max(bad, good) + 1

    asyncio.run(play())


def test_a_decode_instance_that_is_away_is_not_waited_for_until_the_prompt_is_computed(tmp_path: Path) -> None:
    async def play() -> None:
        bad, good = StandIn("bad", refusing(503)), StandIn("good")
        begun = time.monotonic()
        async with (
            fleet(tmp_path, [StandIn("p", slow)], [bad, good]) as (session, _),
            session.post("/v1/completions", json=BODY) as a,
        ):
            assert (await a.json())["by"] == "good"
        assert time.monotonic() - begun < 30.0

    asyncio.run(play())


def test_an_answer_that_has_begun_is_the_decode_instances_matter_alone(tmp_path: Path) -> None:
    """A prefill instance that fails afterwards has computed what was needed."""

    async def stream(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse(headers=STREAM)
        await answer.prepare(request)
        await answer.write(b"begun, ")
        await asyncio.sleep(0.4)
        await answer.write(b"ended")
        return answer

    async def late(_: web.Request) -> web.Response:
        await asyncio.sleep(0.2)
        return web.Response(status=500)

    async def play() -> None:
        async with (
            fleet(tmp_path, [StandIn("p", late)], [StandIn("d", stream)]) as (session, _),
            session.post("/v1/completions", json=BODY) as a,
        ):
            assert (a.status, await a.text()) == (200, "begun, ended")

    asyncio.run(play())


def test_an_empty_answer_and_the_client_s_own_headers_are_passed_on(tmp_path: Path) -> None:
    seen = list[dict[str, str]]()

    async def nothing(request: web.Request) -> web.Response:
        seen.append({name: request.headers.get(name, "") for name in ("Authorization", "X-Request-Id", "Cookie")})
        return web.Response()

    async def play() -> None:
        headers = {"Authorization": "Bearer me", "X-Request-Id": "7", "Cookie": "mine"}
        async with (
            fleet(tmp_path, [StandIn("p", nothing)], [StandIn("d", nothing)]) as (session, _),
            session.post("/v1/completions", json=BODY, headers=headers) as a,
        ):
            assert (a.status, await a.text()) == (200, "")
        assert seen
        assert all(each == {"Authorization": "Bearer me", "X-Request-Id": "7", "Cookie": ""} for each in seen)

    asyncio.run(play())


def test_an_instance_that_is_gone_is_not_well_and_an_error_has_vllm_s_form(tmp_path: Path) -> None:
    async def play() -> None:
        async with fleet(tmp_path, [StandIn("p")], [StandIn("d")]) as (session, router):
            async with session.get("/health") as a:
                assert a.status == 200
            router.prefills[0].url = "http://127.0.0.1:9"
            async with session.get("/health") as a:
                error: dict[str, Any] = {"type": "ServiceUnavailable", "param": None, "code": 503}
                error["message"] = "no prefill instance is well"
                assert (a.status, await a.json()) == (503, {"error": error})

    asyncio.run(play())


def test_a_router_counts_requests_in_flight_retries_and_the_seconds_that_they_took(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now, counts = [5.0], RouterMetrics()
    monkeypatch.setattr(router_metrics, "time", SimpleNamespace(monotonic=lambda: now[0]))
    assert "kvproto_router_in_flight 0" in counts.text()
    for status in ("200", "502"):
        with counts.request() as told:
            now[0] += 2.5
            told.status = status
            assert "kvproto_router_in_flight 1" in counts.text()
        counts.retried("http://away")
    lines = counts.text().splitlines()
    assert {"kvproto_router_in_flight 0", "kvproto_router_seconds_total 5.0",
            'kvproto_router_retries_total{instance="http://away"} 2', 'kvproto_router_requests_total{status="502"} 1',
            "# TYPE kvproto_router_retries_total counter"} <= {*lines}  # fmt: skip


def test_a_room_is_of_63_bits_and_a_secret_of_128(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in = SimpleNamespace(randbits=lambda bits: bits, token_hex=lambda size: size)
    monkeypatch.setattr(router_requests, "secrets", stand_in)
    prefill, decode = params_for("a card")
    assert prefill["room"] == decode["room"] == 63 and prefill["secret"] == decode["secret"] == 16


@pytest.mark.parametrize(
    ("body", "alone"),
    [({"prompt": [1, "two"]}, True), ({"prompt": ["one"]}, False), ({"prompt_logprobs": 0}, True),
     ({"echo": True, "logprobs": 0}, True), ({"echo": True}, False), ({"logprobs": 1}, False)],
)  # fmt: skip
def test_which_requests_one_instance_answers(body: dict[str, Any], alone: bool) -> None:
    assert needs_no_prefill(body) is alone


@pytest.mark.parametrize("missing", ["--prefill", "--card", "--decode"])
def test_a_router_needs_an_instance_of_each_side(missing: str, capsys: pytest.CaptureFixture[str]) -> None:
    given = {"--prefill": "http://p", "--card": "c", "--decode": "http://d"}
    with pytest.raises(SystemExit):
        parse([word for name, value in given.items() if name != missing for word in (name, value)])
    assert missing in capsys.readouterr().err


def test_a_router_serves_the_instances_of_its_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    served = list[Any]()
    monkeypatch.setattr(Router, "app", lambda self: self)
    monkeypatch.setattr(web, "run_app", lambda made, **how: served.append((made, how)))
    words = "router --prefill http://p/ --card c --prefill http://q --card e --decode http://d --port 1"
    monkeypatch.setattr("sys.argv", words.split())
    main()
    ((made, how),) = served
    assert [(each.url, each.card) for each in made.prefills] == [("http://p", Path("c")), ("http://q", Path("e"))]
    assert [(each.url, each.card) for each in made.decodes] == [("http://d", None)]
    assert how == {"host": "127.0.0.1", "port": 1, "handler_cancellation": True}


def test_a_router_is_administered_on_the_port_of_its_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    told, port = list[tuple[int, int]](), free_port()

    async def asked(app: web.Application) -> None:
        runner, _ = await serve(app)
        try:
            async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}/workers") as answer:
                told.append((answer.status, len((await answer.json())["workers"])))
        finally:
            await runner.cleanup()

    monkeypatch.setattr(web, "run_app", lambda app, **_: asyncio.run(asked(app)))
    words = f"router --prefill http://p --card c --decode http://d --port 1 --admin-port {port}"
    monkeypatch.setattr("sys.argv", words.split())
    main()
    assert told == [(200, 2)]


def test_an_answer_of_500_is_one_of_an_instance_that_is_away_and_the_error_says_whose(tmp_path: Path) -> None:
    async def play() -> None:
        bad, good = StandIn("bad", refusing(500)), StandIn("good")
        async with (
            fleet(tmp_path, [StandIn("p", slow)], [bad, good]) as (session, _),
            session.post("/v1/completions", json=BODY) as a,
        ):
            assert (await a.json())["by"] == "good"
        async with (
            fleet(tmp_path, [StandIn("p", slow)], [bad]) as (session, _),
            session.post("/v1/completions", json=BODY) as a,
        ):
            assert (await a.json())["error"]["message"] == f"{bad.url}: it answers 500"

    asyncio.run(play())


def test_what_is_passed_and_what_is_not_are_all_that_the_page_names() -> None:
    assert {*PASSED} == {"Authorization", "X-Request-Id", "traceparent", "tracestate"}
    generation = [
        "stream_options", "max_completion_tokens", "min_tokens", "n", "best_of", "use_beam_search", "logprobs",
        "top_logprobs", "echo",
    ]  # fmt: skip
    plain = prefill_body(dict.fromkeys([*generation, "prompt", "seed"], 1), {"room": 5})
    assert plain == {"prompt": 1, "seed": 1, "max_tokens": 1, "stream": False, "kv_transfer_params": {"room": 5}}

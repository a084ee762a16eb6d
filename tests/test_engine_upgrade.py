"""The upgrade of a fleet, without an engine: two builds, the load, the links of logs, the rows."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

aiohttp = pytest.importorskip("aiohttp", reason="the load needs aiohttp, which the engines bring")
from aiohttp import web
from test_versions_meet import LAYOUT, PATIENCE, decode_endpoint, prefill_endpoint
from test_vllm_router import serve

from examples.engine_runs import fleet_build
from examples.engine_runs.fleet import CLOSED, LOST, UP
from examples.engine_runs.fleet_router import STEP
from examples.engine_runs.fleet_sglang import FleetSglang
from examples.engine_runs.fleet_vllm import FleetVllm
from examples.engine_runs.load import Answer, Load, Spelling, read
from examples.engine_runs.table import upgraded
from examples.engine_runs.upgrade_row import HEAD, UpgradeRow, judged
from examples.vllm.reference import Reference
from kvproto.io.transports.fabric import Fabric


def test_what_the_newer_build_changes_stands_once_in_this_tree() -> None:
    text = (fleet_build.TOP / fleet_build.MESSAGES).read_text()
    assert [text.count(old) for old, _ in fleet_build.EDITS] == [1, 1]


def test_a_newer_build_speaks_a_version_more_and_has_another_digest(tmp_path: Path) -> None:
    made, own = fleet_build.newer(tmp_path / "newer"), fleet_build.told("this tree", fleet_build.TOP)
    assert (made.oldest, made.newest) == (own.oldest, own.newest + 1) and made.digest != own.digest
    assert made.environment()["PYTHONPATH"] == str(tmp_path / "newer")


def test_a_commit_that_this_checkout_has_not_is_named(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"has no commit 0123abcd.*--older"):
        fleet_build.older(tmp_path / "older", "0123abcd")


def test_links_that_come_up_and_are_closed_are_read_from_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "kvproto.links")
    fabric = Fabric(auto=True)
    with decode_endpoint(fabric) as decode:
        decode.start()
        with prefill_endpoint(fabric) as prefill:
            prefill.start()
            decode.connect(LAYOUT, [prefill.address])
            wait_until(lambda: UP.search(caplog.text))
        wait_until(lambda: CLOSED.search(caplog.text))
    (version, differ), *_ = UP.findall(caplog.text)
    assert (int(version), differ) == (fleet_build.told("own", fleet_build.TOP).newest, "")
    assert not LOST.search(caplog.text)
    other = "link 1 to rank 0 of group 7 is up; it works at wire version 3, and the builds differ in layout (a, b)"
    assert UP.findall(other) == [("3", ", and the builds differ")]
    assert LOST.search("decode rank 0 of group 2: link 1 to rank 0 of group 7 is lost")


def test_the_next_instance_is_replaced_when_the_last_successor_answers(tmp_path: Path) -> None:
    fleet = FleetSglang(tmp_path / "model", tmp_path, lambda *_: None)
    server = fleet.servers[0]
    server.starts = 2
    asked = '[t] INFO:     127.0.0.1:1 - "{} HTTP/1.1" {}\n'
    others = ("POST /v1/completions", "503 Service Unavailable"), ("GET /health", "200 OK")
    server.log.write_text("".join(asked.format(*line) for line in [("POST /v1/completions", "200 OK"), *others]))
    assert server.answered == 1

    async def play() -> None:
        waits = asyncio.create_task(server.answers(1, PATIENCE))
        await asyncio.sleep(0)
        with server.log.open("a") as log:
            log.write(asked.format("POST /v1/completions", "200 OK"))
        await waits
        with pytest.raises(TimeoutError):
            await server.answers(1, 0.0)

    asyncio.run(play())
    assert server.answered == 2


def wait_until(what: Callable[[], Any]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def body(tokens: list[int], cached: int | None = 4, reason: str = "length") -> dict[str, Any]:
    details = None if cached is None else {"cached_tokens": cached}
    usage = {"prompt_tokens": 5, "prompt_tokens_details": details}
    return {"choices": [{"index": 0, "token_ids": tokens, "finish_reason": reason}], "usage": usage}


def streamed(*pieces: Any) -> str:
    return "".join(f"data: {json.dumps(each)}\n\n" for each in pieces) + "data: [DONE]\n\n"


FIRST = {"choices": [{"index": 0, "token_ids": [1], "finish_reason": None}]}
LAST = {"choices": [], "usage": body([])["usage"]}


@pytest.mark.parametrize(
    ("text", "answer", "computed"),
    [
        (json.dumps(body([1, 2])), Answer([1, 2], 5, 4), False),
        (json.dumps(body([1, 2], None)), Answer([1, 2], 5, 0), True),
        (streamed(FIRST, body([2])), Answer([1, 2], 5, 4), False),
        (streamed(FIRST, LAST), Answer([1], 5, 4), False),
        (json.dumps(body([], reason="abort")), Answer(fault="it ends by abort"), False),
        (streamed(FIRST, {"error": "why"}), Answer(fault="an error in a stream: why"), False),
    ],
)  # fmt: skip
def test_an_answer_is_read_at_once_and_of_a_stream(text: str, answer: Answer, computed: bool) -> None:
    assert read(text) == answer and answer.computed is computed


def test_an_answer_in_text_is_read_as_tokens_and_its_prompt_was_not_computed() -> None:
    spelling = Spelling(lambda tokens: "".join(map(chr, tokens)), lambda text: [*map(ord, text)])
    first = {"choices": [{"index": 0, "text": "a", "finish_reason": None}]}
    last = {"choices": [{"index": 0, "text": "b", "finish_reason": "length"}]}
    whole = read(json.dumps({**last, "usage": LAST["usage"]}), spelling)
    assert (whole, whole.computed) == (Answer([98], 5, 5), False)
    assert read(streamed(first, last, LAST), spelling) == Answer([97, 98], 5, 5)


@pytest.mark.parametrize("fleet", [FleetVllm, FleetSglang])
def test_each_instance_of_a_fleet_has_a_build_of_its_own_and_is_known_to_the_router(fleet: Any, tmp_path: Path) -> None:
    made, build = fleet(tmp_path / "model", tmp_path, print, 2), fleet_build.FleetBuild("b", tmp_path / "b", 3, 3, "")
    router, other = (each.command() for each in made.routers)
    for server in made.servers:
        command, place = server.command(60), server.environment(build)["PYTHONPATH"].split(":")
        assert str(server.port) in command and server.side in " ".join(command) + json.dumps(server.worker)
        assert str(build.folder) in place and f"--{server.side}" in router and server.url in router
    assert len({server.port for server in made.servers}) == len(made.servers)
    ports = [(int(one), int(two)) for one, two in zip(router, other, strict=True) if one != two]
    assert ports and all(two - one == STEP for one, two in ports)  # both know all instances


def test_sglang_s_router_leaves_an_instance_out_and_takes_it_in_when_it_says_so(tmp_path: Path) -> None:
    known, asked = {"u1": False}, list[str]()

    async def said(request: web.Request) -> web.Response:
        asked.append(f"{request.method} {request.path}")
        if request.method == "POST":
            known["u1"] = True
        if request.method == "DELETE":
            known.clear()
            return web.json_response({}, status=202)
        workers = [{"id": name, "url": server.url, "is_healthy": well} for name, well in known.items()]
        return web.json_response({"workers": workers})

    async def play() -> None:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", said)
        runner, fleet.routers[0].admin = await serve(app)
        async with aiohttp.ClientSession() as session:
            await fleet.take_in(session, server)
            await fleet.leave_out(session, server)
            with pytest.raises(KeyError):
                await fleet.leave_out(session, server)  # it knows it no more
        await runner.cleanup()

    fleet = FleetSglang(tmp_path / "model", tmp_path, lambda *_: None)
    server = fleet.servers[0]
    asyncio.run(play())
    look = "GET /workers"
    assert asked == ["POST /workers", look, look, "DELETE /workers/u1", look, look]


def test_a_load_counts_what_is_asked_answered_equal_and_failed() -> None:
    async def said(request: web.Request) -> web.Response:
        (token, *_) = (await request.json())["prompt"]
        return web.Response(status=503, text="away") if token == 3 else web.json_response(body([token], 4 - token % 2))

    async def play() -> Load:
        app = web.Application()
        app.router.add_post("/v1/completions", said)
        runner, url = await serve(app)
        async with aiohttp.ClientSession() as session:
            prompts = [[1] * 5, [2] * 5, [3] * 5]
            load = Load([url], session, prompts, [Reference([1]), Reference([9]), Reference([3])], 1)
            running = asyncio.create_task(load.run(1))
            await load.more(2, PATIENCE)
            while not load.tally.failed:  # noqa: ASYNC110  # the load's own task counts
                await asyncio.sleep(0.01)
            load.stop()
            await running
        await runner.cleanup()
        return load

    tally = asyncio.run(play()).tally
    assert (tally.requests, tally.answered, tally.equal, tally.computed, tally.failed) == (3, 2, 1, 1, 1)
    assert tally.faults == {"status 503: away": 1} and tally.longest <= tally.pause


LINKS = {"version 3, tables other": 4, "version 4, tables same": 2}
ROW = UpgradeRow("drained", "a: 3 to 3", "b: 3 to 4", 9, 9, 9, 0, 0, 0, 2.0, 1.0, LINKS, 8, 0, [1.5], {}, 60.0, "ab")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({}, []), ({"equal": 8}, ["1 answers are not the whole model's"]),
        ({"links": {"version 3, tables same": 2}},
         ["no link of two builds came up", "all links work at one wire version"]),
        ({"failed": 1}, ["1 requests failed"]), ({"computed": 2}, ["2 prompts were computed by decode"]),
        ({"retried": 1}, ["1 requests were retried"]), ({"lost": 1}, ["1 links were lost"]),
        ({"lost": 1, "goodbye": False}, []),
        ({"way": "killed", "failed": 3, "lost": 2, "pause": 59.0}, []),
        ({"way": "killed", "links": {"version 3, tables other": 4}}, []),
        ({"way": "killed", "links": {"version 3, tables same": 4}}, ["no link of two builds came up"]),
        ({"way": "scaled", "failed": 1}, ["1 requests failed"]),
        ({"way": "killed", "pause": 61.0}, ["no client had an answer for 61 s"]),
        ({"way": "cut off", "failed": 3, "computed": 1, "retried": 9, "lost": 8}, []),
        ({"older": "b: 3 to 4", "newer": "a: 3 to 3", "links": {"version 3, tables other": 4}}, []),
    ],
)  # fmt: skip
def test_a_row_is_judged_by_its_way(change: dict[str, Any], why: list[str]) -> None:
    assert judged(msgspec.structs.replace(ROW, **change)) == why


def test_the_page_has_a_line_for_each_way(tmp_path: Path) -> None:
    assert upgraded(tmp_path) == ""
    cut = msgspec.structs.replace(ROW, way="cut off", failed=1, faults={"a | b": 1}, wrong=["one"])
    (tmp_path / "vllm_upgrade.json").write_bytes(msgspec.json.encode([ROW, cut]))
    head, _, first, second = upgraded(tmp_path).splitlines()[-4:]
    assert head.count("|") == first.count("|") == second.count("|") == len(HEAD) + 1
    assert first.startswith("| vLLM | drained: a: 3 to 3 → b: 3 to 4 | 9 | 9 | 9 | 0 | 0 | 0 |")
    assert first.endswith("| yes |")
    assert "| 1 (1: a / b) |" in second and second.endswith("| **no**: one |")

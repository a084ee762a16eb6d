"""The runs over HTTP, without an engine: the guides' commands and the clients' judgement."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("aiohttp", reason="the clients need aiohttp, which the engines bring")
from test_vllm_router import serve

from examples.engine_runs import data_parallel, guide
from examples.engine_runs.clients import TOKENS, Case, Clients, Row, cases, texts
from examples.engine_runs.guide import GUIDES, bound, commands, running
from examples.engine_runs.kept_rows import KeptRows
from examples.engine_runs.table import over_http
from examples.vllm import named


@pytest.mark.parametrize("engine", GUIDES)
def test_a_guide_has_the_commands_of_two_servers_and_a_router(engine: str) -> None:
    of = GUIDES[engine]
    prefill, decode, router = commands(of, Path("/a model"))
    for server in (prefill, decode):
        assert server.startswith(of.server) and server.endswith(of.cpu) and "'/a model'" in server
    assert router.startswith("python -m ") and "router" in router and of.cpu not in router


def test_a_prefill_instance_with_data_parallel_ranks_is_given_to_the_router_once_a_rank() -> None:
    plain = commands(GUIDES["vllm"], Path("model"))
    prefill, decode, router = data_parallel.of_ranks(plain, 2)
    assert (prefill, decode) == (f"{plain[0]} --data-parallel-size 2", plain[1])
    for rank in (0, 1):
        assert f"--prefill http://127.0.0.1:8100 --card /tmp/prefill-0.card_dp{rank}" in router
    assert router.count("--card") == router.count("--prefill ") == 2 and router.count("--decode") == 1


def _metrics(name: str, *counts: int) -> str:
    return "".join(
        f'vllm:kvproto_{name}_total{{engine="{rank}",model_name="m"}} {count}.0\n' for rank, count in enumerate(counts)
    )


@pytest.mark.parametrize(
    ("sent", "received", "failed", "good"),
    [((3, 4), 7, 0, True), ((7, 0), 7, 0, False), ((3, 4), 6, 1, False), ((3, 4), 0, 0, False), ((), 0, 0, False)],
)
def test_each_rank_has_to_have_sent_kv_and_no_room_may_have_failed(
    sent: tuple[int, ...], received: int, failed: int, *, good: bool
) -> None:
    decode = _metrics("received", received) + _metrics("failed", failed)
    row = data_parallel.judged(_metrics("sent", *sent) + "# HELP vllm:kvproto_sent_total x\n", decode, 2)
    assert row.good is good and f"at decode {received}, and {failed} failed" in row.note


def test_ranks_are_bound_to_cores_where_there_are_several() -> None:
    assert bound("serve --tp 1") == bound("serve") == {}
    assert len(bound("serve --tp 3")["SGLANG_CPU_OMP_THREADS_BIND"].split("|")) == 3


def test_what_the_commands_start_ends_with_them(tmp_path: Path) -> None:
    with running(GUIDES["vllm"], ["echo begun; sleep 60 & wait"], tmp_path) as programs:
        (log,) = programs.logs
        for _ in range(500):
            if log.read_text():
                break
            asyncio.run(asyncio.sleep(0.01))
    assert log.read_text() == "begun\n"


PLAIN = json.dumps({"choices": [{"index": 1, "text": "b"}, {"index": 0, "text": "a"}]})
ANSWERS: tuple[dict[str, Any], ...] = (
    {"choices": [{"index": 0, "text": "a"}]}, {"choices": [{"index": 1, "delta": {"content": "b"}}]},
    {"choices": [{"index": 0, "text": "c"}]}, {"choices": [], "usage": {}},
    {"choices": [{"index": 1, "delta": {}}]}, {"choices": [{"index": 1, "delta": {"content": None}}]},
)  # fmt: skip
STREAM = "".join(f"data: {json.dumps(each)}\n\n" for each in ANSWERS)


def test_texts_are_read_by_choice_of_an_answer_and_of_a_stream() -> None:
    assert texts(PLAIN) == ["a", "b"]
    assert texts(STREAM + "data: [DONE]\n\n") == ["ac", "b"]
    assert texts(json.dumps({"choices": [{"index": 0, "message": {"content": "hello"}}]})) == ["hello"]


class Tokenizer:
    """One token a character."""

    def apply_chat_template(self, words: Any, **_: Any) -> list[int]:
        return [len(each["content"]) for each in words]

    def __call__(self, text: str, **_: Any) -> dict[str, list[int]]:
        return {"input_ids": [ord(each) for each in text]}


def test_cases_of_another_seed_ask_other_prompts_and_two_are_to_be_refused() -> None:
    one, other = cases(Tokenizer(), "one"), cases(Tokenizer(), "other")
    assert [case.name for case in one if not case.prompts] == ["too long", "a wrong request"]
    assert all(a.body != b.body for a, b in zip(one, other, strict=True))
    assert {case.body["max_tokens"] for case in one} == {1, TOKENS}


@pytest.mark.parametrize(
    ("status", "answer", "prompts", "good"),
    [
        (200, PLAIN, [[1], [2]], True), (200, PLAIN, [[1], [3]], False), (200, PLAIN, [[1]], False),
        (500, "", [[1]], False), (400, "", [], True), (200, PLAIN, [], False), (502, "", [], False),
    ],
)  # fmt: skip
def test_an_answer_is_judged_by_the_whole_model_s(status: int, answer: str, prompts: Any, good: bool) -> None:
    from aiohttp import ClientSession, web

    def whole(prompts: list[list[int]], tokens: int) -> list[str]:
        assert tokens == TOKENS
        return [{1: "a", 2: "b", 3: "c"}[prompt[0]] for prompt in prompts]

    async def said(request: web.Request) -> web.Response:
        assert (await request.json())["model"] == "m"
        return web.Response(status=status, text=answer)

    async def play() -> None:
        app = web.Application()
        app.router.add_post("/v1/completions", said)
        runner, url = await serve(app)
        async with ClientSession() as session:
            clients, case = Clients(url, "m", session, whole), Case("one", "/v1/completions", {}, prompts)
            row, together = await clients.play(case), await clients.at_once([case, case])
            assert (row.good, together.good) == (good, good)
            assert (await clients.get("/nothing"))[0] == 404
        await runner.cleanup()
        async with ClientSession() as session:
            gone = Clients("http://127.0.0.1:9", "m", session, whole)
            assert not (await gone.play(case)).good and await gone.get("/health") == (0, "")

    asyncio.run(play())


def test_a_row_is_in_the_table_as_soon_as_it_is_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "rows.json"
    rows, unkept = KeptRows(file), KeptRows(None)
    assert not rows.good
    for number, good in enumerate((True, False), 1):
        rows.keep(Row(f"case {number}", good, 0.5))
        assert [row["name"] for row in json.loads(file.read_text())] == ["case 1", "case 2"][:number]
        assert rows.good is good and f"case {number}" in capsys.readouterr().out
    unkept.keep(Row("alone", good=True, seconds=0.1))
    assert unkept.good and [each.name for each in tmp_path.iterdir()] == ["rows.json"]


def test_the_page_has_the_requests_of_both_engines_beside_each_other(tmp_path: Path) -> None:
    assert over_http(tmp_path) == ""
    rows = [{"name": "chat", "good": True, "note": ""}, {"name": "n = 2", "good": False, "note": "status 500: a|b"}]
    (tmp_path / "vllm_http.json").write_text(json.dumps(rows))
    (tmp_path / "sglang_http.json").write_text(json.dumps(rows[:1]))
    assert over_http(tmp_path).splitlines()[-4:] == [
        "| request | vLLM | SGLang |", "| --- | --- | --- |", "| chat | yes | yes |",
        "| n = 2 | **no**: status 500: a/b | - |",
    ]  # fmt: skip


def test_the_cpu_build_has_the_name_that_vllm_s_command_asks_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("examples.vllm.named.sysconfig.get_path", lambda _: str(tmp_path))
    monkeypatch.setattr("examples.vllm.named.metadata.version", lambda _: "0.32.0")
    named.main()
    named.main()
    text = (tmp_path / "vllm-0.32.0+cpu.dist-info" / "METADATA").read_text()
    assert "Name: vllm\nVersion: 0.32.0+cpu\n" in text


def test_an_instance_that_is_killed_is_started_anew_and_who_asked_meanwhile_is_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from aiohttp import ClientSession, web

    done, killed = list[str](), asyncio.Event()

    async def said(request: web.Request) -> web.Response:
        tokens = (await request.json())["max_tokens"]
        done.append(f"asked for {tokens}")
        if "started" not in done:
            await killed.wait()
            return web.Response(status=502)
        return web.Response(text=json.dumps({"choices": [{"index": 0, "text": "a"}]}))

    async def well(request: web.Request) -> web.Response:
        return web.Response(text=request.path)

    class Programs:
        logs: tuple[Path, ...] = ()

        def kill(self, index: int) -> None:
            done.append(f"killed {index}")
            killed.set()

        def start(self, index: int) -> None:
            assert index == 1
            done.append("started")

    async def play() -> Any:
        app = web.Application()
        app.router.add_post("/v1/completions", said)
        app.router.add_get("/health", well)
        runner, url = await serve(app)
        async with ClientSession() as session:
            clients = Clients(url, "m", session, lambda *_: ["a"])
            programs: Any = Programs()
            case = Case("one", "/v1/completions", {"max_tokens": 1}, [[1]])
            row = await guide.replaced(clients, programs, 1, "decode killed", case)
        await runner.cleanup()
        return row

    monkeypatch.setattr(guide, "UNDER_WAY_S", 0.0)
    monkeypatch.setattr(guide, "AFTER_S", 0.0)
    row = asyncio.run(play())
    assert row.good and row.note.startswith("the request under way: status 502 after 0 s; asked 0 s later: status 502")
    assert sorted(done[:4]) == ["asked for 16", "asked for 400", "killed 1", "started"] and done[3] == "started"

"""Request traces replayed in simulated time: each request ends, faults cost their price."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from kvproto.lab.bench.request_traces import BLOCK, TracedRequest, chosen, read_trace
from kvproto.lab.bench.trace_engines import EngineModel, PrefixCache
from kvproto.lab.bench.trace_replay import Fleet, TraceReplay, figures, spread
from kvproto.lab.cli.bench_command import main

EXCERPTS = Path(__file__).parents[1] / "examples" / "traces"
CONVERSATION = EXCERPTS / "mooncake_conversation.jsonl"
#: a small model, so that a chunk is a few messages and little else
SMALL = Fleet(layers=8, heads=4, dim=64, chunk_tokens=2048, prefill_tp=2, decode_tp=1)


def replayed(fleet: Fleet, requests: list[TracedRequest]) -> dict[str, Any]:
    run = TraceReplay(fleet)
    run.run(requests, lambda: True)
    return figures(run)


def excerpt(requests: int = 40, pace: float = 4.0) -> list[TracedRequest]:
    return chosen(read_trace(CONVERSATION), thin=1, requests=requests, pace=pace)


@pytest.mark.parametrize("way", ["prefetch", "no prefetch", "pages"])
@pytest.mark.parametrize("fleet", [SMALL, replace(SMALL, prefill=2, decode=3)])
def test_every_request_of_a_trace_ends_well_in_every_way(fleet: Fleet, way: Any) -> None:
    found = replayed(fleet.way(way), excerpt())
    assert (found["well"], found["failed"], found["unsettled"], found["left"]) == (40, {}, 0, [])
    assert (found["parts_staged"] == 0) is (way == "pages")
    assert found["transfer"]["p50"] <= found["transfer"]["p90"] <= found["transfer"]["p99"] <= found["transfer"]["max"]


def test_a_replay_is_the_same_each_time_with_every_fault() -> None:
    fleet = replace(SMALL, decode=2, loss=0.02, failed_writes=0.02, aborts=0.2)
    first, second = (replayed(fleet, excerpt()) for _ in range(2))
    assert first == second
    assert first["unsettled"] == 0 and first["left"] == []
    assert first["aborted"] and first["failed_writes"] and first["messages_lost"]
    assert first["well"] + first["aborted"] + sum(first["failed"].values()) == 40


@pytest.mark.parametrize("told", [0.0, 1.0], ids=["lost", "told before"])
def test_staged_writes_that_fail_cost_no_request(told: float) -> None:
    """Parts that have landed with their notification are confirmed; others are written again as pages."""
    run = TraceReplay(replace(SMALL, failed_writes=0.005))
    run.world.chances = replace(run.world.chances, told=told)
    run.run(excerpt(), lambda: True)
    found = figures(run)
    assert found["failed_writes"] and (found["well"], found["failed"]) == (40, {})
    assert found["parts_over_pages"] == (0 if told else found["failed_writes"])


def test_ttft_is_queue_and_forward_and_transfer() -> None:
    alone = [TracedRequest(0.0, 16_000, 10)]
    fleet = replace(SMALL, engines=EngineModel(speed=8_000, chunk=4096))
    found = replayed(fleet, alone)
    forwards = 16_000 / 8_000 + 4 * EngineModel().step
    assert found["ttft"]["max"] - found["transfer"]["max"] == pytest.approx(forwards)
    behind = replayed(fleet, [*alone, TracedRequest(0.0, 8_000, 10)])
    assert behind["ttft"]["max"] - behind["transfer"]["max"] == pytest.approx(3.0 + 6 * EngineModel().step, rel=0.01)


def test_prefixes_that_an_instance_has_cost_no_forward_and_no_transfer() -> None:
    blocks = tuple(range(8))
    fresh = TracedRequest(0.0, 8 * BLOCK + 1, 1, blocks)
    again = TracedRequest(60.0, 8 * BLOCK + 1, 1, blocks)
    once, twice = replayed(SMALL, [fresh]), replayed(SMALL, [fresh, again])
    assert twice["gbs"] * twice["seconds"] < 1.1 * once["gbs"] * once["seconds"]
    assert twice["well"] == 2 and twice["ttft"]["p50"] < 0.5 * once["ttft"]["p50"]


def test_a_request_without_pages_at_decode_waits_for_those_of_another() -> None:
    long = replace(SMALL, engines=EngineModel(capacity=3000))
    found = replayed(long, [TracedRequest(0.0, 2000, 1000), TracedRequest(0.1, 2000, 1000)])
    assert found["well"] == 2
    assert found["ttft"]["max"] > 1000 * EngineModel().token > 10 * found["transfer"]["max"], "the wait is admission's"


def test_a_room_of_its_own_is_found_for_each_request_by_what_instances_have_to_do() -> None:
    run = TraceReplay(replace(SMALL, prefill=2, decode=2))
    run.run([TracedRequest(0.0, 9000, 1) for _ in range(4)], lambda: True)
    assert sorted(request.prefill.number for request in run.replayed) == [0, 0, 1, 1]
    assert sorted(request.decode.number for request in run.replayed) == [0, 0, 1, 1]


@pytest.mark.parametrize(
    ("prefill", "speed", "pace", "closed"), [(1, 16_000, 5.0, False), (2, 2_000, 1.2, True), (2, 2_000, 1.2, False)]
)
def test_kv_that_is_ready_waits_for_no_forward_of_another_request(
    prefill: int, speed: int, pace: float, closed: bool
) -> None:
    """A ring of 1 GiB holds two or three large rooms; a forward step takes 0.5 or 4 s, a transfer 0.03 s."""
    engines, requests = EngineModel(speed=speed), excerpt(60, pace)
    fleet = replace(Fleet(), prefill=prefill, closed=closed, engines=engines)
    with_, without = (replayed(fleet.way(way), requests) for way in ("prefetch", "no prefetch"))
    ample = replayed(replace(fleet, ring=1 << 36).way("no prefetch"), requests)
    assert [found["failed"] for found in (with_, without, ample)] == [{}, {}, {}]
    for part in ("p50", "p99"):
        assert with_["transfer"][part] <= 1.1 * without["transfer"][part]
        assert without["transfer"][part] <= 1.1 * ample["transfer"][part], "nobody waits where nobody has to"
    assert ample["transfer"]["max"] < 0.1 < engines.chunk / speed


def test_a_replay_that_is_cut_says_what_is_left() -> None:
    run = TraceReplay(SMALL)
    run.run(excerpt(), lambda: run.settled < 5)
    found = figures(run)
    assert found["unsettled"] or found["cut"]
    assert 5 <= found["well"] < 40


def test_a_cache_keeps_what_was_used_last() -> None:
    cache = PrefixCache(3)
    cache.keep((1, 2, 3))
    assert cache.hit((1, 2, 9)) == 2 * BLOCK
    cache.keep((4,))
    assert (cache.hit((3,)), cache.hit((1, 2))) == (0, 2 * BLOCK)


def test_percentiles_are_values_that_were_measured() -> None:
    assert spread([float(each) for each in range(100, 0, -1)]) == {"p50": 50, "p90": 90, "p99": 99, "max": 100}
    assert spread([3.0]) == {"p50": 3, "p90": 3, "p99": 3, "max": 3}
    assert spread([]) == {}


def test_the_command_prints_the_ways_side_by_side_and_writes_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    to = tmp_path / "found.json"
    small = ["--requests", "12", "--model", "8,4,64", "--chunk-tokens", "2048", "--prefill", "1:2", "--decode", "1:1"]
    assert main(["trace", str(CONVERSATION), *small, "--json", str(to)]) == 0
    told = capsys.readouterr()
    assert "requests 12; well 12; aborted 0" in told.out and "| transfer, p99 " in told.out
    assert "prefetch: 12 of 12 well; KV ready -> at decode 0." in told.err
    ways = dict.fromkeys(each["labels"]["way"] for each in json.loads(to.read_text())["figures"])
    assert list(ways) == ["prefetch", "no prefetch", "pages"]
    assert main(["figures", "--results", str(to)]) == 0
    assert "well 12; aborted 0" in capsys.readouterr().out


def test_lists_of_settings_are_a_line_each_and_closed_pools_have_no_pages(capsys: pytest.CaptureFixture[str]) -> None:
    small = ["--requests", "6", "--model", "8,4,64", "--chunk-tokens", "2048", "--decode", "1:1", "--closed"]
    assert main(["trace", str(CONVERSATION), *small, "--prefill", "1:1,2:1", "--ring", "1,4"]) == 0
    lines = capsys.readouterr().out.splitlines()
    head, _, *rows = [line for line in lines if line.startswith("|")]
    assert len(rows) == 4 * 2 and "pools closed" in lines[0] and head.count("prefill") == 1
    assert sum("| prefetch " in row for row in rows) == sum("| no prefetch " in row for row in rows) == 4


def test_a_failure_that_nobody_made_is_found(capsys: pytest.CaptureFixture[str]) -> None:
    slow = ["--requests", "2", "--speed", "20", "--model", "8,4,64", "--chunk-tokens", "2048", "--ways", "no prefetch"]
    assert main(["trace", str(CONVERSATION), *slow]) == 1, "the second one waits longer for its forward than it may"
    assert "STALLED" in capsys.readouterr().out

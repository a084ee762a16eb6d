"""The judge of runs in the real engine refuses what must not pass, and survives what a kill cuts off."""

from __future__ import annotations

import importlib
import itertools
import json
import math
import multiprocessing
import os
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, Self, cast

import pytest

from examples.engine_runs import gpu_rows, own_rows
from examples.engine_runs import table as engine_table
from examples.engine_runs.cell import of_sglang, of_vllm
from examples.engine_runs.hosts import LEAST
from examples.engine_runs.table import placed, read, told
from examples.sglang import on_gpus, pack
from examples.sglang.instance import Instance as SglangInstance
from examples.sglang.messages import Answer, Request, Start
from examples.sglang.pair import OWN_START_S, PAGES, Pair, Place, dtype_of, environment_of
from examples.sglang.run import COMPARED_PAIRS, PAGED_PAIRS, PAIRS, Table, backends_of, pages_of, part_of, scenarios_of
from examples.sglang.scenarios import Run, digests
from examples.sglang.whole import Sure, Whole
from examples.vllm.compiling import ORDER, Compiler
from examples.vllm.instances import Cut, Instance
from examples.vllm.judging import Records, Row, table
from examples.vllm.pairs import kind_of, wanted
from examples.vllm.reference import Reference
from examples.vllm.run import through
from examples.vllm.setting import Found

PLACES = {"0/0/0": 11, "0/0/1": 12, "64/0/0": 13}
BLOCKS = {"0/0/0": 7, "1/0/0": 8}


def outcome(cause: str = "NONE", *, room: int = 1, digests: Any = PLACES, pages: int = 0) -> dict[str, Any]:
    posts = {"staged": 2, "pages": pages}
    return {"event": "outcome", "room": room, "cause": cause, "digests": digests, "posts": posts, "pid": 1}


def released(sums: Any = BLOCKS, *, room: int = 1) -> dict[str, Any]:
    return {"event": "released", "room": room, "sums": sums}


def written(folder: Path, name: str, *lines: dict[str, Any], rest: str = "") -> None:
    with (folder / f"{name}.jsonl").open("a") as file:
        file.write("".join(json.dumps(line) + "\n" for line in lines) + rest)


@pytest.fixture
def records(tmp_path: Path) -> Records:
    return Records(tmp_path)


@pytest.mark.parametrize("other", [0, 1])
def test_ranks_that_have_the_same_latents_have_to_agree(records: Records, other: int) -> None:
    """Also where the last of them is the one that agrees with prefill."""
    written(records.out, "P-0", outcome(digests={"0/0/0": 11}), released({"0/0/0": 7}))
    for rank in (0, 1):
        digest, checksum = (12, 8) if rank == other else (11, 7)
        written(records.out, f"D-{rank}", outcome(digests={"0/0/0": digest}), released({"0/0/0": checksum}))
    seen = records.judge()
    assert (seen.digests, seen.sums) == ((1, 1), (1, 1))
    assert seen.wrong == ["1 digests differ", "1 blocks differ"]


def test_two_sides_that_agree(records: Records) -> None:
    written(records.out, "P-0", outcome(digests={"0/0/0": 11, "64/0/0": 13}), released({"0/0/0": 7, "1/0/0": 8}))
    written(records.out, "P-1", outcome(digests={"0/0/1": 12}), released({"0/0/1": 9}))
    written(records.out, "D-0", outcome(), released({"1/0/0": 8, "0/0/1": 9}))
    seen = records.judge()
    assert (seen.wrong, seen.digests, seen.sums) == ([], (3, 0), (2, 0))
    assert seen.outcomes == {"P NONE": 2, "D NONE": 1}
    assert seen.posts["staged"] == 4
    assert records.judge().outcomes == {}


@pytest.mark.parametrize(
    ("ours", "theirs", "pages", "wrong"),
    [
        ((PLACES, BLOCKS), ({**PLACES, "0/0/1": 1}, BLOCKS), 0, "1 digests differ"),
        ((PLACES, BLOCKS), (PLACES, {**BLOCKS, "1/0/0": 1}), 0, "1 blocks differ"),
        ((PLACES, BLOCKS), ({"0/0/0": 11}, BLOCKS), 0, "2 parts were gathered and not scattered"),
        ((PLACES, BLOCKS), ({"0/0/0": 11}, BLOCKS), 3, ""),
        (({"0/0/0": 11}, BLOCKS), (PLACES, BLOCKS), 3, "2 parts were scattered that nobody gathered"),
        ((PLACES, {"0/0/0": 7}), (PLACES, BLOCKS), 0, "1 blocks came that nobody had"),
    ],
)
def test_what_one_side_has_and_the_other_has_not(
    records: Records, ours: tuple[Any, Any], theirs: tuple[Any, Any], pages: int, wrong: str
) -> None:
    written(records.out, "P-0", outcome(digests=ours[0], pages=pages), released(ours[1]))
    written(records.out, "D-0", outcome(digests=theirs[0]), released(theirs[1]))
    assert records.judge().wrong == [wrong] * bool(wrong)


def test_a_request_of_an_earlier_scenario_whose_end_comes_late_is_not_of_this_one(records: Records) -> None:
    written(records.out, "D-0", {"event": "Load", "request": "left"}, {"event": "Load", "request": "well"})
    assert records.judge().outcomes == {}
    late, new = outcome(cause="DECODE_ABORTED") | {"request": "left"}, outcome() | {"request": "next"}
    written(records.out, "D-0", late, {"event": "Load", "request": "next"}, new)
    assert records.judge().outcomes == {"D NONE": 1}


def test_a_room_that_has_failed_is_not_compared(records: Records) -> None:
    written(records.out, "P-0", outcome())
    written(records.out, "D-0", outcome("LINK_LOST", digests={}))
    assert records.judge().wrong == []


def test_a_process_that_was_killed_has_not_written_how_its_room_ended(records: Records) -> None:
    written(records.out, "P-0", rest='{"event": "outc')
    written(records.out, "D-0", outcome(), released())
    assert records.judge(killed=True).wrong == []
    written(records.out, "D-0", outcome(room=2), released(room=2))
    assert records.judge().wrong == ["1 rooms are there at decode, and not handed over at prefill"]


def test_a_rank_that_has_started_anew_counts_its_posts_from_zero(records: Records) -> None:
    written(records.out, "P-0", outcome(), outcome())
    assert records.judge().posts["staged"] == 2
    written(records.out, "P-0", outcome(), {**outcome(), "pid": 2})
    assert records.judge().posts["staged"] == 2


def test_a_row_that_is_not_as_it_must_be_says_why() -> None:
    row = Row(
        pair="1-2", carrier="kvproto", scenario="at once", equal=7, asked=8, computed=1, back=True,
        wrong=["1 blocks differ"], outcomes={"D NONE": 8}, digests=(3, 0), sums=(2, 1), posts={"staged": 4},
        lags=[1.0, 2.0], seconds=1.0, note="",
    )  # fmt: skip
    head, rule, line = table([row]).splitlines()
    assert head.count("|") == rule.count("|") == line.count("|")
    assert "7 of 8" in line and "**no**: 1 blocks differ" in line
    assert not row.good


@pytest.mark.parametrize(("got", "fits"), [
    ([1, 2, 3], "equal"), ([1, 2], "other"), ([1, 5, 9], "tie"), ([1, 6, 3], "other"), ([7, 2, 3], "other"),
])  # fmt: skip
def test_an_answer_may_leave_the_whole_model_s_where_another_token_is_as_likely(got: list[int], fits: str) -> None:
    assert Reference([1, 2, 3], [[1], [2, 5], [3]]).fits(got) == fits
    assert Reference([1, 2, 3]).fits(got) == ("equal" if fits == "equal" else "other")


def test_rows_of_sglang_take_the_place_of_older_ones_and_are_a_page(tmp_path: Path) -> None:
    file = tmp_path / "sglang.json"
    old: dict[str, Any] = {"pair": "1:2", "backend": "plain", "scenario": "many", "tokens": "15/16", "good": False}
    Table(file).keep(old)
    Table(file).keep(old | {"pair": "1x2:2"})  # timed without digests at another pair
    Table(file).keep({"pair": "1:2", "backend": "kvproto", "scenario": "digests", "good": True, "differ": 0})
    Table(file).keep(old | {"tokens": "16/16", "good": True, "lag_ms": [85.4, 170.0], "errors": []})
    assert [row["scenario"] for row in json.loads(file.read_text())] == ["digests", "many"]
    lines = file.with_suffix(".md").read_text().splitlines()[-2:]
    assert lines == [
        "| 1:2 | kvproto | digests | - | - | yes | differ: 0 |", "| 1:2 | plain | many | 16 of 16 | 85, 170 | yes |  |",
    ]  # fmt: skip


def test_rows_are_kept_with_the_times_that_probes_saw(tmp_path: Path) -> None:
    seen = [{"room": room, "what": what, "at": at} for room, what, at in
            ((7, "sent", 1.0), (7, "committed", 1.25), (7, "step", 1.5), (8, "sent", 2.0))]  # fmt: skip
    (tmp_path / "41.jsonl").write_text("".join(json.dumps(line) + "\n" for line in seen))
    kept, said = list[dict[str, Any]](), list[dict[str, Any]]()
    run: Any = SimpleNamespace(
        folder=tmp_path, rows=[{"scenario": "seq", "rooms": [7, 8]}, {"scenario": "idle"}], backend="plain",
        keep=lambda row: kept.append(dict(row)), row=lambda _name, **more: said.append(more),
    )  # fmt: skip
    Run.seen(run)
    assert kept == [{"scenario": "seq", "lag_ms": [250.0, 250.0], "step_ms": [500.0, 500.0]}, {"scenario": "idle"}]
    assert [row["rooms_seen"] for row in said] == [1]


def test_the_stored_rows_of_sglang_have_their_times() -> None:
    rows = json.loads((Path(__file__).parents[1] / "examples" / "results" / "sglang.json").read_text())
    timed = [row for row in rows if row["scenario"] in ("seq", "many") and row["backend"] in ("kvproto", "plain")]
    assert len(timed) > len(PAIRS) and [row for row in timed if "lag_ms" not in row] == []


def test_a_room_that_prefill_gave_up_when_decode_had_all_of_it_is_not_compared(tmp_path: Path) -> None:
    lines = {"P0": [(1, 7)], "D0": [(1, 7), (2, 8)]}
    for name, rooms in lines.items():
        rows = [json.dumps({"room": room, "digests": [[0, 0, number]]}) for room, number in rooms]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(rows) + "\n")
    found = digests(tmp_path, {1, 2})
    assert (found["good"], found["compared"], found["rooms"], found["given_up_late"]) == (True, 1, 1, 1)
    assert digests(tmp_path, set())["differ"] == 1
    (tmp_path / "P0.jsonl").write_text(json.dumps({"room": 1, "digests": [[0, 0, 9]]}) + "\n")
    assert digests(tmp_path, {1, 2})["differ"] == 1  # what prefill speaks of is compared, given up or not


def test_of_a_room_that_one_prefill_rank_gave_up_the_others_are_compared(tmp_path: Path) -> None:
    said = {"P0": [[0, 0, 7]], "D0": [[0, 0, 7]], "D1": [[0, 1, 8]]}
    for name, rows in said.items():
        (tmp_path / f"{name}.jsonl").write_text(json.dumps({"room": 1, "digests": rows}) + "\n")
    found = digests(tmp_path, {1})
    assert (found["good"], found["compared"], found["rooms"], found["given_up_late"]) == (True, 1, 1, 1)
    found = digests(tmp_path, set())
    assert (found["good"], found["differ"], found["not_said"]) == (False, 1, 1)


@pytest.mark.parametrize(
    ("pair", "kind", "cuts"),
    [("1-2", "dense", [Cut(1), Cut(2)]), ("2 stages-1", "dense", [Cut(1, 2), Cut(1)]),
     ("2x3-1x2", "dense", [Cut(2, dp=3), Cut(1, dp=2)]), ("hybrid 2-1", "hybrid", [Cut(2), Cut(1)]),
     ("windows 1-3 stages", "windows", [Cut(1), Cut(1, 3)]), ("hosts 1-2", "dense", [Cut(1), Cut(2)])],
)  # fmt: skip
def test_a_pair_says_its_model_and_how_each_side_is_cut(pair: str, kind: str, cuts: list[Cut]) -> None:
    found, ranks = kind_of(pair)
    assert found == kind and [Cut.of(said) for said in ranks.split("-")] == cuts


def test_a_room_is_drawn_for_the_data_parallel_rank_whose_card_decode_gets(tmp_path: Path) -> None:
    prefill = object.__new__(Instance)  # without an engine
    prefill.name, prefill.out, prefill.cut = "P", tmp_path, Cut(1, dp=2)
    prefill.turns, prefill.rooms = itertools.cycle(range(2)), {}
    for rank in range(2):
        (tmp_path / f"P.card_dp{rank}").write_text(f"card of {rank}")
        (tmp_path / f"P_dp{rank}-0.jsonl").write_text('{"event": "Load"}\n')
    handed = [prefill.hand_over() for _ in range(3)]
    assert [theirs["card"] for _, theirs in handed] == ["card of 0", "card of 1", "card of 0"]
    assert [prefill.rooms[ours["room"]] for ours, _ in handed] == [0, 1, 0]
    assert prefill.recorded("Load") == 2


def test_a_pair_has_the_scenarios_of_its_kind() -> None:
    assert "decode compiles" in wanted("1-2", "kvproto", []) and "decode compiles" not in wanted("2-1", "kvproto", [])
    assert wanted("hosts 1-2", "nixl", []) == ["sequential", "in turn", "32 at once"]
    drafting = {"drafts accepted", "draft spoiled"}
    for pair, expected in (("1-2", set()), ("2-1x2", set()), ("drafted 1-2", drafting)):
        names = wanted(pair, "kvproto", [])
        assert drafting & {*names} == expected and "in turn" in names, pair


def test_a_rank_compiles_once_for_each_order(tmp_path: Path) -> None:
    ranks = [Compiler(tmp_path) for _ in range(2)]
    assert not any(rank.wanted() for rank in ranks)
    for order in range(1, 3):
        (tmp_path / ORDER).touch()
        os.utime(tmp_path / ORDER, (order, order))
        assert [[rank.wanted() for rank in ranks] for _ in range(2)] == [[True, True], [False, False]]


def test_kv_between_hosts_goes_through_the_cable() -> None:
    found = Found([[1]], [Reference([1])], note="answered")
    assert through(found, 9_700_000).note == "answered; 9.7 MB through the cable"
    assert through(found, 9_700_000).faults == ()
    assert through(found, 100_000).faults == ("no KV went through the cable",)


def test_the_page_of_runs_is_that_of_the_rows() -> None:
    page = engine_table.PAGE.read_text()
    assert placed(page, told(read())) == page


def test_the_engines_own_connector_stands_beside_kvproto() -> None:
    vllm = {
        "pair": "1-2", "carrier": "kvproto", "scenario": "in turn", "equal": 8, "asked": 8, "digests": [4, 0],
        "sums": [6, 0], "back": True, "lags": [60.0, 90.0], "wrong": [], "note": "", "build": "a",
    }  # fmt: skip
    its = vllm | {"carrier": "nixl", "lags": [99.0, 99.0], "wrong": ["blocks are held"], "back": False}
    sglang = {"pair": "2:1", "backend": "kvproto", "scenario": "refused", "good": True, "other_heard_s": 0.1}
    others: list[dict[str, Any]] = [
        sglang | {"backend": "staging", "good": False, "other_said": "no answer", "other_heard_s": 20.0},
        sglang | {"scenario": "idle"}, sglang | {"scenario": "digests", "compared": 9, "differ": 0},
    ]  # fmt: skip
    text = told([*of_vllm([vllm, its]), *of_sglang([sglang, *others])])
    assert "| vLLM | 1 → 2 | 1 of 1 | 8 of 8 | 4, 0 | 6, 0 | yes | 60, -, 99 | -, - |" in text
    assert "| yes | 60 | - | 99 | yes | **no**: blocks are held |" in text
    assert "| SGLang | 2 → 1 | refused | - | 9, 0 | - | yes | - | - | - | yes | **no**: no answer |" in text
    others_no = told(of_vllm([vllm])).count("**no**")  # of the tables that follow
    assert told(of_vllm([vllm | {"back": False}])).count("**no**") == others_no + 2
    assert "| 8 of 8 |" in (tied := told(of_vllm([vllm | {"equal": 5, "ties": 3}])))
    assert "3 leave it at a tie" in tied


@pytest.mark.parametrize(("got", "right"), [([1, 2], True), ([3, 9], False), ([1], False)])
def test_an_answer_of_sglang_is_right_if_it_is_that_of_the_whole_model(got: list[int], right: bool) -> None:
    pair = object.__new__(Pair)
    pair.truth = {(7,): Reference([1, 2], [[1, 3], [2]])}
    assert pair.differs(Request("r1", [7], 2, 1, 1), Answer("r1", got)) is not right


class Engine:
    """Stands for the judge's engine: how clear its answer to a prompt is stands in the prompt, in tenths."""

    def __init__(self) -> None:
        self.asked: list[Request] = []
        self.start = Start("whole", 1, 0, "", 0, "", "")
        self.doing: list[str] = []

    def ask(self, request: Request) -> None:
        self.asked.append(request)

    def wait(self, *rids: str, seconds: float) -> list[Answer]:
        assert seconds > 1 and self.doing[-1] == "go on"
        prompts = {request.rid: request.prompt for request in self.asked}
        return [Answer(rid, [5, 6], logs=[-1.0, -2.0], lead=[9.0, prompts[rid][0] / 10]) for rid in rids]

    def ready(self) -> None: ...

    def go_on(self) -> None:
        self.doing.append("go on")

    def pause(self) -> None:
        self.doing.append("pause")


@pytest.fixture
def judge() -> Whole:
    made = object.__new__(Whole)
    engine: Any = Engine()
    made.engine, made.tokens, made.lead, made.asked, made.known = engine, 2, 0.25, 0, {}
    return made


def test_one_engine_judges_prompts_whose_answers_are_clear(judge: Whole) -> None:
    draws = iter([*[0] * 8, *[0] * 6, 3, 7, *[1, 5, *[0] * 6]])  # the second prompt is found at once
    chosen = judge.choose([10, 20], lambda length: [next(draws), length])
    assert [(prompt, sure.lead) for prompt, sure in chosen] == [([5, 10], 0.5), ([3, 20], 0.3)]
    engine: Any = judge.engine
    assert engine.doing == ["go on", "pause"] * 2  # it stands still while pairs play
    assert len(engine.asked) == len({request.rid for request in engine.asked})
    assert all(request.weighed and not request.room for request in engine.asked)
    assert judge.choose([20], lambda length: [3, length])[0] == chosen[1]
    assert engine.doing == ["go on", "pause"] * 2  # what it knows it is not asked again


def test_a_model_without_clear_answers_is_not_judged(judge: Whole) -> None:
    with pytest.raises(RuntimeError, match=r"ahead by 0\.25 at each token"):
        judge.choose([10], lambda length: [1, length])


def test_noise_is_told_up_to_where_an_answer_leaves_the_whole_model_s() -> None:
    sure = Sure([1, 2, 3], [], [-1.0, -2.0, -3.0], 0.4)
    assert sure.noise(Answer("r", [1, 2, 3], logs=[-1.0, -2.5, -3.0])) == 0.5
    assert sure.noise(Answer("r", [1, 9, 3], logs=[-1.25, -9.0, -3.0])) == 0.25
    assert sure.noise(Answer("r", error="none")) == 0.0


@pytest.mark.parametrize(("alone", "good"), [(8, True), (9, False)])
def test_as_many_drafts_are_accepted_as_by_one_engine(alone: int, good: bool) -> None:
    pair, kept = object.__new__(Pair), list[dict[str, Any]]()
    pair.label, pair.backend, pair.gpus, pair.rows, pair.keep = "eagle 1:1", "kvproto", "", [], kept.append
    pair.truth = {(7,): Sure([1, 2], [], verified=alone)}
    pair.judge("seq", [Request("r1", [7], 2, 1, 1)], [Answer("r1", [1, 2], verified=8)])
    (row,) = kept
    assert (row["tokens"], row["verified"], row["verified_alone"], row["good"]) == ("1/1", 8, alone, good)
    assert "lead" not in row  # every answer counts


@pytest.mark.parametrize(("pair", "device", "dtype"), [
    ("hybrid 2:1x2", "cuda", "bfloat16"), ("hybrid 2:1x2", "cpu", "float32"), ("2:1x2", "cuda", "float32"),
])  # fmt: skip
def test_hybrids_compute_in_bfloat16_on_a_gpu(pair: str, device: str, dtype: str) -> None:
    place = Place(device, 2, coarse=device == "cuda")
    assert dtype_of(pair, place) == dtype
    assert ("SGLANG_USE_CPU_ENGINE" in environment_of(pair, place)) is (device == "cpu" and pair.startswith("hybrid"))


def test_the_gpus_of_a_side_are_the_first_or_the_last() -> None:
    place = Place("cuda", 2)
    assert [place.first(side, ranks) for side in ("prefill", "decode") for ranks in (1, 2)] == [0, 0, 1, 0]
    assert Place().first("decode", 2) == 0


@pytest.mark.parametrize(("gpus", "named", "crowded"), [
    (1, "0 0 → 0 of 1", [True, False]), (2, "0 1 → 1 of 2", [False, False]), (0, "", [False, False]),
])  # fmt: skip
def test_ranks_of_an_instance_share_gpus_where_there_are_too_few(
    gpus: int, named: str, crowded: list[bool], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("examples.sglang.pair.Instance", lambda start, _host: start)
    made = Pair("2:1", "kvproto", tmp_path, (16, 16), lambda _: None, Place("cuda" if gpus else "cpu", gpus))
    assert (made.gpus, [start.crowded for start in made.starts]) == (named, crowded)


class TwoHosts:
    """Stands in for the two namespaces, through whose cable so many bytes have come."""

    def __init__(self, folder: Path) -> None:
        names = {side: {"SGLANG_HOST_IP": f"10.77.0.{at}"} for at, side in enumerate("PD", 1)}
        self.of = {
            side: SimpleNamespace(address=own["SGLANG_HOST_IP"], key=folder / side, environment=own)
            for side, own in names.items()
        }
        self.bytes = 0

    def __enter__(self) -> Self:
        return self

    def crossed(self) -> int:
        return self.bytes


def test_sides_on_hosts_of_their_own_have_addresses_and_keys_and_kv_crosses_the_cable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("examples.sglang.pair.Instance", lambda start, host: (start, host))
    monkeypatch.setattr("examples.sglang.pair.Hosts", TwoHosts)
    kept = list[dict[str, Any]]()
    made = Pair("hosts 1:2", "kvproto", tmp_path, (16, 16), kept.append)
    there, instances = cast("Any", made.hosts), cast("Any", (made.p, made.d))
    for (start, host), side, ranks in zip(instances, "PD", (1, 2), strict=True):
        assert host is there.of[side] and start.ranks == ranks and start.keys == str(tmp_path / side)
        assert start.address == start.environment["SGLANG_HOST_IP"] == there.of[side].address
    assert made.request([1, 2]).address == "10.77.0.1"
    for count in (LEAST, LEAST, 3 * LEAST):  # the second time nothing more has come
        there.bytes = count
        made.judge("seq", [], [])
    there.bytes = 5 * LEAST  # a row without answers has its own bytes, too
    made.row("stages", good=True)
    made.judge("many", [], [])
    cable = [(row["good"], row.get("cable_mb")) for row in kept]
    assert cable == [(True, 0.5), (False, 0.0), (True, 1.0), (True, None), (False, 0.0)]


def test_the_engine_s_own_is_told_pair_by_pair_with_what_it_does_not_do() -> None:
    one: dict[str, Any] = {"pair": "2:1", "backend": "kvproto", "scenario": "seq", "tokens": "8/8", "good": True}
    rows = [
        one, one | {"scenario": "many", "tokens": "16/16"}, one | {"scenario": "killed", "tokens": "2/2"},
        one | {"scenario": "stages", "tokens": "0/0"}, one | {"scenario": "idle"},
    ]  # fmt: skip
    its = one | {"backend": "mooncake"}
    all_its = [
        its, its | {"scenario": "middle", "tokens": "0/4", "good": False, "errors": ["x" * 200]},
        its | {"scenario": "killed", "tokens": "2/2", "decode_heard_s": 6.7},
    ]  # fmt: skip
    (row,) = own_rows.cells(of_sglang([*rows, *all_its, *(each | {"pair": "1:1"} for each in rows)]))
    aborted = f"middle: 0 of 4, **no**: {'x' * own_rows.SAID}...", "-"
    killed = "killed: 2 of 2, decode is answered in 6.7 s", "killed: 2 of 2"
    assert row == ("SGLang", "2 → 1", "Mooncake", "8 of 8", "8 of 8", *aborted, *killed, "-", "yes")
    assert len(own_rows.HEAD) == len(row)
    held = own_rows.cells(of_sglang([*all_its, all_its[0] | {"scenario": "idle", "good": False}]))
    assert held[0][-2:] == ("**no**", "-")


def test_rows_on_gpus_stand_by_pair_and_scenario_with_each_carrier() -> None:
    one: dict[str, Any] = {"pair": "2:1", "backend": "kvproto", "scenario": "seq", "tokens": "8/8", "good": True,
                           "lag_ms": [1.0, 2.26], "step_ms": [3.0, 4.0], "ttft_ms": [], "noise": 0.1}  # fmt: skip
    rows = [
        one, one | {"scenario": "digests", "compared": 1200, "differ": 0}, one | {"scenario": "idle", "tokens": "0/0"},
        one | {"backend": "nixl", "good": False, "errors": ["none"], "tokens": "0/8", "gpus": "0 1 → 1"},
    ]
    first, second, third = gpu_rows.cells(rows)
    pair = "2 → 1 (GPU 0 1 → 1)"
    numbers, noise = ("8 of 8", "1,200, 0", "1.0, 2.3", "3.0, 4.0", "-"), "log probabilities differ by up to 0.1"
    assert first == (pair, "kvproto, with digests", "seq", *numbers, "yes", noise)
    assert second[:3] == (pair, "SGLang's own (NIXL)", "seq") and second[-2] == "**no**: none"
    assert third[2] == "idle" and all(len(row) == len(gpu_rows.HEAD) for row in (first, second, third))


@pytest.mark.parametrize(("crowded", "kept"), [(True, ("gloo", False)), (False, ("nccl", None))])
def test_ranks_that_share_a_gpu_have_collectives_over_the_host(
    crowded: bool, kept: tuple[str, bool | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """SGLang's module of groups is stood in for by the two functions that the stand-ins replace."""
    monkeypatch.syspath_prepend("examples/sglang/gpu")
    monkeypatch.syspath_prepend("examples/sglang/cpu")
    monkeypatch.setattr("torch.cuda.device_count", lambda: 1)
    if crowded:
        monkeypatch.setenv("GPU_CROWDED", "1")
    device: Any = importlib.import_module("gpu_device")
    groups: Any = ModuleType("groups")
    groups.GroupCoordinator = object
    groups.get_default_distributed_backend = lambda _: "nccl"
    groups.init_model_parallel_group = lambda *_, use_pynccl=None: use_pynccl
    device._groups(groups)
    assert (groups.get_default_distributed_backend("cuda"), groups.init_model_parallel_group([[0, 1]])) == kept
    with device._place(1) as gpu:
        assert gpu == 0


def test_processes_are_forked_and_pause_on_a_cpu_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that has used a GPU cannot be forked."""
    monkeypatch.syspath_prepend("examples/sglang/gpu")
    monkeypatch.syspath_prepend("examples/sglang/cpu")
    device: Any = importlib.import_module("gpu_device")
    monkeypatch.setattr(sys, "meta_path", [])
    device.install()
    (altered,) = (finder for finder in sys.meta_path if isinstance(finder, device.CPU.ALTERED.Altered))
    assert {*device.CPU.ALONE} == {"sglang.srt.entrypoints.engine", "sglang.srt.managers.scheduler"}
    assert not {*altered.patches} & {*device.CPU.ALONE} and "sglang.srt.layers.dp_attention" in altered.patches


def test_posts_are_told_for_each_prompt_by_the_names_of_either_engine_and_carrier() -> None:
    one: dict[str, Any] = {"pair": "1:2", "scenario": "seq", "good": True}
    rows = [
        one | {"backend": carrier, "scenario": scenario, "counts": counts, "rooms_seen": 4}
        for carrier, counts in (("plain", {"writes": 8, "pieces": 8}), ("mooncake", {"posts": 4, "descriptors": 24}))
        for scenario in ("seq", "counts")
    ]
    assert [(cell.carrier, *cell.posts) for cell in of_sglang(rows)] == [("plain", 2.0, 2.0), ("own", 1.0, 6.0)]
    assert of_sglang([one | {"backend": "kvproto"}])[0].posts == (None, None)


def test_sglang_s_own_stands_beside_every_pair() -> None:
    assert backends_of("1:2", []) == ["kvproto", "plain", "staging"]
    for pair in PAIRS:
        own = backends_of(pair, [])[-1]
        assert own == ("staging" if pair in COMPARED_PAIRS else "mooncake"), pair
        assert {"seq", "middle", "killed"} <= {*scenarios_of(pair, own)} < {*scenarios_of(pair, "kvproto")}
        asked = scenarios_of(pair, "plain")  # in which the times with digests, without them and by its own are compared
        assert {"seq", "many"} <= {*asked} and ({*asked} == {"seq", "many"}) == (own == "mooncake"), pair
    assert {*PAGED_PAIRS} <= {*PAIRS} and "many" in scenarios_of("2:1", "nixl")
    assert backends_of("mla 1:2", []) == ["kvproto", "plain", "mooncake"] and backends_of("1:2", ["plain"]) == ["plain"]
    assert backends_of("mla 1:2", ["mooncake"]) == ["mooncake"]
    assert pages_of("2 stages:2 pages 16-32") == ("2 stages:2", (16, 32)) and pages_of("mla 1:2") == ("mla 1:2", PAGES)


def test_parts_of_the_pairs_follow_one_another_and_leave_none_out() -> None:
    for count in (1, 2, 3, len(PAIRS), len(PAIRS) + 1):
        parts = [part_of(PAIRS, f"{at}/{count}") for at in range(1, count + 1)]
        assert [*itertools.chain(*parts)] == [*PAIRS] and max(map(len, parts)) - min(map(len, parts)) <= 1


def test_runs_that_write_into_one_table_lose_no_row_of_the_other(tmp_path: Path) -> None:
    row = {"backend": "kvproto", "scenario": "seq", "good": True}
    tables = [Table(tmp_path / "rows.json") for _ in range(2)]
    for at in range(6):
        tables[at % 2].keep(row | {"pair": f"{at}:1"})
    assert [each["pair"] for each in json.loads((tmp_path / "rows.json").read_text())] == [f"{at}:1" for at in range(6)]
    Table(None).keep(row | {"pair": "1:1"})


class Answering:
    """Stands in for an instance: it answers a request at once, or it has ended, or never answers."""

    def __init__(self, manner: str) -> None:
        self.manner, self.silent, self.allowed = manner, False, math.nan

    def ready(self, limit: float | None) -> None:
        if self.manner == "refuses":
            raise EOFError
        assert limit == OWN_START_S

    def allow(self, patience: float) -> None:
        self.allowed = patience

    def wait(self, *rids: str) -> list[Answer]:
        self.silent = self.manner == "hangs"
        return [Answer(rid, error="no answer" if self.silent else "", tokens=[1] * (not self.silent)) for rid in rids]

    def ask(self, _: Request) -> None: ...
    def go_on(self) -> None: ...
    def close(self) -> None: ...


@pytest.mark.parametrize(("manner", "good", "why"), [
    ("answers", [True, True], []),
    ("refuses", [False, False], ["an instance ended, or did not start: a.b.RuntimeError: no such pages"]),
    ("hangs", [False, False], ["no answer in the first requests: a.b.RuntimeError: no such pages"]),
])  # fmt: skip
def test_a_refusal_or_a_hang_of_sglang_s_own_is_the_row_of_each_scenario(
    manner: str, good: list[bool], why: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("examples.sglang.pair.Instance", lambda *_: Answering(manner))
    monkeypatch.setattr(Run, "prompts", lambda run, lengths: [run.truth.update({(7,): Reference([1])}) or [7]])
    monkeypatch.setattr("time.sleep", lambda _: None)
    (tmp_path / "decode.log").write_text("busy\nKVTransferError: aborted\na.b.RuntimeError: no such pages\nlast\n")
    run = Run("2:2", "mooncake", tmp_path, PAGES, lambda _: None)
    run.play(["seq", "many"])
    rows = [row for row in run.rows if row["scenario"] != "counts"]
    assert run.own and [(row["scenario"], row["good"]) for row in rows] == list(zip(("seq", "many"), good, strict=True))
    assert all(row["errors"] == why for row in rows)


def test_an_instance_is_waited_for_as_long_as_it_answers() -> None:
    line, other = multiprocessing.Pipe()
    instance = object.__new__(SglangInstance)
    instance._line, instance.answers, instance.silent = line, {}, False
    instance.start, instance.patience, instance.heard = Start("decode", 1, 0, "", 0, "", ""), math.inf, 0.0
    other.send(Answer("r1", [5]))
    instance.allow(0.05)
    (first,) = instance.wait("r1")
    assert first.tokens == [5] and not instance.silent
    (second,) = instance.wait("r2", seconds=0.01)
    assert second.error == "no answer within 0.01 s" and not instance.silent  # that is how long it has
    (third,) = instance.wait("r3")
    assert third.error == "no answer within 0.05 s" and instance.silent


def test_pairs_play_in_the_order_in_which_they_are_asked_for() -> None:
    assert on_gpus.chosen(("1:1", "2:1", "1:2"), []) == ["1:1", "2:1", "1:2"]
    assert on_gpus.chosen(("1:1", "2:1", "1:2"), ["1:2", "3:1", "1:1"]) == ["1:2", "1:1"]


def test_what_travels_to_gpus_unpacks_with_the_name_of_the_plug_in(tmp_path: Path) -> None:
    for name in ("sglang/__init__.py", "sglang/test/large.py", "nixl_ep_cu13/lib.so", "nixl_cu13/lib.so"):
        (tmp_path / "all" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "all" / name).write_text("")
    pack.pack(tmp_path / "all", tmp_path / "made" / "site.tar.xz")
    site = on_gpus.unpack(tmp_path / "made" / "site.tar.xz")
    files = {str(file.relative_to(site)) for file in site.rglob("*") if file.suffix in (".py", ".so", ".txt")}
    assert files == {"sglang/__init__.py", "nixl_cu13/lib.so", "kvproto-0.1.0.dist-info/entry_points.txt"}
    (found,) = (each for each in site.glob("*.dist-info/entry_points.txt"))
    assert "[sglang.srt.plugins]\nkvproto = kvproto.adapters.sglang.install:plugin\n" in found.read_text()
    assert on_gpus.unpack(tmp_path / "made" / "site.tar.xz") == site  # once

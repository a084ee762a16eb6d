"""The command: what its arguments mean, what it prints, and its exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("rich")

from kvproto.cli import main as kvproto_main
from kvproto.lab.cli import demo_command
from kvproto.lab.cli.demo_command import main, parser
from kvproto.lab.cli.demo_run import make_run
from kvproto.lab.demo import report
from kvproto.lab.demo.conduct import DemoResult, Pass
from kvproto.lab.demo.job import DemoJob, GroupShape, RoomSpec
from kvproto.lab.demo.pass_counts import PassCounts, decode_counts, prefill_counts
from kvproto.lab.demo.run import Run, chunk_bytes, make_rooms
from kvproto.lab.demo.times import sharded, spread, unsharded
from kvproto.lab.demo.verify import Verdict
from kvproto.lab.process_group import RankError
from kvproto.layout.cut import Cut
from kvproto.protocol.events import SpaceReserved, StagingDenied, StagingGranted, TimerFired
from kvproto.protocol.states import DGrant, PSend
from kvproto.protocol.tables.decode_grant import DGrantValue
from kvproto.protocol.tables.prefill_send import PSendValue

SMALL = "--prefill-tp 2 --decode-tp 1 --layers 2 --rooms 2 --tokens 90 --chunk 32 --new 3 --seed 1 --digests"
RUN = Run(DemoJob(GroupShape(2), GroupShape(1), (RoomSpec(1, 40), RoomSpec(2, 20))), 1 << 20)


def run_of(text: str) -> Run:
    return make_run(parser().parse_args(text.split()))


# ---- arguments ----------------------------------------------------------------------------------------------------


def test_arguments_become_a_run() -> None:
    shapes = "--prefill-tp 2 --prefill-pp 2 --decode-tp 1 --page-size 16:64 --order HND:NHD"
    run = run_of(f"{shapes} --dtype fp8 --model qwen3")
    assert run.job.prefill == GroupShape(2, 2, 16, "HND") and run.job.decode == GroupShape(1, 1, 64, "NHD")
    assert run.job.dtype == "float8_e4m3fn" and run.job.family == "qwen3" and run.abort == "none"
    assert run_of("--page-size 1").job.decode.page_size == 1
    assert run_of("--no-pages").passes == ("live",)
    assert run_of("").passes == ("live", "staged", "pages")


def test_on_gpus_the_model_has_real_proportions_and_one_room_goes_ahead() -> None:
    run, small = run_of("--device cuda"), run_of("")
    assert (run.plain.layers, run.plain.heads, run.plain.dim, run.plain.hidden) == (32, 8, 128, 4096)
    assert len(run.timed) == 64 and run.first == run.job.rooms[:1] and len(small.timed) == 6 and not small.first
    assert set(run.passes) == {"live", "live_pages", "staged", "pages"}
    lengths = [room.tokens for room in run.timed]
    assert min(lengths) < max(lengths) / 4
    part = max(run.plan.part_bytes(share, Cut(0, run.chunk_tokens)) for share in run.plan.shares)
    assert 32 << 20 <= part <= 128 << 20 and run.ring >= 8 * chunk_bytes(run.plain)
    assert run_of("--device cuda --layers 2 --hidden 0 --no-warm").plain.layers == 2
    moved = run.timed_bytes + sum(run.plan.part_bytes(share, Cut(0, run.first[0].tokens)) for share in run.plan.shares)
    assert moved == 4 * 32 * 8 * 128 * sum(room.tokens for room in run.job.rooms)


@pytest.mark.parametrize(("gpus", "p", "d"), [(1, {0}, {0}), (2, {0}, {1}), (3, {0}, {1, 2}), (4, {0, 1}, {2, 3})])
def test_the_sides_share_no_gpu_if_there_are_two(gpus: int, p: set[int], d: set[int]) -> None:
    pytest.importorskip("torch")
    from kvproto.lab.demo.placement import gpu_of

    assert {gpu_of("prefill", rank, gpus) for rank in range(4)} == p
    assert {gpu_of("decode", rank, gpus) for rank in range(4)} == d


def test_a_ring_is_chunks_or_bytes() -> None:
    whole = chunk_bytes(run_of("").plain)
    assert run_of("--ring 1.5").ring == whole * 3 // 2
    assert run_of("--ring 256KiB").ring == 1 << 18
    assert run_of("--ring 4096B").ring == 4096
    assert run_of("--ring 0.5MiB").ring == 1 << 19


def test_rooms_are_uneven_and_fill_nothing() -> None:
    rooms = make_rooms(8, 500, page=16, prefix=100, full_prefix=True, seed=3)
    assert rooms[0].tokens == 499 and len({room.tokens for room in rooms}) > 4
    assert all(room.tokens % 2 for room in rooms)
    assert [room.prefix for room in rooms[:4]] == [0, 96, 0, 96]
    assert rooms[7].prefix == rooms[7].tokens
    assert make_rooms(8, 500, page=16, seed=3) == make_rooms(8, 500, page=16, seed=3) != make_rooms(8, 500, page=16)


def test_forwards_go_shortest_first_within_a_batch() -> None:
    rooms = tuple(RoomSpec(n, tokens) for n, tokens in enumerate([90, 10, 50, 80, 20], 1))
    run = Run(replace(RUN.job, rooms=rooms), 1 << 20, abort="decode")
    assert [room.tokens for room in run.forwards] == [10, 50, 90, 20, 80]
    assert run.aborted == {2, 5}


# ---- what comes out -----------------------------------------------------------------------------------------------


def test_a_small_run_from_the_command_line(tmp_path: Path) -> None:
    """A process of its own: its exit code is the one that a shell sees."""
    for module in ("torch", "transformers", "nixl._api"):
        pytest.importorskip(module)
    line = [sys.executable, "-m", "kvproto.lab.cli.demo_command", *SMALL.split(), "--json", "--trace", str(tmp_path)]
    done = subprocess.run(line, cwd=Path(__file__).parents[1], capture_output=True, text=True, timeout=150, check=False)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["ok"] and told["wrong"] == [] and told["tokens"] == 6
    assert told["controls_found"] == told["controls_planted"] == 4
    assert told["digests"] > 0 and told["digests"] % len(told["passes"]) == 0  # as many of pages as of the ring
    assert [each["route"] for each in told["passes"]] == ["live", "staged", "pages"]
    assert told["ratios"]["pieces"] > 50
    assert len(list(tmp_path.iterdir())) == 9


def test_without_a_gpu_the_demonstration_says_so(capsys: Any) -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("there is one")
    pytest.importorskip("transformers")
    began = time.monotonic()
    assert kvproto_main(["demo", "--device", "cuda", "--rooms", "2"]) == 2
    assert time.monotonic() - began < 30.0, "no process was started for it"
    said = capsys.readouterr().err
    assert "there is no GPU that torch can use" in said and len(said.splitlines()) == 1


def test_what_is_wrong_is_printed_and_is_a_failure(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    wrong = [f"room {n} is wrong" for n in range(report.MOST_WRONG + 2)]
    passes = [Pass("live", {"rooms": 2})]
    monkeypatch.setattr(demo_command, "conduct", lambda run, _watch: DemoResult(run, passes, wrong))
    assert main(["--no-pages"]) == 1
    out = capsys.readouterr().out
    assert "WRONG: room 0 is wrong" in out and "and 2 more" in out and "equal bit for bit" not in out
    assert main(["--json"]) == 1
    assert json.loads(capsys.readouterr().out)["wrong"] == wrong


@pytest.mark.parametrize(
    ("error", "code"),
    [(RankError("D1", "killed by SIGKILL"), 1), (TimeoutError("no word"), 1), (KeyboardInterrupt(), 130)],
)
def test_a_run_that_breaks_off_is_a_failure(
    error: BaseException, code: int, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    def breaks(*_: Any) -> None:
        raise error

    monkeypatch.setattr(demo_command, "conduct", breaks)
    assert kvproto_main(["demo"]) == code
    assert str(error) in capsys.readouterr().err


def test_the_matrix_goes_on_after_a_failure(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    def conduct(run: Run) -> DemoResult:
        if run is RUN:
            raise RankError("P0", "a traceback\nwith a last line")
        return DemoResult(run, [Pass("live", dict.fromkeys([*report.TOLD], 1))])

    monkeypatch.setattr(demo_command, "CASES", {"bad": RUN, "good": replace(RUN)})
    monkeypatch.setattr(demo_command, "conduct", conduct)
    assert main(["--matrix"]) == 1
    out = capsys.readouterr().out.splitlines()
    assert out[0].startswith("FAIL  bad") and out[0].endswith("with a last line")
    assert out[1].startswith("ok    good") and out[2] == "1 of 2 cases right"


def test_the_ratio_compares_the_two_routes() -> None:
    staged = Pass("staged", {"pieces": 10}, {"transfer": 0.5})
    pages = Pass("pages", {"pieces": 1000}, {"transfer": 2.0})
    assert report.ratios(DemoResult(RUN, [Pass("live"), staged, pages])) == {"pieces": 100.0, "seconds": 4.0}
    assert report.ratios(DemoResult(RUN, [Pass("live")])) == {}


def test_the_command_loads_neither_torch_nor_transformers() -> None:
    heavy = "{'torch', 'transformers', 'numpy', 'nixl'}"
    code = f"import sys, kvproto.lab.cli.demo_command; sys.exit(bool({heavy} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[1], check=False).returncode == 0


# ---- counting -----------------------------------------------------------------------------------------------------


def step(event: Any, old: Any, new: Any) -> tuple[Any, ...]:
    return (0.0, None, event, old, new)


def send(state: PSend) -> PSendValue:
    return PSendValue(state)


def test_deferrals_and_fallbacks_are_counted_by_reason() -> None:
    granted = StagingGranted(1, 0, 0, 1, 0, 1, 64, False, 30.0)
    denied, fired = StagingDenied(1, 0, 0), TimerFired(1, 0, 0, 4, False)
    waiting, pages = send(PSend.AWAIT_WATERMARK), send(PSend.AWAIT_PAGES)
    trace = [
        step(granted, send(PSend.AWAIT_GRANT), waiting),
        step(granted, waiting, waiting),  # repeated: not deferred again
        (0.0, (1, 2, 3, None)),  # a message
        step(fired, waiting, pages),
        step(fired, pages, pages),  # asked again
        step(denied, send(PSend.AWAIT_GRANT), pages),
    ]
    assert prefill_counts(trace) == {"deferrals": 1, "impatient": 1, "refused": 1}


def test_a_wrap_is_a_region_that_did_not_fit_before_the_end() -> None:
    def given(grant: int, offset: int, round_: int, end: int) -> tuple[Any, ...]:
        return step(SpaceReserved(1, grant, grant, offset, round_, end), None, DGrantValue(DGrant.FILLING))

    assert decode_counts([given(1, 0, 0, 60), given(2, 0, 1, 60)], 100) == {"wraps": 1}
    assert decode_counts([given(1, 0, 0, 60), given(2, 0, 1, 40)], 100)["wraps"] == 0, "an empty ring that began anew"


def test_the_way_to_the_first_continued_token_has_no_gaps() -> None:
    rooms = (RoomSpec(1, 9), RoomSpec(2, 9))
    p = [PassCounts({}, 0, 0, 1, marks={"begun": {1: 0.0, 2: 3.0}, "computed": {1: at, 2: 4.0}}) for at in (1.0, 1.5)]
    marks = [{"landed": {1: at, 2: 5.0}, "asked": {1: 2.5}, "said": {1: 4.0}} for at in (1.7, 2.0)]
    d = [PassCounts({}, 0, 0, 1, marks=each) for each in marks]
    spans = sharded(rooms, p, d)
    assert spans == {"prefill": [1.5], "transfer": [0.5], "wait": [0.5], "token": [1.5], "whole": [4.0]}
    verdicts = {1: Verdict([1, 2], [], {}, None, (0.25, 0.75)), 2: Verdict([1], [], {}, None, (0.5,))}
    alone = unsharded(rooms, verdicts)
    assert alone == {"prefill": [0.25], "token": [0.5], "whole": [0.75]}
    assert spread(alone)["whole"] == {"median": 0.75, "p99": 0.75}

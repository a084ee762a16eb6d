"""The matrix: whole runs over NIXL between processes, every bit compared, planted corruptions found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest
from support.night import NIGHT

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("nixl._api")

from kvproto.io.control.keys import make_pair
from kvproto.lab.demo.conduct import DemoResult, conduct
from kvproto.lab.demo.job import DemoJob, GroupShape
from kvproto.lab.demo.matrix import CASES
from kvproto.lab.demo.run import Route, Run, chunk_bytes, make_rooms
from kvproto.lab.process_group import RankError
from kvproto.verify.trace.stories import load, replay

#: what a case is there for must have happened
HAPPENED: dict[str, Callable[[dict[str, int]], bool]] = {
    "ring<2": lambda n: n["wraps"] > 0,
    "ring<1": lambda n: n["refused"] > 0 and n["pages"] > 0 and n["writes"] > 0,
    "direct": lambda n: n["direct"] > 0 and n["writes"] == 0,
    "abort": lambda n: n["aborted"] > 0,
}


#: cases of the matrix that go through an encrypted control plane; by night all of them do, once more
WITH_KEYS = ("4->2 bf16 ring<2", "PP2xTP2->TP1 bf16 16->64", "1->2 fp16 abort by D ring<2")
WITH_TRACES = "2->1 fp32 all passes"


@pytest.mark.parametrize("name", CASES)
def test_every_case_is_right(name: str, tmp_path: Path) -> None:
    run = CASES[name]
    if name in WITH_KEYS:
        run = replace(run, keys=str(make_pair(tmp_path, "matrix")[0]))
    if name == WITH_TRACES:
        run = replace(run, trace=str(tmp_path))
    result = conduct(run)
    assert result.wrong == []
    found, planted = result.controlled
    assert found == planted > 0
    assert result.tokens == sum(r.new for r in result.run.job.rooms if r.room not in result.run.aborted)
    for what, happened in HAPPENED.items():
        if what in name:
            assert happened(result.passes[0].counts), (what, result.passes[0])
    if "all passes" in name:
        compare_routes(result)
    if name == WITH_TRACES:
        replays(run, tmp_path)


def replays(run: Run, folder: Path) -> None:
    """Every rank of every pass has written a trace, in which the tables find nothing."""
    files = sorted(folder.glob("*.jsonl"))
    assert len(files) == len(run.passes) * (run.job.prefill.ranks + run.job.decode.ranks)
    for log in load(*files):
        assert log.entries and replay(log) is None


@pytest.mark.parametrize("name", CASES if NIGHT else [])
def test_a_case_is_right_with_an_encrypted_control_plane(name: str, tmp_path: Path) -> None:
    result = conduct(replace(CASES[name], keys=str(make_pair(tmp_path, "matrix")[0])))
    found, planted = result.controlled
    assert result.wrong == [] and found == planted > 0


def compare_routes(result: DemoResult) -> None:
    live, staged, pages = (done.counts for done in result.passes)
    assert live["bytes"] == staged["bytes"] == pages["bytes"]
    assert staged["writes"] == staged["pieces"] == pages["pages"]
    assert pages["writes"] == 0 and pages["pieces"] > 50 * staged["pieces"]


def test_timed_passes_leave_the_first_room_out() -> None:
    """Each live pass judges every room with its KV ready; the first room of each is not timed."""
    rooms = make_rooms(4, 150, page=16, new=3, least=0.25)
    job = DemoJob(GroupShape(2), GroupShape(2, page_size=64), rooms, layers=2, chunk=64)
    run = Run(job, 6 * chunk_bytes(job), get_args(Route), warm=True)
    result = conduct(run)
    assert result.wrong == []
    assert result.tokens == 4 * 3 + 4 * 2
    for done in result.passes:
        assert done.seconds["warm-up"] > 0
        live = done.route.startswith("live")
        assert all(len(values) == 3 * live and min(values, default=0) >= 0 for values in done.spans.values())
        assert bool(done.counts["writes"]) != ("pages" in done.route)
    assert len(result.unsharded["whole"]) == 3


@pytest.mark.parametrize(("seed", "sign"), [(0, "differs in"), (1, "differs in"), (2, "outside the rooms")])
def test_a_faulty_kernel_is_found_out(seed: int, sign: str) -> None:
    rooms = make_rooms(2, 100, page=16, new=2)
    run = Run(DemoJob(GroupShape(2), GroupShape(1), rooms, layers=2, seed=seed), 1 << 20, ("live",))
    result = conduct(run, players="demo_faults")
    assert any(sign in text for text in result.wrong), result.wrong
    assert any("D0, reports: decode_room" in text and "the step before has left" in text for text in result.wrong)
    assert not result.ok


def test_a_run_that_does_not_end_says_what_it_waits_for() -> None:
    run = Run(
        DemoJob(GroupShape(2), GroupShape(1), make_rooms(1, 60, page=16), layers=1), 1 << 20, ("live",), limit_s=0.0
    )
    with pytest.raises(RankError, match="not linked within 0 s"):
        conduct(run)


@pytest.mark.parametrize("abort", ["none", "prefill", "decode"])
def test_runs_that_cannot_be_are_refused(abort: Any) -> None:
    job = DemoJob(GroupShape(2), GroupShape(1), make_rooms(1, 100, page=16))
    with pytest.raises(ValueError, match="at least" if abort == "none" else "left to be unharmed"):
        Run(job, 0 if abort == "none" else 1 << 20, abort=abort)

"""`kvproto bench`: its benchmarks exist, results merge into tables, and small runs are right."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest

from kvproto.cli import main as kvproto_main
from kvproto.cli.ending import DEFECT
from kvproto.lab.bench.flat import checked_results, rows_of
from kvproto.lab.bench.results import Course
from kvproto.lab.cli import BENCHES
from kvproto.lab.cli.bench_command import main

ROOT = Path(__file__).parents[1]


def test_usage_and_wrong_names(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    told = capsys.readouterr().out
    assert all(name in told for name in BENCHES)
    assert main([]) == 2
    assert main(["nonsense"]) == 2
    assert "nonsense" in capsys.readouterr().err


def test_asking_what_there_is_loads_no_device_library() -> None:
    code = "import sys, kvproto.lab.cli.bench_command as c; c.main(['--help']); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False, capture_output=True).returncode == 0


def test_the_results_in_the_repository_become_tables(capsys: pytest.CaptureFixture[str]) -> None:
    results = ROOT / "examples" / "results" / "h200.json"
    assert main(["figures", "--results", str(results)]) == 0
    text = capsys.readouterr().out
    for run in json.loads(results.read_text())["runs"]:
        assert f"`{run['command']}`" in text and run["figures"]
        assert all(each["labels"].get("right", True) for each in run["figures"])
        assert not {each["name"] for each in run["figures"]} & {"found", "disagreements"}


def test_a_pipeline_between_processes_is_right(tmp_path: Path) -> None:
    """Both routes over NIXL in host memory, every byte compared by processes that share no transfer code."""
    for module in ("torch", "zmq", "nixl._api"):
        pytest.importorskip(module)
    out = tmp_path / "run.json"
    line = [sys.executable, "-m", "kvproto", "bench", "pipeline", "--cpu", "--pairs", "tiny", "--json", str(out)]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, timeout=150, check=False)
    assert done.returncode == 0, done.stderr
    assert "2 of 3 cases; some " in done.stderr and "GB/s" in done.stderr
    (run,) = checked_results(out)
    assert not run.cut
    rows = [each.labels for each in rows_of(run.figures)]
    assert [row["what"] for row in rows] == ["one", "many", "slice"]
    assert all(row["right"] for row in rows) and not any("odd" in each.name for each in run.figures)
    pieces = [int(row["pieces"]) for row in rows]
    assert pieces[0] == 2
    assert pieces[2] > 1000
    assert main(["figures", "--results", str(tmp_path / "all.json"), "--add", str(out)]) == 0


@pytest.mark.parametrize(
    ("words", "table"), [
        ("control --rounds 2 --rooms 1024", "processor"), ("hybrid --cpu --rooms 2 --tokens 1000 --repeats 1", "rows"),
        ("layers --cpu --tokens 1024 --groups 1 --repeats 1", "rows"), ("beside --cpu --ways bulk --repeats 1", "rows"),
        ("grid --cpu --prompts 1 --pages 16 --batches 1", "rows"),
    ],
)  # fmt: skip
def test_a_benchmark_that_needs_no_gpu_runs_to_its_end(
    words: str, table: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On processes over NIXL; every byte is compared there."""
    for module in ("torch", "zmq", "nixl._api"):
        pytest.importorskip(module)
    from kvproto.lab.bench import control

    monkeypatch.setattr(control, "LIVE", (1, 8))
    out = tmp_path / "run.json"
    assert kvproto_main(["bench", *words.split(), "--json", str(out)]) == 0
    (run,) = checked_results(out)
    rows = [each.labels for each in rows_of(run.figures)]
    assert any(row.get("table", "rows") == table for row in rows), rows
    assert all(row.get("right", True) is True for row in rows)


def test_a_run_keeps_what_it_has_measured_and_begins_nothing_it_has_no_time_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = [0.0]
    monkeypatch.setattr("kvproto.lab.bench.results.time.perf_counter", lambda: now[0])
    out = tmp_path / "run.json"
    course = Course("layers", ["--json", "x"], Namespace(json=str(out), seconds=10))
    rows: list[dict[str, float]] = []
    for part in (2, 1):
        for case in course.cases(range(4), part):  # 2 s each: of the first part's 5 s it has two, of the rest's three
            now[0] += 2.0
            rows.append({"case": float(case)})
            course.keep(rows, f"row {case}")
            run = json.loads(out.read_text())
            assert run["cut"] and run["command"] == "kvproto bench layers"
            assert [each["value"] for each in run["figures"]] == [row["case"] for row in rows]
    assert [row["case"] for row in rows] == [0, 1, 0, 1, 2]
    assert course.left_out == 3
    course.end(rows)
    assert "cut" not in json.loads(out.read_text())
    told = capsys.readouterr()
    assert "case" in told.out
    assert "[   4 of 10 s] 2 of 4 cases left out" in told.err
    assert [each.name for each in tmp_path.iterdir()] == ["run.json"]


def test_what_a_rank_of_a_benchmark_cannot_do_is_named_and_ends_nothing() -> None:
    for module in ("torch", "zmq", "nixl._api"):
        pytest.importorskip(module)
    from kvproto.lab.bench.control_side import ControlRank
    from kvproto.lab.bench.members import Members

    members = Members()
    members.start("P", 0, ControlRank, "P", False, False)
    with pytest.raises(RuntimeError, match="P0 nonsense: AttributeError"):
        members.tell("PD", "nonsense")
    assert set(members.tell("P", "address")) == {("P", 0)}
    assert members.tell("P", "end") == {("P", 0): None}


class Mortal:
    """A rank that dies with this exit code, or with none waits for one that is dead."""

    def __init__(self, code: int) -> None:
        self.code = code

    def idle(self) -> None:
        """Nothing."""

    def end(self) -> None:
        """Nothing."""

    def go(self) -> None:
        if self.code:
            os._exit(self.code)
        time.sleep(600)


def test_a_rank_of_a_benchmark_that_dies_ends_all_of_it_at_once() -> None:
    pytest.importorskip("torch")
    from kvproto.lab.bench.members import Members

    members = Members()
    for index, code in enumerate((0, 3)):
        members.start("P", index, Mortal, code)
    with pytest.raises(RuntimeError, match="P1 failed: exit code 3"):
        members.tell("P", "go")
    assert members.tell("PD", "end") == {}


@pytest.mark.parametrize("name", BENCHES)
def test_each_benchmark_explains_itself(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch")
    with pytest.raises(SystemExit) as stop:
        main([name, "--help"])
    assert stop.value.code == 0
    assert f"kvproto bench {name}" in capsys.readouterr().out
    with pytest.raises(SystemExit) as stop:
        main([name, "--no-such-option"])
    assert stop.value.code == 2


def test_a_missing_package_is_named_with_its_remedy(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.delitem(sys.modules, "kvproto.lab.bench.layers", raising=False)
    assert kvproto_main(["bench", "layers"]) == 2
    assert "torch, which is not installed: pip install 'kvproto[bench]'" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "rich.console", None)
    monkeypatch.delitem(sys.modules, "kvproto.lab.demo.report", raising=False)
    monkeypatch.delitem(sys.modules, "kvproto.lab.cli.demo_command", raising=False)
    assert kvproto_main(["demo"]) == 2
    assert "kvproto[demo]" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "kvproto.verify.framework.lint", None)
    monkeypatch.delitem(sys.modules, "kvproto.verify.cli.lint_command", raising=False)
    assert kvproto_main(["lint"]) == DEFECT  # what is ours is not to be installed
    assert "import of kvproto.verify.framework.lint halted" in capsys.readouterr().err

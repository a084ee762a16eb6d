"""What is made of measurements: tables, a plot, the summary in README, and the size of a chunk."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from kvproto.cli import main as kvproto_main
from kvproto.lab.bench.figures import TABLES, between, put, read, tables
from kvproto.lab.bench.goals import goals
from kvproto.lab.bench.highlights import highlights
from kvproto.lab.bench.pieces import curves, suggest
from kvproto.lab.bench.plot import CEILING, lines_of
from kvproto.lab.bench.result_types import checked_run
from kvproto.lab.bench.results import measuring
from kvproto.lab.bench.summary import summary
from kvproto.lab.bench.tables import measured
from kvproto.lab.bench.trace_summary import replays
from kvproto.lab.cli.bench_command import main
from kvproto.layout.sharding import LayoutError

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "examples" / "results" / "h200.json"
MIB = 1 << 20


def one(size: int, chunk: int, gbs: float, **more: Any) -> dict[str, Any]:
    return {"what": "one", "pair": "1->1 on 2", "size": size, "chunk": chunk, "gbs": gbs, "ring": 0, **more}


ROWS = [
    one(64, 4, 60.0), one(64, 16, 99.0), one(64, 64, 100.0),
    one(1024, 16, 150.0), one(1024, 64, 300.0), one(1024, 128, 310.0), one(1024, 128, 320.0), one(1024, 512, 250.0),
    one(1024, 32, 999.0, ring=64), one(1024, 32, 999.0, staging="pinned"), one(1024, 32, 999.0, pair="4->1 on 4"),
    one(1024, 32, 999.0, what="many"),
]  # fmt: skip


# ---- the size of a chunk --------------------------------------------------------------------------------------------


def test_a_curve_has_single_rooms_of_one_pair_each_form_once() -> None:
    found = curves(ROWS, "1->1")
    assert found == {64: {4: 60.0, 16: 99.0, 64: 100.0}, 1024: {16: 150.0, 64: 300.0, 128: 320.0, 512: 250.0}}
    assert curves(ROWS, "4->1") == {1024: {32: 999.0}}


@pytest.mark.parametrize(
    ("tokens", "more", "grid"),
    [
        (512, {}, 128),  # 64 MiB: 16 MiB a chunk is within 3 % of the best
        (8192, {}, 1024),  # 1 GiB: 128 MiB
        (8192, {"pages": (48, 64)}, 960),  # whole pages of both sides
        (8192, {"prefill_chunk": 512}, 512),
        (8192, {"prefill_chunk": 4096}, 1024),
        (8, {}, 128),
    ],
)
def test_the_grid_is_the_smallest_that_is_as_good(tokens: int, more: dict[str, Any], grid: int) -> None:
    found = suggest(curves(ROWS, "1->1"), token_bytes=128 << 10, tokens=tokens, **more)
    assert found.grid == grid
    assert found.nbytes == grid << 17


def test_the_reason_says_what_limits_and_what_it_costs() -> None:
    measured = curves(ROWS, "1->1")
    assert "needs less ring" in suggest(measured, token_bytes=128 << 10, tokens=512).why
    cut = suggest(measured, token_bytes=128 << 10, tokens=8192, prefill_chunk=128)
    assert "computes 128 tokens" in cut.why and "150 GB/s" in cut.why and cut.gbs == 150.0
    assert "no room of nearly this size" in suggest(measured, token_bytes=128 << 10, tokens=8).why
    with pytest.raises(ValueError, match="what pieces"):
        suggest({}, token_bytes=1, tokens=1)
    with pytest.raises(LayoutError):
        suggest(measured, token_bytes=128, tokens=0)


def test_suggest_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "run.json"
    file.write_text(json.dumps({"bench": "pipeline", "figures": ROWS}))
    assert main(["suggest", "--results", str(file), "--tokens", "512"]) == 0
    assert "grid=128" in capsys.readouterr().out
    assert main(["suggest", "--results", str(file), "--tokens", "512", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["grid"] == 128
    for wrong in (["--pair", "3->1"], ["--results", "missing"]):
        assert kvproto_main(["bench", "suggest", "--results", str(file), *wrong]) == 2
        assert capsys.readouterr().err.count("\n") == 1
    for wrong in (["--pages", "none"], ["--tokens", "0"]):
        with pytest.raises(SystemExit, match="2"):
            main(["suggest", "--results", str(file), *wrong])
        assert wrong[0] in capsys.readouterr().err


# ---- files of results -----------------------------------------------------------------------------------------------


def test_a_run_that_is_added_replaces_that_of_the_same_command(tmp_path: Path) -> None:
    def run(command: str, value: int) -> dict[str, Any]:
        return {"bench": "transport", "command": command, "machine": {}, "figures": [{"what": "bulk", "v": value}]}

    old = put([run("a", 1), run("b", 2)], {})
    new = put([run("a", 3), run("c", 4)], old)
    assert [(each["command"], each["figures"][0]["v"]) for each in new["runs"]] == [("a", 3), ("b", 2), ("c", 4)]
    file = tmp_path / "demo.json"
    file.write_text(json.dumps({"bench": "demo", "command": "kvproto demo", "machine": {}, "ok": True, "passes": []}))
    assert read(file)["figures"] == {"ok": True, "passes": []}


def test_a_command_is_told_without_where_its_figures_go() -> None:
    given = ["--pairs", "1-1", "--json", "x", "--plot=y.svg", "--cpu", "--plot", "z.svg"]
    assert measuring(given) == ["--pairs", "1-1", "--cpu"]


def test_rows_are_shown_as_measured_and_wrong_bytes_are_shouted() -> None:
    rows = [{"what": "gather", "gbs": 4164.123, "right": True, "phases": {"first": 1}},
            {"what": "scatter", "gbs": 0.123456, "right": False, "all_ms": [1]}]  # fmt: skip
    head, _, first, second, shouted = measured(rows).splitlines()
    assert [each.strip() for each in head.split("|")] == ["", "what", "gbs", "right", ""]
    assert "4164 " in first and "0.1235 " in second and shouted == f"WRONG: {rows[1]}"
    pipeline = next(run for run in json.loads(RESULTS.read_text())["runs"] if run["bench"] == "pipeline")["figures"]
    assert "WRONG" not in TABLES["pipeline"](pipeline)
    assert "WRONG" in TABLES["pipeline"]([*pipeline, {**pipeline[0], "right": False}])


def test_readme_shows_the_summary_of_the_results() -> None:
    churn = RESULTS.with_name("churn.json")
    for file, results, make in (
        ("README.md", RESULTS, highlights), ("docs/figures.md", RESULTS, summary), ("docs/operating.md", churn, tables),
        ("docs/security.md", RESULTS.with_name("torture.json"), tables),
        ("docs/traces.md", RESULTS.with_name("traces.json"), replays),
    ):  # fmt: skip
        _, _, inside, _ = between((ROOT / file).read_text())
        assert inside == make(json.loads(results.read_text())), f"run: kvproto bench figures --into {file}"


def test_the_summary_is_put_between_the_marks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    readme = tmp_path / "README.md"
    shutil.copy(ROOT / "README.md", readme)
    _, before, _, after = between(readme.read_text())
    readme.write_text(f"{before}something old{after}")
    assert main(["figures", "--results", str(RESULTS), "--into", str(readme)]) == 0
    assert readme.read_text() == (ROOT / "README.md").read_text()
    readme.write_text("no marks")
    assert kvproto_main(["bench", "figures", "--results", str(RESULTS), "--into", str(readme)]) == 2
    assert "figures" in capsys.readouterr().err


def test_goals_stand_beside_what_was_measured_and_its_floor() -> None:
    def room(size: int, ratio: float, **more: Any) -> dict[str, Any]:
        return one(size, 64, 100.0, rooms=1, ratio=ratio, bulk_ms=0.9, bare_ms=1.0, went="mapped") | more

    layer = {"way": "mapped", "tokens": 1024, "groups": 4, "last_ms": 0.1, "floor_ms": 0.35, "after_ms": 0.5}
    cell = {"pair": "1->1 on 2", "size": 256, "share": 0.8, "bulk_ms": 1.0, "floor_ms": 1.25, "faster": 30.0}
    latency = {"median": 30.0, "p99": 90.0, "p999": 300.0}
    pinned = room(1024, 0.9, rooms=4, staging="pinned", workers=8, bulk_gbs=25.0, gbs=21.0)
    engine = pinned | {"workers": 0, "maps": True, "bulk_gbs": 55.0, "gbs": 19.0}
    figures = {
        "pipeline": [room(64, 0.5), room(64, 0.65), room(256, 0.8), engine | {"gbs": 30.0}, engine, pinned],
        "layers": [layer, layer | {"groups": 1, "after_ms": 0.2}], "grid": [cell, cell | {"size": 128}],
        "control": {"rows": [{"rooms": 64, "produced to posted, without the gather": latency}],
                    "rooms_a_second": [5000.0], "calls": {"prefill": {"room": 160.0}}},
        "step": {"us_per_event": 2.5, "us_per_event_best": 1.9}, "conformance": {"rank_pays": 0.1, "judge": 5.0},
        "churn": {},
    }  # fmt: skip
    told = goals({"bench": bench, "command": bench, "figures": each} for bench, each in figures.items())
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in told.splitlines()[2:]]
    met = {what.partition(":")[0]: (figure, floor, yes) for what, figure, floor, yes, _ in lines}
    assert met == {
        "a room of 64 MiB alone": ("1->1 0.65 (mapped)", "1->1 0.90", "yes"),
        "a room of 256 MiB alone": ("1->1 0.80 (mapped)", "1->1 0.90", "**no**"),
        "staging in pinned memory, between processes of one host":
            ("1->1 by 8 workers 21.0, 1->1 by copy engine 30.0",
             "one write by 8 workers 25.0, one write by copy engine 55.0", "yes"),
        "after a forward": ("1024 tokens, 4 groups, mapped +0.40 ms", "1024 +0.25 ms", "**no**"),
        "the grid": ("30.0 to 30 times as fast, 2 cells", "the descriptors", "yes"),
        "produced to posted, 64 rooms, without the gather": ("30 / 90 / 300", "", "yes"),
        "rooms a second through one link": ("5000", "Python calls a room: prefill 160", "**no**"),
        "an event through the full typed path": ("2.50, best block 1.90", "", "**no**"),
        "an event of a rank that is followed": ("0.10", "the judge, behind it, 5.0", "yes"),
    }  # fmt: skip
    assert any(figure.startswith("0 of 1 cells; least 0.80 (1->1, 256 MiB)") for _, figure, *_ in lines)
    assert goals([]) == ""
    other = engine | {"pair": "1->2 on 1", "gbs": 19.9}
    slow = goals([{"bench": "pipeline", "command": "", "figures": [pinned, other]}])
    assert "1->2 by copy engine 19.9" in slow and "**no**" in slow, "each pair has to reach it"


# ---- the plot -------------------------------------------------------------------------------------------------------


def test_a_plot_has_the_best_of_each_size_and_the_copy() -> None:
    bulk = {"what": "bulk", "how": "polled", "size": 64, "gbs": 90.0, "copy_gbs": 100.0}
    pipeline = [dict(row, bulk_gbs=80.0) for row in ROWS if row["pair"] == "1->1 on 2"]
    runs = [{"bench": "transport", "figures": [bulk]}, {"bench": "pipeline", "figures": pipeline}]
    lines = lines_of({"runs": runs})
    assert lines[CEILING] == {64: 100.0}
    assert lines["NIXL, one write, polled"] == {64: 90.0, 1024: 80.0}
    assert lines["gather, write, scatter: one room"][64] == 100.0
    other = [row for row in ROWS if row["pair"] == "4->1 on 4"]
    assert lines_of({"runs": [{"bench": "pipeline", "figures": other}]}) == {
        "gather, write, scatter: one room": {1024: 999.0}
    }


def test_plots_are_written_or_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    results = ["figures", "--results", str(RESULTS), "--plot"]
    assert main([*results, str(tmp_path / "a.svg")]) == 0
    assert "<svg" in (tmp_path / "a.svg").read_text()
    for name, why in (("a.txt", ".svg"), ("missing/a.svg", "no directory")):
        with pytest.raises(SystemExit) as stop:
            main([*results, str(tmp_path / name)])
        assert stop.value.code == 2
        assert why in capsys.readouterr().err


def test_layer_groups_and_first_tokens_by_layer_have_tables_of_their_own() -> None:
    row = {"way": "mapped", "tokens": 1024, "groups": 4, "bytes": 128 * MIB, "bulk_ms": 0.4, "last_ms": 0.1,
           "floor_ms": 0.35, "after_ms": 0.5, "total_ms": 25.0, "right": True}  # fmt: skip
    parts = {"prefill": 0.1, "transfer": 0.002, "whole": 0.2}
    cut = {"tokens": 4096, "asked": 0, "groups": 8, "without": parts, "by_layer": parts | {"whole": 0.15}, "gain": 0.25}
    demo = {"title": "a model", "unsharded": {}, "passes": [], "by_layer": [cut, cut | {"asked": 8, "gain": -0.5}]}
    runs = [{"bench": bench, "command": f"kvproto {bench}", "machine": {}, "figures": figures}
            for bench, figures in (("layers", [row]), ("demo", demo))]  # fmt: skip
    for run in runs:
        checked_run("here", run)
    for told in (summary({"runs": runs}), tables({"runs": runs})):
        cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in told.splitlines() if line.startswith("|")]
        assert ["mapped", "1024", "128", "4", "0.400", "0.500", "0.350", "0.100", "0.400", "25.00"] in cells
        assert ["4096", "8, by cost", "100.0", "100.0", "2.0", "2.0", "200.0", "150.0", "+25.0%"] in cells
        assert "-50.0%" in told
    assert "a model" not in highlights({"runs": runs})

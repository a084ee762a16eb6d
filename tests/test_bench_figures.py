"""Figures of benchmarks: flat results, the pivot, goals and pages."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from kvproto.cli import main as kvproto_main
from kvproto.fsm.bounded_files import FileError
from kvproto.lab.bench.figures import MARKS, between, put, read, written
from kvproto.lab.bench.flat import Figure, Labels, MeasuredRun, checked_results, flat, named, rows_of
from kvproto.lab.bench.goals import goals
from kvproto.lab.bench.pivot import every_run, tables
from kvproto.lab.cli.bench_command import main

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "examples" / "results" / "h200.json"


def one(size: int, chunk: int, gbs: float, **more: Any) -> dict[str, Any]:
    return {"what": "one", "pair": "1->1 on 2", "size": size, "chunk": chunk, "gbs": gbs, "ring": 0, **more}


def run(bench: str, measured: Any, command: str = "") -> MeasuredRun:
    return MeasuredRun(bench, command or f"kvproto bench {bench}", flat(measured), {})


# ---- flat -----------------------------------------------------------------------------------------------------------


def test_numbers_with_a_fraction_are_figures_and_all_else_are_labels() -> None:
    row = {"what": "one", "size": 64, "right": True, "bulk_ms": 1.5, "all_ms": [1.0, 2.0], "went": None,
           "first token": {"wait": {"p99": 0.5}}, "rooms_a_second": [3.0, 1.0, 2.0], "found": ["a", "b"]}  # fmt: skip
    labels: Labels = {"what": "one", "size": 64, "right": True}
    assert flat(row) == [
        Figure("bulk", 1.5, "ms", labels), Figure("first token, wait, p99", 0.5, "", labels),
        Figure("rooms a second", 2.0, "", labels), Figure("found", 2.0, "", labels),
    ]  # fmt: skip
    assert named(["us_per_event"]) == ("per event", "us") and named(["gbs"]) == ("", "GB/s")


def test_rows_within_rows_are_tables_and_a_row_without_a_figure_says_so() -> None:
    skipped = {"calls": [{"skipped": {"cell": "time"}}]}
    found = flat({"spin": True, "rows": [{"rooms": 1, "took": 2.0}], "peer": skipped})
    assert found == [
        Figure("took", 2.0, "", {"spin": True, "table": "rows", "rooms": 1}),
        Figure("measured", 0.0, "", {"spin": True, "table": "peer calls", "skipped, cell": "time"}),
    ]


def test_figures_that_share_their_labels_are_a_row() -> None:
    (row,) = rows_of(flat(one(64, 4, 60.0, bulk_gbs=80.0)))
    assert row.values == {"GB/s": 60.0, "bulk GB/s": 80.0} and row.labels["size"] == 64


# ---- the pivot ------------------------------------------------------------------------------------------------------


def test_wrong_bytes_are_shouted() -> None:
    rows = [{"what": "gather", "gbs": 2.0, "right": True}, {"what": "scatter", "gbs": 1.0, "right": False}]
    assert tables(flat(rows)).splitlines()[-1] == f"WRONG: {({'what': 'scatter', 'right': False})}"
    assert "WRONG" not in every_run(checked_results(RESULTS))


# ---- files of results -----------------------------------------------------------------------------------------------


def test_a_run_that_is_added_replaces_that_of_the_same_command(tmp_path: Path) -> None:
    old = put([run("route", {"v": 1.0}, "a"), run("route", {"v": 2.0}, "b")], [])
    new = put([run("route", {"v": 3.0}, "a"), run("route", {"v": 4.0}, "c")], old)
    assert [(each.command, each.figures[0].value) for each in new] == [("a", 3.0), ("b", 2.0), ("c", 4.0)]
    file = tmp_path / "all.json"
    file.write_bytes(written(new))
    assert checked_results(file) == new


def test_what_is_not_flat_is_made_so(tmp_path: Path) -> None:
    file = tmp_path / "run.json"
    head: dict[str, Any] = {"command": "kvproto x", "machine": {}}
    file.write_text(json.dumps({"bench": "demo", **head, "ok": True, "passes": [{"route": "live", "gbs": 1.5}]}))
    assert read(file).figures == [Figure("", 1.5, "GB/s", {"ok": True, "table": "passes", "route": "live"})]
    torture = {"carrier": "nixl", "seed": 7, "rooms": 5, "faults": 2, "found": ["x"], "outcomes": {"NONE": 3}}
    attack = {"carrier": "nixl", "attacks": {"silence": 3}, "found": []}
    file.write_text(json.dumps({"bench": "torture", **head, "figures": [torture, attack]}))
    assert {(each.name, each.value) for each in read(file).figures} == {
        ("rooms", 5.0), ("faults", 2.0), ("found", 1.0), ("attacks, silence", 3.0), ("found", 0.0),
    }  # fmt: skip
    measured = {"pair": "1->1", "ms": 1.0, "phases": {"first": 2.0}, "odd": {"P0": {"writes": 1}}}
    file.write_bytes(written([run("pipeline", measured)]).removeprefix(b'{"runs":[\n').removesuffix(b"\n]}\n"))
    assert [each.name for each in read(file).figures] == [""]


@pytest.mark.parametrize("value", ["1.0", True, 1e300, None, [1.0]])
def test_a_figure_out_of_bounds_is_refused_by_its_place(value: Any, tmp_path: Path) -> None:
    file, figure = tmp_path / "run.json", {"name": "bulk", "value": value}
    file.write_text(json.dumps({"bench": "step", "command": "x", "machine": {}, "figures": [figure]}))
    with pytest.raises(FileError, match=r"run 1: .*figures\[0\]\.value"):
        checked_results(file)


def test_pages_show_the_figures_of_the_results() -> None:
    for page, results in (("docs/figures.md", "h200"),
                          ("docs/security.md", "torture"), ("docs/traces.md", "traces")):  # fmt: skip
        name, _, inside, _ = between((ROOT / page).read_text())
        runs = checked_results(RESULTS.with_name(f"{results}.json"))
        assert inside == MARKS[name](runs), f"run: kvproto bench figures --into {page}"


def test_the_page_in_front_has_figures_of_the_results() -> None:
    readme = (ROOT / "README.md").read_text()
    measured = re.findall(r"\d+\.\d+|\d+,\d{3}", readme[readme.index("## Three figures") : readme.index("## Status")])
    figures = (ROOT / "docs" / "figures.md").read_text()
    assert len(measured) > 6
    assert [each for each in measured if each.replace(",", "") not in figures] == []


def test_tables_are_put_between_the_marks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "figures.md"
    shutil.copy(ROOT / "docs" / "figures.md", page)
    _, before, _, after = between(page.read_text())
    page.write_text(f"{before}something old{after}")
    assert main(["figures", "--results", str(RESULTS), "--into", str(page)]) == 0
    assert page.read_text() == (ROOT / "docs" / "figures.md").read_text()
    page.write_text("no marks")
    assert kvproto_main(["bench", "figures", "--results", str(RESULTS), "--into", str(page)]) == 2
    assert "figures" in capsys.readouterr().err


# ---- goals ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("share", "floor", "met"),
    [([0.96], [0.98], "yes"), ([0.9], [0.98], "**no**"), ([0.9], [0.94], "**no**, nor the floor"),
     ([0.9], [None], "**no**"), ([0.9, 0.96], [0.94, 0.98], "**no**, nor the floor"),
     ([0.9, 0.8], [0.94, 0.98], "**no**")],
)  # fmt: skip
def test_a_goal_that_is_missed_says_whether_the_floor_misses_it(
    share: list[float], floor: list[float | None], met: str
) -> None:  # fmt: skip
    rows = [{"rooms": 8 << at, "tokens": 1000, "share": one, **({"floor_share": least} if least else {})}
            for at, (one, least) in enumerate(zip(share, floor, strict=True))]  # fmt: skip
    (line,) = [line for line in goals([run("hybrid", {"rows": rows})]).splitlines() if "pages and state" in line]
    assert line.split("|")[5].strip() == met


def test_rooms_that_are_reported_with_their_forward_are_a_goal_of_their_own() -> None:
    row = {"rooms": 8, "tokens": 1000, "size": 64, "what": "many", "ratio": 0.9, "share": 0.9, "pair": "1->1 on 2"}
    row |= {"ring": 0, "staging": "device", "route": "cost"}
    for bench, what in (("hybrid", "pages and state"), ("pipeline", "rooms of 64 MiB together")):
        rows = [row, row | {"forward": False, "tokens": 8192}, row | {"forward": True, "ratio": 0.96, "share": 0.96}]
        told = [line.split("|")[1:3] for line in goals([run(bench, {"rows": rows})]).splitlines() if what in line]
        (one, some), (other, alone) = [[cell.strip() for cell in line] for line in told]
        assert one.startswith(what) and "forward" not in one and "launch" in other
        assert "0.9" in some and "0.96" not in some and alone.endswith("0.96")

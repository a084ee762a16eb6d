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
from kvproto.lab.bench.pivot import every_run, pivot, tables
from kvproto.lab.bench.results import measuring
from kvproto.lab.cli.bench_command import main

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "examples" / "results" / "h200.json"


def one(size: int, chunk: int, gbs: float, **more: Any) -> dict[str, Any]:
    return {"what": "one", "pair": "1->1 on 2", "size": size, "chunk": chunk, "gbs": gbs, "ring": 0, **more}


def run(bench: str, measured: Any, command: str = "") -> MeasuredRun:
    return MeasuredRun(bench, command or f"kvproto bench {bench}", flat(measured), {})


def cells(table: str) -> list[list[str]]:
    """The cells of the tables in a text."""
    lines = [line for line in table.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]


ROWS = [
    one(64, 4, 60.0), one(64, 16, 99.0), one(64, 64, 100.0),
    one(1024, 16, 150.0), one(1024, 64, 300.0), one(1024, 128, 310.0), one(1024, 128, 320.0, repeats=9),
    one(1024, 512, 250.0), one(1024, 32, 999.0, ring=64), one(1024, 32, 999.0, staging="pinned"),
    one(1024, 32, 999.0, pair="4->1 on 4"), one(1024, 32, 999.0, what="many"),
]  # fmt: skip


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


def test_what_is_alike_is_told_once_and_the_rest_in_lines() -> None:
    table = pivot(flat([{"what": "a", "n": 1, "ms": 1.0, "gbs": 4164.123}, {"what": "a", "n": 2, "ms": 1.0}]))
    assert table.splitlines()[0] == "what a; ms 1"
    assert cells(table) == [["n", "GB/s"], ["1", "4164"], ["2", ""]]


def test_labels_across_make_columns_and_one_line_is_turned() -> None:
    rows = [{"n": n, "way": way, "ms": n + 0.5 * (way == "pages")} for n in (1, 2) for way in ("ring", "pages")]
    assert cells(pivot(flat([{**row, "ms": float(row["ms"])} for row in rows]), ["way"])) == [
        ["n", "ms, ring", "ms, pages"], ["1", "1", "1.5"], ["2", "2", "2.5"],
    ]  # fmt: skip
    turned = pivot(flat({"n": 1, "ms": 0.25, "phases": {"first": 1.0}}))
    assert cells(turned) == [["figure", "measured"], ["ms", "0.25"]]


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


def test_a_command_is_told_without_where_its_figures_go() -> None:
    given = ["--pairs", "1-1", "--json", "x", "--json=y", "--cpu"]
    assert measuring(given) == ["--pairs", "1-1", "--cpu"]


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


def met(runs: list[MeasuredRun]) -> dict[str, list[str]]:
    """The lines of the goals, by their first words."""
    return {line[0].partition(":")[0]: line[1:] for line in cells(goals(runs))[1:]}


def test_goals_stand_beside_what_was_measured_and_its_floor() -> None:
    def room(size: int, ratio: float, **more: Any) -> dict[str, Any]:
        return one(size, 64, 100.0, staging="device", rooms=1, beside=True, ratio=ratio, floor_ratio=0.9) | more

    pinned = room(1024, 0.9, rooms=4, staging="pinned", workers=8, bulk_gbs=25.0, gbs=21.0)
    latency = {"median": 30.0, "p99": 110.0, "p999": 300.0}
    layer = {"way": "mapped", "tokens": 1024, "groups": 4, "over_ms": 0.4, "floor_over_ms": 0.25}
    found = met([
        run("pipeline", [room(64, 0.5), room(64, 0.65, way=2), room(256, 0.8), pinned, pinned | {"gbs": 19.0, "n": 1},
                         pinned | {"pair": "1->2 on 1", "gbs": 19.9}]),
        run("layers", [layer, layer | {"groups": 1, "over_ms": 0.2}]),
        run("grid", [{"pair": "1->1", "size": 256, "share": 0.8, "faster": 30.0},
                     {"pair": "1->1", "size": 512, "share": 0.95, "faster": 40.0},
                     {"pair": "1->1", "size": 128, "share": 0.1, "faster": 50.0}]),
        run("control", {"rows": [{"rooms": 64, "produced to posted, without the gather us": latency}],
                        "rooms_a_second": [5000.0]}),
        run("step", {"us_per_event": 2.5}), run("route", {"n": 1}),
    ])  # fmt: skip
    assert {what: (figure, floor, yes) for what, (figure, _, floor, yes, _) in found.items()} == {
        "a room of 64 MiB alone": ("1->1 0.65", "1->1 0.9", "yes"),
        "a room of 256 MiB alone": ("1->1 0.8", "1->1 0.9", "**no**"),
        "staging in pinned memory, between processes of one host, GB/s":
            ("1->1 21, 1->2 19.9", "1->1 25, 1->2 25", "**no**"),
        "after a forward, beyond the last layer group's bulk write, ms": ("1024 0.4", "1024 0.25", "**no**"),
        "each cell of the grid of 256 MiB and more": ("0.8 to 0.95", "", "**no**: 1 of 2"),
        "the grid, times as fast as a write for each page, layer, K and V": ("30 to 50", "", "yes"),
        "produced to posted, without the gather, 64 rooms open, us, p50": ("30", "", "yes"),
        "produced to posted, without the gather, 64 rooms open, us, p99": ("110", "", "**no**"),
        "produced to posted, without the gather, 64 rooms open, us, p99.9": ("300", "", "yes"),
        "rooms a second through one link, hardly any KV": ("5000", "", "**no**"),
        "an event through the full typed path, us": ("2.5", "", "**no**"),
    }  # fmt: skip
    assert goals([]) == ""


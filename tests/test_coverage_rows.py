"""Coverage of rows: counted on ranks and from traces alike, reported at the end of a test run, and able to fail it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kvproto.cli.draw_command import main as draw
from kvproto.draw.scenes import PLAYS, SCENES
from kvproto.fsm.trace.coverage import Collector, CoverageError, load, percent, report, undump
from kvproto.protocol.tables import TABLES
from kvproto.trace import log_of

ROOT = Path(__file__).parent.parent


def counted() -> Collector:
    with Collector(TABLES).installed() as counts:
        for scene in SCENES:
            scene.logs()
    return counts


COUNTS = counted()


def test_ranks_and_their_traces_give_the_same_counts() -> None:
    from_traces, live = Collector(TABLES), Collector(TABLES)
    with live.installed():
        stages = [play() for play, _ in PLAYS.values()]
    for stage in stages:
        for rank in (*stage.past, *stage.ranks.values()):
            from_traces.take_log(log_of(rank))
    assert from_traces.rows == live.rows == COUNTS.rows
    assert set(from_traces.pairs) == set(live.pairs)


def test_nothing_is_counted_once_it_is_over() -> None:
    before = COUNTS.rows.total()
    SCENES[0].logs()
    assert COUNTS.rows.total() == before


def test_shares_are_of_what_there_is() -> None:
    for table in TABLES:
        rows, guards, pairs = COUNTS.covered(table), COUNTS.outcomes(table), COUNTS.joined(table)
        assert 0 < rows.seen < rows.all == len(table.rows)
        assert 0 <= guards.seen <= guards.all == 2 * sum(row.when is not None for row in table.rows)
        assert 0 < pairs.seen <= pairs.all
        assert len(COUNTS.missing(table)) == rows.all - rows.seen


def test_a_guard_failed_where_a_later_row_of_its_pair_fired() -> None:
    table = next(table for table in TABLES if table.name == "prefill_send")
    waiting = [row for row in table.rows if row.source.name == "AWAIT_GRANT"]
    first, second, last = (row for row in waiting if row.event.__name__ == "StagingGranted")
    counts = Collector(TABLES)
    counts.rows[table.name, last.index] = 1
    assert counts.outcomes(table).seen == 2  # the first two guards were seen to fail
    counts.rows[table.name, first.index] = 1
    assert counts.outcomes(table).seen == 3
    assert second.when is not None


def test_counts_go_to_a_file_and_come_back(tmp_path: Path) -> None:
    COUNTS.save(tmp_path / "rows.json")
    back = load(tmp_path / "rows.json", TABLES)
    assert (back.rows, back.pairs) == (COUNTS.rows, COUNTS.pairs)
    twice = undump(back.dump(), TABLES)
    twice.add(back)
    assert twice.rows.total() == 2 * COUNTS.rows.total()
    (tmp_path / "rows.json").write_text('{"format": 7}')
    with pytest.raises(CoverageError, match="format 7"):
        load(tmp_path / "rows.json", TABLES)
    with pytest.raises(CoverageError, match=r"no\.json"):
        load(tmp_path / "no.json", TABLES)


def test_the_report_says_where_the_rows_stand_that_never_fired() -> None:
    said = report(COUNTS)
    missing = COUNTS.missing(TABLES[0])[0]
    assert f"{missing.where}: {TABLES[0].name}" in said
    assert 0 < percent(COUNTS) < 100


def test_it_is_painted(tmp_path: Path) -> None:
    COUNTS.save(tmp_path / "rows.json")
    assert draw(["--coverage", str(tmp_path / "rows.json"), "--format", "svg", "--out", str(tmp_path)]) == 0
    assert 'class="edge bare"' in (tmp_path / "prefill_send.svg").read_text()
    assert draw(["--coverage", str(tmp_path / "absent.json")]) == 1


@pytest.mark.parametrize("workers", [0, 2], ids=["one process", "xdist"])
def test_the_plugin_reports_and_can_fail_a_run(tmp_path: Path, workers: int) -> None:
    tests = "\n".join(f"def test_{s.name}():\n    SCENES[{i}].logs()" for i, s in enumerate(SCENES))
    (tmp_path / "test_scenes.py").write_text(f"from kvproto.draw.scenes import SCENES\n{tests}\n")
    split = ["-p", "xdist", "-n", str(workers)] if workers else []
    command = [sys.executable, "-m", "pytest", "-q", "-p", "kvproto.testing.coverage_plugin", "-p", "no:cacheprovider",
               "--rootdir", str(tmp_path), *split, str(tmp_path)]  # fmt: skip
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_ADDOPTS": "", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}

    def run(*more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*command, *more], capture_output=True, text=True, timeout=120, check=False,
                              cwd=tmp_path, env=environment)  # fmt: skip

    plenty = run("--rows-least", "10", "--rows-out", str(tmp_path / "rows.json"))
    assert plenty.returncode == 0, plenty.stdout + plenty.stderr
    assert "never fired:" in plenty.stdout
    assert load(tmp_path / "rows.json", TABLES).rows == COUNTS.rows
    if workers:
        return
    short = run("--rows-least", "100")
    assert short.returncode == 1
    assert "--rows-least 100" in short.stdout
    assert "rows of the protocol" not in run().stdout

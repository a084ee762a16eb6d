"""Coverage of rows and routes: counted on ranks, reported at the end of a test run, and able to
fail it; what misbehaves counts apart, what is on no rank not at all.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kvproto.fsm.machine import Machine
from kvproto.protocol import events as ev
from kvproto.protocol.states import DGrant
from kvproto.protocol.tables import TABLES
from kvproto.protocol.tables.decode_grant import decode_grant
from kvproto.protocol.tables.prefill_room import prefill_room
from kvproto.protocol.timing import Timing
from kvproto.verify.claims.kv import KV
from kvproto.verify.draw.scenes import SCENES
from kvproto.verify.framework.table_patching import TablePatch
from kvproto.verify.framework.trace.coverage import Collector, lacking

ROOT = Path(__file__).parent.parent


def counted() -> Collector:
    with Collector(KV.counted).installed() as counts:
        for scene in SCENES:
            scene.play()
    return counts


COUNTS = counted()


def test_a_machine_that_is_on_no_rank_counts_for_nothing() -> None:
    with Collector(KV.counted).installed() as counts:
        machine = Machine(prefill_room, Timing())
        row, *_ = machine.fire(machine.initial, ev.EngineOpened(1, 20), 0.0)
    assert row is not None and not counts.rows


def test_what_ranks_of_changed_tables_do_counts_for_nothing() -> None:
    with Collector(KV.counted).installed() as counts:
        with TablePatch() as bench:
            bench.change(decode_grant, bench.rows(decode_grant, DGrant.SCATTERING, ev.Scattered), do=())
            SCENES[0].play()
        assert not counts.rows and not counts.routes
        SCENES[0].play()
    assert counts.rows


def test_who_counts_inside_of_another_count_takes_nothing_away() -> None:
    with Collector(KV.counted).installed() as outer:
        with Collector(KV.counted).installed() as inner:
            stage = SCENES[0].play()
        assert inner.rows == outer.rows
        before = inner.rows.total()
        for rank in stage.ranks.values():
            rank.tick(1000.0)
    assert inner.rows.total() == before < outer.rows.total()


def test_nothing_is_counted_once_it_is_over() -> None:
    before = COUNTS.rows.total()
    SCENES[0].play()
    assert COUNTS.rows.total() == before


def test_counts_of_another_process_are_added() -> None:
    twice = Collector(KV.counted)
    for _ in range(2):
        twice.add_dump(json.loads(json.dumps(COUNTS.dump())))
    assert twice.rows.total() == 2 * COUNTS.rows.total() and twice.routes.total() == 2 * COUNTS.routes.total()


def test_the_report_says_where_the_rows_and_routes_stand_that_were_never_fired() -> None:
    said = lacking(COUNTS)
    rows, routes = COUNTS.missing(TABLES[0]), COUNTS.untaken(KV.counted.routes[0])
    text = "\n".join(said)
    assert all(f"{row.where}: {TABLES[0].name}: {row.verb}" in text for row in rows)
    assert all(f"{route.where}: to {KV.counted.routes[0].name}: {route.end}" in text for route in routes)
    left = sum(len(COUNTS.missing(table)) for table in TABLES)
    assert left > len(said) > 0, "the rows of one line of a table's file are one line"
    assert COUNTS.percent()[0] == pytest.approx(100 * (1 - left / sum(len(table.rows) for table in TABLES)))


def test_what_one_lacks_is_what_another_has_seen() -> None:
    other = Collector(KV.counted)
    row, route = COUNTS.missing(TABLES[0])[0], COUNTS.untaken(KV.counted.routes[0])[0]
    other.rows[TABLES[0].name, row.index] = other.routes[KV.counted.routes[0].name, route.index] = 1
    said = lacking(COUNTS, other)
    assert len(said) == 2 and said[0].startswith(f"{row.where}: ") and said[1].startswith(f"{route.where}: ")
    assert not lacking(COUNTS, COUNTS)


@pytest.mark.parametrize("workers", [0, 2], ids=["one process", "xdist"])
def test_the_plugin_reports_and_can_fail_a_run(tmp_path: Path, workers: int) -> None:
    marks = ["@pytest.mark.misbehaving\n" if i == 1 else "" for i in range(len(SCENES))]
    tests = "".join(f"{marks[i]}def test_{s.name}():\n    SCENES[{i}].play()\n" for i, s in enumerate(SCENES))
    (tmp_path / "test_scenes.py").write_text(f"import pytest\nfrom kvproto.verify.draw.scenes import SCENES\n{tests}")
    split = ["-p", "xdist", "-n", str(workers)] if workers else []
    plugins = ["-p", "kvproto.verify.testing.coverage_plugin", "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", "-q", *plugins, "--rootdir", str(tmp_path), *split, str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_ADDOPTS": "", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}

    def run(*more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*command, *more], capture_output=True, text=True, timeout=120, check=False,
                              cwd=tmp_path, env=environment)  # fmt: skip

    plenty = run("--rows-least", "9")
    assert plenty.returncode == 0, plenty.stdout + plenty.stderr
    rows, routes = COUNTS.percent()
    assert f"together     {rows:.1f} % of the rows fired, {routes:.1f} % of the routes" in plenty.stdout
    _, _, apart = plenty.stdout.partition("only misbehaviour has fired:")
    with Collector(KV.counted).installed() as second:
        SCENES[1].play()
    with Collector(KV.counted).installed() as others:
        for scene in (SCENES[0], *SCENES[2:]):
            scene.play()
    alone = lacking(others, second)
    assert alone and all(line in apart.partition("never fired:")[0] for line in alone)
    if workers:
        return
    short = run("--rows-least", "100")
    assert short.returncode == 1
    _, _, end = short.stdout.partition(f"{len(SCENES)} passed")
    assert lacking(COUNTS)[0] in end and end.endswith("that is too few: --rows-least 100 was asked for\n"), short.stdout
    assert "of the protocol" not in run().stdout

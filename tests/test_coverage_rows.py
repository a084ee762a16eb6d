"""Coverage of rows and routes: counted on ranks and from traces alike, reported at the end of a test run, and able to
fail it; what misbehaves counts apart, what is on no rank not at all.
"""

from __future__ import annotations

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
from kvproto.verify.cli.draw_command import main as draw
from kvproto.verify.draw.scenes import SCENES
from kvproto.verify.framework.table_patching import TablePatch
from kvproto.verify.framework.trace.coverage import Collector, percent, together
from kvproto.verify.framework.trace.coverage_file import CoverageError, load, save, undump
from kvproto.verify.framework.trace.coverage_report import lacking, side_by_side
from kvproto.verify.trace.stories import lines, log_of, parse

ROOT = Path(__file__).parent.parent


def counted() -> Collector:
    with Collector(KV.counted).installed() as counts:
        for scene in SCENES:
            scene.play()
    return counts


COUNTS = counted()


def test_ranks_and_their_traces_give_the_same_counts() -> None:
    from_traces, live = Collector(KV.counted), Collector(KV.counted)
    with live.installed():
        stages = [scene.play() for scene in SCENES]
    for stage in stages:
        for rank in (*stage.past, *stage.ranks.values()):
            from_traces.take_log(log_of(rank))
    assert from_traces.rows == live.rows == COUNTS.rows
    assert from_traces.routes == live.routes == COUNTS.routes and live.routes
    assert set(from_traces.pairs) == set(live.pairs)


def test_the_route_that_took_a_message_is_kept_in_a_file() -> None:
    stage, back = SCENES[0].play(), Collector(KV.counted)
    logs = [log_of(rank) for rank in stage.ranks.values()]
    for log in logs:
        (read,) = parse(lines(log))
        back.take_log(read)
        assert read.entries == log.entries
    assert {name for name, _ in back.routes} == {routes.name for routes in KV.counted.routes}


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


def test_shares_are_of_what_there_is() -> None:
    for table in TABLES:
        rows, guards, pairs = COUNTS.covered(table), COUNTS.outcomes(table), COUNTS.joined(table)
        assert 0 < rows.seen < rows.all == len(table.rows)
        assert 0 <= guards.seen <= guards.all == 2 * sum(row.when is not None for row in table.rows)
        assert 0 < pairs.seen <= pairs.all
        assert len(COUNTS.missing(table)) == rows.all - rows.seen
    for routes in KV.counted.routes:
        taken = COUNTS.taken(routes)
        assert 0 < taken.seen < taken.all == len(routes.routes)


def test_a_guard_failed_where_a_later_row_of_its_pair_fired() -> None:
    table = next(table for table in TABLES if table.name == "prefill_send")
    waiting = [row for row in table.rows if row.source.name == "AWAIT_TURN"]
    first, second, last = (row for row in waiting if row.event.__name__ == "StagingGranted")
    counts = Collector(KV.counted)
    counts.rows[table.name, last.index] = 1
    assert counts.outcomes(table).seen == 2  # the first two guards were seen to fail
    counts.rows[table.name, first.index] = 1
    assert counts.outcomes(table).seen == 3
    assert second.when is not None


def test_counts_go_to_a_file_and_come_back(tmp_path: Path) -> None:
    save({"one": COUNTS, "other": Collector(KV.counted)}, tmp_path / "rows.json")
    back = load(tmp_path / "rows.json", KV.counted)
    assert list(back) == ["one", "other"] and not back["other"].rows
    one = back["one"]
    assert (one.rows, one.pairs, one.routes) == (COUNTS.rows, COUNTS.pairs, COUNTS.routes)
    twice = together({"one": one, "again": undump(one.dump(), KV.counted)})
    assert twice.rows.total() == 2 * COUNTS.rows.total() and twice.routes.total() == 2 * COUNTS.routes.total()
    (tmp_path / "rows.json").write_text('{"format": 7}')
    with pytest.raises(CoverageError, match="format 7"):
        load(tmp_path / "rows.json", KV.counted)
    with pytest.raises(CoverageError, match=r"no\.json"):
        load(tmp_path / "no.json", KV.counted)


def test_the_report_says_where_the_rows_and_routes_stand_that_were_never_fired() -> None:
    found, said = lacking(COUNTS, {})
    rows, routes = COUNTS.missing(TABLES[0]), COUNTS.untaken(KV.counted.routes[0])
    text = "\n".join(said)
    assert all(f"{row.where}: {TABLES[0].name}: {row.verb}" in text for row in rows)
    assert all(f"{route.where}: to {KV.counted.routes[0].name}: {route.end}" in text for route in routes)
    assert found > len(said) > 0, "the rows of one line of a table's file are one line"
    assert all(0 < share < 100 for share in percent(COUNTS))
    assert f"{percent(COUNTS)[1]:.1f}%" in side_by_side({"scenes": COUNTS}).splitlines()[-1]


def test_what_one_source_lacks_is_what_another_has_seen() -> None:
    other = Collector(KV.counted)
    row, route = COUNTS.missing(TABLES[0])[0], COUNTS.untaken(KV.counted.routes[0])[0]
    other.rows[TABLES[0].name, row.index] = other.routes[KV.counted.routes[0].name, route.index] = 1
    found, said = lacking(COUNTS, {"other": other})
    assert found == len(said) == 2 and all("(seen by other)" in line for line in said)
    assert said[0].startswith(f"{row.where}: ") and said[1].startswith(f"{route.where}: ")
    assert lacking(together({"one": COUNTS, "other": other}), {"one": COUNTS, "other": other})[0] == 0


def test_it_is_painted(tmp_path: Path) -> None:
    save({"": COUNTS}, tmp_path / "rows.json")
    assert draw(["--coverage", str(tmp_path / "rows.json"), "--format", "svg", "--out", str(tmp_path)]) == 0
    assert 'class="edge bare"' in (tmp_path / "prefill_send.svg").read_text()
    with pytest.raises(CoverageError, match="no coverage can be read"):
        draw(["--coverage", str(tmp_path / "absent.json")])


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

    plenty = run("--rows-least", "10", "--rows-out", str(tmp_path / "rows.json"))
    assert plenty.returncode == 0, plenty.stdout + plenty.stderr
    assert "never fired: " in plenty.stdout
    counts = load(tmp_path / "rows.json", KV.counted)
    whole = together(counts)
    assert (whole.rows, whole.routes) == (COUNTS.rows, COUNTS.routes)
    with Collector(KV.counted).installed() as second:
        SCENES[1].play()
    assert counts["misbehaving"].rows == second.rows
    alone = lacking(counts["honest"], {"misbehaving": second})[0]
    assert alone and f"only misbehaviour has fired: {alone} row(s) or route(s)" in plenty.stdout
    if workers:
        return
    short = run("--rows-least", "100")
    assert short.returncode == 1
    assert "--rows-least 100" in short.stdout
    assert "of the protocol" not in run().stdout

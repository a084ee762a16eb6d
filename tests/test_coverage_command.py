"""`kvproto coverage`: what the checker, tests and real runs have seen of the tables, side by side."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kvproto.cli import main as kvproto_main
from kvproto.protocol.tables import TABLES
from kvproto.verify.check.configs import CONFIGS
from kvproto.verify.check.search import check, label
from kvproto.verify.check.search_coverage import MachineCollector
from kvproto.verify.claims.kv import KV
from kvproto.verify.cli.check_command import main as check_command
from kvproto.verify.cli.coverage_command import main, read
from kvproto.verify.draw.scenes import SCENES
from kvproto.verify.framework.trace.coverage import Collector, together
from kvproto.verify.framework.trace.coverage_file import load, save
from kvproto.verify.trace.stories import lines, log_of


@pytest.fixture
def traces(tmp_path: Path) -> Path:
    """The traces of the scene in which all goes well, as a real run would leave them."""
    folder = tmp_path / "run"
    folder.mkdir()
    stage = SCENES[0].play()
    for name, rank in enumerate(stage.ranks.values()):
        (folder / f"{name}.jsonl").write_text("\n".join(lines(log_of(rank))) + "\n")
    return folder


def test_a_search_is_counted_by_rows_and_by_pairs(tmp_path: Path) -> None:
    with MachineCollector().installed() as counts:
        result = check("smoke", CONFIGS["smoke"])
    seen = {label(row) for table in TABLES for row in table.rows if counts.rows[table.name, row.index]}
    assert set(result.rows) <= seen  # and the calls with which it begins
    for name, first, second in counts.pairs:
        rows = next(table.rows for table in TABLES if table.name == name)
        assert rows[first].target is rows[second].source
    assert counts.pairs
    file = tmp_path / "rows.json"
    assert check_command(["smoke", "--quiet", "--rows", str(file)]) == 0
    (back,) = load(file, KV.counted).values()
    assert (back.rows, back.pairs, back.routes) == (counts.rows, counts.pairs, counts.routes)
    assert counts.routes


def test_sources_stand_side_by_side(tmp_path: Path, traces: Path, capsys: pytest.CaptureFixture[str]) -> None:
    checker = tmp_path / "checker.json"
    check_command(["abort", "--quiet", "--rows", str(checker)])
    capsys.readouterr()
    assert main([str(checker), f"real={traces}"]) == 0
    said = capsys.readouterr().out
    assert "checker" in said.splitlines()[0] and "real" in said.splitlines()[0]
    assert "real has not seen" in said and "(seen by checker)" in said
    assert main([str(checker), f"real={traces}", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    table = TABLES[0]
    counts = together(load(checker, KV.counted))
    assert found["checker"][table.name]["rows"] == [counts.covered(table).seen, len(table.rows)]
    for side in KV.counted.routes:
        assert found["checker"][f"to {side.name}"]["routes"] == [counts.taken(side).seen, len(side.routes)]
        assert 0 < found["real"][f"to {side.name}"]["routes"][0] < len(side.routes)
    assert 0 < found["real"][table.name]["rows"][0] < found["checker"][table.name]["rows"][0]


def test_tests_are_two_sources(tmp_path: Path, traces: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What only misbehaviour has fired is listed as what honest traffic lacks, and misbehaviour lacks nothing."""
    honest, misbehaving = read(traces, KV)[""], Collector(KV.counted)
    row = honest.missing(TABLES[0])[0]
    misbehaving.rows[TABLES[0].name, row.index] = 1
    save({"honest": honest, "misbehaving": misbehaving}, tmp_path / "tests.json")
    assert main([str(tmp_path / "tests.json")]) == 0
    said = capsys.readouterr().out
    assert "tests honest" in said.splitlines()[0] and "tests misbehaving" in said.splitlines()[0]
    assert "tests honest has not seen 1 row(s) or route(s) that others have" in said
    assert f"  {row.where}: " in said and "tests misbehaving has not seen" not in said


def test_they_are_painted_on_one_page(tmp_path: Path, traces: Path) -> None:
    page = tmp_path / "page.html"
    assert main([f"one={traces}", f"two={traces}", "--html", str(page)]) == 0
    text = page.read_text()
    assert text.count("<figure>") == 2 * len(TABLES)
    assert all(f"<h2>{table.name}</h2>" in text for table in TABLES)


def test_a_trace_that_is_not_what_the_tables_do_is_refused(traces: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = next(iter(traces.iterdir()))
    file.write_text(file.read_text().replace('"digest": "', '"digest": "0'))
    assert kvproto_main(["coverage", str(traces)]) == 2
    assert "digest" in capsys.readouterr().err


def test_a_directory_without_traces_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert kvproto_main(["coverage", str(tmp_path)]) == 2
    assert "there are no traces" in capsys.readouterr().err

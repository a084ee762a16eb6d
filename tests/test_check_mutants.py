"""Mutants: every hazard that is planted is noticed, by a property that was expected to notice it."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvproto.protocol.tables import TABLES
from kvproto.verify.check import report
from kvproto.verify.check.mutations.registry import MUTANTS
from kvproto.verify.claims.kv import KV
from kvproto.verify.framework.table_patching import TablePatch

ROOT = Path(__file__).parent.parent
TABLE = ROOT / "spec" / "kill-table.md"
KILLS: dict[str, report.Kill] = {}


def tried(name: str) -> report.Kill:
    return report.try_planted((KV.checker, name, 12_000))


@pytest.mark.parametrize("name", MUTANTS)
def test_the_hazard_is_noticed(name: str) -> None:
    kill = KILLS[name] = tried(name)
    assert kill.caught, f"{kill.property or 'nothing'} failed, {kill.expected} should: {kill.text}"


def test_the_kill_table_is_fresh() -> None:
    kills = [KILLS[name] if name in KILLS else tried(name) for name in MUTANTS]
    stale = "stale: kvproto check --mutants --table spec/kill-table.md"
    assert TABLE.read_text() == report.kill_table(kills), stale


def test_tests_that_the_table_names_exist() -> None:
    assert [test for _, test in report.ELSEWHERE.values() if not (ROOT / test).is_file()] == []


def test_a_bench_leaves_everything_as_it_was() -> None:
    before = [list(table.rows) for table in TABLES]
    for name, mutation in MUTANTS.items():
        with TablePatch() as bench:
            mutation.apply(bench)
        assert [list(table.rows) for table in TABLES] == before, name

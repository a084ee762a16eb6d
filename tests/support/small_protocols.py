"""Small protocols with a checker of their own: their worlds, planted bugs and rows, asked alike."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

from kvproto.fsm.table import Table
from kvproto.verify.framework.checker import Checker
from kvproto.verify.framework.search import Result, label

MEMORY = 4096


@cache
def searched(checker: Checker, name: str) -> Result:
    """Search a world to its end, once for all tests."""
    return checker.search(name, limit=None, memory=MEMORY, report=None)


def assert_holds(checker: Checker, name: str, size: tuple[int, int]) -> None:
    """Assert that nothing breaks in all of a world, which has so many states and transitions."""
    found = searched(checker, name)
    assert (found.ended, found.violations) == ("exhausted", [])
    assert (found.states, found.transitions) == size


def assert_found(checker: Checker, name: str) -> None:
    """Assert that the planted bug breaks a property that it is expected to break."""
    planted = checker.planted[name]
    with checker.planting(name):
        found = checker.search(planted.world, limit=None, memory=MEMORY, report=None)
    assert found.violations and found.violations[0].property in planted.expect


def unfired(checker: Checker, names: Iterable[str], tables: Iterable[Table[Any]]) -> list[str]:
    """Return the rows that do something and fire in none of these worlds."""
    fired = {row for name in names for row in searched(checker, name).rows}
    rows = (label(row) for table in tables for row in table.rows if row.verb == "row")
    return [name for name in rows if name not in fired]

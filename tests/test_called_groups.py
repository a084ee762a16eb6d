"""The table of called groups: linted, searched with an engine that calls at any moment; planted bugs are found."""

from __future__ import annotations

import pytest

from kvproto.endpoint.group_table import decode_group
from kvproto.verify.check.called_groups import CHECKER, GROUPS, SCENARIOS
from kvproto.verify.framework.search import label

#: how much there is of each world: a change of meaning is seen in review
COUNTS = {
    "called": (1_888, 5_915), "called-again": (3_789, 10_709), "called-by-name": (23_350, 81_743),
    "called-and-bound": (2_120, 6_263),
}  # fmt: skip
MEMORY = 4096


def test_the_table_has_no_errors() -> None:
    assert GROUPS.lint([]) == []


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_order_of_calls_and_links(name: str) -> None:
    found = CHECKER.search(name, limit=None, memory=MEMORY, report=None)
    assert (found.ended, found.violations) == ("exhausted", [])
    assert (found.states, found.transitions) == COUNTS[name]


@pytest.mark.parametrize("name", CHECKER.planted)
def test_a_planted_bug_is_found(name: str) -> None:
    planted = CHECKER.planted[name]
    with CHECKER.planting(name):
        found = CHECKER.search(planted.world, limit=None, memory=MEMORY, report=None)
    assert found.violations and found.violations[0].property in planted.expect


def test_every_row_that_does_something_is_fired() -> None:
    fired = {row for name in SCENARIOS for row in CHECKER.search(name, limit=None, memory=MEMORY, report=None).rows}
    left = [label(row) for row in decode_group.rows if row.verb == "row" and label(row) not in fired]
    assert left == []

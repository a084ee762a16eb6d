"""Answers of a rank of SGLang are true, whatever is called and whenever; known bugs are found."""

from __future__ import annotations

from typing import Any

import pytest
from support.small_protocols import assert_found, assert_holds, unfired

from kvproto.adapters.sglang import tables
from kvproto.fsm.table import Table
from kvproto.fsm.vocabulary import State
from kvproto.verify.adapters.sglang_protocol import CHECKER, SCENARIOS, SGLANG

#: how much there is of each world: a change of meaning is seen in review
COUNTS = {
    "sender": (116, 264), "sender-refused": (71, 159), "sender-hit": (164, 398), "receiver": (36, 46),
    "receiver-refused": (27, 31),
}  # fmt: skip


def test_the_tables_have_no_errors() -> None:
    assert SGLANG.lint([]) == []


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_order_of_calls(name: str) -> None:
    assert_holds(CHECKER, name, COUNTS[name])


@pytest.mark.parametrize("name", CHECKER.planted)
def test_a_planted_bug_is_found(name: str) -> None:
    assert_found(CHECKER, name)


def test_every_row_that_does_something_is_fired() -> None:
    assert unfired(CHECKER, SCENARIOS, tables.TABLES) == []


@pytest.mark.parametrize(("table", "polls"), [(tables.sender, tables.POLL), (tables.receiver, tables.POLL_RECEIVER)])
def test_an_answer_is_never_lower_than_before_but_for_a_failure(table: Table[Any], polls: dict[State, int]) -> None:
    rows = [row for row in table.rows if row.verb == "row" and row.target is not None]
    steps = [(polls[row.source], polls[row.target]) for row in rows]
    assert steps and all(after in (tables.FAILED, *range(before, 5)) for before, after in steps)
    assert all(after == before for before, after in steps if before in (tables.FAILED, tables.SUCCESS)), "it is final"

"""The questions' answers name rows that there are, in the section of the page that shows them."""

from __future__ import annotations

import re
from pathlib import Path

from kvproto.fsm.table import Row
from kvproto.protocol.tables import TABLES

ROOT = Path(__file__).parent.parent
NAMED = re.compile(r"\[`(\w+) (\w+) (\w+)(?:/(\w+))?(?: → (\w+))?`\]\(\.\./PROTOCOL\.md#([\w-]+)\)")
QUESTIONS = re.split(r"^## ", (ROOT / "docs" / "questions.md").read_text(), flags=re.MULTILINE)[1:]
SECTIONS = {
    "prefill_room": "the-prefill-room", "prefill_send": "the-send", "prefill_write": "the-write",
    "prefill_link": "the-prefill-link", "decode_room": "the-decode-room", "decode_grant": "the-grant",
    "decode_link": "the-decode-link",
}  # fmt: skip


def rows_of(table: str, state: str, event: str, guard: str, target: str) -> list[Row]:
    """The rows that a name means; without a guard, those without one; without a target, those that stay."""
    (machine,) = (each for each in TABLES if each.name == table)
    return [
        row for row in machine.rows
        if (row.source.name, row.event.__name__, row.target.name) == (state, event, target or state)
        and (row.when.__name__ if row.when else "") == guard
    ]  # fmt: skip


def test_there_are_fifteen_questions_at_least_and_each_ends_with_its_rows() -> None:
    assert len(QUESTIONS) >= 15
    for number, text in enumerate(QUESTIONS, 1):
        assert text.startswith(f"{number}. ") and text.partition("\n")[0].endswith("?")
        assert NAMED.search(text.rstrip().split("\n\n")[-1]), text.partition("\n")[0]


def test_every_row_that_is_named_is_there_once() -> None:
    for text in QUESTIONS:
        for table, state, event, guard, target, section in NAMED.findall(text):
            found = rows_of(table, state, event, guard, target)
            assert len(found) == 1, (table, state, event, guard, target, [str(row) for row in found])
            assert section == SECTIONS[table]


def test_no_link_is_written_in_another_form() -> None:
    for text in QUESTIONS:
        rows = [line for line in text.splitlines() if line.startswith("[`")]
        assert len(rows) == len(NAMED.findall(text))


def test_a_row_that_is_gone_would_be_noticed() -> None:
    assert not rows_of("prefill_send", "AWAIT_GRANT", "TimerFired", "", "DONE")
    assert not rows_of("prefill_send", "AWAIT_GRANT", "TimerFired", "moves", "")

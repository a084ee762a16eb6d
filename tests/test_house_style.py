"""The house style: what breaks it is found, old breaches may only become fewer, and `make lint` looks."""

from __future__ import annotations

import subprocess
import tomllib
from pathlib import Path

import pytest
from support import house_style

ROOT = Path(__file__).parent.parent
DEBTS = tomllib.loads(house_style.DEBTS.read_text())


def test_no_folder_and_no_commit_breaks_the_style_more_often_than_its_debt() -> None:
    assert house_style.excess(DEBTS, list(house_style.breaches(ROOT))) == []


@pytest.mark.parametrize("line", [
    "What waits for a slot.", "Whose gather is next.", "Who may write.", "Whoever calls.", "Of the queue, the last.",
    "That a link is up.", "From whom a part comes.", "Which row fired.", "Where a write goes.", "what waits.",
    "X" * 101,
])  # fmt: skip
def test_a_first_line_without_an_actor_or_too_long_is_found(line: str) -> None:
    source = f'"""Slots."""\n\ndef take() -> None:\n    """{line}\n\n    More.\n    """\n'
    assert [number for number, _ in house_style.docstring_breaches(source)] == [4]


@pytest.mark.parametrize("line", ["Return the oldest slot.", "Whether a slot is free.", "Offset of a slot.", "X" * 100])
def test_a_first_line_that_keeps_the_rule_is_not(line: str) -> None:
    assert list(house_style.docstring_breaches(f'class Slot:\n    """{line}"""\n')) == []


@pytest.mark.parametrize(("stem", "essay", "name", "found"), [
    ("slot_queue", "The slot queue: sends that wait for a slot.", "SlotQueue", 0),
    ("slot_queue", "SlotQueue: sends that wait for a slot.", "SlotQueue", 0),
    ("gathers", "Gathers from pages into slots.", "Gather", 0),
    ("draw_command", "`kvproto draw`: the machines as pictures.", "DrawCommand", 0),
    ("slot_queue", "Sends that wait for a slot.", "SlotQueue", 1),
    ("slot_queue", "The slot queue.", "Waiting", 1),
    ("slot_queue", "What waits.", "Waiting", 2),
    ("slot_queue", "The slot queue.", "SlotError", 0),
    ("slot_queue", "The slot queue.", "_Helper", 0),
    ("test_slots", "Anything.", "Other", 0),
])  # fmt: skip
def test_a_file_is_named_as_its_class_and_its_essay(stem: str, essay: str, name: str, found: int) -> None:
    source = f'"""{essay}"""\n\nclass {name}:\n    pass\n'
    assert len(list(house_style.name_breaches(stem, source))) == found


@pytest.mark.parametrize("subject", [
    "X" * 73, "add a queue", "Added a queue", "Adding a queue", "The queue is bounded", "Now the queue is bounded",
])  # fmt: skip
def test_a_subject_that_is_long_or_no_imperative_is_found(subject: str) -> None:
    assert house_style.subject_breach(subject) is not None


@pytest.mark.parametrize("subject", ["Add a queue", "Feed the decoder in pieces", "Bring back the bound", "X" * 72])
def test_an_imperative_of_72_characters_is_not(subject: str) -> None:
    assert house_style.subject_breach(subject) is None


def test_one_breach_more_than_the_debt_is_named_and_a_debt_only_falls() -> None:
    found = [("files", "kvproto/io", "one"), ("files", "kvproto/io", "two")]
    assert house_style.excess({"files": {"kvproto/io": 2}}, found) == []
    assert house_style.excess({"files": {"kvproto/io": 1}}, found)[:2] == ["one", "two"]
    assert house_style.excess({}, found)
    assert '"kvproto/io" = 2' in house_style.lowered({"files": {"kvproto/io": 5}}, found)
    assert '"kvproto/io" = 1' in house_style.lowered({"files": {"kvproto/io": 1}}, found)
    assert "kvproto/rank" not in house_style.lowered({"files": {"kvproto/rank": 3}}, found)


def test_a_planted_file_is_found(tmp_path: Path) -> None:
    (tmp_path / "kvproto").mkdir()
    (tmp_path / "kvproto" / "ring.py").write_text('"""What the ring holds."""\n')
    assert [(kind, folder) for kind, folder, _ in house_style.breaches(tmp_path)] == [
        ("docstrings", "kvproto"), ("files", "kvproto"),
    ]  # fmt: skip


def test_make_lint_checks_the_style() -> None:
    dry = subprocess.run(["make", "--dry-run", "lint"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert "tests/support/house_style.py" in dry.stdout

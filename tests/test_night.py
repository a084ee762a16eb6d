"""Tests of a day and of a night: each name is there, and the cases that stay are spread."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import night
from support.night import STAY, left_out

TESTS = Path(__file__).parent


@pytest.mark.parametrize("name", sorted(STAY))
def test_each_name_is_a_test_s(name: str) -> None:
    file, _, test = name.partition("::")
    assert f"def {test.partition('[')[0]}".rstrip() in (TESTS / file).read_text("utf-8")


def test_of_many_cases_some_stay_and_they_are_spread(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"test_a.py::test_many[{case}]" for case in "abcdef"] + ["test_a.py::test_long", "test_a.py::test_short"]
    names.append("test_c.py::test_all")
    monkeypatch.setattr(night, "STAY", {
        "test_a.py::test_many[a]": 0, "test_a.py::test_many": 2, "test_a.py::test_long": 0, "test_b.py::test_b[x]": 0,
        "test_c.py": 0,
    })  # fmt: skip
    assert [name for name in names if name not in left_out(names)] == [names[1], names[3], names[7]]


def test_a_case_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(night, "STAY", {"test_a.py::test_many[z]": 0})
    with pytest.raises(LookupError, match=r"test_many\[z\]"):
        left_out(["test_a.py::test_many[a]"])

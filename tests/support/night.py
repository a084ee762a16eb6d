"""Night: what `make test` leaves to longer runs.

`make test` sets KVPROTO_DAY: every kind of thing is tried, in minutes, and `night.toml` names what is left out.  `make
whole` runs every test, and so does whoever calls pytest.  `make night` sets KVPROTO_NIGHT: more of each kind, in larger
worlds, longer stories and longer orders.
"""

from __future__ import annotations

import os
import tomllib
from collections import defaultdict
from pathlib import Path
from typing import TypeVar

import pytest

DAY, NIGHT = (bool(os.environ.get(f"KVPROTO_{name}")) for name in ("DAY", "NIGHT"))
#: by test, how many of its cases stay by day; by case and by file, whether it does
STAY: dict[str, int] = {
    name: stay
    for part in tomllib.loads((Path(__file__).parent / "night.toml").read_text("utf-8")).values()
    for name, stay in part.items()
}
T = TypeVar("T")


def by_night(night: T, *, by_day: T) -> T:
    """How much of something this run tries."""
    return night if NIGHT else by_day


def night_alone(why: str) -> pytest.MarkDecorator:
    """Skip a test, or one of its cases, but for `make night`, and say why."""
    return pytest.mark.skipif(not NIGHT, reason=f"{why} (KVPROTO_NIGHT=1)")


def left_out(names: list[str]) -> set[str]:
    """Tests that do not run by day, of these (`file.py::test[case]`); of a test with many cases some stay.

    LookupError: a case that is named is not among those of its test.
    """
    there = {name.partition("[")[0] for name in names}
    if gone := [name for name in STAY if "[" in name and name.partition("[")[0] in there and name not in set(names)]:
        raise LookupError(f"tests/support/night.toml names what is not there: {gone}")
    cases = defaultdict[str, list[str]](list)
    for name in names:
        if STAY.get(name, 1) and STAY.get(name.partition("::")[0], 1):
            cases[name.partition("[")[0]].append(name)
    kept = set[str]()
    for test, of in cases.items():
        count = min(len(of), STAY.get(test, len(of)))
        kept |= {of[at * len(of) // count] for at in range(count)}
    return set(names) - kept


def name_of(item: pytest.Item) -> str:
    """The test's name in `night.toml`."""
    return f"{item.path.name}::{item.name}"

"""Figures that stand in prose: how long commands take is said alike wherever it is said."""

from __future__ import annotations

from pathlib import Path

from kvproto.check.configs import SUITES
from kvproto.cli.check_command import EPILOG
from kvproto.draw.checked_worlds import golden

ROOT = Path(__file__).parent.parent


def said(page: str) -> str:
    """A page as one line."""
    return " ".join((ROOT / page).read_text().split())


def test_how_long_the_standard_suite_takes_is_said_alike_everywhere() -> None:
    told = "some two hours on two cores"
    for page in ("CONTRIBUTING.md", "docs/change.md", "docs/checker.md"):
        assert "standard" in said(page) and said(page).count(told) == 1, page
    (line,) = (line for line in EPILOG.splitlines() if "kvproto check standard" in line)
    assert line.endswith(told)


def test_the_large_worlds_that_were_timed_are_those_of_the_suite() -> None:
    large = {name: each for name, each in golden().items() if name.startswith("2p2d-2x2-")}
    states = sum(each["states"] for each in large.values())
    assert large.keys() <= set(SUITES["standard"])
    assert f"the {len(large)} worlds of two by two ranks with two rooms of two chunks" in said("docs/checker.md")
    assert f"chunks (`2p2d-2x2-…`), {states / 1e6:.1f} million states" in said("docs/checker.md")

"""Night runs: tests that a run by day leaves out (`make night`, or KVPROTO_NIGHT=1).

By day every kind of thing is tried, and by night more of each kind: larger worlds, more random stories, longer orders.
"""

from __future__ import annotations

import os
from typing import TypeVar

import pytest

NIGHT = bool(os.environ.get("KVPROTO_NIGHT"))
T = TypeVar("T")


def by_night(night: T, *, by_day: T) -> T:
    """How much of something this run tries."""
    return night if NIGHT else by_day


def night_alone(why: str) -> pytest.MarkDecorator:
    """Skip a test, or one of its cases, by day, and say why."""
    return pytest.mark.skipif(not NIGHT, reason=f"{why} (KVPROTO_NIGHT=1)")

"""World sizes: the worlds for a mutant of the tables: each one's size, and the rows that fire in it.

A world in which the row never fires cannot notice, and is not asked; of the others the quickest come first.  That is
measured once in a run, on all its processes, and handed to each judge: it takes a minute of one core.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from sys import intern

import msgspec
from msgspec.structs import replace

from kvproto.verify.check.configs import CONFIGS, SUITES
from kvproto.verify.check.parallel_search import spread
from kvproto.verify.check.search import check

#: the larger worlds that are asked about what only time can tell
LATER = ("timed-link", "timed-pages", "timed-abort", "timed-death")
ASKED = (*SUITES["judges"], *SUITES["timed-small"], *LATER)


class WorldSize(msgspec.Struct, frozen=True):
    """A world searched with the unchanged tables: states, processor seconds, labels of its firing rows."""

    name: str
    states: int
    seconds: float
    rows: frozenset[str]

    @property
    def timed(self) -> bool:
        return CONFIGS[self.name].timed


def measure(jobs: int, names: Sequence[str] = ASKED) -> tuple[WorldSize, ...]:
    return tuple(sorted(spread(_measured, names, jobs), key=lambda size: size.seconds))


@cache
def sizes() -> tuple[WorldSize, ...]:
    return measure(1)


def _measured(name: str) -> WorldSize:
    found = check(name, replace(CONFIGS[name], live=False))
    return WorldSize(name, found.states, found.cpu_seconds, frozenset(map(intern, found.rows)))

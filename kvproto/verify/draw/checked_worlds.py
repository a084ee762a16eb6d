"""Checked worlds: their sizes in `spec/counts.toml` as the tables of docs/checker.md.

The counts are golden: a test compares the small worlds with every change, and `kvproto check --counts` writes them.
Those of deeper worlds are in `spec/deep-counts.toml`, with the time of one core that each took; each of `WISHES` is a
wish for a deeper search, and the world, test or proof that answers it.
"""

from __future__ import annotations

import re
import tomllib
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

from kvproto.verify.framework.draw.tables import table_md

SPEC = Path(__file__).parents[3] / "spec"
COUNTS, DEEP = SPEC / "counts.toml", SPEC / "deep-counts.toml"
CROWD = re.compile(r"(\d[pP]\d[dD]-.*?|\d[pP]\d[dD])-(two-slow|[a-z]+)$")
TIMED = "timed-"
GROUPS = "groups-"
HEAD = ("worlds", "number", "states", "moves", "depth")

Counts = dict[str, dict[str, int]]


def golden(file: Path = COUNTS) -> Counts:
    return tomllib.loads(file.read_text())


def _family(name: str) -> str:
    crowd = CROWD.match(name)
    named = next((f"{start}…" for start in (TIMED, GROUPS) if name.startswith(start)), "small")
    return crowd[1] if crowd else named


def line(name: str, found: list[dict[str, int]]) -> tuple[str, ...]:
    states, moves = (f"{sum(each[key] for each in found):,}" for key in ("states", "transitions"))
    return name, str(len(found)), states, moves, str(max(each["depth"] for each in found))


def checked_worlds_md() -> str:
    """All that `standard` and `two-by-two` search, by family."""
    families: dict[str, list[dict[str, int]]] = defaultdict(list)
    for name, found in golden().items():
        families[_family(name)].append(found)
    rows = [line(f"`{name}`", found) for name, found in families.items()]
    return table_md(HEAD, [*rows, line("sum", [each for found in families.values() for each in found])])


def timed_worlds_md() -> str:
    found = {name: each for name, each in golden().items() if name.startswith(TIMED)}
    rows = [(f"`{name}`", *line(name, [each])[2:]) for name, each in found.items()]
    return table_md(("world", *HEAD[2:]), rows)


FOREIGN = "`tests/test_foreign_groups.py`, `tests/test_misbehaving_prefill.py`, `tests/test_misbehaving_decode.py`"


class Wish(NamedTuple):
    """A wish; `worlds`: a pattern of names, or none; `far`, `short`: the covered and the uncovered part."""

    what: str
    worlds: str
    far: str
    short: str


WISHES = (
    Wish("two faults at once", "deep-two-.*", "every pair of the fourteen kinds, in one room of one chunk",
         "every pair with more ranks, rooms or chunks"),
    Wish("two faults at once, two by two ranks", "deep-2p2d-.*", "in haste: fifteen pairs of six kinds", "the others"),
    Wish("three faults at once", "deep-(link-drop|crash-link|doubt-crash|reuse-crash)", "these", "every three"),
    Wish("unordered, early and duplicate", "deep-fan-(in|out)-unordered", "two writers; two readers", "two rooms"),
    Wish("chains of failures on one slot", "deep-slot.*", "two and three at once; one by one: below", "more at once"),
    Wish("restarts, ids used again", "deep-reuse-crash|reuse|restart", "one room, each id used twice", "two rooms"),
    Wish("tombstones of one", "deep-tombstone-.*|deep-overtaken",
         "two rooms, one fault of each kind; two readers, in haste", "chunks, more ranks"),
    Wish("two groups", "(deep-)?groups-.*",
         f"both work, one fault in one of them, two in some; who says all that there is to say: {FOREIGN}",
         "three groups; two rooms of several chunks"),
    Wish("three prefill ranks, two decode ranks", "deep-3p2d-.*",
         "in haste: one room of one chunk, one fault of each kind; two rooms of two chunks without", "two faults"),
    Wish("two by two ranks, two rooms of two chunks", "2p2d-2x2-.*", "in haste; S1 to S6 [proved](prove.md)",
         "of the whole: liveness, and what is shared (below)"),
    Wish("late answers, lost links", "", "[proved](prove.md) (`lost-link`): any delay, any order", ""),
)  # fmt: skip


def _seconds(found: Counts) -> str:
    timed = all("milliseconds" in each for each in found.values())
    return f"{sum(each['milliseconds'] for each in found.values()) / 1000:,.1f}" if found and timed else ""


def deep_worlds_md() -> str:
    """Return the table of wishes and answers."""
    every, rows = golden(DEEP) | golden(), []
    for wish in WISHES:
        found = {name: each for name, each in every.items() if wish.worlds and re.fullmatch(wish.worlds, name)}
        numbers = line("", list(found.values()))[1:4] if found else ("",) * 3
        rows.append((wish.what, f"`{wish.worlds}`" if found else "", *numbers, _seconds(found), wish.far, wish.short))
    head = ("asked for", "worlds", *HEAD[1:4], "core-seconds", "how far", "what is not covered")
    return table_md(head, rows)


def deep_ones_md() -> str:
    """Each deeper world by itself, but for the pairs of faults."""
    rows = [
        (f"`{name}`", *line("", [each])[2:], _seconds({name: each}))
        for name, each in golden(DEEP).items()
        if not name.startswith("deep-two-")
    ]
    return table_md(("world", *HEAD[2:], "core-seconds"), rows)

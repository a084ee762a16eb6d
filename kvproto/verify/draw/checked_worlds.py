"""Checked worlds: their sizes in `spec/counts.toml` as the tables of docs/checker.md.

The counts are golden: a test compares the small worlds with every change, and `kvproto check --counts` writes them.
"""

from __future__ import annotations

import re
import tomllib
from collections import defaultdict
from pathlib import Path

from kvproto.verify.framework.draw.tables import table_md

COUNTS = Path(__file__).parents[3] / "spec" / "counts.toml"
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

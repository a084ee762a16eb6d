"""docs/change.md is true: its edits are made in a copy, and its commands print what it shows."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from support.pages import commands, compare, edit, run

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "change.md").read_text()
TABLE = "kvproto/protocol/tables/decode_grant.py"


def test_what_the_page_shows_is_what_happens(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "kvproto", tmp_path / "kvproto", ignore=shutil.ignore_patterns("__pycache__"))
    blocks = re.findall(r"```(diff|console)\n(.*?)```", PAGE, re.DOTALL)
    assert len(blocks) == 7
    for kind, content in blocks:
        if kind == "diff":
            edit(content, tmp_path / TABLE)
            continue
        for command, shown in commands(content):
            compare(shown, run(command, tmp_path))


def test_the_counts_that_the_page_names_are_the_golden_ones() -> None:
    counts = (ROOT / "spec" / "counts.toml").read_text()
    assert "[fan-in-abort]\nstates = 189558\n" in counts
    assert "`fan-in-abort` keeps its 189,558 states" in PAGE

"""docs/change.md is true: its edits are made, in a copy, its commands run, and what they print is what it shows."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "change.md").read_text()
TABLE = "kvproto/protocol/tables/decode_grant.py"


def edit(diff: str, file: Path) -> None:
    """Do what a diff without positions says: its old lines stand once in the file."""
    lines = diff.splitlines()
    old = "\n".join(line[1:] for line in lines if line[0] == "-") + "\n"
    new = "\n".join(line[1:] for line in lines if line[0] == "+") + "\n"
    text = file.read_text()
    assert text.count(old) == 1, f"the page edits what is not there: {old}"
    file.write_text(text.replace(old, new))


def run(command: str, folder: Path) -> str:
    """What the command prints in the copy."""
    word, *arguments = shlex.split(command)
    assert word == "kvproto"
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    done = subprocess.run([sys.executable, "-m", "kvproto", *arguments], cwd=folder, env=environment, timeout=120,
                          capture_output=True, text=True, check=False)  # fmt: skip
    assert done.stderr == ""
    return done.stdout


def compare(shown: list[str], printed: str) -> None:
    """Every line of the page is in the output, in order; an ellipsis stands for anything."""
    lines = iter(printed.splitlines())
    for line in shown:
        pattern = "".join(".*" if part == "…" else re.escape(part) for part in re.split("(…)", line))
        assert any(re.fullmatch(pattern, each) for each in lines), f"{line!r} is not in:\n{printed}"


def test_what_the_page_shows_is_what_happens(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "kvproto", tmp_path / "kvproto", ignore=shutil.ignore_patterns("__pycache__"))
    blocks = re.findall(r"```(diff|console)\n(.*?)```", PAGE, re.DOTALL)
    assert len(blocks) == 7
    for kind, content in blocks:
        if kind == "diff":
            edit(content, tmp_path / TABLE)
            continue
        for command, shown in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", content, re.MULTILINE):
            compare(shown.splitlines(), run(command, tmp_path))


def test_the_counts_that_the_page_names_are_the_golden_ones() -> None:
    counts = (ROOT / "spec" / "counts.toml").read_text()
    assert "[fan-in-abort]\nstates = 64682\n" in counts
    assert "from 64,682 states to 66,649" in PAGE

"""Pages of docs that are followed word by word: their edits, and what their commands print."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path


def edit(diff: str, file: Path) -> None:
    """Do what a diff without positions says: its old lines stand once in the file."""
    lines = diff.splitlines()
    old = "\n".join(line[1:] for line in lines if line[0] == "-") + "\n"
    new = "\n".join(line[1:] for line in lines if line[0] == "+") + "\n"
    text = file.read_text()
    assert text.count(old) == 1, f"the page edits what is not there: {old}"
    file.write_text(text.replace(old, new))


def run(command: str, folder: Path, *places: Path) -> str:
    """Return the output of a command of this project in a folder; `places`: more folders of modules."""
    word, *arguments = shlex.split(command)
    assert word == "kvproto"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (folder, *places)))}
    done = subprocess.run([sys.executable, "-m", "kvproto", *arguments], cwd=folder, env=environment, timeout=120,
                          capture_output=True, text=True, check=False)  # fmt: skip
    assert all(line.startswith("survives: ") for line in done.stderr.splitlines())  # the course of `kvproto mutate`
    return done.stdout


def compare(shown: list[str], printed: str) -> None:
    """Every line of the page is in the output, in order; an ellipsis stands for anything."""
    lines = iter(printed.splitlines())
    for line in shown:
        pattern = "".join(".*" if part == "…" else re.escape(part) for part in re.split("(…)", line))
        assert any(re.fullmatch(pattern, each) for each in lines), f"{line!r} is not in:\n{printed}"


def commands(block: str) -> list[tuple[str, list[str]]]:
    """Each command of a console block, and the lines that it shows."""
    found = re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block, re.MULTILINE)
    return [(command, shown.splitlines()) for command, shown in found]

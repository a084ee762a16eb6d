"""docs/own_protocol.md is true: files are written, edits made, and commands print what it shows."""

from __future__ import annotations

import os
import re
import shlex
import socket
import subprocess
import sys
from pathlib import Path

from support.pages import commands, compare, edit, run

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "own_protocol.md").read_text()


def over_sockets(folder: Path) -> None:
    """The two programs of the page, against one another."""
    sockets = [socket.socket() for _ in range(2)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    addresses = [f"tcp://127.0.0.1:{each.getsockname()[1]}" for each in sockets]
    for each in sockets:
        each.close()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(folder), str(ROOT)))}
    command = [sys.executable, "-m", "job.node"]
    both = [subprocess.Popen([*command, str(i), *addresses], cwd=folder, env=environment) for i in (1, 0)]
    assert [each.wait(60) for each in both] == [0, 0]


def test_what_the_page_shows_is_what_happens(tmp_path: Path) -> None:
    (tmp_path / "job").mkdir()
    blocks = re.findall(r"```(python|diff|console)\n(.*?)```", PAGE, re.DOTALL)
    assert len(blocks) == 17
    for kind, content in blocks:
        if kind == "console":
            for command, shown in commands(content):
                if shlex.split(command)[0] == "python":
                    over_sockets(tmp_path)
                else:
                    compare([line for line in shown if line != "…"], run(command, tmp_path, ROOT))
            continue
        name, _, rest = content.partition("\n")
        file = tmp_path / name.removeprefix("# ")
        if kind == "diff":
            edit(rest, file)
        else:
            file.write_text(rest)


def test_what_the_second_protocol_s_page_shows_is_what_happens(tmp_path: Path) -> None:
    page = (ROOT / "examples" / "two_phase_commit" / "README.md").read_text()
    (block,) = re.findall(r"```console\n(.*?)```", page, re.DOTALL)
    for command, shown in commands(block):
        word, *arguments = shlex.split(command)
        if word == "kvproto":
            printed = run(command, tmp_path, ROOT)
        else:
            (tmp_path / "traces").mkdir()
            environment = {**os.environ, "PYTHONPATH": str(ROOT)}
            printed = subprocess.run([sys.executable, *arguments], cwd=tmp_path, env=environment, timeout=120,
                                     capture_output=True, text=True, check=True).stdout  # fmt: skip
        compare([line for line in shown if line != "…"], printed)

"""Other builds of kvproto: copies of the package in which something is changed, run in processes of their own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import kvproto

SOURCE = Path(kvproto.__file__).parent
#: (what stands once in the package, what stands there instead)
Edit = tuple[str, str]
TELL = "from kvproto.protocol.digest import tables_digest; print(tables_digest())"


def build(folder: Path, *edits: Edit) -> Path:
    """A copy of the package in this folder, changed; with its byte code, which is good where nothing is changed."""
    shutil.copytree(SOURCE, folder / "kvproto")
    for old, new in edits:
        files = [file for file in folder.rglob("*.py") if old in file.read_text()]
        assert len(files) == 1 and files[0].read_text().count(old) == 1, f"{old!r} does not stand once, in {files}"
        files[0].write_text(files[0].read_text().replace(old, new))
    return folder


def environment(folder: Path, **more: str) -> dict[str, str]:
    """For a process that imports kvproto from this folder."""
    return {**os.environ, "PYTHONPATH": str(folder), **more}


def digest_of(folder: Path, python: str = sys.executable, **more: str) -> str:
    """The digest that a process of this build says."""
    return subprocess.run(
        [python, "-c", TELL], env=environment(folder, **more), cwd=folder, capture_output=True, text=True, check=True,
        timeout=60,
    ).stdout.strip()  # fmt: skip

"""Builds of kvproto: changed copies of the package, run in processes of their own."""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import kvproto
from kvproto.verify.check.other_build import beside

SOURCE = Path(kvproto.__file__).parent
#: (what stands once in the package, what stands there instead)
Edit = tuple[str, str]
TELL = "from kvproto.verify.claims.protocol_digest import computed_digest; print(computed_digest())"


@functools.cache
def sources() -> dict[Path, str]:
    """The package's files and what stands in them, by their place in it."""
    return {file.relative_to(SOURCE): file.read_text() for file in SOURCE.rglob("*.py")}


def build(folder: Path, *edits: Edit) -> Path:
    """Copy the package into this folder and change it; byte code is copied, too, for unchanged files.

    What is not changed is linked, not copied.
    """
    shutil.copytree(SOURCE, folder / "kvproto", copy_function=_link)
    changed: dict[Path, str] = {}
    for old, new in edits:
        texts = sources() | changed
        files = [file for file, text in texts.items() if old in text]
        assert len(files) == 1 and texts[files[0]].count(old) == 1, f"{old!r} does not stand once, in {files}"
        changed[files[0]] = texts[files[0]].replace(old, new)
    for file, text in changed.items():
        (folder / "kvproto" / file).unlink()
        (folder / "kvproto" / file).write_text(text)
    return folder


@contextlib.contextmanager
def changed_beside(folder: Path, name: str, *edits: Edit) -> Iterator[None]:
    """Have a changed copy of the package beside the running one; the two share io, layout and errors."""
    with beside(build(folder, *edits), name, shared=("io", "layout", "errors")):
        yield


def _link(source: str, target: str) -> str:
    """A hard link, or on another file system a copy."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
    return target


def write_digest(folder: Path) -> None:
    """Bring the digest of this build up to date, as `make digest` does."""
    command = [sys.executable, "-m", "kvproto.verify.cli.digest_command"]
    subprocess.run(command, env=environment(folder), cwd=folder, capture_output=True, check=True, timeout=60)


def environment(folder: Path, **more: str) -> dict[str, str]:
    """For a process that imports kvproto from this folder."""
    return {**os.environ, "PYTHONPATH": str(folder), **more}


def digest_of(folder: Path, python: str = sys.executable, **more: str) -> str:
    """The digest of this build's tables and source, computed in a process of its own."""
    return subprocess.run(
        [python, "-c", TELL], env=environment(folder, **more), cwd=folder, capture_output=True, text=True, check=True,
        timeout=60,
    ).stdout.strip()  # fmt: skip

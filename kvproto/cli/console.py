"""What commands print, and how they end."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from pathlib import Path

#: exit codes: all is well; something was found; the command line was wrong
WELL, FOUND, WRONG = 0, 1, 2


def say(text: str = "") -> None:
    """A line for the reader."""
    try:
        sys.stdout.write(text + "\n")
    except BrokenPipeError:
        sys.stderr.close()
        raise SystemExit(WELL) from None


def deliver(text: str, to: Path | None) -> None:
    """Write a document to a file, or to the terminal (None)."""
    if to is None:
        say(text.rstrip("\n"))
    else:
        to.write_text(text)


def run(module: str, argv: Sequence[str], extras: str) -> int:
    """Load a command's module and run it; where a package of these extras is missing, say which and how to get it."""
    try:
        code: int = importlib.import_module(module).main(argv)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in {"", "kvproto"}:
            raise
        sys.stderr.write(f"this needs {error.name}, which is not installed: pip install 'kvproto[{extras}]'\n")
        return WRONG
    return code


def complain(text: str) -> int:
    """A line about what is wrong; returns the exit code for it."""
    sys.stderr.write(text + "\n")
    return FOUND

"""What commands print, and how they end."""

from __future__ import annotations

import sys

#: exit codes: all is well; something was found; the command line was wrong
WELL, FOUND, WRONG = 0, 1, 2


def say(text: str = "") -> None:
    """A line for the reader."""
    try:
        sys.stdout.write(text + "\n")
    except BrokenPipeError:
        sys.stderr.close()
        raise SystemExit(WELL) from None


def complain(text: str) -> int:
    """A line about what is wrong; returns the exit code for it."""
    sys.stderr.write(text + "\n")
    return FOUND

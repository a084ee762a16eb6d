"""Console: what commands print."""

from __future__ import annotations

import sys
from pathlib import Path


def say(text: str = "") -> None:
    sys.stdout.write(text + "\n")


def note(text: str) -> None:
    """A line beside the output."""
    sys.stderr.write(text + "\n")


def deliver(text: str, to: Path | None) -> None:
    """Write a document to a file, or to the terminal (None)."""
    if to is None:
        say(text.rstrip("\n"))
    else:
        to.write_text(text)

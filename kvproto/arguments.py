"""Arguments of commands: numbers within bounds, files that can be written when the work is done.

Each is a `type` for argparse, which names the argument and ends with exit code 2.  An unbounded number could take all
memory or divide by zero; a file that cannot be written is refused before an hour of work, not after it.
"""

from __future__ import annotations

import os
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")


def whole(least: int, most: int) -> Callable[[str], int]:
    """A whole number from `least` to `most`."""

    def number(text: str) -> int:
        try:
            found = int(text)
        except ValueError:
            raise ArgumentTypeError(f"{_short(text)} is no whole number") from None
        if not least <= found <= most:
            raise ArgumentTypeError(f"{_short(text)} is not from {least} to {most}")
        return found

    return number


def positive(text: str) -> int:
    """Read a count: at least one, and at most some hundred millions."""
    return whole(1, 1 << 28)(text)


def real(least: float, most: float) -> Callable[[str], float]:
    """Return a reader of numbers from `least` to `most`, without nan and infinity."""

    def number(text: str) -> float:
        try:
            found = float(text)
        except ValueError:
            raise ArgumentTypeError(f"{_short(text)} is no number") from None
        if not least <= found <= most:  # nan is not either
            raise ArgumentTypeError(f"{_short(text)} is not from {least:g} to {most:g}")
        return found

    return number


def several(each: Callable[[str], T]) -> Callable[[str], list[T]]:
    """Some of them, separated by commas."""
    return lambda text: [each(part) for part in text.split(",")]


def pages(text: str) -> tuple[int, int]:
    """Tokens a page: `16`, or `16:64` (prefill:decode)."""
    first, _, second = text.partition(":")
    tokens = whole(1, 1 << 20)
    return tokens(first), tokens(second or first)


def output_file(text: str) -> Path:
    """A file to be written: its directory is there, and neither is closed to us."""
    path = Path(text)
    if path.is_dir():
        raise ArgumentTypeError(f"{path} is a directory: name a file")
    if not path.absolute().parent.is_dir():
        raise ArgumentTypeError(f"there is no directory {path.parent}")
    if not os.access(path if path.exists() else path.absolute().parent, os.W_OK):
        raise ArgumentTypeError(f"{path} cannot be written: its permissions do not allow it")
    return path


def output_folder(text: str) -> Path:
    """A directory to be written into; it is made here if it is not there."""
    path = Path(text)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ArgumentTypeError(f"{path} cannot be made: {error.strerror}") from error
    if not os.access(path, os.W_OK):
        raise ArgumentTypeError(f"nothing can be written into {path}: its permissions do not allow it")
    return path


def _short(text: str, most: int = 40) -> str:
    return repr(text if len(text) <= most else f"{text[:most]}...")


def only_with(parser: ArgumentParser, asked: Namespace, what: str, *options: str) -> None:
    """The parser's error if one of these options is given, which mean nothing without `what`."""
    for option in options:
        if getattr(asked, option.lstrip("-").replace("-", "_")):
            parser.error(f"{option} is of {what}")


def only_without(parser: ArgumentParser, asked: Namespace, what: str, *options: str) -> None:
    """The parser's error if one of these options is given, which mean nothing with `what`."""
    for option in options:
        if getattr(asked, option.lstrip("-").replace("-", "_")):
            parser.error(f"{option} is not of {what}")


def one_question(parser: ArgumentParser, asked: Namespace, *options: str) -> str:
    """Return the option that is given (none: empty); the parser's error if there are several."""
    given = [option for option in options if getattr(asked, option.lstrip("-").replace("-", "_"))]
    if len(given) > 1:
        parser.error(f"{given[0]} and {given[1]} ask different questions: one at a time")
    return given[0] if given else ""

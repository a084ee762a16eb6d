"""Bounded files: a command reads its input files within bounds, and refuses others by name and place.

A truncated, doctored or foreign file costs no more than its size, up to a bound, whatever numbers it contains.  A
document is read up to `MOST_BYTES`, lines one by one up to `LONGEST_LINE`.  So an endless device is refused like any
other file that is too large.  The content of a document is checked against a type, with the bounds of its numbers,
before it is used.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from kvproto.fsm.errors import KvprotoError

MOST_BYTES = 1 << 26
LONGEST_LINE = 1 << 25

T = TypeVar("T")


class FileError(KvprotoError, ValueError):
    """A file that is not what it should be; the sentence names file, place and cause."""


def text_of(path: Path, most: int = MOST_BYTES) -> str:
    """A whole text.  `FileError`: it is too long, or no text; an OSError is the file system's."""
    with path.open("rb") as file:
        found = file.read(most + 1)
    if len(found) > most:
        raise FileError(f"{path}: longer than {most} bytes: this is no such file")
    try:
        return found.decode()
    except UnicodeDecodeError as error:
        raise FileError(f"{path}: no text: byte {error.start} is not UTF-8") from error


def lines_of(path: Path) -> Iterator[bytes]:
    """Line by line, as bytes.  `FileError`: one has no end; an OSError is the file system's."""
    with path.open("rb") as file:
        while line := file.readline(LONGEST_LINE + 1):
            if len(line) > LONGEST_LINE:
                raise FileError(f"{path}: a line longer than {LONGEST_LINE} bytes: this is no such file")
            yield line


def document(path: Path) -> Any:
    """A JSON document, of which nothing but that is known.  `FileError`: it is none."""
    return json_value(text_of(path), str(path))


def json_value(text: str | bytes, where: str) -> Any:
    """A JSON value.  `FileError`: there is none, or it is nested too deeply."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise FileError(f"{where}: {error}") from error
    except RecursionError:
        raise FileError(f"{where}: nested too deeply") from None


def decoded(where: str, data: Any, kind: type[T], **how: bool) -> T:
    """Plain data as a type.  `FileError` names what does not fit, and in it the field."""
    try:
        return msgspec.convert(data, kind, **how)  # type: ignore[call-overload,no-any-return]
    except (msgspec.MsgspecError, ValueError) as error:  # a ValueError: what a class says of itself
        raise FileError(f"{where}: {error}") from error
    except RecursionError:
        raise FileError(f"{where}: nested too deeply") from None

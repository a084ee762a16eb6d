"""Request traces of inference services: the requests' arrivals, lengths and shared prefixes.

Two public formats are read, and told apart by their content:

* Mooncake's JSON lines: `timestamp` (milliseconds), `input_length`, `output_length` (tokens), `hash_ids` (one number
  for each block of 512 tokens; requests whose first numbers are equal share that prefix);
* Azure's CSV: `TIMESTAMP` (date and time), `ContextTokens`, `GeneratedTokens`; nothing is known of prefixes.

A line that is not what its format says ends the reading with the file, the line and the remedy.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from itertools import count, islice
from pathlib import Path
from typing import Annotated, Final

import msgspec
from msgspec.structs import replace

from kvproto.fsm.bounded_files import FileError, decoded, json_value, lines_of

#: tokens of a block that Mooncake's traces have a hash for
BLOCK: Final = 512
COLUMNS: Final = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
#: tokens of one prompt, at most: a longer one is a mistake in the file
MOST_TOKENS: Final = 1 << 24
#: digits of a second's fraction that `datetime` reads
TIME_TEXT: Final = 26
#: seconds between two turns of a trace that is repeated
PAUSE: Final = 1.0
Tokens = Annotated[int, msgspec.Meta(ge=0, le=MOST_TOKENS)]


class MooncakeLine(msgspec.Struct, frozen=True):
    """A line of Mooncake's format; other fields are ignored."""

    timestamp: Annotated[float, msgspec.Meta(ge=0, le=1e15)]
    input_length: Annotated[int, msgspec.Meta(ge=1, le=MOST_TOKENS)]
    output_length: Tokens = 0
    hash_ids: list[int] = []


class TracedRequest(msgspec.Struct, frozen=True):
    """A request of a trace: seconds since the first, tokens, and hashes of its blocks of `BLOCK` tokens."""

    arrival: float
    tokens: int
    output: int
    blocks: tuple[int, ...] = ()


def read_trace(path: Path) -> list[TracedRequest]:
    """Read a file's requests in order of arrival. `FileError` names the file, the line and the remedy."""
    lines = lines_of(path)
    first = next(lines, b"").strip().removeprefix(b"\xef\xbb\xbf")
    if first.startswith(b"{"):
        found = [_mooncake(f"{path}: line {number}", line) for number, line in _numbered(first, lines, 1)]
    elif first.decode("utf-8", "replace").replace(" ", "").split(",")[: len(COLUMNS)] == [*COLUMNS]:
        found = [_azure(f"{path}: line {number}", line) for number, line in _numbered(b"", lines, 1)]
    else:
        told = f'neither a JSON object with "timestamp" and "input_length", nor the header {",".join(COLUMNS)}'
        raise FileError(f"{path}: line 1 is {told}: name a trace in Mooncake's or Azure's format")
    if not found:
        raise FileError(f"{path}: there is no request in it: name a file that has lines of requests")
    found.sort(key=lambda request: request.arrival)
    begin = found[0].arrival
    return [replace(request, arrival=request.arrival - begin) for request in found]


def _numbered(first: bytes, lines: Iterator[bytes], number: int) -> Iterator[tuple[int, bytes]]:
    """Number the lines that are not empty; `first` has this number."""
    if first:
        yield number, first
    yield from ((at, line) for at, line in enumerate(lines, number + 1) if line.strip())


def _mooncake(where: str, line: bytes) -> TracedRequest:
    try:
        read = decoded(where, json_value(line, where), MooncakeLine)
    except FileError as error:
        raise FileError(f"{error}: mend or remove the line") from error
    if len(read.hash_ids) > -(-read.input_length // BLOCK):
        told = f"{len(read.hash_ids)} hash_ids for {read.input_length} tokens"
        raise FileError(f"{where}: {told}: one is for a block of {BLOCK} tokens: mend or remove the line")
    return TracedRequest(read.timestamp / 1000, read.input_length, read.output_length, tuple(read.hash_ids))


def _azure(where: str, line: bytes) -> TracedRequest:
    parts = line.decode("utf-8", "replace").strip().split(",")
    try:
        when = datetime.fromisoformat(parts[0].strip()[:TIME_TEXT]).timestamp()
        tokens, output = (int(part) for part in parts[1 : len(COLUMNS)])
    except ValueError as error:
        told = f"{line[:60]!r} is not a date and time, and two whole numbers, separated by commas"
        raise FileError(f"{where}: {told}: mend or remove the line") from error
    if not (0 <= tokens <= MOST_TOKENS and 0 <= output <= MOST_TOKENS):
        told = f"a request of {tokens} and {output} tokens: they are from 0 to {MOST_TOKENS}"
        raise FileError(f"{where}: {told}: mend or remove the line")
    return TracedRequest(when, max(1, tokens), output)  # a prompt of no tokens still has one that begins it


def chosen(trace: list[TracedRequest], *, thin: int, requests: int, pace: float) -> list[TracedRequest]:
    """Choose each `thin`-th request, `requests` of them (0: all), arriving `pace` times as fast.

    A trace that has fewer is repeated, later and with other blocks, so that no turn finds the prefixes of another.
    """
    part = trace[::thin]
    return list(islice(_repeated(part, pace), requests or len(part)))


def _repeated(part: list[TracedRequest], pace: float) -> Iterator[TracedRequest]:
    length = part[-1].arrival + PAUSE
    blocks = 1 + max((max(request.blocks, default=0) for request in part), default=0)
    for turn in count():
        for request in part:
            arrival = (request.arrival + turn * length) / pace
            yield replace(request, arrival=arrival, blocks=tuple(turn * blocks + block for block in request.blocks))

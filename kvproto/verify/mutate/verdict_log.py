"""Verdict log: the result of each mutant, line by line in a file, so a run can stop, resume or be
split.

A run that is given a log appends a line as soon as it has a verdict, and does not try again what was noticed there;
what nobody noticed is tried again, perhaps with more effort.  The logs of several machines are read together.  Each
line names the digest of its mutant's table: lines of a table that has changed since do not count.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import TypeVar

import msgspec

from kvproto.errors import ArgumentError
from kvproto.verify.claims.protocol_digest import computed_digest
from kvproto.verify.mutate.table_judges import TableVerdict
from kvproto.verify.mutate.table_operators import TableMutant

#: a mutant of any kind
M = TypeVar("M")
#: a line of a log
L = TypeVar("L")


class VerdictLine(msgspec.Struct, frozen=True):
    """A line: the mutant's name, its table's digest, the judge (empty: none), its witness, and seconds."""

    name: str
    table: str
    judge: str
    by: str
    seconds: float


def shard(mutants: Sequence[M], part: int, of: int) -> list[M]:
    """The part's share, by turns: `part` from 1 to `of`."""
    return list(mutants[part - 1 :: of])


def append(path: Path, verdict: TableVerdict) -> None:
    """One verdict more."""
    mutant = verdict.mutant
    line = VerdictLine(mutant.name, _digest(mutant.table), verdict.judge, verdict.by, verdict.seconds)
    with path.open("ab") as file:
        file.write(msgspec.json.encode(line) + b"\n")


def read(paths: Iterable[Path], mutants: Sequence[TableMutant]) -> dict[str, TableVerdict]:
    """Return the verdicts of these mutants, by name; of several lines about one, the first with a judge.

    ArgumentError: a file is not there, or a line is none of ours.
    """
    known = {each.name: each for each in mutants}
    found: dict[str, TableVerdict] = {}
    for path in paths:
        for line in lines(path, VerdictLine):
            mutant = known.get(line.name)
            if mutant is None or line.table != _digest(mutant.table):
                continue
            if line.name not in found or not found[line.name].judge:
                found[line.name] = TableVerdict(mutant, line.judge, line.by, line.seconds)
    return found


def lines(path: Path, kind: type[L]) -> Iterable[L]:
    """The lines of a log.  ArgumentError: the file is not there, or a line is none of this kind."""
    try:
        texts = path.read_bytes().splitlines()
    except OSError as error:
        raise ArgumentError(f"{path} cannot be read: {error.strerror}") from error
    for place, text in enumerate(texts, 1):
        try:
            yield msgspec.json.decode(text, type=kind)
        except msgspec.MsgspecError as error:
            raise ArgumentError(f"{path}:{place} is no verdict of `kvproto mutate --log`: {error}") from error


@cache
def _digest(table: str) -> str:
    parts = dict(part.split(":") for part in computed_digest().split())
    return parts.get(table) or parts["routes"]

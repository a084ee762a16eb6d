"""Verdicts: the result of each mutant, line by line in a log, and as counts in the kill table.

A run that is given a log appends a line as soon as it has a verdict, so it can stop, resume, or be split among machines
whose logs are read together.  What was noticed there is not tried again; what nobody noticed is, perhaps with more
effort or a test more.  Each line names the digest of its mutant's file or table: lines from before a change do not
count.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from kvproto.errors import ArgumentError

#: a mutant of the code or of the tables
M = TypeVar("M")
M_contra = TypeVar("M_contra", contravariant=True)
#: judges that have shown that nobody, or nobody who keeps to the protocol, can notice
EQUAL, AGREED = "equal", "agreed"


class Verdict(msgspec.Struct, Generic[M], frozen=True):
    """The judge that noticed (empty: none), its witness (property, world or test), and the seconds."""

    mutant: M
    judge: str
    by: str
    seconds: float

    @property
    def killed(self) -> bool:
        return self.judge not in ("", EQUAL, AGREED)


class Reasons(Protocol[M_contra]):
    """The explained survivors."""

    def reason(self, mutant: M_contra) -> str:
        """Why nobody has to notice it; empty: nobody has said."""


class LogLine(msgspec.Struct, Generic[M], frozen=True):
    """A line: the digest of the mutant's file or table, and the verdict."""

    digest: str
    verdict: Verdict[M]


def shard(mutants: Sequence[M], part: int, of: int) -> list[M]:
    """The part's share, by turns: `part` from 1 to `of`."""
    return list(mutants[part - 1 :: of])


def append(path: Path, verdict: Verdict[M], digest: Callable[[M], str]) -> None:
    with path.open("ab") as file:
        file.write(msgspec.json.encode(LogLine(digest(verdict.mutant), verdict)) + b"\n")


def read(paths: Iterable[Path], mutants: Sequence[M], digest: Callable[[M], str]) -> dict[M, Verdict[M]]:
    """Return the verdicts of these mutants; of several lines about one, the first with a judge.

    ArgumentError: a file is not there, or a line is none of ours.
    """
    found: dict[M, Verdict[M]] = {}
    if not mutants:
        return found
    digests = {each: digest(each) for each in mutants}
    kind: Any = LogLine[type(mutants[0])]  # type: ignore[misc]
    for path in paths:
        for line in _lines(path, kind):
            mutant = line.verdict.mutant
            if digests.get(mutant) == line.digest and (mutant not in found or not found[mutant].judge):
                found[mutant] = line.verdict
    return found


def _lines(path: Path, kind: Any) -> Iterable[Any]:
    try:
        texts = path.read_bytes().splitlines()
    except OSError as error:
        raise ArgumentError(f"{path} cannot be read: {error.strerror}") from error
    for place, text in enumerate(texts, 1):
        try:
            yield msgspec.json.decode(text, type=kind)
        except msgspec.MsgspecError as error:
            raise ArgumentError(f"{path}:{place} is no verdict of `kvproto mutate --log`: {error}") from error


def survivors(known: Reasons[M], found: Iterable[Verdict[M]]) -> list[Verdict[M]]:
    """Those that nobody noticed, that are not shown to be equal, and that nobody has explained."""
    return [each for each in found if not each.judge and not known.reason(each.mutant)]


def kill_table(
    known: Reasons[M], found: Sequence[Verdict[M]], judges: Sequence[str], titles: Mapping[str, Sequence[str]]
) -> str:  # fmt: skip
    """Return a table in Markdown for each title, an attribute of mutants: counts by judge and the rest.

    `titles`: the order of the rows; empty: by name.
    """
    open_ = {each.mutant for each in survivors(known, found)}
    heads, parts = ("mutants", *judges, "explained", "survive"), []
    for title, order in titles.items():
        counts: dict[str, Counter[str]] = defaultdict(Counter)
        for each in found:
            left = "survive" if each.mutant in open_ else "explained"
            for name in (getattr(each.mutant, title), "all"):
                counts[name].update(["mutants", each.judge or left])
        rows = [name for name in order or sorted({*counts} - {"all"}) if name in counts]
        lines = [f"| {title} | {' | '.join(heads)} |", "|---" * (len(heads) + 1) + "|"]
        lines += [f"| {name} | {' | '.join(str(counts[name][head]) for head in heads)} |" for name in (*rows, "all")]
        parts.append("\n".join(lines))
    return "\n\n".join(parts)

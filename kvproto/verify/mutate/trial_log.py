"""Trial log: the result of each mutant of the code, line by line in a file, as `verdict_log` has
tables'.

A run that is given a log appends each trial as it ends, and does not try again what was killed there; survivors are
tried again, for there may be a test more.  Each line names the digest of its mutant's file: a file that has changed
since is tried as a whole.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from kvproto.verify.mutate.operators import CodeMutant
from kvproto.verify.mutate.trial import Trial
from kvproto.verify.mutate.verdict_log import lines


class TrialLine(msgspec.Struct, frozen=True):
    """A line: the digest of the mutant's file, and the trial."""

    digest: str
    trial: Trial


def append(path: Path, root: Path, trial: Trial) -> None:
    """One trial more."""
    line = TrialLine(digest(root / trial.mutant.file), trial)
    with path.open("ab") as file:
        file.write(msgspec.json.encode(line) + b"\n")


def read(paths: Iterable[Path], root: Path, mutants: Sequence[CodeMutant]) -> dict[CodeMutant, Trial]:
    """Return the results of these mutants; of several lines about one, the first with its killer.

    ArgumentError: a file is not there, or a line is none of ours.
    """
    digests = {file: digest(root / file) for file in {each.file for each in mutants}}
    wanted, found = set(mutants), dict[CodeMutant, Trial]()
    for path in paths:
        for line in lines(path, TrialLine):
            mutant = line.trial.mutant
            if mutant not in wanted or line.digest != digests[mutant.file]:
                continue
            if mutant not in found or not found[mutant].witness:
                found[mutant] = line.trial
    return found


def digest(file: Path) -> str:
    """Return the digest of a file's text."""
    return hashlib.sha256(file.read_bytes()).hexdigest()[:16]

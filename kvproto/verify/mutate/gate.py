"""The gate: every mutant is killed by its tests, or somebody has said why it cannot be.

Mutants are tried in nurseries, one of each file, by several hands each; no more than `jobs` are at work at a time.
First the tests run on what is there: one that fails already, as where the machine lacks a part, is left out, and named.
Of a mutant those are asked that reach it, for `effort_s` seconds.  What cannot be planted in a nursery is tried in a
process of its own.  A trial that takes several times as long as its tests do unchanged is of a mutant that never ends,
and killed.
"""

from __future__ import annotations

import hashlib
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import msgspec

from kvproto.errors import ArgumentError
from kvproto.verify.mutate.forks import Cores, Fork, lines_of
from kvproto.verify.mutate.nursery import ELSEWHERE, NO_JUDGE, rear
from kvproto.verify.mutate.operators import CodeMutant
from kvproto.verify.mutate.targets import FILE, Targets, every, load, sample
from kvproto.verify.mutate.trial import NOTHING_RUN, begin, warm
from kvproto.verify.mutate.verdicts import Verdict, kill_table

TITLE, OWNER, EFFORT_S = "Mutants of the code", "file", 20.0
KILLED = "killed"
#: seconds between two looks at a trial in a process of its own, and the longest that it may take
TICK_S, LONGEST_S = 0.02, 120.0
#: mutants for a hand of a nursery, at least: it has to learn which tests notice
HANDFUL = 8


class Told(msgspec.Struct):
    """A nursery's report on a trial (mutant None: the witness fails where nothing is changed)."""

    mutant: CodeMutant | None
    witness: str
    seconds: float
    #: that reach it
    tests: list[str]


CodeVerdict = Verdict[CodeMutant]


def _to_stderr(text: str) -> None:
    sys.stderr.write(f"{text}\n")


def run(
    root: Path, targets: Targets, mutants: Sequence[CodeMutant], effort_s: float, jobs: int,
    tell: Callable[[CodeVerdict], None], warn: Callable[[str], None] = _to_stderr,
) -> list[CodeVerdict]:  # fmt: skip
    """Try all mutants, and warn of each test that is left out because it fails without a change.

    ArgumentError: of a file all do; all else has been reported.
    """
    found: list[CodeVerdict] = []
    unjudged: list[str] = []
    alone: list[Told] = []

    def told(file: str, each: Told) -> None:
        if each.witness == NO_JUDGE:
            unjudged.append(file)
        elif each.mutant is None:
            warn(f"left out, since it fails on {file} as it is: {each.witness}")
        elif each.witness == ELSEWHERE:
            alone.append(each)
        else:
            # Tests that are all left out, or that have another name by now, have noticed nothing.
            witness = "" if each.witness == NOTHING_RUN else each.witness
            found.append(Verdict(each.mutant, KILLED if witness else "", witness, round(each.seconds, 2)))
            tell(found[-1])

    warm()
    by_file: dict[str, list[CodeMutant]] = {}
    for mutant in mutants:
        by_file.setdefault(mutant.file, []).append(mutant)
    cores = Cores(jobs)
    works = [
        partial(_nursery, root=root, file=file, tests=targets.tests(file), mutants=own, effort_s=effort_s,
                hands=max(1, min(jobs, len(own) // HANDFUL)), cores=cores)
        for file, own in by_file.items()
    ]  # fmt: skip
    files = [*by_file]
    for which, line in lines_of(works, jobs):
        told(files[which], msgspec.json.decode(line, type=Told))
    cores.close()
    _alone(root, deque(alone), jobs, told)
    if unjudged:
        raise ArgumentError(f"no test passes on {', '.join(unjudged)} as it is")
    return sorted(found, key=lambda verdict: verdict.mutant)


def _nursery(
    told: int, root: Path, file: str, tests: Sequence[str], mutants: list[CodeMutant], effort_s: float, hands: int,
    cores: Cores,
) -> None:  # fmt: skip
    def tell(mutant: CodeMutant | None, witness: str, seconds: float, reach: Sequence[str]) -> None:
        able = list(reach) if witness == ELSEWHERE else []
        os.write(told, msgspec.json.encode(Told(mutant, witness, seconds, able)) + b"\n")

    rear(root, file, tests, mutants, effort_s, hands, cores, tell)


def _alone(root: Path, mutants: deque[Told], jobs: int, told: Callable[[str, Told], None]) -> None:
    going: list[tuple[CodeMutant, Fork, float]] = []
    try:
        while mutants or going:
            while mutants and len(going) < jobs:
                each = mutants.popleft()
                assert each.mutant is not None
                going.append((each.mutant, begin(root, each.mutant, each.tests), time.monotonic()))
            time.sleep(TICK_S)
            for trial in list(going):
                mutant, fork, since = trial
                took = time.monotonic() - since
                ending = fork.ended() if took <= LONGEST_S else fork.stop(f"did not end in {LONGEST_S:g} s")
                if ending is not None:
                    going.remove(trial)
                    told(mutant.file, Told(mutant, ending.witness, took, []))
    finally:
        for _, fork, _ in going:
            fork.stop("")


def digest(root: Path, mutants: Sequence[CodeMutant]) -> Callable[[CodeMutant], str]:
    """Return the digest of a mutant's file: of a file that has changed since no verdict counts."""
    texts = {file: (root / file).read_bytes() for file in {each.file for each in mutants}}
    digests = {file: hashlib.sha256(text).hexdigest()[:16] for file, text in texts.items()}
    return lambda mutant: digests[mutant.file]


def table(targets: Targets, found: Sequence[CodeVerdict]) -> str:
    """Return two tables in Markdown, by file and by operator: mutants, killed, explained, surviving."""
    return kill_table(targets, found, (KILLED,), {"file": (), "operator": ()})


__all__ = ["EFFORT_S", "FILE", "OWNER", "TITLE", "digest", "every", "load", "run", "sample", "table"]

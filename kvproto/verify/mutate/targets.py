"""Targets: the tests of each file, and the explained survivors, in `spec/code-mutants.toml`.

    [judges]
    worlds = ["tests/test_handler_worlds.py"]

    [targets]
    "kvproto/data/writes.py" = ["tests/test_writes.py", "worlds"]

    [equivalent]
    "kvproto/data/writes.py: RankWrites.poll: swap" = "why nothing can tell"

Tests of a target are its quickest first, by name or as judges, which are tests that several files ask; a reason belongs
to every mutant whose name begins with its key.
"""

from __future__ import annotations

import random
import tomllib
from collections.abc import Sequence
from pathlib import Path

import msgspec

from kvproto.errors import ArgumentError
from kvproto.verify.mutate.changes import CHANGES
from kvproto.verify.mutate.operators import CodeMutant, mutants_of

FILE = Path("spec/code-mutants.toml")


class Targets(msgspec.Struct):
    """The file's contents."""

    targets: dict[str, list[str]]
    equivalent: dict[str, str]
    judges: dict[str, list[str]] = {}

    def tests(self, file: str) -> list[str]:
        """Those that are asked about this file, in their order."""
        return [test for named in self.targets[file] for test in self.judges.get(named, [named])]

    def reason(self, mutant: CodeMutant) -> str:
        """Why this survivor is no gap; empty: nobody has said."""
        return next((why for key, why in self.equivalent.items() if mutant.name.startswith(key)), "")


def load(root: Path) -> Targets:
    """Read it.  ArgumentError: this is not the project's own tree, or a reason is for no mutant."""
    try:
        found = msgspec.convert(tomllib.loads((root / FILE).read_text()), Targets)
    except FileNotFoundError as error:
        raise ArgumentError(f"no {FILE} here: this works in kvproto's own tree, {root} is none") from error
    names = [mutant.name for mutant in every(root, found)]
    for key in found.equivalent:
        if not any(name.startswith(key) for name in names):
            raise ArgumentError(f"{FILE} explains {key!r}, and there is no such mutant (any more)")
    return found


def every(root: Path, targets: Targets, files: Sequence[str] = (), operators: Sequence[str] = ()) -> list[CodeMutant]:
    """Return the mutants of these files (all) by these operators (all). ArgumentError: no such name."""
    if unknown := [name for name in operators if name not in CHANGES]:
        raise ArgumentError(f"no operator {unknown[0]!r}: one of {', '.join(CHANGES)}")
    if unknown := [name for name in files if name not in targets.targets]:
        raise ArgumentError(f"no target {unknown[0]!r}: one of {', '.join(targets.targets)}")
    found = [each for file in files or targets.targets for each in mutants_of(file, (root / file).read_text())]
    return [each for each in found if not operators or each.operator in operators]


def sample(mutants: Sequence[CodeMutant], count: int, seed: int) -> list[CodeMutant]:
    return sorted(random.Random(seed).sample(list(mutants), min(count, len(mutants))))

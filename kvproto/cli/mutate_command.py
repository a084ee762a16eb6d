"""`kvproto mutate`: change the code that runs, one place at a time, and see which test notices."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from kvproto.arguments import output_file, positive, whole
from kvproto.cli.console import note, say
from kvproto.cli.ending import FOUND, WELL
from kvproto.mutate import gate
from kvproto.mutate.operators import CHANGES
from kvproto.mutate.targets import every, load, sample
from kvproto.mutate.trial import Trial

EPILOG = f"""\
Operators: {', '.join(CHANGES)}.  Which tests are asked about a file, and which mutants are equivalent and why, is in
spec/code-mutants.toml; this works in kvproto's own tree.

examples:
  kvproto mutate --sample 40                                     a seeded sample of all files
  kvproto mutate --file kvproto/engine/writes.py --jobs 4        all of a file
  kvproto mutate --operator compare --operator negate --list     what there is to change
  kvproto mutate --sample 400 --seed 2 --table spec/code-kill-table.md

Exit code 1: a mutant survives and nobody has said why.
"""


def _warm() -> None:
    """What every trial needs, and kvproto is no part of."""
    import _pytest.assertion.rewrite  # noqa: F401
    import hypothesis  # noqa: F401
    import numpy  # noqa: F401, ICN001
    import torch
    import zmq  # noqa: F401

    torch.set_num_threads(1)


def parser() -> argparse.ArgumentParser:
    """The arguments."""
    made = argparse.ArgumentParser(
        "kvproto mutate", description=(__doc__ or "").split("`: ")[1], epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    made.add_argument("--file", action="append", default=[], metavar="PATH", help="of this file; again: and of this")
    made.add_argument("--operator", action="append", default=[], metavar="NAME", help="by this operator")
    made.add_argument("--sample", type=positive, metavar="N", help="so many, drawn from the seed (default: all)")
    made.add_argument("--seed", type=whole(0, 1 << 64), default=1)
    made.add_argument("--jobs", type=positive, default=os.cpu_count() or 1, help="trials at a time (default: cores)")
    made.add_argument("--list", action="store_true", help="name the mutants, try none")
    made.add_argument("--json", action="store_true", help="a line for each trial")
    made.add_argument("--table", type=output_file, metavar="PATH", help="write the kill table there")
    return made


def _tell(count: int, *, as_json: bool) -> Any:
    tried = [0]

    def tell(trial: Trial) -> None:
        tried[0] += 1
        if as_json:
            say(msgspec.json.encode(trial).decode())
        elif not trial.witness:
            note(f"survives: {trial.mutant.file}:{trial.mutant.line} {trial.mutant.name}")
        if sys.stderr.isatty():
            sys.stderr.write(f"\r{tried[0]} of {count} ")
            sys.stderr.flush()

    return tell


def main(argv: Sequence[str] | None = None) -> int:
    """The command; exit code 1 if a mutant survives without a reason."""
    asked, root = parser().parse_args(argv), Path.cwd()
    targets = load(root)
    mutants = every(root, targets, asked.file, asked.operator)
    if asked.sample:
        mutants = sample(mutants, asked.sample, asked.seed)
    if asked.list:
        for mutant in mutants:
            say(f"{mutant.file}:{mutant.line} {mutant.name}")
        return WELL
    _warm()
    found = gate.run(root, targets, mutants, asked.jobs, _tell(len(mutants), as_json=asked.json))
    text = gate.table(targets, found)
    if asked.table:
        how = f"seed {asked.seed}, {len(found)} mutants" if asked.sample else "all mutants"
        Path(asked.table).write_text(f"# Mutants of the code\n\n`kvproto mutate`, {how}.\n\n{text}\n")
    if not asked.json:
        say(text)
    left = gate.survivors(targets, found)
    for trial in left if not asked.json else ():
        say(f"SURVIVES  {trial.mutant.file}:{trial.mutant.line}  {trial.mutant.name}")
    return FOUND if left else WELL

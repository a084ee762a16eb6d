"""`kvproto mutate`: change the code or the tables, one place at a time, and see which test notices."""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from kvproto.arguments import only_with, output_file, positive, whole
from kvproto.cli.command_line import CommandLine
from kvproto.cli.console import note, say
from kvproto.cli.ending import FOUND, WELL
from kvproto.verify.mutate import gate, table_gate, table_operators, trial_log, verdict_log
from kvproto.verify.mutate.changes import CHANGES
from kvproto.verify.mutate.operators import CodeMutant
from kvproto.verify.mutate.table_gate import TableReasons
from kvproto.verify.mutate.table_judges import Effort, TableVerdict
from kvproto.verify.mutate.table_operators import OPERATORS, TableMutant
from kvproto.verify.mutate.targets import Targets, every, load, sample
from kvproto.verify.mutate.trial import Trial

EPILOG = f"""\
Operators: {', '.join(CHANGES)}; of tables:
{', '.join(OPERATORS)}.
Which tests are asked, and which mutants are equivalent and why, is in spec/code-mutants.toml and
spec/table-mutants.toml; this works in kvproto's own tree.

examples:
  kvproto mutate --sample 40                                     a seeded sample of all files
  kvproto mutate --file kvproto/data/writes.py --jobs 4        all of a file
  kvproto mutate --operator compare --operator negate --list     what there is to change
  kvproto mutate --log all.jsonl --table spec/code-kill-table.md  the whole; stopped and begun again, it goes on
  kvproto mutate --tables --sample 60                            a seeded sample of rows, timers and routes
  kvproto mutate --tables --file prefill_send --operator loosen  all of a table by one operator
  kvproto mutate --tables --sample 60 --table spec/table-kill-table.md --record
  kvproto mutate --tables --shard 1/2 --log one.jsonl            half of it, on one of two machines
  kvproto mutate --tables --from one.jsonl --from two.jsonl --table spec/table-kill-table.md
  kvproto mutate --tables --log all.jsonl --effort 60            once more what nobody noticed, in larger worlds

Exit code 1: a mutant survives and nobody has said why.
"""


def parser() -> argparse.ArgumentParser:
    """The arguments."""
    made = CommandLine(
        "kvproto mutate", description=(__doc__ or "").split("`: ")[1], epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    made.add_argument("--tables", action="store_true", help="mutants of the tables and routes, not of the code")
    made.add_argument("--file", action="append", default=[], metavar="PATH", help="of this file or table (repeatable)")
    made.add_argument("--operator", action="append", default=[], metavar="NAME", help="by this operator")
    made.add_argument("--sample", type=positive, metavar="N", help="so many, drawn from the seed (default: all)")
    made.add_argument("--seed", type=whole(0, 1 << 64), default=1)
    made.add_argument("--jobs", type=positive, default=os.cpu_count() or 1, help="trials at a time (default: cores)")
    made.add_argument("--list", action="store_true", help="name the mutants, try none")
    made.add_argument("--json", action="store_true", help="a line for each trial")
    made.add_argument("--table", type=output_file, metavar="PATH", help="write the kill table there")
    made.add_argument("--effort", type=positive, help="seconds of tests for a mutant (20), or of worlds (5)")
    made.add_argument(
        "--shard", type=_part, metavar="I/N", default=(1, 1), help="the I-th of N parts, for N machines"
    )
    made.add_argument(
        "--log", type=output_file, metavar="PATH",
        help="append each verdict there, and do not try again what is noticed there already",
    )
    made.add_argument(
        "--from", dest="logs", action="append", default=[], type=Path, metavar="PATH",
        help="try none, take the verdicts of this log (repeatable)",
    )
    made.add_argument("--record", action="store_true", help="with --tables: remember who noticed, to ask him first")
    return made


def _tell(count: int, name: Callable[[Any], str], *, as_json: bool) -> Any:
    """`name`: of a survivor, what it is called; empty: it is none."""
    tried = [0]

    def tell(trial: Any) -> None:
        tried[0] += 1
        if as_json:
            say(msgspec.json.encode(trial).decode())
        elif called := name(trial):
            note(f"survives: {called}")
        if sys.stderr.isatty():
            sys.stderr.write(f"\r{tried[0]} of {count} ")
            sys.stderr.flush()

    return tell


def main(argv: Sequence[str] | None = None) -> int:
    """The command; exit code 1 if a mutant survives without a reason."""
    asked = (made := parser()).parse_args(argv)
    if not asked.tables:
        only_with(made, asked, "--tables", "--record")
    return _tables(asked, Path.cwd()) if asked.tables else _code(asked, Path.cwd())


def _code(asked: Any, root: Path) -> int:
    targets = load(root)
    mutants = every(root, targets, asked.file, asked.operator)
    if asked.sample:
        mutants = sample(mutants, asked.sample, asked.seed)
    mutants = verdict_log.shard(mutants, *asked.shard)
    if asked.list:
        return _list([f"{mutant.file}:{mutant.line} {mutant.name}" for mutant in mutants])
    if asked.logs:
        found = sorted(trial_log.read(asked.logs, root, mutants).values(), key=lambda trial: trial.mutant)
    else:
        found = _tried(asked, root, targets, mutants)
    _told("# Mutants of the code", gate.table(targets, found) + _untried(mutants, found), len(found), asked)
    return _left([_survivor(trial) for trial in gate.survivors(targets, found)], asked)


def _tried(asked: Any, root: Path, targets: Targets, mutants: Sequence[CodeMutant]) -> list[Trial]:
    """Try them, but for those that were killed as the log says."""
    log = [asked.log] if asked.log and asked.log.exists() else []
    killed = {mutant: each for mutant, each in trial_log.read(log, root, mutants).items() if each.witness}
    left = [mutant for mutant in mutants if mutant not in killed]
    tell = _tell(len(left), _survivor, as_json=asked.json)

    def told(trial: Trial) -> None:
        tell(trial)
        if asked.log:
            trial_log.append(asked.log, root, trial)

    found = gate.run(root, targets, left, float(asked.effort or 20), asked.jobs, told)
    return sorted([*killed.values(), *found], key=lambda trial: trial.mutant)


def _untried(mutants: Sequence[CodeMutant], found: Sequence[Trial]) -> str:
    """Return the mutants that no log mentions, by file."""
    left = Counter(mutant.file for mutant in set(mutants).difference(trial.mutant for trial in found))
    told = ", ".join(f"{count} of {file}" for file, count in sorted(left.items()))
    return f"\n\nNot tried yet: {sum(left.values())}; {told}." if left else ""


def _survivor(trial: Trial) -> str:
    return "" if trial.witness else f"{trial.mutant.file}:{trial.mutant.line}  {trial.mutant.name}"


def _part(text: str) -> tuple[int, int]:
    """`I/N`."""
    part, slash, of = text.partition("/")
    if not slash:
        raise argparse.ArgumentTypeError(f"{text!r} is no I/N: the second of three parts is 2/3")
    parts = positive(of)
    return whole(1, parts)(part), parts


def _tables(asked: Any, root: Path) -> int:
    known = table_gate.load(root)
    mutants = table_operators.mutants(asked.file, asked.operator)
    if asked.sample:
        mutants = table_operators.sample(mutants, asked.sample, asked.seed)
    mutants = verdict_log.shard(mutants, *asked.shard)
    if asked.list:
        return _list([mutant.name for mutant in mutants])
    if asked.logs:
        found = table_gate.gathered(known, mutants, verdict_log.read(asked.logs, mutants))
    else:
        found = _judged(asked, root, known, mutants)
    _told("# Mutants of the tables", table_gate.table(known, found), len(found), asked)
    if asked.record:
        table_gate.record(root, known, found)
    return _left([verdict.mutant.name for verdict in table_gate.survivors(known, found)], asked)


def _judged(asked: Any, root: Path, known: TableReasons, mutants: Sequence[TableMutant]) -> list[TableVerdict]:
    """Try them, but for those that somebody noticed as the log says."""
    log = [asked.log] if asked.log and asked.log.exists() else []
    noticed = {name: each for name, each in verdict_log.read(log, mutants).items() if each.judge}
    left = [mutant for mutant in mutants if mutant.name not in noticed]

    def name(verdict: TableVerdict) -> str:
        return "" if verdict.judge or known.reason(verdict.mutant) else verdict.mutant.name

    tell = _tell(len(left), name, as_json=asked.json)

    def told(verdict: TableVerdict) -> None:
        tell(verdict)
        if asked.log:
            verdict_log.append(asked.log, verdict)

    found = table_gate.run(root, known, left, Effort(worlds_s=float(asked.effort or 5)), asked.jobs, told)
    return sorted([*noticed.values(), *found], key=lambda verdict: verdict.mutant)


def _list(names: Sequence[str]) -> int:
    for name in names:
        say(name)
    return WELL


def _told(title: str, text: str, count: int, asked: Any) -> None:
    if asked.table:
        how = " ".join(["kvproto mutate", *(["--tables"] if asked.tables else []), *_chosen(asked)])
        Path(asked.table).write_text(f"{title}\n\nMade by `{how} --table FILE`: {count} mutants.\n\n{text}\n")
    if not asked.json:
        say(text)


def _chosen(asked: Any) -> Iterator[str]:
    """The options that say which mutants there are."""
    for name, values in (("--file", asked.file), ("--operator", asked.operator)):
        yield from (f"{name} {value}" for value in values)
    if asked.sample:
        yield f"--sample {asked.sample} --seed {asked.seed}"


def _left(names: Sequence[str], asked: Any) -> int:
    for name in names if not asked.json else ():
        say(f"SURVIVES  {name}")
    return FOUND if names else WELL

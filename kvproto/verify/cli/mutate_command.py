"""`kvproto mutate`: change the code or the tables, one place at a time, and see which test notices."""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec

from kvproto.arguments import only_with, output_file, positive, whole
from kvproto.cli.console import note, say
from kvproto.cli.ending import FOUND, WELL
from kvproto.command_line import CommandLine
from kvproto.errors import MissingExtraError
from kvproto.verify.cli.tables_option import KV
from kvproto.verify.mutate.changes import CHANGES
from kvproto.verify.mutate.table_operators import OPERATORS
from kvproto.verify.mutate.verdicts import Reasons, Verdict, append, read, shard, survivors

EPILOG = f"""\
Operators: {", ".join(CHANGES)}; of tables:
{", ".join(OPERATORS)}.
Which tests are asked, and which mutants are equivalent and why, is in spec/code-mutants.toml and
spec/table-mutants.toml; this works in kvproto's own tree, and of another protocol wherever it can be imported.

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
  kvproto mutate --tables examples.two_phase_commit.parties:PROTOCOL    a protocol of your own: its lint, proofs, worlds

Exit code 1: a mutant survives and nobody has said why, or no log mentions it.
"""


def parser() -> argparse.ArgumentParser:
    made = CommandLine(
        "kvproto mutate", description=(__doc__ or "").split("`: ")[1], epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    made.add_argument(
        "--tables", nargs="?", const=KV, metavar="MODULE:NAME",
        help="mutants of the tables and routes, not of the code; with a name: of a protocol of your own",
    )  # fmt: skip
    made.add_argument("--file", action="append", default=[], metavar="PATH", help="of this file or table (repeatable)")
    made.add_argument("--operator", action="append", default=[], metavar="NAME", help="by this operator")
    made.add_argument("--sample", type=positive, metavar="N", help="so many, drawn from the seed (default: all)")
    made.add_argument("--seed", type=whole(0, 1 << 64), default=1)
    made.add_argument("--jobs", type=positive, default=os.cpu_count() or 1, help="trials at a time (default: cores)")
    made.add_argument("--list", action="store_true", help="name the mutants, try none")
    made.add_argument("--json", action="store_true", help="a line for each trial")
    made.add_argument("--table", type=output_file, metavar="PATH", help="write the kill table there")
    made.add_argument("--effort", type=positive, help="seconds of tests for a mutant (20), or of worlds (5)")
    made.add_argument("--shard", type=_part, metavar="I/N", default=(1, 1), help="the I-th of N parts, for N machines")
    made.add_argument(
        "--log",
        type=output_file,
        metavar="PATH",
        help="append each verdict there, and do not try again what is noticed there already",
    )
    made.add_argument(
        "--from",
        dest="logs",
        action="append",
        default=[],
        type=Path,
        metavar="PATH",
        help="try none, take the verdicts of this log (repeatable)",
    )
    made.add_argument("--record", action="store_true", help="with --tables: remember who noticed, to ask him first")
    return made


def main(argv: Sequence[str] | None = None) -> int:
    """The command; exit code 1 if a mutant survives without a reason."""
    asked = (made := parser()).parse_args(argv)
    if not asked.tables:
        only_with(made, asked, "--tables", "--record")
    if asked.tables in (None, KV):
        # Two modules with the same functions: which mutants there are, who judges them, and what is known of them.
        # They ask tests, so they need pytest and all that is tested: another protocol's mutants do not.
        return _mutated(asked, import_module(f"kvproto.verify.mutate.{'table_gate' if asked.tables else 'gate'}"))
    if asked.record:
        made.error("--record is of this project's own tables; --log keeps the verdicts on yours")
    try:
        from kvproto.verify.mutate.protocol_gate import ProtocolGate
    except ModuleNotFoundError as error:
        raise MissingExtraError(f"this needs {error.name}: pip install 'kvproto[prove]'") from error
    another = ProtocolGate(asked.tables)
    with another.at_work():
        return _mutated(asked, another)


def _mutated(asked: Any, kind: Any) -> int:
    root = Path.cwd()
    known = kind.load(root)
    mutants = kind.every(root, known, asked.file, asked.operator)
    if asked.sample:
        mutants = kind.sample(mutants, asked.sample, asked.seed)
    mutants = shard(mutants, *asked.shard)
    if asked.list:
        for mutant in mutants:
            say(str(mutant))
        return WELL
    digest = kind.digest(root, mutants)
    said = read(asked.logs, mutants, digest) if asked.logs else _tried(asked, root, kind, known, mutants, digest)
    explained = {mutant: Verdict(mutant, "", "", 0.0) for mutant in mutants if known.reason(mutant)}
    found = sorted((explained | said).values(), key=lambda verdict: verdict.mutant)
    untried = [mutant for mutant in mutants if mutant not in said and mutant not in explained]
    _told(asked, kind, known, found, untried)
    if asked.record:
        kind.record(root, known, found)
    left = survivors(known, found)
    for verdict in left if not asked.json else ():
        say(f"SURVIVES  {verdict.mutant}")
    return FOUND if left or untried else WELL


def _tried(
    asked: Any, root: Path, kind: Any, known: Reasons[Any], mutants: Sequence[Any], digest: Callable[[Any], str]
) -> dict[Any, Verdict[Any]]:  # fmt: skip
    """Try them, but for those that somebody noticed as the log says."""
    log = [asked.log] if asked.log and asked.log.exists() else []
    said = {mutant: each for mutant, each in read(log, mutants, digest).items() if each.judge}
    left = [mutant for mutant in mutants if mutant not in said]
    tried = 0

    def told(verdict: Verdict[Any]) -> None:
        nonlocal tried
        tried += 1
        if asked.json:
            say(msgspec.json.encode(verdict).decode())
        elif survivors(known, [verdict]):
            note(f"survives: {verdict.mutant}")
        if sys.stderr.isatty():
            sys.stderr.write(f"\r{tried} of {len(left)} ")
            sys.stderr.flush()
        if asked.log:
            append(asked.log, verdict, digest)

    found = kind.run(root, known, left, float(asked.effort or kind.EFFORT_S), asked.jobs, told)
    return said | {verdict.mutant: verdict for verdict in found}


def _part(text: str) -> tuple[int, int]:
    """`I/N`."""
    part, slash, of = text.partition("/")
    if not slash:
        raise argparse.ArgumentTypeError(f"{text!r} is no I/N: the second of three parts is 2/3")
    parts = positive(of)
    return whole(1, parts)(part), parts


def _told(asked: Any, kind: Any, known: Reasons[Any], found: Sequence[Verdict[Any]], untried: Sequence[Any]) -> None:
    text = kind.table(known, found)
    if untried:  # their file or table has changed since the logs, or a shard is missing
        counts = Counter(getattr(mutant, kind.OWNER) for mutant in untried)
        places = ", ".join(f"{count} of {place}" for place, count in sorted(counts.items()))
        text += f"\n\nNot tried yet: {len(untried)}; {places}."
    if asked.table:
        of = [] if not asked.tables else ["--tables"] if asked.tables == KV else [f"--tables {asked.tables}"]
        how = " ".join(["kvproto mutate", *of, *_chosen(asked)])
        head = f"# {kind.TITLE}\n\nMade by `{how} --table FILE`: {len(found)} mutants."
        Path(asked.table).write_text(f"{head}\n\n{text}\n")
    if not asked.json:
        say(text)


def _chosen(asked: Any) -> Iterator[str]:
    for name, values in (("--file", asked.file), ("--operator", asked.operator)):
        yield from (f"{name} {value}" for value in values)
    if asked.sample:
        yield f"--sample {asked.sample} --seed {asked.seed}"

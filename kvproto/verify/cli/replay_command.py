"""`kvproto replay`: is this trace what the tables do?  And is this counterexample still one?"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import msgspec

from kvproto.cli.console import say
from kvproto.cli.ending import FOUND, WELL
from kvproto.command_line import CommandLine
from kvproto.fsm.records import StepEntry, load
from kvproto.verify.cli.tables_option import add_tables
from kvproto.verify.framework.checker import ReplayedWay
from kvproto.verify.framework.protocol import Protocol
from kvproto.verify.framework.trace.replay import replay

EPILOG = """\
Every step is fired again from the value that the steps before have left; row, new state and effects must be those that
were recorded, and what is claimed of the table must hold.  The first difference of each rank is shown.  Exit code 0:
none, 1: some, 2: a file cannot be read.

A counterexample of the checker (spec/counterexamples, `kvproto check --save`) is stepped through instead, in the world
in which it was found: as far as it can still happen, and with what it breaks now.  Exit code 1: it breaks something.
"""


def main(argv: list[str]) -> int:
    parser = CommandLine(
        prog="kvproto replay", description="Check traces against the tables.", epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("file", nargs="+", type=Path, metavar="TRACE", help="JSON lines, of one rank or more")
    parser.add_argument("--any-tables", action="store_true", help="also if the trace was made with other tables")
    parser.add_argument("--json", action="store_true", help="one JSON document, for tools")
    add_tables(parser)
    args = parser.parse_args(argv)
    telling = args.tables.told()
    clean, found, ways = [], [], []
    for path in args.file:
        if (way := _counterexample(path, args.tables)) is not None:
            ways.append((path, way))
            continue
        for log in load(path, telling=telling):
            difference = replay(log, telling, any_tables=args.any_tables)
            steps = sum(isinstance(entry, StepEntry) for entry in log.entries)
            if difference is None:
                clean.append({"file": str(path), telling.party: log.head.name, "steps": steps})
            else:
                found.append({"file": str(path), telling.party: log.head.name, "difference": difference})
    ended = FOUND if found or any(way.broken for _, way in ways) else WELL
    if args.json:
        fates = [(str(path), way.once.property, way.broken, way.gone) for path, way in ways]
        walked = [dict(zip(("file", "once", "now", "gone"), fate, strict=True)) for fate in fates]
        said = {"clean": clean, "differences": found, "counterexamples": walked}
        say(json.dumps(msgspec.to_builtins(said), indent=1))
        return ended
    for path, way in ways:
        say(f"{path}:\n{way.story()}")
    for each in clean:
        say(f"{each['file']}: {each[telling.party]}: {each['steps']} steps, as the tables say")
    for each in found:
        say(f"{each['file']}: {each['difference']}")
    return ended


def _counterexample(path: Path, protocol: Protocol) -> ReplayedWay | None:
    """The file as a counterexample, walked; None: it is something else."""
    begins = b'{"property"'
    with path.open("rb") as file:
        if file.read(len(begins)) != begins:
            return None
    return protocol.checked().walk_file(path)

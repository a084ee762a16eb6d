"""`kvproto replay`: is this trace what the tables do?"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import msgspec

from kvproto.console import FOUND, WELL, complain, say
from kvproto.trace.records import Step, TraceError, load
from kvproto.trace.replay import replay

EPILOG = """\
Every step is fired again from the value that the steps before have left; row, new state and effects must be those that
were recorded.  The first difference of each rank is shown.  Exit code 0: none, 1: some, or a file cannot be read.
"""


def main(argv: list[str]) -> int:
    """`kvproto replay`."""
    parser = argparse.ArgumentParser(
        prog="kvproto replay", description="Check traces against the tables.", epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("file", nargs="+", type=Path, metavar="TRACE", help="JSON lines, of one rank or more")
    parser.add_argument("--any-tables", action="store_true", help="also if the trace was made with other tables")
    parser.add_argument("--json", action="store_true", help="one JSON document, for tools")
    args = parser.parse_args(argv)
    clean, found = [], []
    for path in args.file:
        try:
            logs = load(path)
        except TraceError as error:
            return complain(str(error))
        for log in logs:
            difference = replay(log, any_tables=args.any_tables)
            steps = sum(isinstance(entry, Step) for entry in log.entries)
            if difference is None:
                clean.append({"file": str(path), "rank": log.head.name, "steps": steps})
            else:
                found.append({"file": str(path), "rank": log.head.name, "difference": difference})
    if args.json:
        say(json.dumps(msgspec.to_builtins({"clean": clean, "differences": found}), indent=1))
        return FOUND if found else WELL
    for each in clean:
        say(f"{each['file']}: {each['rank']}: {each['steps']} steps, as the tables say")
    for each in found:
        say(f"{each['file']}: {each['difference']}")
    return FOUND if found else WELL

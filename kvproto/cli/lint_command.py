"""`kvproto lint`: what is wrong with the tables, where it stands."""

from __future__ import annotations

import argparse
import json

import msgspec

from kvproto.cli.console import FOUND, WELL, WRONG, complain, say
from kvproto.fsm.lint import lint, lint_edge
from kvproto.protocol.sources import SOURCES
from kvproto.protocol.tables import TABLES
from kvproto.protocol.timing import Timing

EPILOG = """\
what is an error:
  undecided    no row without a guard decides a pair of state and event
  never-fires  a row stands behind one that always fires
  unreachable  no row leads to the state
  no-way-out   no way leads from the state to a final one
  unknown      a row names an event, a state or a timer that the table does not have
  opens        a row makes the machine without saying so, or says so and makes none
  out-of-reach    a row on an event that never comes in its state
  nobody-raises   an event without a source, or one that no table takes
  no-route        a message that no route takes
  never-taken     a route behind others that take all that it would
"""


def main(argv: list[str]) -> int:
    """Exit code 0: no errors; 1: some."""
    parser = argparse.ArgumentParser(
        prog="kvproto lint", description="Find errors in the protocol's tables without running them.",
        epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("machine", nargs="*", metavar="MACHINE", help="which tables (default: all)")
    parser.add_argument("--json", action="store_true", help="one JSON document, for tools")
    args = parser.parse_args(argv)
    unknown = sorted(set(args.machine) - {table.name for table in TABLES})
    if unknown:
        complain(f"there is no machine {unknown[0]!r}; there are {', '.join(table.name for table in TABLES)}")
        return WRONG
    tables = [table for table in TABLES if not args.machine or table.name in args.machine]
    found = [finding for table in tables for finding in lint(table, Timing(), SOURCES)]
    found += [] if args.machine else lint_edge(SOURCES)
    if args.json:
        say(json.dumps(msgspec.to_builtins(found), indent=1))
    else:
        for finding in found:
            say(str(finding))
        rows = sum(len(table.rows) for table in tables)
        say(f"{len(tables)} tables, {rows} rows: {len(found) or 'no'} error{'' if len(found) == 1 else 's'}")
    return FOUND if found else WELL

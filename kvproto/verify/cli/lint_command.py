"""`kvproto lint`: what is wrong with the tables, where it stands."""

from __future__ import annotations

import argparse
import json

import msgspec

from kvproto.cli.console import say
from kvproto.cli.ending import FOUND, WELL
from kvproto.command_line import CommandLine
from kvproto.verify.cli.tables_option import add_tables

EPILOG = """\
what is an error:
  undecided    no row without a guard decides a pair of state and event
  never-fires  a row stands behind one that always fires
  unreachable  no row leads to the state
  no-way-out   no way leads from the state to a final one
  unknown      a row names an event, a state or a timer that the table does not have
  spent        a row on a timer's end stays, and does not start the timer anew
  opens        a row makes the machine without saying so, or says so and makes none
  out-of-reach    a row on an event that never comes in its state
  nobody-raises   an event without a source, or one that no table takes
  no-route        a message that no route takes
  never-taken     a route behind others that take all that it would
  unheard         a message that no route takes to anybody
  unused          an event that no table takes, and that nothing raises
  unsaid          a message without a sentence, or missing where it is listed who says what
"""


def main(argv: list[str]) -> int:
    """Exit code 0: no errors; 1: some."""
    parser = CommandLine(
        prog="kvproto lint", description="Find errors in a protocol's tables without running them.",
        epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("machine", nargs="*", metavar="MACHINE", help="which tables (default: all)")
    parser.add_argument("--json", action="store_true", help="one JSON document, for tools")
    add_tables(parser)
    args = parser.parse_args(argv)
    tables, found = args.tables.chosen(args.machine), args.tables.lint(args.machine)
    if args.json:
        say(json.dumps(msgspec.to_builtins(found), indent=1))
    else:
        for finding in found:
            say(str(finding))
        rows = sum(len(table.rows) for table in tables)
        say(f"{len(tables)} tables, {rows} rows: {len(found) or 'no'} error{'' if len(found) == 1 else 's'}")
    return FOUND if found else WELL

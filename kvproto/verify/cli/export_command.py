"""`kvproto export`: the protocol as one JSON document, or the schema of that document."""

from __future__ import annotations

from kvproto.arguments import output_file
from kvproto.cli.console import deliver
from kvproto.cli.ending import WELL
from kvproto.command_line import CommandLine
from kvproto.verify.cli.tables_option import add_tables, is_own
from kvproto.verify.draw import export as transfer
from kvproto.verify.framework.draw import export


def main(argv: list[str]) -> int:
    parser = CommandLine(
        prog="kvproto export",
        description="Print the protocol as one JSON document: states, events, effects, rows, messages, timers.",
        epilog="Example: kvproto export | jq '.machines[].rows | length'",
    )
    parser.add_argument("--schema", action="store_true", help="print the document's JSON Schema instead")
    parser.add_argument("--out", type=output_file, metavar="FILE", help="write to FILE, not to the terminal")
    add_tables(parser)
    args = parser.parse_args(argv)
    if is_own(args.tables):
        document = transfer.schema() if args.schema else transfer.spec()
    else:
        document = export.schema(args.tables.name) if args.schema else export.spec(args.tables)
    deliver(export.text(document), args.out)
    return WELL

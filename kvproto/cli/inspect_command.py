"""`kvproto inspect`: one self-contained HTML page from the traces of one or more ranks."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from kvproto.arguments import output_file
from kvproto.cli.console import say
from kvproto.cli.ending import WELL
from kvproto.cli.tables_option import add_tables
from kvproto.fsm.inspect.page import page
from kvproto.fsm.trace.records import load


def main(argv: Sequence[str]) -> int:
    """`kvproto inspect`."""
    parser = argparse.ArgumentParser(
        prog="kvproto inspect", description="Make one web page of traces: step through what happened, offline.",
        epilog="Example: kvproto inspect p0.jsonl d0.jsonl --out story.html    (then open story.html in a browser)",
    )  # fmt: skip
    parser.add_argument("file", nargs="+", type=Path, metavar="TRACE", help="JSON lines, of one rank or more")
    parser.add_argument("--out", type=output_file, metavar="FILE", default="trace.html", help="(default: %(default)s)")
    add_tables(parser)
    args = parser.parse_args(argv)
    telling = args.tables.told()
    logs = load(*args.file, telling=telling)
    args.out.write_text(page(logs, " ".join(path.name for path in args.file), telling, args.tables.name))
    say(f"wrote {args.out}: open it in a browser")
    return WELL

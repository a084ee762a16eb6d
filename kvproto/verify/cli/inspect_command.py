"""`kvproto inspect`: one self-contained HTML page from the traces of one or more ranks."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from time import sleep

from kvproto.arguments import output_file
from kvproto.cli.console import say
from kvproto.cli.ending import WELL
from kvproto.command_line import CommandLine
from kvproto.fsm.records import TraceError, load
from kvproto.verify.cli.tables_option import add_tables
from kvproto.verify.framework.inspect.page import page

#: seconds between two looks at traces that change, by the command and by the page
EVERY_S = 2.0


def main(argv: Sequence[str]) -> int:
    parser = CommandLine(
        prog="kvproto inspect", description="Make one web page of traces: step through what happened, offline.",
        epilog="Example: kvproto inspect p0.jsonl d0.jsonl --out story.html    (then open story.html in a browser)",
    )  # fmt: skip
    parser.add_argument("file", nargs="+", type=Path, metavar="TRACE", help="JSON lines, of one rank or more")
    parser.add_argument("--out", type=output_file, metavar="FILE", default="trace.html", help="(default: %(default)s)")
    parser.add_argument("--beside", nargs="+", type=Path, metavar="TRACE", help="another run: see where the two part")
    parser.add_argument("--follow", action="store_true", help="write the page anew as the traces change, until Ctrl-C")
    add_tables(parser)
    args = parser.parse_args(argv)
    _write(args)
    say(f"wrote {args.out}: open it in a browser")
    return _follow(args) if args.follow else WELL


def _write(args: argparse.Namespace) -> None:
    telling, follow = args.tables.told(), EVERY_S if args.follow else 0.0
    beside = (_title(args.beside), load(*args.beside, telling=telling)) if args.beside else None
    logs = load(*args.file, telling=telling)
    html = page(logs, _title(args.file), telling, args.tables.name, beside=beside, follow=follow)
    new = args.out.with_name(f"{args.out.name}.new")
    new.write_text(html)
    new.replace(args.out)  # who reads it meanwhile has the old one, whole


def _title(files: Sequence[Path]) -> str:
    return " ".join(path.name for path in files)


def _follow(args: argparse.Namespace) -> int:
    """Write the page again whenever a trace has changed, until interrupted; skip half-written traces."""
    say("following; Ctrl-C ends it")
    seen = _changed(args.file)
    while True:
        sleep(EVERY_S)
        now = _changed(args.file)
        if now != seen:
            with suppress(TraceError):
                _write(args)
                seen = now


def _changed(files: Sequence[Path]) -> list[tuple[int, int]]:
    """Size and time of each; one that is being replaced has none."""
    return [(at.st_size, at.st_mtime_ns) if (at := _stat(path)) else (0, 0) for path in files]


def _stat(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except FileNotFoundError:
        return None

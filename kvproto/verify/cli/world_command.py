"""World command: `kvproto explore` makes one web page of a world, to click through."""

from __future__ import annotations

import argparse
import shlex
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from kvproto.arguments import output_file, positive
from kvproto.cli.console import say
from kvproto.cli.ending import WELL
from kvproto.command_line import CommandLine
from kvproto.fsm.errors import ArgumentError
from kvproto.verify.cli.check_command import plenty
from kvproto.verify.cli.tables_option import add_tables
from kvproto.verify.framework.checker import Checker
from kvproto.verify.framework.explore.exploration import Exploration, read_way
from kvproto.verify.framework.explore.explore_page import explore_page

EPILOG = """\
In each state the page shows the machines of all parties, the ring, what is under way, and everything that can happen
next: a message arrives or is lost, a kernel or a write ends, an engine calls, time passes, a rank crashes.  Choose a
step, take it back, send the address to a colleague together with the file.  No network is used.

examples:
  kvproto explore                                     the smallest world, to its end
  kvproto explore drop --limit 20000 --out drop.html  a larger one: its first 20,000 states
  kvproto explore drop --way 0.0.3                    what lies around the state that this way leads to
  kvproto explore spec/counterexamples/late-pages-answer.jsonl    along a counterexample, and what lies beside it
  kvproto explore --plant premature-ack               with a planted bug, at the property that it breaks
"""


def main(argv: list[str]) -> int:
    parser = CommandLine(
        prog="kvproto explore", description="Make one web page of a world: choose what happens next.",
        epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("world", nargs="?", metavar="WORLD", help="a world of kvproto check, or a counterexample")
    parser.add_argument("--out", type=output_file, metavar="FILE", default="world.html", help="(default: world.html)")
    parser.add_argument("--limit", type=positive, default=5000, help="record so many states (default: 5000)")
    parser.add_argument("--way", type=_choices, metavar="0.2.1", default=(),
                        help="begin at the end of this way: a page's address has it")  # fmt: skip
    parser.add_argument("--plant", metavar="BUG", help="plant this bug (kvproto check --list has them), and go to it")
    add_tables(parser)
    args = parser.parse_args(argv)
    checker = args.tables.checked()
    with ExitStack() as stack:
        if args.plant is not None:
            stack.enter_context(checker.planting(args.plant))
        world, way = _chosen(args, checker)
        html, states, whole = explore_page(
            world, args.tables.name, limit=args.limit, way=way, choices=args.way, command=_again(argv)
        )
    args.out.write_text(html)
    some = "all of them" if whole else "the nearest ones; at their edge the page has the command that records on"
    say(f"wrote {args.out}: {world.name}, {states:,} states, {some}: open it in a browser")
    return WELL


def _choices(text: str) -> tuple[int, ...]:
    try:
        return read_way(text)
    except ArgumentError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _again(argv: list[str]) -> str:
    at = argv.index("--way") if "--way" in argv else len(argv)
    return shlex.join(["kvproto", "explore", *argv[:at], *argv[at + 2 :]])


def _chosen(args: Any, checker: Checker) -> tuple[Exploration, list[Any]]:
    """Return the world, and the steps of the counterexample at whose end the page opens."""
    telling, asked = args.tables.told(), args.world
    if asked is not None and Path(asked).is_file():
        once = checker.walk_file(Path(asked)).once
        return checker.explored_way(once, telling), once.events
    name = asked or (checker.planted[args.plant].world if args.plant else checker.first)
    if len(checker.named(name)) != 1:
        raise ArgumentError(f"{name} is a suite: name one of its worlds ({', '.join(checker.named(name)[:3])}, ...)")
    if args.plant is None:
        return checker.explored(name, telling), []
    found = checker.search(name, limit=None, memory=plenty(), report=None).violations
    if not found:
        raise ArgumentError(f"{name}: the planted bug breaks nothing there; leave WORLD out for its own world")
    return checker.explored(name, telling), found[0].events

"""World command: `kvproto explore` makes one web page of a world, to click through."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from kvproto.arguments import one_question, only_with, output_file, positive, whole
from kvproto.cli.console import say
from kvproto.cli.ending import WELL
from kvproto.command_line import CommandLine
from kvproto.fsm.errors import ArgumentError
from kvproto.verify.cli.check_command import plenty
from kvproto.verify.cli.tables_option import add_tables
from kvproto.verify.framework.checker import Checker
from kvproto.verify.framework.explore.exploration import Exploration, read_way
from kvproto.verify.framework.explore.explore_page import explore_page
from kvproto.verify.framework.explore.explore_server import ExploreServer

EPILOG = """\
In each state the page shows the machines of all parties, the ring, what is under way, and everything that can happen
next: a message arrives or is lost, a kernel or a write ends, an engine calls, time passes, a rank crashes.  Choose a
step, take it back, send the address to a colleague together with the file.  No network is used.  With --serve the page
is not written: it comes from this process, on this machine alone, and no state of any world is beyond it.

examples:
  kvproto explore                                     the smallest world, to its end
  kvproto explore drop --limit 20000 --out drop.html  a larger one: its first 20,000 states
  kvproto explore 2p2d-2x2-r2-drop --serve            a world of any size, until Ctrl-C
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
    parser.add_argument("--out", type=output_file, metavar="FILE", help="(default: world.html)")
    parser.add_argument("--limit", type=positive, help="record so many states (default: 5000)")
    parser.add_argument("--serve", action="store_true", help="serve the page here, without a limit, until Ctrl-C")
    parser.add_argument("--port", type=whole(1, 65535), help="of --serve (default: any that is free)")
    parser.add_argument("--way", type=_choices, metavar="0.2.1", default=(),
                        help="begin at the end of this way: a page's address has it")  # fmt: skip
    parser.add_argument("--plant", metavar="BUG", help="plant this bug (kvproto check --list has them), and go to it")
    add_tables(parser)
    args = parser.parse_args(argv)
    for option in ("--out", "--limit"):
        one_question(parser, args, "--serve", option)
    if not args.serve:
        only_with(parser, args, "--serve", "--port")
    checker = args.tables.checked()
    with ExitStack() as stack:
        if args.plant is not None:
            stack.enter_context(checker.planting(args.plant))
        return (_serve if args.serve else _write)(args, *_chosen(args, checker), _again(argv))


def _write(args: Any, make: Callable[[], Exploration], way: list[Any], command: str) -> int:
    """Record the world, and write its page."""
    out, limit = args.out or Path("world.html"), args.limit or 5000
    world = make()
    html, states, whole = explore_page(world, args.tables.name, limit=limit, way=way, choices=args.way, command=command)
    out.write_text(html)
    some = "all of them" if whole else "the nearest ones; at their edge the page has the command that records on"
    say(f"wrote {out}: {world.name}, {states:,} states, {some}: open it in a browser")
    return WELL


def _serve(args: Any, make: Callable[[], Exploration], way: list[Any], command: str) -> int:
    """Serve the page until interrupted."""
    port = args.port or 0
    with ExploreServer(port, make, args.tables.name, way=way, choices=args.way, command=command) as server:
        say(f"{server.url}   open it in a browser on this machine; Ctrl-C ends it")
        sys.stdout.flush()
        server.serve_forever()
    return WELL


def _choices(text: str) -> tuple[int, ...]:
    try:
        return read_way(text)
    except ArgumentError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _again(argv: list[str]) -> str:
    """Word this command without its way."""
    at = argv.index("--way") if "--way" in argv else len(argv)
    return shlex.join(["kvproto", "explore", *argv[:at], *argv[at + 2 :]])


def _chosen(args: Any, checker: Checker) -> tuple[Callable[[], Exploration], list[Any]]:
    """Return what makes the world, and the steps of the counterexample at whose end the page opens."""
    telling, asked = args.tables.told(), args.world
    if asked is not None and Path(asked).is_file():
        once = checker.walk_file(Path(asked)).once
        return partial(checker.explored_way, once, telling), once.events
    name = asked or (checker.planted[args.plant].world if args.plant else checker.first)
    if len(checker.named(name)) != 1:
        raise ArgumentError(f"{name} is a suite: name one of its worlds ({', '.join(checker.named(name)[:3])}, ...)")
    if args.plant is None:
        return partial(checker.explored, name, telling), []
    found = checker.search(name, limit=None, memory=plenty(), report=None).violations
    if not found:
        raise ArgumentError(f"{name}: the planted bug breaks nothing there; leave WORLD out for its own world")
    return partial(checker.explored, name, telling), found[0].events

"""`kvproto fuzz`: damaged input for every decoder, counted."""

from __future__ import annotations

import argparse
import importlib.util
import json
from collections.abc import Callable, Sequence
from functools import partial

import msgspec

from kvproto.arguments import positive, whole
from kvproto.cli.console import say
from kvproto.cli.ending import FOUND, WELL
from kvproto.command_line import CommandLine
from kvproto.errors import ArgumentError
from kvproto.lab.torture.fuzz import FuzzResult, decoders, fuzz

EPILOG = """\
What another process, or another day, has written is read by few functions: control frames, notifications, what a
transport says of itself, NIXL's metadata, UCX's addresses and keys, addresses, traces. Each says what it raises for
what it cannot read. Here it gets samples of what is really said, damaged in a few places, and is judged by that.

With --nixl a peer's metadata is damaged and given to a live transport; a child process that dies is a finding.

Exit code 0: every input was taken, or refused by an error that is documented; 1: some other error came out, or
a process died.
"""


def main(argv: Sequence[str]) -> int:
    p = CommandLine(
        prog="kvproto fuzz", description="Give damaged input to everything that reads what others have written.",
        epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    p.add_argument("decoder", nargs="*", metavar="NAME", help="which (default: all), by a part of their names")
    p.add_argument("--inputs", type=positive, default=20_000, metavar="N", help="for each of them (default 20,000)")
    p.add_argument("--seed", type=whole(0, 1 << 62), default=0, help="what is damaged, and how (default 0)")
    p.add_argument(
        "--nixl", action="store_true",
        help="give damaged metadata to NIXL itself instead: connect, warm, disconnect, in one child process at a time",
    )  # fmt: skip
    p.add_argument("--json", action="store_true", help="one JSON document, for tools")
    args = p.parse_args(argv)
    results = []
    for run in [fuzz_library(args)] if args.nixl else runs(args):
        results.append(run())
        if not args.json:
            say(row(results[-1]))
    if args.json:
        say(json.dumps(msgspec.to_builtins(results), indent=1))
    else:
        inputs, wrong = sum(each.inputs for each in results), sum(each.undocumented for each in results)
        say(f"{inputs:,} inputs: {wrong or 'no'} undocumented error{'' if wrong == 1 else 's'}")
    return FOUND if any(each.undocumented for each in results) else WELL


def runs(args: argparse.Namespace) -> list[Callable[[], FuzzResult]]:
    chosen = [each for each in decoders() if not args.decoder or any(part in each.name for part in args.decoder)]
    if not chosen:
        names = ", ".join(each.name for each in decoders())
        raise ArgumentError(f"there is no decoder {' '.join(args.decoder)[:40]!r}: there are {names}")
    return [partial(fuzz, decoder, args.seed, args.inputs) for decoder in chosen]


def fuzz_library(args: argparse.Namespace) -> Callable[[], FuzzResult]:
    """The run over NIXL itself."""
    if args.decoder:
        raise ArgumentError(f"--nixl takes no decoder, and {' '.join(args.decoder)[:40]!r} is given: leave one out")
    if importlib.util.find_spec("nixl") is None:
        raise ArgumentError("--nixl needs NIXL: pip install 'kvproto[nixl]'")
    from kvproto.lab.torture.fuzz_nixl import fuzz_nixl  # it loads torch and NIXL

    return partial(fuzz_nixl, args.seed, args.inputs)


def row(result: FuzzResult) -> str:
    figures = (
        f"{result.decoder:<38} {result.inputs:>9,} inputs: {result.taken:>8,} taken, {result.documented:>8,} refused, "
        f"{result.undocumented} undocumented; slowest {result.slowest_ms:.1f} ms"
    )
    return "\n  ".join([figures, *(f"FOUND {text}" for text in result.found)])

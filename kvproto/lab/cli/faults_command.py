"""`kvproto faults`: every outward call of an endpoint goes wrong once, and the coverage as a table."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence

import msgspec

from kvproto.arguments import positive, whole
from kvproto.cli.console import say
from kvproto.cli.ending import FOUND, WELL
from kvproto.command_line import CommandLine
from kvproto.lab.torture.outward_faults import campaign, coverage, setups, table

EPILOG = """\
An endpoint calls its transport, kernels, control plane, doorbells, clock, the log and spans. In a whole run of two
endpoints one of these calls raises, asks the process to end, returns late, or does nothing. After that no byte may be
wrong, every room must be over, the reason of a failed room must name the call, the next room must succeed or the engine
must have been told, and close must run to its end. Runs differ in route, transport (in memory, or NIXL where it is
installed), device and threads; --setup takes some of them.

Exit code 0: all of that held; 1: something did not.
"""


def main(argv: Sequence[str]) -> int:
    p = CommandLine(
        prog="kvproto faults", description="Have each outward call of an endpoint go wrong once.",
        epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    p.add_argument("--sample", type=positive, metavar="N", help="so many runs, drawn by the seed (default: all)")
    p.add_argument("--seed", type=whole(0, 1 << 62), default=0, help="which of them (default 0)")
    p.add_argument("--setup", action="append", choices=setups(), help="in this set-up (repeatable; default: all)")
    p.add_argument("--json", action="store_true", help="one JSON document, for tools")
    args = p.parse_args(argv)
    verdicts, reached = campaign(args.seed, args.sample, names=args.setup or ())
    rows, found = table(verdicts, reached), [each for each in verdicts if each.found]
    if args.json:
        say(json.dumps({"coverage": rows, "found": msgspec.to_builtins(found)}, indent=1))
    else:
        say(f"{'call':<24} {'reached':<8} {'injected':>8} {'found':>6}")
        for row in rows:
            say(f"{row['call']:<24} {'yes' if row['reached'] else 'no':<8} {row['injected']:>8} {row['found']:>6}")
        say(coverage(reached))
        for each in found:
            strike = each.strike
            say(f"FOUND {each.setup}: {strike.side} {strike.call} #{strike.nth} {strike.kind}: {each.found}")
        say(f"{len(verdicts):,} runs: {len(found) or 'no'} finding{'' if len(found) == 1 else 's'}")
    return FOUND if found else WELL

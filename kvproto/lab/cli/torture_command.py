"""`kvproto torture`: everything that happens to engines, done to engines, and every byte compared."""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from kvproto.arguments import one_question, positive, real, whole
from kvproto.cli.console import say
from kvproto.cli.ending import FOUND, WELL
from kvproto.command_line import CommandLine
from kvproto.lab.process_group import RankError
from kvproto.lab.torture.conduct import torture
from kvproto.lab.torture.fleet import CARRIERS
from kvproto.lab.torture.plan import SIZES, TorturePlan, make_plan
from kvproto.lab.torture.report import ProgressLine, attack_page, plan_page, soak_page, takeover_page, torture_page
from kvproto.lab.torture.takeover_plan import VICTIMS, TakeoverPlan

EPILOG = """\
Two prefill groups and two decode groups, six processes, with a proxy between their control sockets. Rooms go all ways
at once, two at a time under the same name. Ranks are killed and started anew, stopped for longer than the silence that
counts as death, paused; their clocks jump, and run at rates of their own. Messages are delayed, doubled, mixed up,
lost; connections are cut, or half open. Engines give rooms up at any moment, forget to open them, name different
lengths, open names of others; kernels are slow, or fail. There are a few slots, and a ring of a few chunks: often one.

Nothing is random but the seed: the same seed is the same rooms and the same faults. What a run asks for:
  every room ends, on every rank that lives, with an outcome that what happened to it explains (a hang is told with what
  each rank waits for); a success is right byte for byte; nothing else has changed in any page; rooms that nothing
  happened to succeed; nobody dies; all links come back; everything is given back; and each step of each rank is what
  the tables say, and keeps what is claimed of them.

examples:
  kvproto torture                               a short run, half a minute; the seed is told
  kvproto torture --seed 7 --plan               what would happen, without doing it
  kvproto torture --seed 7 --over mooncake      the same over Mooncake
  kvproto torture --size long --over nixl-shm   20,000 rooms and 2,000 faults
  kvproto torture --seed 1 --seeds 20 --json    twenty seeds, one JSON document a line
  kvproto torture --soak 1000000                rooms without end over one link: is memory flat?
  kvproto torture --attack --minutes 10         strangers without a key: does anything change but counters?
  kvproto torture --kill decode --rooms 5000    every room's decode instance is killed, and another takes it over

Exit code 0: nothing was found; 1: something was, and the ranks' traces are in the directory that is named; 2: it could
not be done, for example because the machine keeps the processes from running. Where it did so for a while, the page
says so, and rooms that nothing else happened to are not blamed for links that were lost then.
"""


def parser() -> argparse.ArgumentParser:
    p = CommandLine(
        prog="kvproto torture", description="Do everything to engines that happens to them, and compare every byte.",
        epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    sizes = ", ".join(f"{name}: {size.rooms} rooms" for name, size in SIZES.items())
    p.add_argument("--seed", type=whole(0, 1 << 62), help="what happens (default: a new one)")
    p.add_argument("--seeds", type=positive, default=1, metavar="N", help="so many runs: this seed and those after")
    p.add_argument("--size", choices=SIZES, default="short", help=f"{sizes} (default short)")
    p.add_argument("--rooms", type=positive, metavar="N", help="another number of rooms")
    p.add_argument("--episodes", type=positive, metavar="N", help="another number of times that faults strike")
    p.add_argument("--at-once", type=positive, metavar="N", help="rooms at a time, each way (default 6)")
    p.add_argument("--over", choices=CARRIERS, default="nixl-tcp", help="what moves the bytes (default nixl-tcp)")
    p.add_argument("--plan", action="store_true", help="print what would happen")
    p.add_argument("--soak", type=positive, metavar="ROOMS", help="so many rooms over one link, and RSS")
    p.add_argument("--attack", action="store_true", help="strangers at the door of ranks with keys, while rooms go on")
    p.add_argument("--kill", choices=VICTIMS, help="kill every room's instance of this side; others take rooms over")
    p.add_argument("--minutes", type=real(0.01, 1e4), default=10.0, metavar="M", help="of --attack (default 10)")
    p.add_argument("--traces", type=_folder, default=Path("torture-traces"), metavar="DIR", help="(torture-traces)")
    p.add_argument("--json", action="store_true", help="one JSON document a run, and nothing else")
    return p


def _folder(text: str) -> Path:
    if (path := Path(text)).exists() and not path.is_dir():
        raise argparse.ArgumentTypeError(f"{text} is a file, and a directory is wanted")
    return path


def main(argv: Sequence[str] | None = None) -> int:
    args = (asked_by := parser()).parse_args(argv)
    one_question(asked_by, args, "--plan", "--soak", "--attack", "--kill")
    seed = random.SystemRandom().randrange(1 << 31) if args.seed is None else args.seed
    size = SIZES[args.size]
    asked = {name: getattr(args, name) for name in ("rooms", "episodes", "at_once")}
    size = replace(size, **{name: number for name, number in asked.items() if number})
    try:
        if args.soak:
            return _soak(args)
        if args.attack:
            return _attack(args)
        if args.kill:
            killed = [TakeoverPlan(each, size.rooms, args.kill) for each in range(seed, seed + args.seeds)]
            return max(_takeover(plan, args) for plan in killed)
        runs = [make_plan(each, size) for each in range(seed, seed + args.seeds)]
        if args.plan:
            say("\n".join(plan_page(plan) for plan in runs))
            return WELL
        return max(_torture(plan, args) for plan in runs)
    except (RankError, TimeoutError) as error:  # a rank that dies is what is looked for
        sys.stderr.write(f"kvproto torture: {error}\n")
        return FOUND


def _torture(plan: TorturePlan, args: argparse.Namespace) -> int:
    return _told(args, lambda line: torture(plan, args.over, _traces(plan, args), line.torture), torture_page)


def _traces(plan: TorturePlan | TakeoverPlan, args: argparse.Namespace) -> Path:
    folder: Path = args.traces / f"seed-{plan.seed}"
    return folder


def _attack(args: argparse.Namespace) -> int:
    from kvproto.lab.torture.attack import attack  # as above

    return _told(args, lambda line: attack(args.minutes, args.over, line.attack), attack_page)


def _takeover(plan: TakeoverPlan, args: argparse.Namespace) -> int:
    from kvproto.lab.torture.takeover import takeover  # as above

    return _told(args, lambda line: takeover(plan, args.over, _traces(plan, args), line.takeover), takeover_page)


def _soak(args: argparse.Namespace) -> int:
    from kvproto.lab.torture.soak import soak  # which loads torch: the parent of a torture does not need it

    return _told(args, lambda line: soak(args.soak, args.over, line.soak), soak_page)


def _told(args: argparse.Namespace, run: Callable[[ProgressLine], Any], page: Callable[[Any], str]) -> int:
    line = ProgressLine(shown=not args.json)
    result = run(line)
    line.clear()
    say(json.dumps(msgspec.to_builtins(result)) if args.json else page(result))
    return WELL if result.ok else FOUND

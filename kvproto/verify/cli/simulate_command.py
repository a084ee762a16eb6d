"""Long simulations of a pair of groups, every move drawn from one seed (see `simulation`).

    python -m kvproto.verify.cli.simulate_command --rooms 2000 --seed 1 --faults lose,doubt,crash

The same command gives the same run, on any machine, with the same digest.  Exit code 1: an invariant was broken (the
number of the move is told); the others are those of every command (`ending`).
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable

import msgspec

from kvproto.arguments import positive, whole
from kvproto.cli.console import say
from kvproto.cli.ending import FOUND, WELL, ended
from kvproto.command_line import CommandLine
from kvproto.verify.testing.simulation import FAULTS, Simulation


def _progress(start: float) -> Callable[[Simulation], None]:
    last = [start]

    def tell(run: Simulation) -> None:
        now = time.monotonic()
        if now - last[0] > 1:
            last[0] = now
            speed = run.begun / (now - start)
            sys.stderr.write(f"\r{run.begun} of {run.rooms} rooms, {run.moves} moves, {speed:.0f} rooms/s ")
            sys.stderr.flush()

    return tell


def main(argv: list[str] | None = None) -> int:
    """The command; exit code 1 if an invariant was broken."""
    program = "python -m kvproto.verify.cli.simulate_command"
    parser = CommandLine(program, description=__doc__.splitlines()[0])
    parser.add_argument("--rooms", type=positive, default=2000)
    parser.add_argument("--seed", type=whole(0, 1 << 64), default=1)
    parser.add_argument("--faults", default="all", help=f"all, none, or some of {','.join(FAULTS)}")
    parser.add_argument("--tp", default="2x1", help="prefill x decode ranks (default: 2x1)")
    parser.add_argument("--ring", type=positive, default=6144, help="bytes of the staging ring (default: 6144)")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args(argv)
    named = {"all": tuple(FAULTS), "none": ()}
    faults = named[asked.faults] if asked.faults in named else tuple(filter(None, asked.faults.split(",")))
    try:
        p, d = map(whole(1, 4), asked.tp.split("x"))
        run = Simulation(asked.seed, asked.rooms, faults, tp=(p, d), ring=asked.ring)
    except (ValueError, argparse.ArgumentTypeError) as error:
        parser.error(str(error))
    result = run.run(_progress(time.monotonic()) if sys.stderr.isatty() else None)
    if asked.json:
        say(msgspec.json.encode(result).decode())
    else:
        for name, value in msgspec.structs.asdict(result).items():
            say(f"{name.replace('_', ' '):<12} {value}")
    return FOUND if result.breach else WELL


if __name__ == "__main__":
    sys.exit(ended("kvproto.verify.cli.simulate_command", main))

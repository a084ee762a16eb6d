"""Long simulations of a pair of groups, every move drawn from one seed (see `simulation`).

    python -m kvproto.cli.simulate_command --rooms 2000 --seed 1 --faults lose,doubt,crash

The same command gives the same run, on any machine, with the same digest.  Exit codes: 0 all is well, 1 an invariant
was broken (the number of the move is told), 2 the command line was wrong.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable

import msgspec

from kvproto.cli.console import FOUND, WELL, say
from kvproto.testing.simulation import FAULTS, Simulation


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
    parser = argparse.ArgumentParser("python -m kvproto.cli.simulate_command", description=__doc__.splitlines()[0])
    parser.add_argument("--rooms", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--faults", default="all", help=f"all, none, or some of {','.join(FAULTS)}")
    parser.add_argument("--tp", default="2x1", help="prefill x decode ranks (default: 2x1)")
    parser.add_argument("--ring", type=int, default=6144, help="bytes of the staging ring (default: 6144)")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args(argv)
    named = {"all": tuple(FAULTS), "none": ()}
    faults = named[asked.faults] if asked.faults in named else tuple(filter(None, asked.faults.split(",")))
    try:
        p, d = map(int, asked.tp.split("x"))
        run = Simulation(asked.seed, asked.rooms, faults, tp=(p, d), ring=asked.ring)
    except ValueError as error:
        parser.error(str(error))
    result = run.run(_progress(time.monotonic()) if sys.stderr.isatty() else None)
    if asked.json:
        say(msgspec.json.encode(result).decode())
    else:
        for name, value in msgspec.structs.asdict(result).items():
            say(f"{name.replace('_', ' '):<12} {value}")
    return FOUND if result.breach else WELL


if __name__ == "__main__":
    sys.exit(main())

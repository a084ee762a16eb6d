"""What it costs to be judged: what a rank that is followed pays for a step more than others, and what its judge does.

Two prefill ranks live the same lives (`step_life`), block by block in turn: one with the trace that every rank has, one
followed by the conformance monitor.  After each block the judge takes what there is, on the clock as well.  All times
are the thread's own CPU time a machine step; the difference is that of the medians, and of the best blocks.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from kvproto.arguments import positive
from kvproto.lab.bench.results import Course, command_line
from kvproto.lab.bench.step import LIVES, SEED, lives
from kvproto.lab.bench.step_life import RATE, fill, make_rank, play
from kvproto.verify.trace.judged import monitor

#: events of a block
BLOCK = 250


def bench(rooms: int, repeats: int) -> dict[str, Any]:
    """All figures, microseconds a step; `found`: what the judge found wrong (nothing is)."""
    judge = monitor()
    with judge.installed():
        followed = make_rank()
    plain, times = make_rank(), {"plain": [], "followed": [], "judge": []}  # type: ignore[var-annotated]
    for rank in (plain, followed):
        fill(rank, rooms, SEED)
    _, script, _ = lives(rooms, min(rooms, LIVES * repeats), (rooms - 1) / RATE)
    judge.rest()
    ends = [0, *accumulate(script.steps)]
    for number, first in enumerate(range(0, len(script.makes), BLOCK)):
        last = min(first + BLOCK, len(script.makes))
        steps = (ends[last] - ends[first]) / 1e6
        turns = [("plain", plain), ("followed", followed)]
        for name, rank in turns[:: 1 - 2 * (number % 2)]:
            times[name].append(play(rank, script, first, last, time.thread_time) / steps)
        before, begin = judge.steps, time.thread_time()
        judge.rest()
        times["judge"].append((time.thread_time() - begin) * 1e6 / (judge.steps - before))
    figures = {name: statistics.median(each) for name, each in times.items()}
    best = {f"{name}_best": min(each) for name, each in times.items()}
    return {**figures, **best, "rank_pays": figures["followed"] - figures["plain"],
            "rank_pays_best": best["followed_best"] - best["plain_best"], "steps": judge.steps, "rooms": rooms,
            "blocks": len(times["judge"]), "found": judge.found}  # fmt: skip


def main(argv: Sequence[str] | None = None) -> int:
    """Print the figures; 1 if the judge found something."""
    parser = command_line("conformance", __doc__, budget=False)
    parser.add_argument("--rooms", type=positive, default=4000, help="live rooms (default 4000)")
    parser.add_argument("--repeats", type=positive, default=3, help=f"times {LIVES} lives (default 3)")
    options = parser.parse_args(argv)
    course = Course("conformance", argv, options)
    figures = bench(options.rooms, options.repeats)
    course.end(figures)
    for text in figures["found"]:
        course.say(f"FOUND {text}")
    return 1 if figures["found"] else 0


if __name__ == "__main__":
    raise SystemExit(main())

"""Step: the cost of one event on a full prefill rank, by its full typed path.

Live is a prefill rank with 100,000 rooms that wait for their forward. Rooms drawn from them live their lives to the
end, 64 at work at a time, and each that ends is replaced. All of it is timed: making events, guards, values, timers,
traces, effects, and the beats and timers that a loop attends to. The figure is the thread's own CPU time per machine
step, internal steps included; the median of blocks, beside the best one, because caches are shared even where time is
not. In the end all states are compared with those of a rank that was not timed.

Bytes a room are what `tracemalloc` counts for rooms, table, keys and timers of 100,000 rooms; the bounded trace is not
counted. The collection is a full `gc.collect()` with all of them live.
"""

from __future__ import annotations

import gc
import platform
import random
import statistics
import time
import tracemalloc
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import msgspec
from msgspec.structs import replace

from kvproto.arguments import positive
from kvproto.lab.bench.results import Course, command_line
from kvproto.lab.bench.step_life import (
    PREFILL,
    BenchRoom,
    Script,
    collect_ms,
    draw,
    fill,
    make_rank,
    opening,
    play,
    rehearse,
)
from kvproto.rank.prefill import PrefillRank

SEED = 1
#: events of a block, and rooms whose lives a repeat lives
BLOCK, LIVES = 500, 400


class Sample(msgspec.Struct):
    """Microseconds, by block: a step, a call, a step by the wall clock."""

    steps: list[float] = []
    calls: list[float] = []
    wall: list[float] = []


def measure_memory(rooms: int) -> tuple[PrefillRank, float, float, float]:
    """A rank with so many rooms, the time at its end, bytes a room and milliseconds of a full collection."""
    rank = make_rank()
    gc.collect()
    tracemalloc.start()
    base = tracemalloc.get_traced_memory()[0]
    now = fill(rank, rooms, SEED)
    rank.trace.clear()
    gc.collect()
    used = tracemalloc.get_traced_memory()[0] - base
    tracemalloc.stop()
    return rank, now, used / rooms, collect_ms()


def lives(rooms: int, count: int, now: float) -> tuple[list[BenchRoom], Script, PrefillRank]:
    """Rooms of the full rank, the script of their lives, and the rank that has rehearsed it."""
    alive = list(draw(rooms, SEED))
    random.Random(SEED).shuffle(alive)
    alive = alive[:count]
    rehearsal = make_rank(tombstones=1 << 30)
    for room in alive:
        for event in opening(rehearsal, room):
            rehearsal.handle(event, now)
    script = rehearse(rehearsal, alive, list(draw(count, SEED + 1)), now)
    return alive, script, rehearsal


def time_steps(rank: PrefillRank, script: Script) -> Sample:
    sample, ends = Sample(), [0, *accumulate(script.steps)]
    for first in range(0, len(script.makes), BLOCK):
        last = min(first + BLOCK, len(script.makes))
        steps, wall = ends[last] - ends[first], time.perf_counter()
        spent = play(rank, script, first, last, time.thread_time) * 1e6
        sample.wall.append((time.perf_counter() - wall) * 1e6 / steps)
        sample.steps.append(spent / steps)
        sample.calls.append(spent / (last - first))
    return sample


def disagreements(rank: PrefillRank, script: Script, rehearsal: PrefillRank) -> list[str]:
    """Rooms of the script that did not end alike; sends have all ended."""
    found = [f"{len(rank.sends)} rooms have sends left"] if rank.sends else []
    for key in {about[0] for kind, about, _ in script.fired if kind == "room"}:
        right, ours = rehearsal.value_of(key), rank.value_of(key)
        # the rank that is timed keeps as many tombstones as any rank does
        if ours is None and right.state not in rehearsal.room_machine.table.final:
            found.append(f"room {key:x}: lost")
        elif ours is not None and replace(ours, due=0.0) != replace(right, due=0.0):
            found.append(f"room {key:x}: {ours} is not {right}")
    return found


def bench(rooms: int, repeats: int) -> dict[str, Any]:
    """Measure a rank with so many live rooms, of which `LIVES` live to their end a repeat: all figures."""
    rank, now, bytes_per_room, gc_ms = measure_memory(rooms)
    alive, script, rehearsal = lives(rooms, min(rooms, LIVES * repeats), now)
    gc.collect()
    gc.freeze()  # the script is the benchmark's, not the rank's
    sample = time_steps(rank, script)
    gc.unfreeze()
    return {
        "us_per_event": statistics.median(sample.steps), "us_per_event_best": min(sample.steps),
        "us_per_event_mean": statistics.fmean(sample.steps), "us_per_event_wall": statistics.median(sample.wall),
        "us_per_call": statistics.median(sample.calls),
        "bytes_per_room": bytes_per_room, "gc_ms": gc_ms, "rooms": rooms, "live_at_end": len(rank.rooms),
        "events": sum(script.steps), "calls": len(script.makes), "lives": len(alive), "blocks": len(sample.steps),
        "disagreements": disagreements(rank, script, rehearsal)[:20], "python": platform.python_version(),
        "tp": f"{PREFILL.tp} -> 2",
    }  # fmt: skip


def main(argv: Sequence[str] | None = None) -> int:
    """Print the figures; 1 if end states differ, 2 if the command line is wrong."""
    parser = command_line("step", __doc__, budget=False)
    parser.epilog = "On a machine that others use, run it twice and look at the best block."
    parser.add_argument("--rooms", type=positive, default=100_000, help="live rooms (default 100000)")
    parser.add_argument("--repeats", type=positive, default=5, help=f"times {LIVES} lives that are timed (default 5)")
    parser.add_argument("--quick", action="store_true", help="one repeat")
    options = parser.parse_args(argv)
    course = Course("step", argv, options)
    figures = bench(options.rooms, 1 if options.quick else options.repeats)
    course.end(figures)
    for text in figures["disagreements"]:
        course.say(f"DIFFERENT: {text}")
    return 1 if figures["disagreements"] else 0

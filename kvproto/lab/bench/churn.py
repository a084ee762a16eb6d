"""What instances cost that have come and gone: a pass of the loop, its processor time at rest, its memory.

*Departed*: so many instances of the other side connect to one endpoint, and end without a word, as a scaled fleet or a
dead machine does.  Then the endpoint's own passes are timed, in which nothing happens, and the processor time that it
takes in a second of `poll` and `wait`, libzmq's thread included, and by how much its memory grows meanwhile.  Every
call to who is not there is in it.

*Come and gone*: many more instances connect, carry a room each, are let go of and end, some at a time.  Then what the
process holds is compared with what it held before and halfway: resident memory, descriptors, and each book of the
endpoint.

Both sides in one run and one process; the control plane is the real one, the transport the one in memory.  Exit code
1: something is left of those that were let go of.
"""

from __future__ import annotations

import gc
import resource
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kvproto.arguments import positive
from kvproto.io.control import gate
from kvproto.lab.bench.churn_endpoint import ChurnEndpoint
from kvproto.lab.bench.results import Course, command_line

#: passes that are timed, and seconds of rest
PASSES, REST_S = 1000, 10.0
#: longer than a link's beats may stay away
SILENCE_S = 6.0
#: instances that are there at a time while they come and go, and that do so before anything is compared
BATCH, WARM = 50, 150


def rest(end: ChurnEndpoint, departed: int) -> dict[str, Any]:
    """Passes in which nothing happens, and what a second of rest takes."""
    end.drive(lambda: False, SILENCE_S)
    took = []
    for _ in range(PASSES):
        begin = time.perf_counter()
        end.endpoint.poll()
        took.append(1e6 * (time.perf_counter() - begin))
    before, used, begin = held(), time.process_time(), time.perf_counter()
    end.drive(lambda: False, REST_S)
    seconds = time.perf_counter() - begin
    share, grown = (time.process_time() - used) / seconds, held()["rss_mib"] - before["rss_mib"]
    took.sort()
    return {
        "side": end.side, "departed": departed, "pass_us": statistics.median(took), "mean_us": statistics.mean(took),
        "p99_us": took[len(took) * 99 // 100], "idle_share": share, "rss_mib": before["rss_mib"],
        "grown_kibs": 1024 * grown / seconds,
    }  # fmt: skip


def held() -> dict[str, float]:
    """What the process holds: MiB, and descriptors."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    descriptors = len([*Path("/proc/self/fd").iterdir()])
    return {"rss_mib": pages * resource.getpagesize() / (1 << 20), "descriptors": descriptors}


def come_and_go(side: str, instances: int) -> dict[str, Any]:
    """What is left of so many instances of the other side that came, carried a room, were let go of and ended."""
    with ChurnEndpoint(side, BATCH + 1) as end:
        for first in range(0, WARM, BATCH):
            end.visits(first, BATCH)
        began = end.books()
        before, begin = held(), time.perf_counter()
        halfway = before
        for first in range(WARM, WARM + instances, BATCH):
            if first <= WARM + instances // 2:
                halfway = held()
            end.visits(first, min(BATCH, WARM + instances - first))
        seconds = time.perf_counter() - begin
        left, after = end.books(), held()
    grown = {name: count - began[name] for name, count in left.items() if count > began[name]}
    return {
        "side": side, "instances": instances, "seconds": seconds, "before": before, "halfway": halfway, "after": after,
        "left": grown,
    }  # fmt: skip


def bench(departed: Sequence[int], instances: int, course: Course) -> dict[str, Any]:
    """All figures."""
    gate.BURST, gate.PACE = 1 << 30, 1e9  # how fast the door lets in is not what is asked here
    found: dict[str, Any] = {"departed": [], "come_and_gone": []}
    for side in "DP":
        with ChurnEndpoint(side, 2 * max(departed)) as end:
            there = 0
            for count in sorted({0, *departed}):
                end.departures(there, count - there)
                there = count
                found["departed"].append(rest(end, count))
                course.keep(found, f"{side}: at rest, {count} have departed")
    for side in "DP":
        found["come_and_gone"].append(come_and_go(side, instances))
        course.keep(found, f"{side}: {instances} have come and gone")
    return found


def main(argv: Sequence[str] | None = None) -> int:
    """Print the figures; 1 if something is left."""
    parser = command_line("churn", __doc__, budget=False)
    parser.add_argument("--departed", type=positive, nargs="+", default=[100, 1000],
                        help="instances that have ended without a word (default 100 1000)")  # fmt: skip
    parser.add_argument("--instances", type=positive, default=1000,
                        help="instances of the other side that come and go (default 1000)")  # fmt: skip
    options = parser.parse_args(argv)
    course = Course("churn", argv, options)
    found = bench(options.departed, options.instances, course)
    course.end(found)
    left = {row["side"]: row["left"] for row in found["come_and_gone"] if row["left"]}
    if left:
        print(f"left of those that are gone: {left}", file=sys.stderr)
    return 1 if left else 0


if __name__ == "__main__":
    raise SystemExit(main())

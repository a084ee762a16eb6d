"""What load does to transfers: two prefill ranks, one decode rank, processes of their own, a ring and slots that are
far too small for what is asked.

*Load*: rooms whose KV is ready, so many at a time.  At 1 x as many as the ring can hold at once, at 10 x ten times, at
100 x a hundred times as many: rooms a second, in turns, how many succeeded, and how many chunks left the ring for the
dear way page to page.

*Beside a huge one*: small rooms come at a steady pace; the time from their KV to the decode engine's outcome, alone,
and while one room of some thousand chunks is transferred.  In turns, too, of which the medians are told, and the least
and the most: one p99 is noise.  The huge room has to last longer than the small ones; what it is carried at beside them
is told with what it is carried at when they are over, so that nobody wins by starving it.

Three ranks that all have work want three cores.  On fewer, or beside others who are busy, they wait for a core, a tick
of the system's scheduler at a time, which no order of turns shortens: p99 beside a huge room then says more of the
machine than of the protocol.  So what part of the time some rank had work and no core is told beside the figures, as
Linux counts it; and the same small rooms are carried beside as many *strangers* as there are ranks, processes that
only compute, and take as much of a core as the huge room made a rank take.  What they cost the small rooms is
what cores cost, whoever has them.

Exit code 1: a room failed, or the huge one was over before the small ones.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from kvproto.arguments import positive, real
from kvproto.lab.bench.members import Members
from kvproto.lab.bench.overload_rank import CHUNKS, RING_CHUNKS, OverloadRank, Stranger
from kvproto.lab.bench.results import Course, command_line

PREFILLS, TURNS = 2, 3
#: small rooms beside a huge one: turns of each of the two
REPEATS = 5
FITTING = RING_CHUNKS // CHUNKS
TIMES = (1, 10, 100)
Tell = Callable[..., list[Any]]


def load(tell: Tell, rooms: int) -> list[dict[str, Any]]:
    """By load: rooms a second of each turn, what failed, and what went page to page."""
    found: list[dict[str, Any]] = [
        {"times": times, "rooms_a_second": [], "failed": 0, "by_pages": 0} for times in TIMES
    ]
    first = 0
    for _ in range(TURNS):
        for row in found:
            told = tell("PD", "carry", first, rooms, min(rooms, FITTING * row["times"]))
            first += rooms
            row["rooms_a_second"].append(rooms / (max(t["end"] for t in told) - min(t["begin"] for t in told)))
            row["failed"] += max(t["failed"] for t in told)
            row["by_pages"] += sum(t["by_pages"] for t in told)
    return found


def beside(tell: Tell, rooms: int, pace: float, huge: int) -> list[dict[str, Any]]:
    """Alone, beside a huge room, and beside strangers: milliseconds from KV to outcome, by turn, and the huge one's
    chunks a second.
    """
    found: list[dict[str, Any]] = [
        {"huge_chunks": chunks, "strangers": strangers, "p50_ms": [], "p99_ms": [], "huge_beside": [],
         "huge_by_itself": [], "coreless": [], "cpu": [], "failed": 0}
        for chunks, strangers in ((0, False), (huge, False), (0, True))
    ]  # fmt: skip
    first = 1 << 24
    for _ in range(REPEATS):
        for row in found:
            part = max(0.0, found[1]["cpu"][-1] - found[0]["cpu"][-1]) if row["strangers"] else 0.0
            tell("S", "take", part)
            start = time.monotonic() + 0.5
            told = tell("SPD", "pace", first, rooms, pace, start, row["huge_chunks"])[PREFILLS + 1 :]
            first += rooms + 1
            decode = told[-1]
            row["cpu"].append(statistics.mean(t["cpu"] for t in told))
            took = [1e3 * each for each in decode["took"]]
            for part in (50, 99):
                row[f"p{part}_ms"].append(percentile(took, part))
            if row["huge_chunks"]:
                row["huge_beside"].append(decode["beside"])
                row["huge_by_itself"].append(decode["by_itself"])
            row["coreless"].append(max(t["coreless"] for t in told))
            row["failed"] += max(t["failed"] for t in told)
    for row in found:
        row["p99_of_alone"] = [a / b for a, b in zip(row["p99_ms"], found[0]["p99_ms"], strict=True)]
    return found


def bench(course: Course, *, rooms: int, small: int, pace: float, huge: int) -> dict[str, Any]:
    """All figures."""
    members = Members()
    for index in range(PREFILLS + 1):
        members.start("S", index, Stranger)
    for index in range(PREFILLS):
        members.start("P", index, OverloadRank, "P", index)
    members.start("D", 0, OverloadRank, "D", 0)

    def tell(sides: str, name: str, *args: Any) -> list[Any]:
        return list(members.tell(sides, name, *args).values())

    tell("D", "connect", tell("P", "address"))
    tell("PD", "carry", 1 << 28, 2 * FITTING, FITTING)  # warm
    found = {"cores": len(os.sched_getaffinity(0)), "load": load(tell, rooms)}
    course.keep(found, "rooms a second under load: done")
    found["beside"] = beside(tell, small, pace, huge)
    tell("SPD", "end")
    return found


def percentile(values: list[float], part: int) -> float:
    """Of these values."""
    values = sorted(values)
    return values[min(len(values) - 1, len(values) * part // 100)]


def main(argv: Sequence[str] | None = None) -> int:
    """Print the figures; 1 if a room failed."""
    parser = command_line("overload", __doc__, budget=False)
    parser.add_argument("--rooms", type=positive, default=400, help="rooms of one turn at one load (default 400)")
    parser.add_argument("--small", type=positive, default=200, help="small rooms of one turn (default 200)")
    parser.add_argument("--pace", type=real(0.1, 1e6), default=10.0, help="milliseconds between them (default 10)")
    parser.add_argument("--huge", type=positive, default=3000, help="chunks of the huge room (default 3000)")
    options = parser.parse_args(argv)
    course = Course("overload", argv, options)
    found = bench(course, rooms=options.rooms, small=options.small, pace=1e-3 * options.pace, huge=options.huge)
    course.end(found)
    failed = sum(row["failed"] for row in (*found["load"], *found["beside"]))
    if failed:
        print(f"{failed} rooms failed", file=sys.stderr)
    outlived = not all(found["beside"][1]["huge_by_itself"])
    if outlived:
        print("the huge room was over before the small ones: give it more chunks (--huge)", file=sys.stderr)
    return 1 if failed or outlived else 0


if __name__ == "__main__":
    raise SystemExit(main())

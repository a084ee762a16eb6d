"""What load does to transfers: two prefill ranks, one decode rank, processes of their own, a ring and slots that are
far too small for what is asked.

*Load*: rooms whose KV is ready, so many at a time.  At 1 x as many as the ring can hold at once, at 10 x ten times, at
100 x a hundred times as many: rooms a second, in turns, how many succeeded, and how many chunks left the ring for the
dear way page to page.

*Beside a huge one*: small rooms come at a steady pace; the time from their KV to the decode engine's outcome, alone,
and while one room of some thousand chunks is transferred.  In turns, too.

Exit code 1: a room failed.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from kvproto.arguments import positive, real
from kvproto.bench.members import Members
from kvproto.bench.overload_rank import CHUNKS, RING_CHUNKS, OverloadRank
from kvproto.bench.results import command_line, write
from kvproto.bench.tables import markdown

PREFILLS, TURNS = 2, 3
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
    """Alone, and beside a huge room: milliseconds from KV to outcome."""
    found: list[dict[str, Any]] = [{"huge_chunks": chunks, "milliseconds": [], "failed": 0} for chunks in (0, huge)]
    first = 1 << 24
    for _ in range(TURNS):
        for row in found:
            start = time.monotonic() + 0.5
            told = tell("PD", "pace", first, rooms, pace, start, row["huge_chunks"])
            first += rooms + 1
            row["milliseconds"] += [1e3 * took for took in told[-1]["took"]]
            row["failed"] += max(t["failed"] for t in told)
    return found


def bench(*, rooms: int, small: int, pace: float, huge: int) -> dict[str, Any]:
    """All figures."""
    members = Members()
    for index in range(PREFILLS):
        members.start("P", index, OverloadRank, "P", index)
    members.start("D", 0, OverloadRank, "D", 0)

    def tell(sides: str, name: str, *args: Any) -> list[Any]:
        return list(members.tell(sides, name, *args).values())

    tell("D", "connect", tell("P", "address"))
    tell("PD", "carry", 1 << 28, 2 * FITTING, FITTING)  # warm
    found = {"load": load(tell, rooms), "beside": beside(tell, small, pace, huge)}
    tell("PD", "end")
    return found


def told(found: dict[str, Any]) -> str:
    """The figures as tables."""
    once = statistics.median(found["load"][0]["rooms_a_second"])
    rows = [
        [f"{row['times']} x", f"{speed:.0f}", f"{speed / once:.2f}", str(row["failed"]), str(row["by_pages"])]
        for row in found["load"]
        for speed in (statistics.median(row["rooms_a_second"]),)
    ]
    alone = percentile(found["beside"][0]["milliseconds"], 99)
    more = [
        [str(row["huge_chunks"]), f"{percentile(took, 50):.1f}", f"{percentile(took, 99):.1f}",
         f"{percentile(took, 99) / alone:.2f}", str(row["failed"])]
        for row in found["beside"] for took in (row["milliseconds"],)
    ]  # fmt: skip
    head = markdown(["load", "rooms/s", "of 1 x", "failed", "chunks by pages"], rows)
    return f"{head}\n\n" + markdown(["beside chunks", "p50 ms", "p99 ms", "p99 of alone", "failed"], more)


def percentile(values: list[float], part: int) -> float:
    """Of these values."""
    values = sorted(values)
    return values[min(len(values) - 1, len(values) * part // 100)]


def main(argv: Sequence[str] | None = None) -> int:
    """Print the figures; 1 if a room failed."""
    parser = command_line("overload", __doc__)
    parser.add_argument("--rooms", type=positive, default=400, help="rooms of one turn at one load (default 400)")
    parser.add_argument("--small", type=positive, default=300, help="small rooms of one turn (default 300)")
    parser.add_argument("--pace", type=real(0.1, 1e6), default=10.0, help="milliseconds between them (default 10)")
    parser.add_argument("--huge", type=positive, default=2000, help="chunks of the huge room (default 2000)")
    options = parser.parse_args(argv)
    found = bench(rooms=options.rooms, small=options.small, pace=1e-3 * options.pace, huge=options.huge)
    if options.json != "-":
        print(told(found))
    write(options.json, "overload", argv, found)
    failed = sum(row["failed"] for rows in found.values() for row in rows)
    if failed:
        print(f"{failed} rooms failed", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())

"""Control: the protocol's own cost, between two processes on one link with hardly any KV.

*Latencies*: so many rooms are open on both sides; then the KV of one after the other becomes ready, a pace apart, as
forwards end. Measured are the ways between `produced`, the launched gather, behind the request for a region and its
answer, the posted write, its end, the note in the decode rank's hands, the launched scatter and the decode engine's
outcome. *Throughput*: whole rooms as fast as one link carries them, 64 at a time. *Calls*: Python calls a room and a
chunk on each side, the same on every machine. *Idle*: the processor time of an endpoint in its own loop while nothing
happens. *Processor*: that of a room, of all threads of the process, where the endpoint has a thread of its own: at 300
rooms a second, and as fast as they go; `floor` is a room's messages and write by hand.

Both loops sleep between events as they do on threads of their own (`poll`, and `wait` when nothing moved); with
`--spin` they never do. Transfers are checked: a decode pool starts as noise and must end as the prefill pool.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from kvproto.arguments import positive, real
from kvproto.lab.bench.bare_rooms import BareRooms
from kvproto.lab.bench.control_calls import count
from kvproto.lab.bench.control_side import LIVE
from kvproto.lab.bench.goals import POSTED, RATE
from kvproto.lab.bench.members import Members
from kvproto.lab.bench.pipeline import LEAD_S
from kvproto.lab.bench.results import Course, command_line, need_gpus
from kvproto.lab.bench.served_rank import ServedRank

SPANS = (
    "produced to gathering", "gathered to posting", "posting to posted", "produced to posted", "written to noted",
    "noted to launched", "produced to finished",
)  # fmt: skip
#: seconds of a run at `RATE`
RATED_S = 2


def spread(spans: list[float]) -> dict[str, float]:
    spans = sorted(1e6 * span for span in spans)
    last = len(spans) - 1
    tails = {name: spans[min(last, int(len(spans) * share))] for name, share in (("p99", 0.99), ("p999", 0.999))}
    return {"median": statistics.median(spans), **tails}


def throughput(tell: Callable[..., list[Any]], rooms: int, gen: int) -> list[float]:
    """Rooms a second through the link, three times."""
    floods = [tell("PD", "flood", rooms, gen + turn) for turn in (1, 2, 3)]
    return [rooms / (max(end for _, end in told) - min(begin for begin, _ in told)) for told in floods]


def processor(tell: Callable[..., list[Any]], rooms: int, gen: int) -> list[dict[str, Any]]:
    """Milliseconds of processor time that a room takes of each process whose endpoint has a thread."""
    tell("PD", "serve")
    spent = [
        tell("PD", "spend", count, gen + turn, rate, time.perf_counter() + LEAD_S)
        for turn, (count, rate) in enumerate(runs_of(rooms))
    ]
    return [
        {"side": side, "ms a room": 1e3 * rated, "at full load": 1e3 * full, "times": rated / full}
        for side, rated, full in zip(("prefill", "decode"), *spent[1:], strict=True)
    ]


def runs_of(rooms: int) -> tuple[tuple[int, float], ...]:
    """Return rooms and rates of the runs whose processor time is taken; the first one warms up."""
    return (rooms, 0), (RATE * RATED_S, RATE), (rooms, 0)


def bare_processor(members: Members, rooms: int, cuda: bool) -> list[dict[str, Any]]:
    """Return what `processor` would if there were nothing but messages and writes (`BareRooms`)."""
    for side in "pd":
        members.start(side, 0, BareRooms, side, cuda)
    ours, theirs = members.tell("pd", "address").values()
    members.tell("p", "meet", *theirs)
    members.tell("d", "meet", *ours)
    spent = [
        members.tell("pd", "spend", count, rate, time.perf_counter() + LEAD_S).values()
        for count, rate in runs_of(rooms)
    ]
    members.tell("pd", "end")
    return [
        {"floor ms a room": 1e3 * rated, "floor at full load": 1e3 * full, "floor times": rated / full}
        for rated, full in zip(*spent[1:], strict=True)
    ]


def bench(course: Course, *, spin: bool, cuda: bool, rounds: int, pace: float, rooms: int) -> dict[str, Any]:
    members = Members()
    for side in "PD":
        members.start(side, 0, ServedRank, side, spin, cuda)

    def tell(sides: str, name: str, *args: Any) -> list[Any]:
        return list(members.tell(sides, name, *args).values())

    tell("D", "connect", *tell("P", "address"))
    rows, gen = list[dict[str, Any]](), 0
    found = {"spin": spin, "cuda": cuda, "pace_ms": 1e3 * pace, "rows": rows}
    for live in course.cases(LIVE):
        spans: dict[str, list[float]] = {name: [] for name in (*SPANS, POSTED)}
        for _ in range(max(2, rounds // live) + 1):
            gen += 1
            tell("PD", "prepare", live, gen)
            ours, theirs = tell("PD", "paced", live, gen, pace)
            for name in SPANS:
                begin, end = name.split(" to ")
                first = ours.get(begin) or theirs[begin]
                last = (theirs if end in ("noted", "launched", "finished") else ours)[end]
                if gen > 1:  # a room that only the last has is one of before: a message was repeated
                    spans[name] += [last[room] - first[room] for room in last if room in first]
            if gen > 1:
                spans[POSTED] += [
                    at - ours["gathered"][room] + ours["gathering"][room] - ours["produced"][room]
                    for room, at in ours["posted"].items() if room in ours["gathered"] and room in ours["produced"]
                ]  # fmt: skip
        rows.append({"rooms": live, "samples": len(spans["produced to posted"]),
                     **{f"{name} us": spread(each) for name, each in spans.items()}})  # fmt: skip
        course.keep(found, f"{live} rooms open: produced to posted {rows[-1]['produced to posted us']}")
    found["rooms_a_second"] = speeds = throughput(tell, rooms, gen)
    course.keep(found, f"rooms a second: {', '.join(f'{each:.0f}' for each in speeds)}")
    idle = dict(zip(("prefill", "decode"), tell("PD", "rest", 2.0), strict=True))
    spent = processor(tell, rooms, gen + 4)  # behind the three floods; after it nobody else polls
    right = all(tell("D", "right"))
    tell("PD", "end")
    spent = [ours | floor for ours, floor in zip(spent, bare_processor(members, rooms, cuda), strict=True)]
    return found | {"idle": idle, "processor": spent, "right": right, "calls": count()}


def main(argv: Sequence[str] | None = None) -> int:
    """Print the figures; 1 if bytes were wrong."""
    parser = command_line("control", __doc__)
    parser.add_argument("--spin", action="store_true", help="loops that never sleep, on cores of their own")
    parser.add_argument("--cuda", action="store_true", help="KV on GPUs, gathered and scattered by Triton kernels")
    parser.add_argument("--rounds", type=positive, default=512, help="rooms measured a row, at least (default 512)")
    parser.add_argument("--pace", type=real(0, 1e6), default=1.0, help="milliseconds between rooms (default 1)")
    parser.add_argument("--rooms", type=positive, default=2000, help="rooms of a throughput run (default 2000)")
    options = parser.parse_args(argv)
    need_gpus(1, cpu=not options.cuda)
    if (os.cpu_count() or 1) < 4:
        print("fewer than four cores: the two loops and their sockets take turns", file=sys.stderr)
    course, pace = Course("control", argv, options), 1e-3 * options.pace
    found = bench(course, spin=options.spin, cuda=options.cuda, rounds=options.rounds, pace=pace, rooms=options.rooms)
    course.end(found)
    return 0 if found["right"] else 1

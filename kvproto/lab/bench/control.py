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
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from kvproto.arguments import positive, real
from kvproto.lab.bench.bare_rooms import BareRooms
from kvproto.lab.bench.control_calls import count
from kvproto.lab.bench.control_side import LIVE, ControlRank
from kvproto.lab.bench.goals import POSTED, RATE
from kvproto.lab.bench.members import Members
from kvproto.lab.bench.pipeline import LEAD_S
from kvproto.lab.bench.results import Course, command_line, need_gpus

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


def processor(
    spend: Callable[[int, int, float], Iterable[float]], rooms: int, about: str = ""
) -> list[dict[str, float]]:  # fmt: skip
    """Return each side's milliseconds of processor time a room, at RATE and at full load.

    `spend`: called with a run's number, rooms and rate; `about`: begins the names.
    """
    runs = (rooms, 0), (RATE * RATED_S, RATE), (rooms, 0)  # the first one warms up
    _, *spent = [spend(number, *run) for number, run in enumerate(runs)]
    return [
        {f"{about}ms a room": 1e3 * rated, f"{about}at full load": 1e3 * full, f"{about}times": rated / full}
        for rated, full in zip(*spent, strict=True)
    ]


def bare_processor(members: Members, rooms: int, cuda: bool) -> list[dict[str, float]]:
    """Return the same where there is nothing but messages and writes (`BareRooms`)."""
    for side in "pd":
        members.start(side, 0, BareRooms, side, cuda)
    ours, theirs = members.tell("pd", "address").values()
    members.tell("p", "meet", *theirs)
    members.tell("d", "meet", *ours)

    def spend(_number: int, count: int, rate: float) -> Iterable[float]:
        return members.tell("pd", "spend", count, rate, time.perf_counter() + LEAD_S).values()

    found = processor(spend, rooms, "floor ")
    members.tell("pd", "end")
    return found


def bench(course: Course, *, spin: bool, cuda: bool, rounds: int, pace: float, rooms: int) -> dict[str, Any]:
    members = Members()
    for side in "PD":
        members.start(side, 0, ControlRank, side, spin, cuda)

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
    tell("PD", "serve")  # after it nobody else polls

    def spend(number: int, count: int, rate: float) -> list[Any]:
        return tell("PD", "spend", count, gen + 4 + number, rate, time.perf_counter() + LEAD_S)  # behind three floods

    ours = processor(spend, rooms)
    right = all(tell("D", "right"))
    tell("PD", "end")
    sides = zip(("prefill", "decode"), ours, bare_processor(members, rooms, cuda), strict=True)
    spent = [{"side": side, **each, **floor} for side, each, floor in sides]
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

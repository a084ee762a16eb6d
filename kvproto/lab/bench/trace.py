"""Trace: replay a request trace of a real service in simulated time, carried by the product's ranks.

Arrivals, prompts and prefixes are the service's; the engines are models, and three ways run side by side.

FILE is a trace in Mooncake's format (JSON lines) or Azure's (CSV). The ways are: with prefetch (prefill engines say
when a forward is scheduled), without, and every part page by page. *KV ready -> at decode* is the time from the end of
a request's forward (or its admission at decode, if that came later) until every decode rank has all of it. *TTFT* is
the time from its arrival until then. What is simulated is deterministic: the same command prints the same figures on
any machine. The time that Python takes is not simulated.

Streams and ports are FIFO queues, with the durations by which ranks estimate their routes (`--link`). A request goes to
the prefill instance with the least to compute and the decode instance with the least to hold.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any, get_args

from kvproto.arguments import positive, real, several, whole
from kvproto.lab.bench.request_traces import TracedRequest, chosen, read_trace
from kvproto.lab.bench.results import Course, among, command_line
from kvproto.lab.bench.trace_engines import EngineModel
from kvproto.lab.bench.trace_replay import WAYS, Fleet, TraceReplay, Way, figures
from kvproto.layout.costs import PROFILES
from kvproto.layout.plan import plan_between
from kvproto.settings import Route

EXAMPLES = """
examples:
  kvproto bench trace conversation.jsonl --thin 8                        one instance of TP4, one of TP2
  kvproto bench trace azure.csv --prefill 2:4 --decode 1:8 --closed      pools that are closed to page-to-page writes
  kvproto bench trace conversation.jsonl --speed 2000 --ring 4           slow forwards, a ring of 4 GiB
  kvproto bench trace conversation.jsonl --loss 0.01 --failed-writes 0.001 --aborts 0.05
  kvproto bench trace conversation.jsonl --prefill 100:1 --decode 100:1 --requests 100000 --pace 100 --ways prefetch

`--prefill`, `--speed` and `--ring` take lists: each combination is replayed, and the table has a line for each.
Exit code 1: a request failed that nobody aborted although no writes were made to fail, or something was left over.
"""
WELL, FOUND = 0, 1
#: seconds between two lines of progress
EVERY = 5.0


def group(text: str) -> tuple[int, int]:
    """Read `N:TP`, instances and ranks of each; `N` alone: of one rank."""
    count, _, tp = text.partition(":")
    return whole(1, 1024)(count), whole(1, 512)(tp or "1")


def parser() -> argparse.ArgumentParser:
    made = command_line("trace", __doc__)
    made.description = (__doc__ or "").strip()
    made.epilog, made.formatter_class = EXAMPLES, argparse.RawDescriptionHelpFormatter
    made.add_argument("file", type=Path, metavar="FILE", help="a trace: Mooncake's JSON lines, or Azure's CSV")
    load = made.add_argument_group("load")
    load.add_argument("--thin", type=positive, default=1, help="replay each THIN-th request (default 1)")
    load.add_argument("--requests", type=whole(0, 1 << 24), default=0, metavar="N",
                      help="replay N requests; a shorter trace is repeated (default: all of it, once)")  # fmt: skip
    load.add_argument("--pace", type=real(1e-3, 1e6), default=1.0, help="requests come so many times as fast")
    load.add_argument("--aborts", type=real(0, 1), default=0.0, metavar="SHARE",
                      help="requests whose client goes away, early or late")  # fmt: skip
    fleet = made.add_argument_group("instances")
    fleet.add_argument("--prefill", type=several(group), default=[(1, 4)], metavar="N:TP,...",
                       help="prefill instances, and ranks of each (default 1:4)")  # fmt: skip
    fleet.add_argument("--decode", type=group, default=(1, 2), metavar="N:TP", help="the same of decode (default 1:2)")
    fleet.add_argument("--speed", type=several(real(1, 1e9)), default=[16_000.0], metavar="TOKENS,...",
                       help="tokens that a prefill instance computes a second (default 16000)")  # fmt: skip
    fleet.add_argument("--chunk", type=positive, default=8192, help="tokens of a prefill step (default 8192)")
    fleet.add_argument("--capacity", type=positive, default=2_000_000, metavar="TOKENS",
                       help="tokens that a decode instance has pages for (default 2000000)")  # fmt: skip
    fleet.add_argument("--model", type=several(positive), default=[80, 8, 128], metavar="LAYERS,HEADS,DIM",
                       help="of the KV cache, two bytes an element (default 80,8,128)")  # fmt: skip
    protocol = made.add_argument_group("protocol")
    protocol.add_argument("--ways", type=among(WAYS), default=list(WAYS), metavar="WAY,...",
                               help=f"of {', '.join(WAYS)} (default: all)")  # fmt: skip
    protocol.add_argument("--route", choices=get_args(Route), default="cost", help="as Settings.route")
    protocol.add_argument("--ring", type=several(real(1e-3, 1e5)), default=[1.0], metavar="GIB,...",
                               help="ring of a decode rank in GiB (default 1)")  # fmt: skip
    protocol.add_argument("--chunk-tokens", "--grid", type=positive, default=512,
                          help="as of an endpoint (default 512)")  # fmt: skip
    protocol.add_argument("--slots", type=positive, default=4, help="slots of a prefill rank (default 4)")
    protocol.add_argument("--window", type=positive, default=4, help="as Settings.window (default 4)")
    protocol.add_argument("--closed", action="store_true", help="pools at decode are closed to page-to-page writes")
    net = made.add_argument_group("links and faults")
    net.add_argument("--link", choices=[*PROFILES], default="rdma", help="what a link costs (default rdma)")
    net.add_argument("--beat", type=real(0.1, 60), default=1.0, metavar="S",
                     help="seconds between two heartbeats (default 1)")  # fmt: skip
    net.add_argument("--loss", type=real(0, 0.5), default=0.0, metavar="SHARE", help="messages that are lost")
    net.add_argument("--failed-writes", type=real(0, 1), default=0.0, metavar="SHARE", help="writes that fail")
    net.add_argument("--seed", type=whole(0, 1 << 62), default=1, help="of losses, failures and aborts (default 1)")
    return made


def fleets_of(asked: argparse.Namespace) -> list[Fleet]:
    """Return the fleets of these options, one for each combination of their lists. Raises `LayoutError`."""
    layers, heads, dim = asked.model
    found = [
        Fleet(
            prefill=prefill[0], prefill_tp=prefill[1], decode=asked.decode[0], decode_tp=asked.decode[1],
            layers=layers, heads=heads, dim=dim, chunk_tokens=asked.chunk_tokens, ring=int(ring * 2**30),
            slots=asked.slots,
            window=asked.window, route=asked.route, link=asked.link,
            beat=asked.beat, closed=asked.closed, loss=asked.loss, failed_writes=asked.failed_writes,
            aborts=asked.aborts, seed=asked.seed,
            engines=EngineModel(speed=speed, chunk=asked.chunk, capacity=asked.capacity),
        )
        for prefill, speed, ring in product(asked.prefill, asked.speed, asked.ring)
    ]  # fmt: skip
    for fleet in found:
        plan_between(fleet.layout(fleet.prefill_tp), fleet.layout(fleet.decode_tp), fleet.chunk_tokens)
    return found


def replay(fleet: Fleet, requests: Sequence[TracedRequest], course: Course, until: float | None) -> dict[str, Any]:
    """Replay the requests on a fleet; progress goes to standard error, and `until` ends it early."""
    began, told = time.process_time(), [course.gone]
    run = TraceReplay(fleet)

    def go_on() -> bool:
        gone = course.gone
        if gone - told[0] > EVERY:
            told[0] = gone
            at = run.world.now - run.begun
            course.say(f"{run.settled} of {len(requests)} requests, {at:.0f} s simulated, {run.world.steps} steps")
        return until is None or gone < until

    run.run(requests, go_on)
    return figures(run) | {"cpu": time.process_time() - began}


def row(trace: str, fleet: Fleet, way: str, found: Mapping[str, Any]) -> dict[str, Any]:
    """Name what was replayed on what, and make every count a figure."""
    counts = {name: float(each) for name, each in found.items() if type(each) is int}
    spreads = {name: each for name, each in found.items() if isinstance(each, dict | float | list)}
    causes = ", ".join(f"{cause} {count}" for cause, count in found["failed"].items())
    return {
        "trace": trace, "prefill": f"{fleet.prefill} x TP{fleet.prefill_tp}",
        "decode": f"{fleet.decode} x TP{fleet.decode_tp}", "tokens a second": round(fleet.engines.speed),
        "ring": f"{fleet.ring / 2**30:g} GiB", "pools": "closed" if fleet.closed else "open", "way": way,
        **counts, **spreads, "failed": float(sum(found["failed"].values())), **({"causes": causes} if causes else {}),
    }  # fmt: skip


def short(found: Mapping[str, Any]) -> str:
    """Say the most important figures of one way in a line."""
    took = " / ".join(f"{found['transfer'].get(part, 0.0):.4f}" for part in ("p50", "p90", "p99"))
    return f"{found['well']} of {found['requests']} well; KV ready -> at decode {took} s"


def sound(way: Mapping[str, Any], fleet: Fleet) -> bool:
    """Whether nothing failed but what was made to fail, and nothing was left over."""
    return not way["left"] and (way["cut"] or not way["unsettled"]) and (fleet.failed_writes > 0 or not way["failed"])


def main(argv: Sequence[str] | None = None) -> int:
    """Print the figures; 1 if a request failed for no reason, or something was left over."""
    asked = parser().parse_args(argv)
    fleets = fleets_of(asked)
    requests = chosen(read_trace(asked.file), thin=asked.thin, requests=asked.requests, pace=asked.pace)
    course, rows, well = Course("trace", argv, asked), list[dict[str, Any]](), True
    ways: list[Way] = [way for way in asked.ways if not (asked.closed and way == "pages")]
    for fleet, way in course.cases([(fleet, way) for fleet in fleets for way in ways]):
        found = replay(fleet.way(way), requests, course, asked.seconds)
        well = well and sound(found, fleet)
        rows.append(row(asked.file.name, fleet, way, found))
        course.keep(rows, f"{way}: {short(found)}")
    course.end(rows)
    return WELL if well else FOUND

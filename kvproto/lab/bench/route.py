"""Route: times by ring and by pages beside the bulk write of the same run, and the chosen route.

The same rooms go three ways, by the ring (`staged`), page to page (`pages`), and by whichever is estimated to cost less
(`cost`), with pages at random, as in a cache that has been in use, and with pages in a row, as in a fresh one.  Ranks,
clock, bulk write and the comparison of every byte are those of `kvproto bench pipeline`.  `share` is the bulk write's
time over the transfer's, so 1 is as fast as the link; `estimates` are what the ranks thought before
(`kvproto.layout.costs`), `chosen` is what they took, and `loss` what the choice took over the better of the two.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import Any

from kvproto.arguments import positive
from kvproto.lab.bench.pipeline import BenchProcesses
from kvproto.lab.bench.pipeline_cases import MIB, SHAPES, Case, PipelineShape
from kvproto.lab.bench.results import Course, command_line, need_gpus
from kvproto.layout.costs import PROFILES, Costs, Estimate, estimate, page_form
from kvproto.layout.cut import Cut, chunks
from kvproto.layout.plan import Plan
from kvproto.settings import Route

ROUTES: tuple[Route, ...] = ("staged", "pages", "cost")
#: both sides cut alike have pages alike: that is where pages may be cheaper
PAIRS: dict[str, PipelineShape] = {
    "1-1": replace(SHAPES["1-1"], page_sizes=(16, 16)),
    "2-2": replace(SHAPES["1-1"], prefill=2, decode=2, prefill_on=(0, 0), decode_on=(1, 1), page_sizes=(16, 16)),
    "2-1": SHAPES["2-1"],
    "1-2": SHAPES["1-2"],
    "tiny": replace(SHAPES["1-1"], page_sizes=(16, 16), layers=2, heads=4, dim=16),
}


def estimate_of(shape: PipelineShape, size: int, chunk: int, costs: Costs, *, fresh: bool) -> Estimate:
    """Return the first prefill rank's estimate of its first part: a room of `size` MiB in chunks."""
    prefill, decode = shape.layouts()
    chunk_tokens, tokens = chunk * MIB // shape.token_bytes, size * MIB // shape.token_bytes
    plan = Plan(prefill, decode, chunk_tokens)
    share = plan.duties(0)[0]
    pieces = page_form(plan, share).pieces(tokens, 1 if fresh else 0)
    return estimate(costs, plan.part_bytes(share, Cut(0, tokens)), pieces, chunks(tokens, 0, chunk_tokens))


def measured(fleet: BenchProcesses, size: int, repeats: int, profile: str, *, fresh: bool) -> dict[str, Any]:
    """A row: all three ways."""
    ways: dict[str, dict[str, Any]] = {}
    for route in ROUTES:
        times = repeats if route != "pages" else min(repeats, 3)
        ways[route] = fleet.run(Case("one", size, min(size, 64), repeats=times, route=route, fresh=fresh))
    told = estimate_of(fleet.shape, size, min(size, 64), PROFILES[profile], fresh=fresh)
    return _row(fleet.shape, size, ways, told, fresh=fresh)


def _row(
    shape: PipelineShape, size: int, ways: dict[str, dict[str, Any]], told: Estimate, *, fresh: bool
) -> dict[str, Any]:
    staged, pages, cost = (ways[route] for route in ROUTES)
    return {
        "pair": shape.name, "size": size, "pages": _lie(fresh), "right": all(way["right"] for way in ways.values()),
        "bulk_ms": min(way["bulk_ms"] for way in ways.values()),
        **{f"{route}_ms": way["ms"] for route, way in ways.items()},
        **{f"{route}_share": way["ratio"] for route, way in ways.items()},
        "pieces": pages["pieces"], "chosen": cost["went"],
        "loss": cost["ms"] / min(staged["ms"], pages["ms"]) - 1,
        "staged_estimate_ms": 1e3 * told.staged, "pages_estimate_ms": 1e3 * told.pages,
        "odd": {route: way["odd"] for route, way in ways.items() if way["odd"]},
    }  # fmt: skip


def _lie(fresh: bool) -> str:
    return "in a row" if fresh else "at random"


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table; 1 if any row was wrong."""
    parser = command_line("route", __doc__)
    parser.add_argument("--pairs", default="1-1,2-2,2-1,1-2", metavar="LIST",
                        help=f"prefill-decode ranks, comma separated, of {', '.join(PAIRS)}")  # fmt: skip
    parser.add_argument("--sizes", default="64,256", metavar="LIST", help="MiB of a room (default 64,256)")
    parser.add_argument("--repeats", type=positive, default=9, help="timed transfers a row (default 9)")
    parser.add_argument("--cpu", action="store_true", help="host memory and torch kernels: for a machine without GPUs")
    options = parser.parse_args(argv)
    names, sizes = options.pairs.split(","), options.sizes.split(",")
    if unknown := [name for name in names if name not in PAIRS]:
        parser.error(f"--pairs {unknown[0]!r}: there are {', '.join(PAIRS)}")
    if unknown := [size for size in sizes if not size.isdecimal() or not 0 < int(size) <= 1 << 16]:
        parser.error(f"--sizes {unknown[0]!r}: it is in MiB, from 1 to 65536")
    course = Course("route", argv, options)
    gpus = max(max(*PAIRS[name].prefill_on, *PAIRS[name].decode_on) for name in names) + 1
    need_gpus(gpus, cpu=options.cpu)
    rows, profile = list[dict[str, Any]](), "shm" if options.cpu else "cuda_ipc"
    for turn, name in enumerate(names):
        with BenchProcesses(PAIRS[name], cuda=not options.cpu) as fleet:
            for size, fresh in course.cases(list(product(map(int, sizes), (False, True))), len(names) - turn):
                rows.append(measured(fleet, size, options.repeats, profile, fresh=fresh))
                course.keep(rows, f"{rows[-1]['pair']}, {size} MiB: {rows[-1]['chosen']}, {rows[-1]['loss']:+.0%} more")
    return course.judged(rows)

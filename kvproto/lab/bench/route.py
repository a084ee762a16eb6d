"""Route: times of each way of a room beside the bulk write of the same run, and the chosen way.

The same rooms go by the ring (`staged`), page to page by the transport's writes (`pages`), by a kernel's stores where
the transport maps the peer's pages (`mapped`), as endpoints choose by themselves (`cost`), and as they choose where
nothing is mapped (`unmapped`), with pages at random, as in a cache that has been in use, and with pages in a row, as in
a fresh one.  Each way has endpoints of its own over the
same pools.  All of them are there at once and take turns, each round in another order, so that all see the same clocks.
Ranks, clock, bulk write and the comparison of every byte are those of `kvproto bench pipeline`.

`share` is the bulk write's time over the transfer's, so 1 is as fast as the link; `estimates` are what the ranks
thought before (`kvproto.layout.costs`), `chosen` is what they took.  `best` is the way that took least, and `loss` what
the choice took over it, the median over rounds.  Where the choice is the best way, two sets of endpoints do the same,
the loss is the error of this measurement, and nothing is `lost`.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

from kvproto.arguments import positive, several, whole
from kvproto.lab.bench.pipeline import BenchProcesses, went
from kvproto.lab.bench.pipeline_cases import MIB, SHAPES, Case, PipelineShape
from kvproto.lab.bench.results import Course, among, command_line, need_gpus
from kvproto.layout.costs import PROFILES, Costs, Estimate, estimate, page_form
from kvproto.layout.cut import Cut, chunks
from kvproto.layout.plan import Plan
from kvproto.settings import Route

#: by way: the route of its endpoints, and whether memory of the peer may be mapped
WAYS: dict[str, tuple[Route, bool]] = {
    "staged": ("staged", False), "pages": ("pages", False), "mapped": ("pages", True), "cost": ("cost", True),
    "unmapped": ("cost", False),
}  # fmt: skip
#: by way that endpoints choose: what they may choose
CHOICES = {"cost": ("staged", "pages", "mapped"), "unmapped": ("staged", "pages")}
#: rounds that are not counted, and those after which a way is left out that takes so many seconds
WARM, LEAST, SLOW_S = 2, 3, 0.02
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
    cells = chunks(tokens, 0, chunk_tokens)
    pieces = page_form(plan, share).pieces(tokens, 1 if fresh else 0, cells)
    return estimate(costs, plan.part_bytes(share, Cut(0, tokens)), pieces, cells)


@dataclass
class _RouteWay:
    """The endpoints of one way, and what their transfers took, by round."""

    name: str
    rooms: list[int]
    tokens: int
    gen: int = 0
    right: bool = True
    times: dict[int, float] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        return statistics.median(self.times.values())

    def check(self, fleet: BenchProcesses) -> dict[str, int]:
        """Move the rooms once and compare every byte; return the counts of the first prefill rank."""
        self.gen += 1
        self.right &= fleet.checked(self.rooms, self.gen, self.tokens)
        counts: dict[str, int] = fleet.members.tell("P", "stats")["P", 0]
        return counts

    def go(self, fleet: BenchProcesses, turn: int) -> None:
        self.gen += 1
        seconds, _ = fleet.transfer(self.rooms, self.gen, self.tokens)
        if turn >= 0:
            self.times[turn] = seconds


def measured(fleet: BenchProcesses, size: int, repeats: int, profile: str, *, fresh: bool) -> dict[str, Any]:
    """A row: every way that there is."""
    tell, bulks, stats = fleet.members.tell, list[float](), dict[str, dict[str, Any]]()
    ways = dict[str, _RouteWay]()
    for name, (route, maps) in WAYS.items():
        _, rooms, tokens = fleet.begin(Case("one", size, min(size, 64), route=route, maps=maps, fresh=fresh))
        way = _RouteWay(name, rooms, tokens)
        if name != "mapped" or went(way.check(fleet)) == name:
            ways[name] = way
        tell("PD", "set_aside", name)
    for turn in range(-WARM, repeats):
        for name in _order(list(ways), turn):
            way = ways[name]
            if len(way.times) >= LEAST and way.seconds > SLOW_S:
                continue
            tell("PD", "take_up", name)
            if name == "staged" and turn >= 0:
                bulks.append(fleet.bulk_write(way.tokens))
            way.go(fleet, turn)
            tell("PD", "set_aside", name)
    for name, way in ways.items():
        tell("PD", "take_up", name)
        stats[name] = way.check(fleet)
        tell("PD", "set_aside", name)
    tell("PD", "drop")
    told = estimate_of(fleet.shape, size, min(size, 64), PROFILES[profile], fresh=fresh)
    return _row(fleet.shape, size, ways, stats, statistics.median(bulks), told, fresh=fresh)


def _order(names: list[str], turn: int) -> list[str]:
    at = turn % len(names)
    return names[at:] + names[:at]


def loss_of(ways: Mapping[str, _RouteWay], choice: str = "cost") -> tuple[str, float]:
    """Return the best way, and what this choice takes more: the median over rounds that both have."""
    forced, cost = [ways[name] for name in CHOICES[choice] if name in ways], ways[choice]
    best = min(forced, key=lambda way: way.seconds)
    return best.name, statistics.median(cost.times[at] / best.times[at] for at in best.times.keys() & cost.times) - 1


def _row(
    shape: PipelineShape, size: int, ways: Mapping[str, _RouteWay], stats: Mapping[str, Mapping[str, Any]], bulk: float,
    told: Estimate, *, fresh: bool,
) -> dict[str, Any]:  # fmt: skip
    (best, loss), (other, more) = loss_of(ways), loss_of(ways, "unmapped")
    return {
        "pair": shape.name, "size": size, "pages": _lie(fresh), "right": all(way.right for way in ways.values()),
        "bulk_ms": 1e3 * bulk,
        **{f"{name}_ms": 1e3 * way.seconds for name, way in ways.items()},
        **{f"{name}_share": bulk / way.seconds for name, way in ways.items()},
        "pieces": stats["pages"]["pieces"] // ways["pages"].gen, "chosen": went(stats["cost"]),
        "best": best, "loss": loss, "lost": _lost(stats["cost"], best, loss),
        "unmapped_chosen": went(stats["unmapped"]), "unmapped_best": other, "unmapped_loss": more,
        "unmapped_lost": _lost(stats["unmapped"], other, more),
        "staged_estimate_ms": 1e3 * told.staged, "pages_estimate_ms": 1e3 * told.pages,
        "odd": {name: each["reports"] for name, each in stats.items() if each["reports"]},
    }  # fmt: skip


def _lost(stats: Mapping[str, int], best: str, loss: float) -> float:
    """Return the loss by the choice of another way than the best one; 0: it is the best one."""
    return 0.0 if went(stats) == best else loss


def told(row: dict[str, Any]) -> str:
    """A row as soon as it is measured: what endpoints chose, and what it took more than the best way."""
    chosen = (f"{row[f'{of}chosen']}, {row[f'{of}loss']:+.0%} more" for of in ("", "unmapped_"))
    return f"{row['pair']}, {row['size']} MiB: " + "; unmapped ".join(chosen)


def _lie(fresh: bool) -> str:
    return "in a row" if fresh else "at random"


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table; 1 if any row was wrong."""
    parser = command_line("route", __doc__)
    parser.add_argument("--pairs", type=among(PAIRS), default="1-1,2-2,2-1,1-2", metavar="LIST",
                        help=f"prefill-decode ranks, comma separated, of {', '.join(PAIRS)}")  # fmt: skip
    parser.add_argument("--sizes", type=several(whole(1, 1 << 16)), default="64,256", metavar="LIST",
                        help="MiB of a room (default 64,256)")  # fmt: skip
    parser.add_argument("--repeats", type=positive, default=25, help="timed rounds a row (default 25)")
    parser.add_argument("--cpu", action="store_true", help="host memory and torch kernels: for a machine without GPUs")
    options = parser.parse_args(argv)
    course, names = Course("route", argv, options), options.pairs
    need_gpus(max(PAIRS[name].gpus for name in names), cpu=options.cpu)
    rows, profile = list[dict[str, Any]](), "shm" if options.cpu else "cuda_ipc"
    for turn, name in enumerate(names):
        with BenchProcesses(PAIRS[name], cuda=not options.cpu) as fleet:
            for size, fresh in course.cases(list(product(options.sizes, (False, True))), len(names) - turn):
                rows.append(measured(fleet, size, options.repeats, profile, fresh=fresh))
                course.keep(rows, told(rows[-1]))
    return course.judged(rows)

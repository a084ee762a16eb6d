"""Beside: the time that a transfer takes of an engine's work on its GPUs, and vice versa, by route.

On the prefill GPU the work is matrix products, of whose end the engine has given the event; on the decode GPU it is
memory traffic. `slowdown`: how much longer the work takes while KV moves all the time, beside the same work alone
before and after, because clocks drift. `share`: the time of the bulk write alone over that of the transfer, while work
runs all the time. `taken_ms`: what moving a GiB takes of the work, by both.

*bulk*: one write of NIXL's. *staged*: through the ring. *mapped*: a kernel's stores, or the copy engines where pages
are long, by 10 % of the multiprocessors, and by all (no forward is spared). *pages*: NIXL's prepared lists.
`floor` of a mapped row is a kernel of as many multiprocessors that stores as many bytes in one run. `layered` pools
have a run of bytes for each page, layer, K and V, `packed` ones have all of a page in one. The bytes of the first and
the last transfer of a row are compared.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec

from kvproto.arguments import positive
from kvproto.lab.bench.beside_rank import BesideRank
from kvproto.lab.bench.pipeline import LEAD_S, BenchProcesses
from kvproto.lab.bench.pipeline_cases import MIB, ONE_CHUNK, SHAPES, Case
from kvproto.lab.bench.results import Course, among, command_line, need_gpus
from kvproto.settings import Route, Settings

#: of each way: the route, and whether pages are mapped
WAYS: dict[str, tuple[Route, bool]] = {
    "bulk": ("staged", False), "staged": ("staged", False), "mapped": ("pages", True), "pages": ("pages", False),
}
POOLS = {"layered": False, "packed": True}
#: without rooms: what the prefill rank does by itself
BARE = "bulk", "floor"
#: of the bulk write's time: work that is shorter than the transfer, and work that is longer
SHORT, LONG = 0.6, 2.5
#: MiB of a room, and of a staged chunk; rooms of a transfer, and tokens of a page
ROOM, CHUNK = 1024, 128
ROOMS, PAGE = 8, 16
#: of the multiprocessors, for mapped rows: as `Settings.forward_slowdown` is by default, and all
PERCENTS = Settings().forward_slowdown, 100
WORK = {"P": "products", "D": "traffic"}


class Beside(BenchProcesses):
    """The processes of one pair, which also work."""

    def measured(self, pool: str, way: str, percent: int, repeats: int) -> list[dict[str, Any]]:
        size = ROOM if self.cuda else 1
        case = self._case(pool, way, size)
        form = self._form(case)
        form = msgspec.structs.replace(form, settings=msgspec.structs.replace(form.settings, forward_slowdown=percent))
        made = self.members.tell("PD", "make", form)
        self.members.tell("D", "connect", [address for (side, _), address in made.items() if side == "P"])
        tokens, names = size * MIB // self.shape.token_bytes, list(range(1, ROOMS + 1))
        self.members.tell("PD", "fill", names, tokens, False)
        self.members.tell("PD", "open_next")
        right = self.checked(names, 0, tokens)
        turn, bulk = 1, statistics.median(self._moved("bulk", [(0, 0)], ROOMS * tokens, 0)[0] for _ in range(3))
        alone = statistics.median(self._moved(way, [(n, turn + k) for n in names], tokens, 0)[0] for k in range(3))
        turn += 3
        if way == "bulk":
            alone = bulk
        rows, long = [], 0
        for side in "PD":
            step = statistics.median(self._alone(side, 8) for _ in range(3)) / 8
            short, long = (max(1, round(share * 1e3 * bulk / step)) if step else 0 for share in (SHORT, LONG))
            slow, times, floor = list[float](), list[float](), list[tuple[float, float]]()
            for _ in range(repeats):
                if short:
                    slow.append(self._slowed(way, names, turn, tokens, side, short))
                times.append(self._turn(way, names, turn + 1, tokens, side, long)[0])
                if way == "mapped" and self.cuda:
                    slowed = self._slowed("floor", names, percent, tokens, side, short)
                    floor.append((slowed, bulk / self._turn("floor", names, percent, tokens, side, long)[0]))
                turn += 2
            rows.append({
                "pool": pool, "way": way, "page": PAGE, "gib": ROOMS, "percent": percent,
                "side": side, "work": WORK[side],
                **({"work_ms": short * step, "slowdown": statistics.median(slow), "worst_slowdown": max(slow),
                    "taken_ms": 1e3 * statistics.median(slow) * statistics.median(times) / ROOMS} if slow else {}),
                "bulk_ms": 1e3 * bulk, "alone_ms": 1e3 * alone, "beside_ms": 1e3 * statistics.median(times),
                "share_alone": bulk / alone, "share": bulk / statistics.median(times),
                **({"floor_slowdown": statistics.median(slowed for slowed, _ in floor),
                    "floor_share": statistics.median(share for _, share in floor)} if floor else {}),
                "repeats": repeats,
            })  # fmt: skip
        self.members.tell("D", "mark")
        if way == "bulk":
            self.transfer(names, turn, tokens)
        else:
            self._turn(way, names, turn, tokens, "P", long)
        right &= all(self.members.tell("D", "right", names, tokens).values())
        stats = self.members.tell("PD", "stats")
        odd = {f"{side}{index}": each for (side, index), each in stats.items() if each["reports"]}
        return [{**row, "right": right, "odd": odd} for row in rows]

    def _case(self, pool: str, way: str, size: int) -> Case:
        route, maps = WAYS[way]
        chunk = min(size, CHUNK if route == "staged" else ONE_CHUNK)
        case = Case("beside", size, chunk, rooms=ROOMS, route=route, maps=maps, packed=POOLS[pool], page=PAGE)
        # The bulk write needs all of it in the ring; so no room waits for the ring, either.
        return replace(case, ring=(ROOMS + 1) * size + 1)

    def _alone(self, side: str, steps: int) -> float:
        return float(self.members.tell(side, "alone", steps)[side, 0])

    def _slowed(self, way: str, names: Sequence[int], gen: int, tokens: int, side: str, steps: int) -> float:
        """How much longer so many steps of the work take beside a transfer of all than alone."""
        before = self._alone(side, steps)
        _, work = self._turn(way, names, gen, tokens, side, steps)
        return 2 * work / (before + self._alone(side, steps)) - 1

    def _turn(
        self, way: str, names: Sequence[int], gen: int, tokens: int, side: str, steps: int
    ) -> tuple[float, float]:  # fmt: skip
        """One transfer of all beside so many steps on a side; its seconds, and milliseconds of the work.

        `gen` of the rooms; of a floor, which has none, the percent of the multiprocessors.
        """
        if way in BARE:
            return self._moved(way, [(0, gen)], len(names) * tokens, steps, side)
        return self._moved(way, [(name, gen) for name in names], tokens, steps, side)

    def _moved(
        self, way: str, rooms: list[tuple[int, int]], tokens: int, steps: int, side: str = ""
    ) -> tuple[float, float]:  # fmt: skip
        if way not in BARE:
            self.members.tell("PD", "open", rooms, tokens)
        told = self.members.tell("PD", "beside", way, rooms, tokens, time.perf_counter() + LEAD_S, side, steps)
        begin, ended, _ = told["P", 0]
        end = ended if way in BARE else told["D", 0][1]
        return end - begin, told[side, 0][2] if side else 0.0


def told(row: dict[str, Any]) -> str:
    slow = f"{100 * row['slowdown']:+.1f} %, " if "slowdown" in row else ""
    return (f"{row['pool']}, {row['way']}, {row['percent']} %, {row['work']} on {row['side']}: {slow}"
            f"{row['share']:.3f} of bulk beside it, {row['share_alone']:.3f} alone")  # fmt: skip


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table; 1 if any row was wrong."""
    parser = command_line("beside", __doc__)
    parser.add_argument("--ways", type=among(WAYS), default=[*WAYS], metavar="LIST",
                        help=f"of {', '.join(WAYS)} (default all; no lists of layered pages)")  # fmt: skip
    parser.add_argument("--repeats", type=positive, default=5, help="timed transfers of each kind a row (default 5)")
    parser.add_argument("--cpu", action="store_true", help="rooms of 1 MiB in host memory, no work: to see it run")
    options = parser.parse_args(argv)
    need_gpus(2, cpu=options.cpu)
    course, rows = Course("beside", argv, options), list[dict[str, Any]]()
    # A write for each page, layer, K and V would take seconds, and tell nothing about the work.
    cells = [(pool, way, percent) for pool in POOLS for way in options.ways if (pool, way) != ("layered", "pages")
             for percent in (PERCENTS if way == "mapped" else [100])]  # fmt: skip
    with Beside(SHAPES["tiny1" if options.cpu else "1-1"], cuda=not options.cpu, kind=BesideRank) as fleet:
        for pool, way, percent in course.cases(cells):
            found = fleet.measured(pool, way, percent, options.repeats)
            rows += found
            course.keep(rows, "\n   ".join(map(told, found)))
    return course.judged(rows)

"""Layers: the time from a forward's end until its KV is at the decode rank, by number of layer groups.

A prefill rank computes a prompt in one forward of 32 layers as wide as an 8B model's, puts each layer's KV into its
pages and says so; a decode rank on another GPU waits for the room. `after` is the time from the forward's end to the
decode engine's success, `total` that from its beginning. `last` is what the last group's bytes take at the rate of a
bulk write in the same run; `floor` what they take by hand (`bare`).

Endpoints are polled without end, or have a thread of their own (`--engine`): beside it an engine's thread sleeps until
there are news, or never does, as schedulers of engines do. Then the floor of `mapped` is of threads that sleep, too
(`sleepers`).

`staged` goes by the ring; of `mapped` a kernel stores into the decode rank's pages, one launch a group. The KV is laid
into a layer's pages behind that layer's work on the same stream, and the first and last transfers of a row are
compared, so a kernel that reads too early is seen.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from itertools import product
from typing import Any, get_args

from kvproto.arguments import positive, several, whole
from kvproto.lab.bench.layer_rank import Engine, LayerRank
from kvproto.lab.bench.pipeline import LEAD_S, BenchProcesses
from kvproto.lab.bench.pipeline_cases import PipelineShape
from kvproto.lab.bench.pipeline_rank import EndpointForm
from kvproto.lab.bench.results import Course, among, command_line, need_gpus
from kvproto.layout.cut import chunks
from kvproto.settings import Settings

SHAPE = PipelineShape(1, 1, (0,), (1,), page_sizes=(16, 16))
TINY = PipelineShape(1, 1, (0,), (1,), page_sizes=(16, 16), layers=8, heads=2, dim=16)
PAGE_TOKENS = 16
WAYS = ("staged", "mapped")
#: tokens a chunk without groups
WHOLE = 1024


def measured(
    fleet: BenchProcesses, way: str, tokens: int, groups: int, repeats: int, engine: Engine
) -> dict[str, Any]:
    """One way, prompt length and number of groups."""
    members, shape, chunk_tokens = fleet.members, fleet.shape, min(tokens, WHOLE) if groups == 1 else tokens
    parts, nbytes = chunks(tokens, 0, chunk_tokens, groups), tokens * shape.token_bytes
    settings = Settings(
        window=parts, slots=min(8, parts), ring_bytes=2 * nbytes + (parts << 9), trace=256, costs="free",
        slot_bytes=-(-shape.layers // groups) * chunk_tokens * shape.token_bytes // shape.layers, layer_groups=groups,
        route="pages" if way == "mapped" else "cost",
    )  # fmt: skip
    form = EndpointForm(
        *shape.layouts(), chunk_tokens, settings, tokens // PAGE_TOKENS * 5 // 4 + 64, maps=way == "mapped"
    )
    made = members.tell("PD", "make", form)
    members.tell("D", "connect", [address for (side, _), address in made.items() if side == "P"])
    by_sleepers = engine != "polls" and way == "mapped" and fleet.cuda
    if by_sleepers:
        members.tell("D", "meet", members.tell("P", "meet", 0)["P", 0])
    members.tell("PD", "fill", [1], tokens)
    members.tell("P", "lay_by_layer", 1, tokens)
    after, total, bulks, floors, steps, right = [], [], [], [], [], True
    last = repeats + 2
    for turn in range(last + 1):
        if turn in (0, last):
            members.tell("PD", "remark")
        bulks.append(fleet.bulk_write(tokens))
        floors.append(_floor(fleet, tokens, groups, engine, sleep=by_sleepers))
        members.tell("PD", "open_in_groups", (1, turn), tokens, groups)
        told = members.tell("PD", "go_by_layer", (1, turn), tokens, groups, time.perf_counter() + LEAD_S, engine)
        begin, ended, ours = told["P", 0]
        if turn in (0, last):
            right &= all(members.tell("D", "right", [1], tokens).values())
        elif turn > 1:
            marks = {name: 1e3 * (when - ended) for name, _, when in (*ours, *told["D", 0][2])}
            steps.append(marks)
            after.append(told["D", 0][1] - ended)
            total.append(told["D", 0][1] - begin)
    stats, bulk = members.tell("PD", "stats"), statistics.median(bulks[2:])
    ours, names = stats["P", 0], set.intersection(*map(set, steps))
    return {
        "engine": engine, "way": way, "tokens": tokens, "groups": groups, "bytes": nbytes, "right": right,
        "odd": ours["reports"],
        "writes": (ours["writes"] + ours["mapped"]) // (last + 1),
        "bulk_ms": 1e3 * bulk, "last_ms": 1e3 * bulk / groups,
        "floor_ms": 1e3 * statistics.median(floors[2:]), "after_ms": 1e3 * statistics.median(after),
        "over_ms": 1e3 * (statistics.median(after) - bulk / groups),
        "floor_over_ms": 1e3 * (statistics.median(floors[2:]) - bulk / groups),
        "total_ms": 1e3 * statistics.median(total),
        "last_steps_ms": {name: round(statistics.median(each[name] for each in steps), 3)
                          for name in steps[0] if name in names},
        "all_after_ms": [round(1e3 * each, 4) for each in after],
    }  # fmt: skip


def _floor(fleet: BenchProcesses, tokens: int, groups: int, engine: Engine, *, sleep: bool) -> float:
    """Return the seconds of the last group by hand, by threads that `sleep` where pages are mapped."""
    there = fleet._mapped([1])  # noqa: SLF001
    if not (there and sleep):
        return fleet._bare([1], tokens // groups, there)  # noqa: SLF001
    at = time.perf_counter() + LEAD_S
    told = fleet.members.tell("PD", "by_sleepers", 1, tokens, groups, at, engine, there[1])
    return float(told["D", 0] - told["P", 0])


def told(row: dict[str, Any]) -> str:
    steps = ", ".join(f"{name} {ms:.3f}" for name, ms in row["last_steps_ms"].items())
    what = f"{row['way']}, the engine {row['engine']}, {row['tokens']} tokens, {row['groups']} groups"
    return f"{what}: {row['after_ms']:.3f} ms after the forward\n   ms: {steps}"


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table; 1 if any row was wrong."""
    parser = command_line("layers", __doc__)
    parser.add_argument("--tokens", type=several(whole(PAGE_TOKENS, 1 << 20)), default=[1024, 4096, 16384],
                        metavar="LIST", help="lengths of prompts (default 1024,4096,16384)")  # fmt: skip
    parser.add_argument("--groups", type=several(whole(1, SHAPE.layers)), default=[1, 2, 4, 8], metavar="LIST",
                        help="layer groups (default 1,2,4,8)")  # fmt: skip
    parser.add_argument("--ways", type=among(WAYS), default=[*WAYS], metavar="LIST",
                        help="of staged, mapped (default both)")  # fmt: skip
    parser.add_argument("--engine", choices=get_args(Engine), default="polls",
                        help="polls, or sleeps or spins beside a thread of its endpoint's (default polls)")  # fmt: skip
    parser.add_argument("--repeats", type=positive, default=9, help="timed transfers a row (default 9)")
    parser.add_argument("--cpu", action="store_true", help="a tiny model, host memory: to see that it works")
    options = parser.parse_args(argv)
    if uneven := [tokens for tokens in options.tokens if tokens % PAGE_TOKENS]:
        parser.error(f"--tokens {uneven[0]}: that is not whole pages of {PAGE_TOKENS}")
    if options.cpu and max(options.groups) > TINY.layers:
        parser.error(f"--groups {max(options.groups)}: the tiny model has {TINY.layers} layers")
    need_gpus(2, cpu=options.cpu)
    course, rows = Course("layers", argv, options), list[dict[str, Any]]()
    with BenchProcesses(TINY if options.cpu else SHAPE, cuda=not options.cpu, kind=LayerRank) as fleet:
        for way, tokens, groups in course.cases(list(product(options.ways, options.tokens, options.groups))):
            rows.append(measured(fleet, way, tokens, groups, options.repeats, options.engine))
            course.keep(rows, told(rows[-1]))
    return course.judged(rows)

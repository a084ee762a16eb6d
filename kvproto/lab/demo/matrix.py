"""Matrix: cases in which two engines differ, so that each value occurs and most pairs of values do.

Sharding (more ranks on either side, replicas of heads, ratios that are not whole, stages), dtype, page sizes, order
inside a page, prefixes (none, some, all), lengths that fill neither page nor chunk, rings that hold less than two
chunks or not even one, aborts from either side. Each case is a whole run: processes, NIXL, a real model, every bit
compared.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

from kvproto.lab.demo.job import DemoJob, GroupShape
from kvproto.lab.demo.run import Route, Run, chunk_bytes, make_rooms

ROOMY = 6.0  # chunks
RANKS = 1, 2, 4  # of either side, of a model with several caches


def case(
    p: GroupShape, d: GroupShape, dtype: str = "bfloat16", *, ring: float = ROOMY, rooms: int = 3, tokens: int = 170,
    prefix: int = 0, full: bool = False, passes: tuple[Route, ...] = ("live",), run: dict[str, Any] | None = None,
    **job: Any,
) -> Run:  # fmt: skip
    """`ring` in chunks; `run` and `job` are further fields of Run and Job."""
    specs = make_rooms(rooms, tokens, page=d.page_size, prefix=prefix, full_prefix=full, new=4, seed=7)
    made = DemoJob(p, d, specs, dtype=dtype, **{"chunk": 64, "layers": 2, **job})
    return Run(made, int(ring * chunk_bytes(made)), passes, **{"grant_wait": 0.2, **(run or {})})


def pairs(run: Run) -> dict[str, Run]:
    """Return the run with 1, 2 and 4 ranks on either side."""
    job, found = run.job, dict[str, Run]()
    for p, d in product(RANKS, RANKS):
        other = replace(job, prefill=replace(job.prefill, tp=p), decode=replace(job.decode, tp=d))
        found[f"{job.family} {p}->{d}"] = replace(run, job=other)
    return found


G = GroupShape

CASES: dict[str, Run] = {
    "4->2 bf16 ring<2":             case(G(4), G(2), ring=1.6, rooms=5),
    "2->4 fp16 1->1 prefix":        case(G(2, page_size=1), G(4, page_size=1), "float16", prefix=64),
    "4->1 fp8 64->64 prefix":       case(G(4, page_size=64), G(1, page_size=64), "float8_e4m3fn", prefix=64),
    "1->4 fp32 16->64 full":        case(G(1), G(4, page_size=64), "float32", prefix=64, full=True),
    "2->2 bf16 16->16 direct":      case(G(2), G(2), prefix=32, full=True, run={"costs": "shm"}),
    "2->2 fp8 16->64 qwen3":        case(G(2), G(2, page_size=64), "float8_e4m3fn", family="qwen3"),
    "8->2 fp16 64->64 4 heads":     case(G(8, page_size=64), G(2, page_size=64), "float16", ring=1.6, rooms=4),
    "2->8 bf16 16->64 4 heads":     case(G(2), G(8, page_size=64), full=True, rooms=2),
    "6->4 fp32 16->16 12 heads":    case(G(6), G(4), "float32", heads=12, rooms=2, prefix=16),
    "PP2xTP2->TP1 bf16 16->64":     case(G(2, 2), G(1, page_size=64), prefix=64, ring=1.6),
    "TP1->PP2xTP2 fp16 64->16 HND": case(G(1, page_size=64, order="HND"), G(2, 2), "float16", family="qwen3"),
    "4->2 fp8 1->16 ring<1":        case(G(4, page_size=1), G(2, order="HND"), "float8_e4m3fn", ring=0.7),
    "2->1 bf16 abort by P":         case(G(2), G(1), rooms=4, run={"abort": "prefill"}),
    "1->2 fp16 abort by D ring<2":  case(G(1), G(2), "float16", rooms=5, ring=1.6, run={"abort": "decode"}),
    "2->1 fp32 all passes":         case(G(2), G(1), "float32", passes=("live", "staged", "pages"), prefix=16),
}  # fmt: skip

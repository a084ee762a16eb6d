"""Grid: prompt lengths, page sizes and batches; staged beside descriptors beside bulk, in one run.

A cell is a batch of prompts of one length whose KV is ready at once, in pages at random. Three are measured over the
endpoints that engines hold: the same bytes *staged*, by *descriptors* (one for each page, layer, K and V), and as one
*bulk* write, the ceiling. With `--maps` the first is what an endpoint does by itself where kernels may store into the
decode rank's pages. `floor` is the room by hand (`bare`), where it is one room that fits in the ring. Every byte of the
first and the last transfer is compared.

What is left out is named: *memory*, a cell that the devices cannot hold; *time*, a cell, or its descriptors, for which
`--seconds` has no more time. Where descriptors take long they have fewer samples, three at least.
"""

from __future__ import annotations

import statistics
import time
from argparse import Namespace
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from kvproto.arguments import positive, several, whole
from kvproto.lab.bench.pipeline import BenchProcesses
from kvproto.lab.bench.pipeline_cases import MIB, ONE_CHUNK, SHAPES, Case, PipelineShape
from kvproto.lab.bench.results import Course, among, command_line, need_gpus
from kvproto.lab.bench.route import PAIRS

#: MiB: the ring of each decode rank, and a chunk of the whole KV
RING, CHUNK = 4096, 128
#: what of a device's memory a cell may take
USABLE = 0.9
#: descriptors, pages and checks of a cell: bytes a second, roughly, to tell beforehand whether there is time
PIECE_S, LAID_RATE = 7e-6, 20e9
SHAPE_OF = {**SHAPES, **PAIRS}


@dataclass(frozen=True)
class Cell:
    """`tokens` a prompt, `batch` of them; pages of so many tokens on both sides."""

    shape: PipelineShape
    page: int
    tokens: int
    batch: int

    @property
    def size(self) -> int:
        return self.tokens * self.shape.token_bytes // MIB

    @property
    def head(self) -> dict[str, Any]:
        return {"pair": self.shape.name, "page": self.page, "tokens": self.tokens, "batch": self.batch,
                "size": self.size * self.batch}  # fmt: skip

    def cases(self, samples: int, seconds: float, *, maps: bool) -> tuple[Case, Case]:
        """Staged, or as it costs less where pages are mapped; and by descriptors."""
        parts = max(self.shape.prefill, self.shape.decode)
        chunk = self.size if maps and self.size <= ONE_CHUNK else min(self.size, CHUNK * parts)
        ring = min(RING, self.size * self.batch + chunk + 1)
        one = Case("grid", self.size, chunk, rooms=self.batch, ring=ring, repeats=samples, seconds=seconds, beside=True)
        return replace(one, route="cost", maps=True) if maps else one, replace(one, route="pages", beside=False)

    @property
    def memory(self) -> dict[int, float]:
        """Return the GiB on each device: pools with a fifth to spare, rings, slots, a bulk source, and checks."""
        whole = self.size * self.batch / 1024
        checks = 6 * self.tokens * self.shape.heads * self.shape.dim * 2 / (1 << 30)
        each = 0.5 + min(RING / 1024, whole) + 8 * min(self.size, CHUNK) / 1024
        need: dict[int, float] = {}
        for side in (self.shape.prefill_on, self.shape.decode_on):
            for device in side:
                need[device] = need.get(device, 0.0) + 1.25 * whole / len(side) + each + checks
        return need

    def transfer_s(self) -> float:
        """Seconds of one transfer by descriptors, roughly."""
        whole = self.batch * self.tokens * self.shape.layers * 2
        alike = self.shape.prefill == self.shape.decode
        readers = max(1, self.shape.decode // self.shape.prefill)
        pieces = whole / self.page / self.shape.prefill if alike else whole * readers
        return pieces * PIECE_S

    def overhead_s(self) -> float:
        """Seconds of laying out, marking and comparing, roughly."""
        return 0.5 + 8 * self.size * self.batch * MIB / LAID_RATE / 4


def cells(shape: PipelineShape, page: int, prompts: Sequence[int], batches: Sequence[int]) -> list[Cell]:
    shape = replace(shape, page_sizes=(page, page))
    found = [Cell(shape, page, tokens, batch) for tokens in prompts for batch in batches]
    return sorted(found, key=lambda cell: (cell.size * cell.batch, cell.batch))


def measure(fleet: BenchProcesses, cell: Cell, samples: int, left: float, *, maps: bool = False) -> dict[str, Any]:
    """One row; `left`: seconds that there are for it."""
    began = time.perf_counter()
    fleet.shape = cell.shape
    staged, pages = cell.cases(samples, max(1.0, left / 4), maps=maps)
    row: dict[str, Any] = {**cell.head, **_staged(fleet.run(staged))}
    left -= time.perf_counter() - began
    if left < 3 * (cell.overhead_s() + 5 * cell.transfer_s()):
        return {**row, "skipped": {"descriptors": "time"}}
    slow = fleet.run(replace(pages, seconds=left / 8))
    return {
        **row, "right": row["right"] and slow["right"], "odd": {**row["odd"], **slow["odd"]},
        **_spread("descriptors", slow["all_ms"]), "pieces": slow["pieces"],
        "faster": slow["ms"] / row["staged_ms"], "skipped": {},
    }  # fmt: skip


def _staged(found: dict[str, Any]) -> dict[str, Any]:
    floor = {"floor_ms": found["bare_ms"], "floor_share": found["floor_ratio"]} if "bare_ms" in found else {}
    return {**_spread("bulk", found["all_bulk_ms"]), **_spread("staged", found["all_ms"]), **floor,
            "share": found["ratio"], "gbs": found["gbs"], "right": found["right"], "odd": found["odd"],
            "went": found["went"], "phases": found["phases"]}  # fmt: skip


def _spread(name: str, times: Sequence[float]) -> dict[str, Any]:
    """Median, p95 and number of so many milliseconds."""
    return {f"{name}_ms": statistics.median(times), f"{name}_p95_ms": p95(times), f"{name}_samples": len(times)}


def p95(times: Sequence[float]) -> float:
    """The smallest that 95 % of them do not exceed."""
    return sorted(times)[-(-95 * len(times) // 100) - 1]


def rows(options: Namespace) -> Iterator[dict[str, Any]]:
    until = time.perf_counter() + options.seconds
    names, pages = options.pairs, options.pages
    for number, name in enumerate(names):
        with BenchProcesses(SHAPE_OF[name], cuda=not options.cpu) as fleet:
            room = _memory(options)
            for turn, page in enumerate(pages):
                groups = (len(names) - number) * len(pages) - turn
                end = time.perf_counter() + (until - time.perf_counter()) / groups
                found = cells(SHAPE_OF[name], page, options.prompts, options.batches)
                for cell in found:
                    yield _row(fleet, cell, options, end - time.perf_counter(), room)


def _row(fleet: BenchProcesses, cell: Cell, options: Namespace, left: float, room: float) -> dict[str, Any]:
    if max(cell.memory.values()) > USABLE * room:
        return {**cell.head, "skipped": {"cell": "memory"}}
    if left < cell.overhead_s():
        return {**cell.head, "skipped": {"cell": "time"}}
    return measure(fleet, cell, options.samples, left, maps=options.maps)


def _memory(options: Namespace) -> float:
    return 2.0 if options.cpu else float(torch.cuda.get_device_properties(0).total_memory / (1 << 30))


def told(row: dict[str, Any]) -> str:
    head = f"{row['pair']}, pages of {row['page']}, {row['batch']} x {row['tokens']} tokens, {row['size']} MiB"
    if "share" not in row:
        return f"{head}: left out, {row['skipped']['cell']}"
    slow = f", {row['faster']:.1f} times as fast as descriptors" if "faster" in row else ""
    return f"{head}: {row['went']}, {row['gbs']:.1f} GB/s, {row['share']:.3f} of bulk{slow}"


def arguments(argv: Sequence[str] | None) -> Namespace:
    parser = command_line("grid", __doc__, budget=False)
    parser.add_argument("--pairs", type=among(SHAPE_OF), default="1-1,2-2,2-1,1-2", metavar="LIST",
                        help=f"prefill-decode ranks, comma separated, of {', '.join(SHAPE_OF)}")  # fmt: skip
    parser.add_argument("--prompts", type=several(whole(1, 1 << 14)), default="8,16,32,64,128,256,512", metavar="LIST",
                        help="thousands (1024) of tokens a prompt (default 8,16,32,64,128,256,512)")  # fmt: skip
    parser.add_argument("--pages", type=several(whole(1, 1024)), default="16,64", metavar="LIST",
                        help="tokens a page (default 16,64)")  # fmt: skip
    parser.add_argument("--batches", type=several(whole(1, 1 << 10)), default="1,2,4,8,16,32,64", metavar="LIST",
                        help="prompts at once (default 1,2,4,8,16,32,64)")  # fmt: skip
    parser.add_argument("--samples", type=positive, default=24, help="timed transfers of each kind a cell (default 24)")
    parser.add_argument("--seconds", type=positive, default=1800, help="the time that there is (default 1800)")
    parser.add_argument("--maps", action="store_true",
                        help="in place of staged: by what costs less, where pages may be mapped")  # fmt: skip
    parser.add_argument("--cpu", action="store_true", help="host memory and torch kernels: for a machine without GPUs")
    options = parser.parse_args(argv)
    options.prompts = [1024 * each for each in options.prompts]
    least = min(options.prompts)
    if uneven := [name for name in options.pairs if least * SHAPE_OF[name].token_bytes % MIB]:
        parser.error(f"--prompts {least >> 10}: with {uneven[0]} that is not whole MiB")
    if wrong := [page for page in options.pages if 1024 % page]:
        parser.error(f"--pages {wrong[0]}: a page is a power of two of tokens")
    return options


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table; 1 if any row was wrong."""
    options = arguments(argv)
    need_gpus(max(SHAPE_OF[name].gpus for name in options.pairs), cpu=options.cpu)
    course, found = Course("grid", argv, options), list[dict[str, Any]]()
    for row in rows(options):
        found.append(row)
        course.keep(found, told(row))
    return course.judged(found)

"""Kernel work: random bytes in random pages for the kernel benchmark, the check of each call, its
clock.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch

from kvproto.io.kernels.base import Kernels, Pool, Side, StagedPart
from kvproto.io.kernels.digest import new_table, read_table
from kvproto.io.kernels.torch import TorchKernels
from kvproto.lab.bench.pools import MARKER, marked_twin, random_bytes, random_pool, same
from kvproto.layout.cut import Cut
from kvproto.layout.plan import Plan
from kvproto.layout.sharding import Layout

SPARE = 1.25
"""Pages of a pool over pages of a table, so that random pages are spread."""


@dataclass(frozen=True, slots=True)
class KernelShape:
    """A row of the table: who sends to whom, and what."""

    prefill: int
    decode: int
    heads: int = 8
    page: int = 16
    k_dim: int = 128
    v_dim: int = 128
    dtype: str = "bfloat16"
    order: Literal["NHD", "HND"] = "NHD"
    layers: int = 64

    @property
    def name(self) -> str:
        extra = "" if self.order == "NHD" else " HND"
        extra += "" if self.dtype == "bfloat16" else f" {self.dtype}"
        extra += "" if (self.k_dim, self.v_dim) == (128, 128) else f" dims {self.k_dim}/{self.v_dim}"
        return f"{self.prefill}->{self.decode} of {self.heads}{extra}"

    def plan(self) -> Plan:
        def layout(tp: int) -> Layout:
            return Layout(
                layers=self.layers, heads=self.heads, k_dim=self.k_dim, v_dim=self.v_dim,
                itemsize=getattr(torch, self.dtype).itemsize, dtype=self.dtype, page_size=self.page, tp=tp,
                order=self.order,
            )  # fmt: skip

        return Plan(layout(self.prefill), layout(self.decode), self.page)


PAIRS = ((4, 2, 8), (2, 4, 8), (4, 1, 8), (1, 4, 8), (8, 1, 8), (1, 8, 8), (2, 8, 4))
OTHERS = (
    KernelShape(4, 2, order="HND"), KernelShape(1, 8, order="HND"), KernelShape(8, 1, dtype="float8_e4m3fn"),
    KernelShape(4, 2, k_dim=192, v_dim=128), KernelShape(1, 1, heads=1, k_dim=576, v_dim=0),
    KernelShape(6, 4, heads=12),
)  # fmt: skip
#: heads of four-bit values and their scales, as nvfp4 has them: strips of them begin between the sectors of memory
NVFP4 = tuple(KernelShape(prefill, decode, k_dim=72, v_dim=72, dtype="uint8") for prefill, decode in ((4, 1), (1, 4)))


#: the table's rows
KERNEL_SHAPES = (
    *(KernelShape(prefill, decode, heads, page) for prefill, decode, heads in PAIRS for page in (1, 16, 64)),
    *OTHERS, *NVFP4,
)  # fmt: skip


@dataclass(slots=True)
class KernelCall:
    """One call, ready to be made again and again."""

    side: Side
    pool: Pool
    table: torch.Tensor
    tokens: int
    parts: list[StagedPart]

    @property
    def nbytes(self) -> int:
        return sum(buffer.numel() for _, buffer in self.parts)

    def run(self, kernels: Kernels, digest: torch.Tensor | None = None) -> Any:
        cell = self.pool, self.table, 0, self.tokens
        if self.side == "scatter":
            return kernels.scatter(*cell, self.parts, digest=digest)
        if len(self.parts) == 1:
            return kernels.gather(*cell, *self.parts[0], digest=digest)
        return kernels.gather_parts(*cell, self.parts, digest=digest)


def make_work(shape: KernelShape, side: Side, every: bool, nbytes: int) -> KernelCall:
    """The first rank's call of this direction, with about `nbytes` staged."""
    plan = shape.plan()
    layout = plan.prefill if side == "gather" else plan.decode
    shares = plan.duties(0) if side == "gather" else plan.writers(0)
    shares = shares if every else shares[:1]
    tokens = nbytes // sum(plan.part_bytes(share, Cut(0, 1)) for share in shares)
    used = -(-tokens // shape.page)
    pool = random_pool(layout, int(used * SPARE))
    table = torch.randperm(pool.pages, device="cuda")[:used]
    parts = [(share, random_bytes(plan.part_bytes(share, Cut(0, tokens)))) for share in shares]
    return KernelCall(side, pool, table, tokens, parts)


def check(work: KernelCall, kernels: Kernels) -> bool:
    """Whether the call does what plain indexing does, and touches nothing else."""
    reference = TorchKernels()
    if work.side == "gather":
        parts = [(share, torch.full_like(buffer, MARKER)) for share, buffer in work.parts]
        for _, buffer in work.parts:
            buffer.fill_(MARKER ^ 0xFF)
        for share, buffer in parts:
            reference.gather(work.pool, work.table, 0, work.tokens, share, buffer)
        work.run(kernels)
        torch.cuda.synchronize()
        return all(torch.equal(a, b) for (_, a), (_, b) in zip(parts, work.parts, strict=True))
    pool = marked_twin(work.pool)
    reference.scatter(pool, work.table, 0, work.tokens, work.parts)
    work.run(kernels)
    return same(pool, work.pool)


def check_digests(work: KernelCall, kernels: Kernels) -> bool:
    tables = [new_table([share for share, _ in work.parts], work.pool.device) for _ in range(2)]
    work.run(kernels, tables[0])
    work.run(TorchKernels(), tables[1])
    return read_table(tables[0]) == read_table(tables[1])


def host_times(call: Callable[[], Any], calls: int) -> list[float]:
    """Seconds until each of so many calls returns, in order; a call returns its launch's ticket."""
    spent = list[float]()
    for turn in range(calls):
        begin = time.perf_counter()
        ticket = call()
        spent.append(time.perf_counter() - begin)
        if turn % 16 == 15:
            torch.cuda.synchronize()
        ticket.done()
    return spent


def device_times(calls: Sequence[Callable[[], Any]], repeats: int) -> list[float]:
    """The median seconds on the device of each call, the calls taking turns.

    The device is put to sleep until all of it is queued, so that it never waits for the host between two marks.
    """
    event: Callable[..., Any] = torch.cuda.Event
    sleep: Callable[[int], Any] = torch.cuda._sleep  # noqa: SLF001 (there is no public one)
    for call in calls:
        call()
    marks = [[(event(enable_timing=True), event(enable_timing=True)) for _ in range(repeats)] for _ in calls]
    torch.cuda.synchronize()
    sleep(200_000 * repeats * len(calls))
    for turn in range(repeats):
        for call, pairs in zip(calls, marks, strict=True):
            pairs[turn][0].record()
            call()
            pairs[turn][1].record()
    torch.cuda.synchronize()
    return [statistics.median(a.elapsed_time(b) for a, b in pairs) * 1e-3 for pairs in marks]

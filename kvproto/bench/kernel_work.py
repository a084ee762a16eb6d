"""The work that the kernel benchmark times: pools of random bytes, random pages, and the check of each call."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch

from kvproto.handlers.kernels.base import Kernels, Part, Pool, Side
from kvproto.handlers.kernels.torch import TorchKernels
from kvproto.layout import Layout, Plan

MARKER = 0xA5
SPARE = 1.25
"""Pages of a pool over pages of a table, so that random pages are spread."""


@dataclass(frozen=True, slots=True)
class Shape:
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
    Shape(4, 2, order="HND"), Shape(1, 8, order="HND"), Shape(8, 1, dtype="float8_e4m3fn"),
    Shape(4, 2, k_dim=192, v_dim=128), Shape(1, 1, heads=1, k_dim=576, v_dim=0), Shape(6, 4, heads=12),
)  # fmt: skip


def shapes(quick: bool) -> list[Shape]:
    pages = (16,) if quick else (1, 16, 64)
    wanted = [Shape(prefill, decode, heads, page) for prefill, decode, heads in PAIRS for page in pages]
    return wanted if quick else wanted + list(OTHERS)


@dataclass(slots=True)
class Work:
    """One call, ready to be made again and again."""

    side: Side
    pool: Pool
    table: torch.Tensor
    tokens: int
    parts: list[Part]

    @property
    def nbytes(self) -> int:
        return sum(buffer.numel() for _, buffer in self.parts)

    def run(self, kernels: Kernels) -> Any:
        if self.side == "gather":
            if len(self.parts) == 1:
                return kernels.gather(self.pool, self.table, 0, self.tokens, *self.parts[0])
            return kernels.gather_parts(self.pool, self.table, 0, self.tokens, self.parts)
        return kernels.scatter(self.pool, self.table, 0, self.tokens, self.parts)


def random_bytes(*shape: int) -> torch.Tensor:
    """Random bytes, made eight at a time."""
    made = torch.empty(shape, dtype=torch.uint8, device="cuda")
    made.view(torch.int64).random_()
    return made


def make_pool(layout: Layout, pages: int) -> Pool:
    heads, dtype = layout.heads_of(0)[1], getattr(torch, layout.dtype)
    inner = (layout.page_size, heads) if layout.order == "NHD" else (heads, layout.page_size)

    def tensors(dim: int) -> list[torch.Tensor]:
        layers = range(layout.layers if dim else 0)
        return [random_bytes(pages, *inner, dim * layout.itemsize).view(dtype) for _ in layers]

    return Pool(tensors(layout.k_dim), tensors(layout.v_dim), layout.order, layout.page_size)


def make_work(shape: Shape, side: Side, every: bool, nbytes: int, *, pinned: bool = False) -> Work:
    """The first rank's call of this direction, with about `nbytes` staged, on the device or in pinned host memory."""
    plan = shape.plan()
    layout = plan.prefill if side == "gather" else plan.decode
    shares = plan.duties(0) if side == "gather" else plan.writers(0)
    shares = shares if every else shares[:1]
    tokens = nbytes // sum(plan.part_bytes(share, 1) for share in shares)
    used = -(-tokens // shape.page)
    pool = make_pool(layout, int(used * SPARE))
    table = torch.randperm(pool.pages, device="cuda")[:used]
    parts = [(share, random_bytes(plan.part_bytes(share, tokens))) for share in shares]
    if pinned:
        parts = [(share, buffer.cpu().pin_memory()) for share, buffer in parts]
    return Work(side, pool, table, tokens, parts)


def check(work: Work, kernels: Kernels) -> bool:
    """Whether the call does what plain indexing does, and touches nothing else."""
    reference = TorchKernels()
    if work.side == "gather":
        parts = [(share, torch.full_like(buffer, MARKER, device="cuda")) for share, buffer in work.parts]
        for _, buffer in work.parts:
            buffer.fill_(MARKER ^ 0xFF)
        for share, buffer in parts:
            reference.gather(work.pool, work.table, 0, work.tokens, share, buffer)
        work.run(kernels)
        torch.cuda.synchronize()
        return all(torch.equal(a, b.cuda()) for (_, a), (_, b) in zip(parts, work.parts, strict=True))
    for tensor in work.pool.k + work.pool.v:
        tensor.view(torch.uint8).fill_(MARKER)
    pool = Pool([t.clone() for t in work.pool.k], [t.clone() for t in work.pool.v], work.pool.order)
    reference.scatter(pool, work.table, 0, work.tokens, [(share, buffer.cuda()) for share, buffer in work.parts])
    work.run(kernels)
    pairs = zip(pool.k + pool.v, work.pool.k + work.pool.v, strict=True)
    return all(torch.equal(a.view(torch.uint8), b.view(torch.uint8)) for a, b in pairs)

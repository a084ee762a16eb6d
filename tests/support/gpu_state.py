"""GPU state: ranks whose model keeps state in slots, or a window in pages of its own."""

from __future__ import annotations

from typing import Any

import torch

from kvproto.io.kernels.base import Pool
from kvproto.layout.caches import END, WINDOW, Cache, CachePart
from kvproto.layout.sharding import Layout
from kvproto.verify.testing.pools import empty_caches, noise, tensors_of
from kvproto.verify.testing.task import views
from support.gpu_ranks import PAGES, TOKENS, GpuRanks, pages

FULL = Cache("full", (CachePart("k", 4, 128), CachePart("v", 4, 128)), (1,))
#: as of a gated delta net and of Mamba2's one group, so that a chunk of state has half the layers; the heads of a slot
#: are long enough for copy engines, and those of a chunk for one copy
PARTS = CachePart("q", 4, 768), CachePart("B", 1, 774), CachePart("heads", 4, 1 << 17)
LAYERS = 16
STATE = Cache("state", PARTS, tuple(range(LAYERS)), "", END, 2)
#: a window that begins in the middle of a page
LOCAL = Cache("local", (CachePart("k", 4, 256), CachePart("v", 4, 128)), (0, 1), "", WINDOW, 2, window=40)


class GpuState(GpuRanks):
    """One side's ranks."""

    last, slot_bytes = STATE, 1 << 23

    def make(self, gpus: tuple[int, ...], own_thread: bool, route: str) -> list[str]:
        self.digesting = route == "staged"  # with them nothing is written straight into slots and windows
        return super().make(gpus, own_thread, route)

    @classmethod
    def layout(cls, tp: int) -> Layout:
        return Layout.of_caches([FULL, cls.last], layers=LAYERS, page_size=16, tp=tp)

    def pool(self, form: Layout, index: int, device: str) -> Pool:
        host = noise(form, index, PAGES, 1 if self.prefill else 2)
        pool = empty_caches(form, index, PAGES, device=device)
        for mine, whole in zip(tensors_of(pool), tensors_of(host), strict=True):
            mine.copy_(whole)
        return pool

    def lasting(self, number: int, *, prefill: bool) -> list[int]:
        return [(number if prefill else number * 3 + 1) % 4]

    def slot_of(self, number: int) -> dict[str, Any]:
        return {"slot": self.lasting(number, prefill=self.prefill)[0]}

    def right(self, number: int) -> bool:
        """Whether a decode pool has the prefill rank's bytes of this room's pages and slot."""
        form, found = self.layout(len(self.pools)), list[bool]()
        for index, pool in enumerate(self.pools):
            sent = noise(form, index, PAGES, 1)
            ours, at = (self.lasting(number, prefill=side) for side in (False, True))
            begin = max(0, TOKENS - self.last.window) % 16 if self.last.window else 0
            for mine, theirs, here, there, first in (
                (pool, sent, pages(number), pages(number), 0), (pool.ends[0], sent.ends[0], ours, at, begin),
            ):  # fmt: skip
                pairs = zip(views(mine), views(theirs), strict=True)
                rows = [(one.cpu()[here].flatten(0, 1), other[there].flatten(0, 1)) for one, other in pairs]
                found += [torch.equal(one[first:], other[first:]) for one, other in rows]
        return bool(found) and all(found)


class GpuWindow(GpuState):
    """One side's ranks, of a model with a window."""

    last = LOCAL

    def lasting(self, number: int, *, prefill: bool) -> list[int]:
        """The pages of a room's window."""
        step = 7 if prefill else 11
        return [(number * step + at * 5) % PAGES for at in range(3)]

    def slot_of(self, number: int) -> dict[str, Any]:
        return {"window": self.lasting(number, prefill=self.prefill)}

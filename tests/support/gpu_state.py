"""GPU state: ranks whose model keeps state, a slot of it beside the pages of each room."""

from __future__ import annotations

import torch

from kvproto.io.kernels.base import Pool
from kvproto.layout.caches import END, Cache, CachePart
from kvproto.layout.sharding import Layout
from kvproto.verify.testing.pools import empty_caches, noise, slots_beside, tensors_of
from kvproto.verify.testing.task import views
from support.gpu_ranks import PAGES, GpuRanks, pages

FULL = Cache("full", (CachePart("k", 4, 128), CachePart("v", 4, 128)), (1,))
#: as of a gated delta net and of Mamba2's one group, so that a chunk of state has one of the two layers
PARTS = CachePart("q", 4, 768), CachePart("B", 1, 774), CachePart("heads", 4, 4096)
STATE = Cache("state", PARTS, (0, 1), "", END, 2)


class GpuState(GpuRanks):
    """One side's ranks."""

    @staticmethod
    def layout(tp: int) -> Layout:
        return Layout.of_caches([FULL, STATE], layers=2, page_size=16, tp=tp)

    def pool(self, form: Layout, index: int, device: str) -> Pool:
        host = noise(form, index, PAGES, 1 if self.prefill else 2)
        pool = empty_caches(form, index, PAGES, slots_beside(PAGES), device)
        for mine, whole in zip(tensors_of(pool), tensors_of(host), strict=True):
            mine.copy_(whole)
        return pool

    def slot(self, number: int, *, prefill: bool) -> int:
        return (number if prefill else number * 3 + 1) % slots_beside(PAGES)

    def slot_of(self, number: int) -> dict[str, int]:
        return {"slot": self.slot(number, prefill=self.prefill)}

    def right(self, number: int) -> bool:
        """Whether a decode pool has the prefill rank's bytes of this room's pages and slot."""
        form, found = self.layout(len(self.pools)), list[bool]()
        for index, pool in enumerate(self.pools):
            sent = noise(form, index, PAGES, 1)
            assert pool.state is not None and sent.state is not None
            for mine, theirs, ours, at in (
                (pool, sent, pages(number), pages(number)),
                (pool.state, sent.state, [self.slot(number, prefill=False)], [self.slot(number, prefill=True)]),
            ):
                pairs = zip(views(mine), views(theirs), strict=True)
                found += [torch.equal(one.cpu()[ours], other[at]) for one, other in pairs]
        return bool(found) and all(found)

"""Takeover pages: KV in a file that processes share, and the judge of its bytes.

The decode instance's pool is a file in memory (`/dev/shm`).  A rank maps its heads of it, whatever the TP of its life;
the parent maps all of it, and judges.  What follows the pages is a counter for each prefill rank: a process that is
killed leaves what it has written there.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from kvproto.io.kernels.base import Pool
from kvproto.lab.torture.fleet import HEADS, LAYERS
from kvproto.lab.torture.takeover_plan import PAGES, ROW
from kvproto.layout.sharding import Layout

KINDS = 2
COUNTERS = 8


def noise(shape: tuple[int, ...], seed: int) -> torch.Tensor:
    return torch.randint(256, shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))


def kv_of(seed: int, tokens: int) -> torch.Tensor:
    """The KV of a whole prompt: bytes [K or V, layer, token, head, row]."""
    return noise((KINDS, LAYERS, tokens, HEADS, ROW), seed)


class TakeoverPages:
    """Pages of all heads: bytes [K or V, layer, page, token, head, row]."""

    def __init__(self, page_size: int, path: Path | None = None, *, create: bool = False) -> None:
        """`path`: the file that is shared (None: memory of this process alone)."""
        self.page_size = page_size
        shape = (KINDS, LAYERS, PAGES, page_size, HEADS, ROW)
        size = int(np.prod(shape))
        if path is None:
            raw = np.zeros(size + 8 * COUNTERS, np.uint8)
        else:
            raw = np.memmap(path, np.uint8, "w+" if create else "r+", shape=(size + 8 * COUNTERS,))
        self.bytes = torch.from_numpy(raw[:size]).view(shape)
        self.counters = raw[size:].view(np.int64)

    def pool(self, layout: Layout, index: int) -> Pool:
        first, heads = layout.heads_of(index)
        mine = self.bytes[:, :, :, :, first : first + heads].view(torch.bfloat16)
        return Pool(list(mine[0]), list(mine[1]), "NHD", self.page_size)

    def write(self, table: list[int], first: int, rows: torch.Tensor) -> None:
        """Put these rows [K or V, layer, token, head, row] at a room's tokens, from `first` on."""
        page, slot = self._places(table, first, first + rows.shape[2])
        self.bytes[:, :, page, slot] = rows

    def read(self, table: list[int], first: int, upto: int) -> torch.Tensor:
        """Copy a room's tokens out of its pages."""
        return self.bytes[:, :, *self._places(table, first, upto)]

    def _places(self, table: list[int], first: int, upto: int) -> tuple[torch.Tensor, torch.Tensor]:
        token = torch.arange(first, upto)
        return torch.tensor(table, dtype=torch.int64)[token // self.page_size], token % self.page_size


class PagesJudge:
    """A copy of every byte that nobody may write: free pages, and what lies behind a room's last token."""

    def __init__(self, pages: TakeoverPages, seed: int) -> None:
        self.pages, self._seed = pages, seed
        pages.bytes[:] = noise(tuple(pages.bytes.shape), seed)
        self._before = pages.bytes.clone()

    def give_back(self, table: list[int]) -> None:
        self._seed += 1
        self.pages.bytes[:, :, table] = noise((KINDS, LAYERS, len(table), *self.pages.bytes.shape[3:]), self._seed)
        self._before[:, :, table] = self.pages.bytes[:, :, table]

    def changed(self, rooms: list[tuple[list[int], int]]) -> list[str]:
        """Say what has changed outside these rooms, each with its page table and its tokens."""
        free = torch.ones(self.pages.bytes.shape[2], dtype=torch.bool)
        found = []
        for table, tokens in rooms:
            free[table] = False
            if slots := tokens % self.pages.page_size:
                now, before = (each[:, :, table[-1], slots:] for each in (self.pages.bytes, self._before))
                found += [] if now.equal(before) else [f"what lies behind the {tokens} tokens of a room has changed"]
        bad = (self.pages.bytes[:, :, free] != self._before[:, :, free]).flatten(3).any(3).any(0).any(0).nonzero()
        if len(bad):
            found.append(f"{len(bad)} pages that no room has were written")
            self._before[:, :, free] = self.pages.bytes[:, :, free]
        return found

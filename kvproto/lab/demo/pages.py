"""Pages: a rank's paged KV, one K and one V tensor a layer with its own heads, in random pages.

The pool starts full of noise, not of zeros, so that a byte that was never written is seen to be wrong, and a byte that
had no business being written is seen to have changed. Rows move as raw bytes: a pool of any dtype, also of 8-bit
floats, which most tensor operations refuse.

The pool may be on a GPU: what is read is there too, and what is stored may come from anywhere.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import torch
from torch import Tensor

from kvproto.lab.demo.verify import Sheet

Kind = Literal["k", "v"]
Places = tuple[Tensor, Tensor]  # (page, slot) of tokens
Key = tuple[str, int]  # (k, v or cache.part, layer of the model)
Rows = dict[Key, Tensor]  # uint8 [rows, units, bytes]


class Allocator:
    """Hands out page ids in a seeded random order; returned ids are handed out again, in random order too."""

    def __init__(self, pages: int, seed: object) -> None:
        self._random = random.Random(repr(seed))
        self._free = list(range(pages))

    def take(self, count: int) -> list[int]:
        """`count` page ids; MemoryError if the pool has fewer left."""
        if count > len(self._free):
            raise MemoryError(f"{count} pages wanted, {len(self._free)} free: make the pool larger")
        self._random.shuffle(self._free)
        taken, self._free = self._free[:count], self._free[count:]
        return taken

    def give(self, pages: Iterable[int]) -> None:
        self._free.extend(pages)


class PagedKV:
    """`k`, `v`: a tensor a layer, [pages, page_size, heads, dim] (NHD) or heads before the page's tokens."""

    def __init__(
        self, *, layers: int, heads: int, dim: int, pages: int, page_size: int, dtype: torch.dtype,
        order: Literal["NHD", "HND"] = "NHD", seed: int = 0, device: str = "cpu",
    ) -> None:  # fmt: skip
        self.page_size, self.order, self.pages, self.device = page_size, order, pages, torch.device(device)
        self._noise = torch.Generator(self.device).manual_seed(seed)
        inner = (page_size, heads) if order == "NHD" else (heads, page_size)
        self.k = [torch.empty(pages, *inner, dim, dtype=dtype, device=device) for _ in range(layers)]
        self.v = [torch.empty(pages, *inner, dim, dtype=dtype, device=device) for _ in range(layers)]
        self.scribble(range(pages))

    def scribble(self, pages: Iterable[int]) -> None:
        """Fill whole pages with noise, in every layer."""
        where = torch.tensor(list(pages), dtype=torch.long, device=self.device)
        for x in (*self.k, *self.v):
            raw = x.view(torch.uint8)
            shape = (len(where), *raw.shape[1:])
            raw[where] = torch.randint(256, shape, dtype=torch.uint8, generator=self._noise, device=self.device)

    def rows(self, kind: Kind, layer: int) -> Tensor:
        """Return a tensor's bytes as a writable view [pages, page_size, heads, dim * itemsize] in any order."""
        raw = (self.k if kind == "k" else self.v)[layer].view(torch.uint8)
        return raw if self.order == "NHD" else raw.transpose(1, 2)

    def where(self, table: Sequence[int], first: int, count: int) -> Places:
        """(page, slot) of the tokens [first, first + count) of a room with page table `table`."""
        token = torch.arange(first, first + count, device=self.device)
        pages = torch.tensor(list(table), dtype=torch.long, device=self.device)
        return pages[token // self.page_size], token % self.page_size

    def write(self, kind: Kind, layer: int, table: Sequence[int], first: int, x: Tensor) -> None:
        """Store `x` [tokens, heads, dim], of the pool's dtype, at tokens [first, first + tokens)."""
        self.store(kind, layer, self.where(table, first, x.shape[0]), x)

    def read(self, kind: Kind, layer: int, table: Sequence[int], tokens: int) -> Tensor:
        """Tokens [0, tokens) as [tokens, heads, dim] of the pool's dtype, copied out of the pages."""
        return self.load(kind, layer, self.where(table, 0, tokens))

    def store(self, kind: Kind, layer: int, places: Places, x: Tensor) -> None:
        """Write at known places: on a GPU, finding them in each layer again would wait for it each time."""
        self.rows(kind, layer)[places] = x.contiguous().view(torch.uint8).to(self.device)

    def load(self, kind: Kind, layer: int, places: Places) -> Tensor:
        """`read` from places found before."""
        return self.rows(kind, layer)[places].view(self.k[0].dtype)


def sheet_of(rows: Mapping[Key, Tensor], first_units: Mapping[Key, int]) -> Sheet:
    """Rows as bytes, by (layer, part, unit) of the whole model."""
    return {
        (layer, kind, first_units[kind, layer] + unit): data.contiguous().numpy().tobytes()
        for (kind, layer), whole in rows.items()
        for unit, data in enumerate(whole.cpu().unbind(1))
    }

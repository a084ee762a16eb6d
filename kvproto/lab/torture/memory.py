"""Memory of a rank: its pages' owners, what must be in them, and what must not have changed.

The pool is the demonstration's: full of noise, its pages handed out at random. Every page that no room has is a canary,
and so is what lies behind a room's last token, and a decode rank's prefix: a copy of all of it is compared again and
again (`intruded`). Pages that are given back become noise at once, so that whoever still reads or writes them is found.

A room's KV is random bytes from its own seed, the same in every process that asks; a rank has its share of heads and
layers of it.
"""

from __future__ import annotations

import torch

from kvproto.io.kernels.base import Pool
from kvproto.lab.demo.guard import Guard, PooledRoom
from kvproto.lab.demo.pages import Allocator, Kind, PagedKV
from kvproto.lab.torture.plan import TortureRoom
from kvproto.layout.sharding import Layout

#: pages that no room ever has
SPARE = 4


def room_bytes(layout: Layout, seed: int, tokens: int) -> torch.Tensor:
    """The KV of a whole room: bytes [K or V, layer, token, head, row]."""
    shape = (2, layout.layers, tokens, layout.heads, layout.k_dim * layout.itemsize)
    return torch.randint(256, shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))


class RankMemory:
    """The pool of rank `index` of a group of this layout, `tokens` long; `seed`: of noise and page tables."""

    def __init__(self, layout: Layout, index: int, tokens: int, seed: int) -> None:
        (self._head, self._heads), (self._layer, self._layers) = layout.heads_of(index), layout.layers_of(index)
        self.layout = layout
        pages = -(-tokens // layout.page_size) + SPARE
        self.pages = PagedKV(
            layers=self._layers, heads=self._heads, dim=layout.k_dim, pages=pages, page_size=layout.page_size,
            dtype=torch.bfloat16, order=layout.order, seed=seed,
        )  # fmt: skip
        self._guard = Guard(self.pages)
        self._allocator = Allocator(pages - SPARE, seed)
        self.held: dict[int, PooledRoom] = {}
        self._owner: dict[int, int] = {}

    @property
    def pool(self) -> Pool:
        return Pool(self.pages.k, self.pages.v, self.pages.order, self.pages.page_size)

    def take(self, room: TortureRoom, tokens: int) -> list[int]:
        """A page table for so many tokens. MemoryError: the rank's rooms are more than was thought."""
        table = self._allocator.take(-(-tokens // self.layout.page_size))
        self.held[room.number] = PooledRoom(table, tokens)
        self._owner |= dict.fromkeys(table, room.number)
        return table

    def owner(self, page: int) -> int:
        return self._owner[page]

    def fill(self, room: TortureRoom, first: int, upto: int) -> None:
        """The room's KV of these tokens comes into its pages; they are what counts as unchanged from now on."""
        table = self.held[room.number].table
        for kind, layer, rows in self._share(room):
            self.pages.write(kind, layer, table, first, rows[first:upto])
        self._guard.renew(table)

    def wrong(self, room: TortureRoom) -> list[str]:
        """Return what is wrong with the room's tokens, a sentence for each kind and layer."""
        found = []
        for kind, layer, rows in self._share(room):
            there = self.pages.read(kind, layer, self.held[room.number].table, room.tokens).view(torch.uint8)
            if not there.equal(rows):
                bad = (there != rows).flatten(1).any(1).nonzero().flatten().tolist()
                tokens = f"{len(bad)} of {room.tokens} tokens are wrong, the first is {bad[0]}"
                found.append(f"{kind.upper()} of local layer {layer}: {tokens}")
        return found

    def give_back(self, number: int) -> None:
        """The room's pages are nobody's: noise."""
        table = self.held.pop(number).table
        for page in table:
            del self._owner[page]
        self.pages.scribble(table)
        self._guard.renew(table)
        self._allocator.give(table)

    def intruded(self) -> list[str]:
        """Return the changes outside the rooms, each once."""
        found = self._guard.intruded(self.held.values())
        if found:
            self._guard.renew(range(self.pages.pages))
        return found

    def _share(self, room: TortureRoom) -> list[tuple[Kind, int, torch.Tensor]]:
        whole = room_bytes(self.layout, room.seed, room.tokens)
        heads = whole[:, :, :, self._head : self._head + self._heads]
        kinds: tuple[Kind, Kind] = ("k", "v")
        return [
            (kind, layer, heads[at, self._layer + layer].contiguous())
            for at, kind in enumerate(kinds)
            for layer in range(self._layers)
        ]

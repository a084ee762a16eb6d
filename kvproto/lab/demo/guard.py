"""Guard: a copy of a pool's bytes, of which those that belong to no room must not change.

After the transfers every row outside the rooms must be what it was, the rest of a room's last page included.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from kvproto.lab.demo.pages import Kind, PagedKV

_KINDS: tuple[Kind, Kind] = ("k", "v")


class PooledRoom(NamedTuple):
    """A room in a pool: its page table, and its tokens."""

    table: Sequence[int]
    tokens: int


class Guard:
    """A copy of all bytes of `pool`, made now."""

    def __init__(self, pool: PagedKV) -> None:
        self.pool = pool
        self.before = {(kind, layer): pool.rows(kind, layer).clone() for kind in _KINDS for layer in range(len(pool.k))}

    def renew(self, pages: Sequence[int]) -> None:
        for (kind, layer), before in self.before.items():
            before[list(pages)] = self.pool.rows(kind, layer)[list(pages)]

    def behind(self, held: PooledRoom) -> tuple[Tensor, Tensor]:
        """Return (now, before) of the row behind the room's last token, the next one's, in all tensors."""
        page, slot = held.table[held.tokens // self.pool.page_size], held.tokens % self.pool.page_size
        now = torch.stack([self.pool.rows(*key)[page, slot] for key in self.before])
        return now, torch.stack([rows[page, slot] for rows in self.before.values()])

    def intruded(self, rooms: Iterable[PooledRoom]) -> list[str]:
        """A sentence for every layer and kind in which a row outside `rooms` is no longer what it was."""
        outside = torch.ones(self.pool.pages, self.pool.page_size, dtype=torch.bool, device=self.pool.device)
        for held in rooms:
            outside[self.pool.where(held.table, 0, held.tokens)] = False
        found = []
        for (kind, layer), before in self.before.items():
            changed = (self.pool.rows(kind, layer) != before).flatten(2).any(2) & outside
            if changed.any():
                page, slot = (int(x) for x in changed.nonzero()[0])
                found.append(
                    f"local layer {layer} {kind.upper()}: {int(changed.sum())} rows outside the rooms changed,"
                    f" the first in page {page} at {slot}"
                )
        return found

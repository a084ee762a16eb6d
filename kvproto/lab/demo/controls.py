"""Controls: bytes that must not change, and corruptions that must be noticed.

`Guard` remembers a whole pool: after the transfers every row of it that belongs to no room must be what it was, the
rest of a room's last page included. The controls put a rank's pages into a state that a faulty transfer would leave,
inside `tampered`, which puts everything back: a verification that does not find one is worth nothing.

    swapped-head    K of two heads of one layer are exchanged; on a rank with one head, it is given `foreign`, another's
    swapped-chunk   two cells of the room are exchanged
    dropped-page    one page was never written: it holds what it held before
    stale-chunk     a cell holds the bytes of the cell before it: its ring region was read before the write landed
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from kvproto.lab.demo.pages import Kind, PagedKV, Places
from kvproto.lab.demo.verify import Sheet

_KINDS: tuple[Kind, Kind] = ("k", "v")
Copied = dict[tuple[Kind, int], Tensor]  # (kind, local layer) -> bytes [heads, tokens, row]


@dataclass(frozen=True)
class PooledRoom:
    """A room in a pool: its page table, its tokens, and the cells (first, count) that were moved.

    `foreign` [tokens, dim], of the pool's dtype: K, in the pool's first layer, of a head that the pool does not hold.
    """

    table: Sequence[int]
    tokens: int
    cells: tuple[tuple[int, int], ...] = ()
    foreign: Tensor | None = None


def copied(pool: PagedKV, held: PooledRoom) -> Copied:
    """Copy the room's bytes where the pool is; the copy is quick, the report comes later."""
    places = pool.where(held.table, 0, held.tokens)
    return {
        (kind, local): pool.load(kind, local, places).view(torch.uint8).transpose(0, 1).contiguous()
        for kind in _KINDS
        for local in range(len(pool.k))
    }


def told(copies: Copied, first_layer: int, first_head: int) -> Sheet:
    """Copied bytes by (layer, kind, head) of the whole model."""
    out: Sheet = {}
    for (kind, local), rows in copies.items():
        for head, row in enumerate(rows.cpu()):
            out[first_layer + local, kind, first_head + head] = row.numpy().tobytes()
    return out


def sheet(pool: PagedKV, held: PooledRoom, first_layer: int, first_head: int) -> Sheet:
    """The room's bytes by (layer, kind, head) of the whole model."""
    return told(copied(pool, held), first_layer, first_head)


def truth_sheet(keys: Tensor, values: Tensor) -> Sheet:
    """The same of the unsharded [layers, heads, tokens, dim]."""
    layers, heads = keys.shape[:2]
    return {
        (layer, kind, head): x[layer, head].contiguous().view(torch.uint8).cpu().numpy().tobytes()
        for kind, x in zip(_KINDS, (keys, values), strict=True)
        for layer in range(layers)
        for head in range(heads)
    }


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


# ---- corruptions --------------------------------------------------------------------------------------------------


def swapped_head(guard: Guard, held: PooledRoom) -> None:
    first, count = _span(held)
    where, rows = guard.pool.where(held.table, first, count), guard.pool.rows("k", 0)
    if rows.shape[2] > 1:
        _exchange(rows[:, :, 0], where, rows[:, :, 1], where)
    elif held.foreign is not None:
        rows[:, :, 0][where] = held.foreign[first:].contiguous().view(torch.uint8).to(rows.device)


def swapped_chunk(guard: Guard, held: PooledRoom) -> None:
    for rows, here, there in _two_cells(guard.pool, held):
        _exchange(rows, here, rows, there)


def dropped_page(guard: Guard, held: PooledRoom) -> None:
    first, _ = _span(held)
    page = held.table[first // guard.pool.page_size]
    for (kind, layer), before in guard.before.items():
        guard.pool.rows(kind, layer)[page] = before[page]


def stale_chunk(guard: Guard, held: PooledRoom) -> None:
    for rows, here, there in _two_cells(guard.pool, held):
        rows[there] = rows[here]


CONTROLS: dict[str, Callable[[Guard, PooledRoom], None]] = {
    "swapped-head": swapped_head,
    "swapped-chunk": swapped_chunk,
    "dropped-page": dropped_page,
    "stale-chunk": stale_chunk,
}


def applicable(name: str, pool: PagedKV, held: PooledRoom) -> bool:
    """Tell whether the control fits: a room without moved cells, or with one cell or head, may have none."""
    if name == "swapped-head" and held.foreign is None and pool.rows("k", 0).shape[2] == 1:
        return False
    return len(held.cells) >= (2 if name in ("swapped-chunk", "stale-chunk") else 1)


@contextlib.contextmanager
def tampered(name: str, guard: Guard, held: PooledRoom) -> Iterator[None]:
    """Apply the control `name` to a finished room; restore the pool on leaving. ValueError: unfit."""
    if not applicable(name, guard.pool, held):
        raise ValueError(f"{name} needs more than this room has: {len(held.cells)} cells moved")
    now = Guard(guard.pool)
    try:
        CONTROLS[name](guard, held)
        yield
    finally:
        for (kind, layer), rows in now.before.items():
            guard.pool.rows(kind, layer).copy_(rows)


def _span(held: PooledRoom) -> tuple[int, int]:
    """First moved token and how many were moved."""
    first = held.cells[0][0]
    return first, held.tokens - first


def _two_cells(pool: PagedKV, held: PooledRoom) -> Iterator[tuple[Tensor, Places, Places]]:
    """Yield each tensor's bytes and the places of the first two cells, as far as the shorter one goes."""
    (a, count), (b, last) = held.cells[:2]
    here, there = (pool.where(held.table, first, min(count, last)) for first in (a, b))
    for kind in _KINDS:
        for layer in range(len(pool.k)):
            yield pool.rows(kind, layer), here, there


def _exchange(a: Tensor, here: Places, b: Tensor, there: Places) -> None:
    x, y = a[here].clone(), b[there].clone()
    a[here], b[there] = y, x

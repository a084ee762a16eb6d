"""Caches pages: a rank's memory of several caches, in random pages and slots.

It starts full of noise, so that what was never written is seen to be wrong, and what had no business being written is
seen to have changed.  All that is stored or loaded is rows of bytes, by part and layer of the model.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from kvproto.io.kernels.cache_pool import CachePool
from kvproto.lab.demo.pages import Allocator, Key, Places, Rows, sheet_of
from kvproto.lab.demo.verify import Sheet
from kvproto.layout.sharding import Layout


class HeldRoom(NamedTuple):
    """Pages of a room, pages of its window, its slot of state, and its tokens."""

    pages: list[int]
    window: list[int]
    slot: int
    tokens: int


class _Part(NamedTuple):
    """A part in one layer: its tensor [page, token, unit, byte], this rank's units, and how it travels."""

    tensor: Tensor
    first_unit: int
    units: int
    at_end: bool
    window: int


class CachesPages:
    """A rank's caches: `pages` for tokens, `windows` pages for windows, `slots` for states."""

    def __init__(self, layout: Layout, rank: int, *, pages: int, windows: int, slots: int, seed: int) -> None:
        self.layout, self.rank, self.page_size, self.parts = layout, rank, layout.page_size, dict[Key, _Part]()
        noise, views = torch.Generator().manual_seed(seed), dict[str, list[Tensor]]()
        layouts = [layout, *(layout.ends if layout.state is not None else ())]
        for each in layouts:
            window = 0 if each is layout else each.window
            count = pages if each is layout else windows if window else slots
            for kind in each.kinds:
                (unit, units), (first, held) = each.units_of(kind, rank), each.rows_of(kind, rank)
                views[kind.name] = []
                for layer in kind.layers[first : first + held]:
                    inner = (each.page_size, units) if layout.order == "NHD" or kind.at_end else (units, each.page_size)
                    raw = torch.randint(256, (count, *inner, kind.row), dtype=torch.uint8, generator=noise)
                    views[kind.name].append(raw[:, 0] if kind.at_end else raw)
                    tensor = raw if layout.order == "NHD" or kind.at_end else raw.transpose(1, 2)
                    self.parts[kind.name, layer] = _Part(tensor, unit, units, kind.at_end, window)
        tensors = {f"{name} {at}": view for name, some in views.items() for at, view in enumerate(some)}
        self.pool = CachePool(layout, rank, views, tensors)
        self.before = {key: part.tensor.clone() for key, part in self.parts.items()}
        self._free = Allocator(pages, (seed, "pages")), Allocator(windows, (seed, "window")), Allocator(slots, seed)
        self._window = max((part.window for part in self.parts.values()), default=0)
        self._noise = noise

    def take(self, tokens: int) -> HeldRoom:
        """Take pages and a slot for a room of so many tokens; MemoryError: too few are left."""
        size, (pages, windows, slots) = self.page_size, self._free
        around = -(-tokens // size) - max(0, tokens - self._window) // size if self._window else 0
        return HeldRoom(pages.take(-(-tokens // size)), windows.take(around), slots.take(1)[0], tokens)

    def give(self, held: HeldRoom) -> None:
        """Give all of a room's memory back; a late reader or writer would meet noise there."""
        pages, windows, slots = self._free
        for key, part in self.parts.items():
            where = [held.slot] if part.at_end else held.window if part.window else held.pages
            form = (len(where), *part.tensor.shape[1:])
            part.tensor[where] = torch.randint(256, form, dtype=torch.uint8, generator=self._noise)
            self.before[key][where] = part.tensor[where]
        for free, some in ((pages, held.pages), (windows, held.window), (slots, [held.slot])):
            free.give(some)

    def _places(self, part: _Part, held: HeldRoom, first: int, count: int) -> Places:
        """(page, place in it) of these tokens; of a state, of its one row."""
        if part.at_end:
            return torch.tensor([held.slot]), torch.tensor([0])
        token = torch.arange(first, first + count)
        base = max(0, held.tokens - part.window) // self.page_size if part.window else 0
        table = torch.tensor(held.window if part.window else held.pages)
        return table[token // self.page_size - base], token % self.page_size

    def _span(self, part: _Part, tokens: int) -> tuple[int, int]:
        """(first, number) of a room's tokens that have rows in a part."""
        first = max(0, tokens - part.window) if part.window else 0
        return first, tokens - first

    def _own(self, part: _Part, held: HeldRoom) -> Places:
        """(page, place in it) of all rows of a room."""
        return self._places(part, held, *self._span(part, held.tokens))

    def store(self, rows: Rows, held: HeldRoom, first: int, upto: int) -> None:
        """Store this rank's units of the tokens from `first` to `upto`.

        `rows` are of all units, and of all that the library has after `upto` tokens.  What travels at the end is stored
        with the last token.
        """
        for key, part in self.parts.items():
            last = part.at_end or part.window
            if last and upto < held.tokens:
                continue
            begin, count = self._span(part, held.tokens) if last else (first, upto - first)
            whole = rows[key] if last else rows[key][first:upto]
            mine = whole[:, part.first_unit : part.first_unit + part.units]
            part.tensor[self._places(part, held, begin, count)] = mine

    def load(self, held: HeldRoom) -> Rows:
        """Return copies of this rank's units of all rows of a room."""
        return {key: part.tensor[self._own(part, held)].contiguous() for key, part in self.parts.items()}

    def sheet(self, rows: Mapping[Key, Tensor]) -> Sheet:
        """Rows of this rank's units as bytes, by (layer, part, unit) of the whole model."""
        return sheet_of(rows, {key: self.parts[key].first_unit for key in rows})

    def renew(self, held: HeldRoom) -> None:
        for key, part in self.parts.items():
            where = self._own(part, held)
            self.before[key][where] = part.tensor[where]

    def intruded(self, rooms: Collection[HeldRoom]) -> list[str]:
        """A sentence for each part in which a row outside of these rooms has changed."""
        found = list[str]()
        for (kind, layer), part in self.parts.items():
            outside = torch.ones(part.tensor.shape[:2], dtype=torch.bool)
            for each in rooms:
                outside[self._own(part, each)] = False
            changed = (part.tensor != self.before[kind, layer]).flatten(2).any(2) & outside
            if changed.any():
                page, place = changed.nonzero()[0].tolist()
                count = int(changed.sum())
                where = f"{kind} of layer {layer}"
                found.append(f"{where}: {count} rows outside the rooms changed, the first in page {page} at {place}")
        return found


def whole_rows(shares: Sequence[Sheet], forms: Mapping[Key, tuple[int, int]]) -> Rows:
    """Put the ranks' sheets together; `forms`: (units, bytes of a row) by part and layer."""
    together = {key: data for share in shares for key, data in share.items()}
    return {
        (kind, layer): torch.stack(
            [torch.frombuffer(bytearray(together[layer, kind, unit]), dtype=torch.uint8).view(-1, row)
             for unit in range(units)], dim=1)
        for (kind, layer), (units, row) in forms.items()
    }  # fmt: skip

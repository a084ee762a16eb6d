"""Ends judge: moves a room between pools of real bytes, and knows by itself what should be where.

It knows the model as rows of each part and layer, the units that a rank holds (split, each repeated once a replica),
the layers of a stage, and in which page of which table a row lies by the number of its token.  Nothing of that is asked
of plan, layout or pool.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from caches_judge import held_layers, held_units

from kvproto.data.chunk_launch import bind_chunk
from kvproto.data.room_entry import RoomEntry
from kvproto.data.staging_buffers import Parts
from kvproto.endpoint.last_rows import need_last_rows
from kvproto.io.kernels.base import Kernels, Pool
from kvproto.io.kernels.cache_pool import CachePool
from kvproto.layout.caches import ALL, END, Cache
from kvproto.layout.cut import chunks, cut_at
from kvproto.layout.plan import Plan
from kvproto.layout.sharding import Layout

PAGES, SLOTS = 40, 5
Place = tuple[str, str, int]
#: by cache, part and layer: [row, unit, byte]; a token's row has its number
Truth = dict[Place, torch.Tensor]


def truth_of(layout: Layout, tokens: int, seed: int) -> Truth:
    """Make every row of a room: of each token, of the state after the last one."""
    bits = torch.Generator().manual_seed(seed)
    return {
        (cache.name, part.name, layer): torch.randint(
            0, 256, (1 if cache.travels == END else tokens, part.units, part.row_bytes), dtype=torch.uint8,
            generator=bits,
        )
        for cache in layout.named for part in cache.parts for layer in cache.layers or range(layout.layers)
    }  # fmt: skip


class Side:
    """The pools of one group, and the pages and slots that one room has in them."""

    def __init__(
        self, layout: Layout, tokens: int, prefix: int, seed: int, tables: dict[str, tuple[int, ...]]
    ) -> None:  # fmt: skip
        """`tables`: of a cache at the end whose layers lie in several tables: by its layers, which of them."""
        self.layout, self.tokens, self.prefix, self.tables = layout, tokens, prefix, tables
        bits, order = torch.Generator().manual_seed(seed), np.random.default_rng(seed)
        size = layout.page_size
        self.pages: list[int] = order.permutation(PAGES)[: -(-tokens // size)].tolist()
        #: by cache at the end: its tables, of a window by page, of state of one slot each
        self.last: dict[str, list[list[int]]] = {}
        for cache in self.at_end():
            first = max(0, tokens - cache.window)
            count = 1 if cache.travels == END else -(-tokens // size) - first // size
            free = order.permutation(SLOTS if cache.travels == END else PAGES).tolist()
            several = 1 + max(tables.get(cache.name, (0,)))
            self.last[cache.name] = [[free.pop() for _ in range(count)] for _ in range(several)]
        self.views: list[dict[Place, torch.Tensor]] = []
        for rank in range(layout.ranks):
            self.views.append({})
            for cache in layout.named:
                rows = (SLOTS, 1) if cache.travels == END else (PAGES, size)
                for part in cache.parts:
                    for layer in self.held(cache, rank):
                        shape = *rows, len(held_units(part.units, layout.tp)[rank % layout.tp]), part.row_bytes
                        view = torch.randint(0, 256, shape, dtype=torch.uint8, generator=bits)
                        self.views[rank][cache.name, part.name, layer] = view

    def at_end(self) -> Iterator[Cache]:
        return (cache for cache in self.layout.named if cache.travels != ALL)

    def held(self, cache: Cache, rank: int) -> list[int]:
        stage = held_layers(self.layout)[rank // self.layout.tp]
        return [layer for layer in cache.layers or range(self.layout.layers) if layer in stage]

    def put(self, truth: Truth, *, below: bool) -> None:
        """Write what a room has on every rank: all of its rows, or those that travel (not `below` the prefix)."""
        size = self.layout.page_size
        for cache in self.layout.named:
            first = max(0, self.tokens - cache.window) if cache.window else 0 if below else self.prefix
            for part in cache.parts:
                for rank, views in enumerate(self.views):
                    units = held_units(part.units, self.layout.tp)[rank % self.layout.tp]
                    for layer in self.held(cache, rank):
                        view, rows = views[cache.name, part.name, layer], truth[cache.name, part.name, layer]
                        table, begin = self.table_of(cache, layer), first // size if cache.window else 0
                        if cache.travels == END:
                            view[table[0], 0] = rows[0, units]
                            continue
                        for token in range(first, self.tokens):
                            view[table[token // size - begin], token % size] = rows[token, units]

    def table_of(self, cache: Cache, layer: int) -> list[int]:
        if cache.travels == ALL:
            return self.pages
        at = (cache.layers or range(self.layout.layers)).index(layer)
        return self.last[cache.name][self.tables.get(cache.name, (0,) * (at + 1))[at]]

    def pool(self, rank: int) -> CachePool:
        parts: dict[str, list[torch.Tensor]] = {
            f"{cache.name}.{part.name}": [] for cache in self.layout.named for part in cache.parts
        }
        for (name, part, _), view in self.views[rank].items():
            parts[f"{name}.{part}"].append(view)
        slot_of = {}
        for cache in self.at_end():
            if cache.name in self.tables and (mine := self.held(cache, rank)):
                slot_of[cache.name] = [self.tables[cache.name][cache.layers.index(layer)] for layer in mine]
        tensors = {str(at): view for at, view in enumerate(self.views[rank].values())}
        return CachePool(self.layout, rank, parts, tensors, slot_of=slot_of)

    def entry(self, pool: Pool) -> RoomEntry:
        """Give a room to a rank, as an endpoint does."""
        given: dict[str, dict[str, Any]] = {"slot": {}, "window": {}}
        for end in pool.ends:
            mine = self.last[end.end.name][: end.room_slots]
            what = "window" if end.end.window else "slot"
            slots = [table[0] for table in mine]
            given[what][end.end.name] = slots if what == "slot" else mine if end.room_slots > 1 else mine[0]
        ends = need_last_rows(pool, self.tokens, given["slot"] or None, given["window"] or None)
        tables = tuple(
            torch.tensor(mine) if end.own_tables else None for end, mine in zip(pool.ends, ends, strict=True)
        )
        table = torch.tensor(self.pages)
        return RoomEntry(self.tokens, table, table.numpy(), len(self.pages), ends, tables)


class Move:
    """Two groups, and one room between them."""

    def __init__(
        self, prefill: Layout, decode: Layout, chunk_tokens: int, tokens: int, prefix: int, *, groups: int = 1,
        seed: int = 0, tables: dict[str, tuple[int, ...]] | None = None,
    ) -> None:  # fmt: skip
        self.plan = Plan(prefill, decode, chunk_tokens)
        self.room, self.groups = (tokens, prefix), min(groups, self.plan.fewest_layers)
        self.sides = [Side(each, tokens, prefix, seed + at, tables or {}) for at, each in enumerate((prefill, decode))]
        self.wanted = Side(decode, tokens, prefix, seed + 1, tables or {})
        truth = truth_of(prefill, tokens, seed)
        self.sides[0].put(truth, below=True)
        self.wanted.put(truth, below=False)
        self.pools = [[side.pool(rank) for rank in range(side.layout.ranks)] for side in self.sides]
        self.entries = [
            [side.entry(pool) for pool in pools] for side, pools in zip(self.sides, self.pools, strict=True)
        ]

    def run(self, kernels: Kernels) -> int:
        """Move every chunk; return the bytes of all parts."""
        (tokens, prefix), plan, moved = self.room, self.plan, 0
        for k in range(chunks(tokens, prefix, *self.cuts)):
            cut = cut_at(k, tokens, prefix, *self.cuts)
            for reader, (pool, entry) in enumerate(zip(self.pools[1], self.entries[1], strict=True)):
                region, parts, end = torch.zeros(plan.grant_bytes(reader, cut), dtype=torch.uint8), [], 0
                for writer in plan.fan_in(reader, cut):
                    part = plan.part(writer, reader, cut)
                    assert part.offset >= end and part.offset % 256 == 0 and part.nbytes > 0
                    end = part.offset + part.nbytes
                    slot = torch.zeros(self.slot_bytes(writer), dtype=torch.uint8)
                    mine, its = self.pools[0][writer], self.entries[0][writer]
                    bind_chunk(kernels, "gather", mine, its, cut, [(part, 0)], Parts(slot))(None, None)
                    region[part.offset : end] = slot[: part.nbytes]
                    parts.append((part, part.offset))
                    moved += part.nbytes
                if parts:
                    bind_chunk(kernels, "scatter", pool, entry, cut, parts, Parts(region))(None, None)
        return moved

    @property
    def cuts(self) -> tuple[int, int, int, int]:
        """Chunk tokens, layer groups, groups of the state, and tokens of a joint chunk."""
        return self.plan.chunk_tokens, self.groups, self.plan.state_groups, self.plan.joint_tokens

    def slot_bytes(self, writer: int) -> int:
        return self.plan.prefill.slot_bytes(writer, self.plan.chunk_tokens)

    def judge(self) -> None:
        """Compare every byte of every decode pool."""
        for rank, (found, wanted) in enumerate(zip(self.sides[1].views, self.wanted.views, strict=True)):
            for place, view in wanted.items():
                assert torch.equal(found[place], view), f"decode rank {rank}: {place}"

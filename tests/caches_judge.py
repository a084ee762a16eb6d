"""Caches judge: executes a plan of K and V, or of named caches, on real bytes and compares every byte.

It knows the model as an array for each part, `[layer, token, unit, byte]`, and who should hold what by a rule of its
own (split the units, each repeated once a replica; split the model's layers by stages).  Nothing of the plan's
arithmetic is used: not its kinds, their order, nor its intervals.  Pools are dense tensors, views of blocks that hold
every part of every layer, or views of blocks of rows (`FORMS`).  A plan moves every cell and layer group by byte runs
or by staging; afterwards every byte that should have moved has, once, and no other byte of any pool is touched.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache

import numpy as np
import numpy.typing as npt

from kvproto.layout import byte_runs_numpy as runs
from kvproto.layout import cut as cuts
from kvproto.layout.caches import Cache
from kvproto.layout.contacts import Share
from kvproto.layout.cut import Cut, Part
from kvproto.layout.placement import Placement, Strides
from kvproto.layout.plan import Plan
from kvproto.layout.sharding import Layout

Bytes = npt.NDArray[np.uint8]
Name = tuple[str, str]
#: a tensor a plane; all planes of a page in one block; K and V of a head and token side by side, heads outermost
FORMS = "dense", "packed", "in rows"


@dataclass(frozen=True)
class Case:
    prefill: Layout
    decode: Layout
    chunk_tokens: int
    tokens: int
    prefix: int
    groups: int = 1
    seed: int = 0
    #: of the pools of each side; `in rows` for K and V alone
    forms: tuple[str, str] = ("dense", "dense")


@cache
def held_units(units: int, tp: int) -> list[list[int]]:
    """The units of each place: a block of them, or the one that several places hold."""
    copies = np.repeat(np.arange(units), max(1, tp // units))
    return [part.tolist() for part in np.array_split(copies, tp)]


@cache
def held_layers(layout: Layout) -> list[list[int]]:
    """The model's layers of each stage: as told, or near-equal with the larger stages last."""
    if layout.stages:
        return [part.tolist() for part in np.split(np.arange(layout.layers), np.cumsum(layout.stages)[:-1])]
    parts = np.array_split(np.arange(layout.layers)[::-1], layout.pp)
    return [part[::-1].tolist() for part in parts[::-1]]


def parts_of(layout: Layout) -> dict[Name, tuple[int, int, list[int]]]:
    """Units, row bytes and layers of each part, as it was declared."""
    if not layout.named:
        dims = (("k", layout.k_dim), ("v", layout.v_dim))
        every = list(range(layout.layers))
        return {("kv", part): (layout.heads, dim * layout.itemsize, every) for part, dim in dims if dim}
    caches: tuple[Cache, ...] = layout.named
    return {
        (cache.name, part.name): (part.units, part.row_bytes, list(cache.layers) or list(range(layout.layers)))
        for cache in caches for part in cache.parts
    }  # fmt: skip


@dataclass
class RankPool:
    """One rank's planes [page, token, unit, byte] by part and model layer, and their memory."""

    planes: dict[Name, dict[int, Bytes]] = field(default_factory=dict)
    regions: list[Bytes] = field(default_factory=list)
    #: (part, layer) in the order of regions or blocks
    places: dict[tuple[Name, int], tuple[int, int]] = field(default_factory=dict)


class Group:
    """The pools and the page table of one group, filled at random."""

    def __init__(self, layout: Layout, tokens: int, random: np.random.Generator, form: str = "dense") -> None:
        self.layout, self.parts, self.form = layout, parts_of(layout), form
        stages = held_layers(layout)
        self._held = {
            (name, rank): [layer for layer in layers if layer in stages[rank // layout.tp]]
            for name, (_, _, layers) in self.parts.items() for rank in range(layout.tp * layout.pp)
        }  # fmt: skip
        needed = -(-tokens // layout.page_size)
        self.pages = needed + 3
        self.table = random.permutation(self.pages)[:needed]
        make = self._in_rows if form == "in rows" else self._pool
        self.ranks = [make(rank, random) for rank in range(layout.tp * layout.pp)]

    def units(self, name: Name, rank: int) -> list[int]:
        return held_units(self.parts[name][0], self.layout.tp)[rank % self.layout.tp]

    def layers(self, name: Name, rank: int) -> list[int]:
        return self._held[name, rank]

    def _pool(self, rank: int, random: np.random.Generator) -> RankPool:
        pool, size, order = RankPool(), self.layout.page_size, (0, 1, 2, 3)
        wanted = [(name, layer) for name in self.parts for layer in self.layers(name, rank)]
        shapes = {}
        for name in self.parts:
            inner = [size, len(self.units(name, rank))]
            order = (0, 1, 2, 3) if self.layout.order == "NHD" else (0, 2, 1, 3)
            shapes[name] = [*inner[:: 1 if self.layout.order == "NHD" else -1], self.parts[name][1]]
        sizes = [int(np.prod(shapes[name])) for name, _ in wanted]
        block = random.integers(0, 256, [self.pages, sum(sizes) + 3], np.uint8)
        if self.form == "packed":
            pool.regions = [block]
        for at, (name, layer) in enumerate(wanted):
            if self.form == "packed":
                begin = sum(sizes[:at])
                plane = block[:, begin : begin + sizes[at]].reshape([self.pages, *shapes[name]])
                pool.places[name, layer] = 1, begin
            else:
                plane = random.integers(0, 256, [self.pages, *shapes[name]], np.uint8)
                pool.regions.append(plane)
            pool.planes.setdefault(name, {})[layer] = plane.transpose(order)
        return pool

    def _in_rows(self, rank: int, random: np.random.Generator) -> RankPool:
        """A block a layer, with one more byte behind each row."""
        pool, (first, *_) = RankPool(), self.parts
        shape = len(self.units(first, rank)), self.pages, self.layout.page_size
        widths = [row for _, row, _ in self.parts.values()]
        for layer in self.layers(first, rank):
            block = random.integers(0, 256, [*shape, sum(widths) + 1], np.uint8)
            pool.regions.append(block)
            for at, name in enumerate(self.parts):
                begin = sum(widths[:at])
                plane = block.transpose(1, 2, 0, 3)[..., begin : begin + widths[at]]
                pool.planes.setdefault(name, {})[layer] = plane
                pool.places[name, layer] = len(pool.regions), begin
        return pool

    def placement(self, rank: int, plan: Plan) -> Placement | None:
        """Say by the plan's kinds where views of blocks lie; None: planes are dense."""
        pool, strides, planes = self.ranks[rank], [], []
        if self.form == "dense":
            return None
        for kind in plan.prefill.kinds:
            found = pool.planes.get((kind.cache, kind.part), {})
            row = kind.row
            planes += [pool.places[(kind.cache, kind.part), layer] for layer in sorted(found)]
            plane = next(iter(found.values()), None)
            shape = (1, 1, 1, row) if plane is None else plane.shape
            steps = (row, row, row) if plane is None else plane.strides[:3]
            strides.append(Strides(*(step if size > 1 else row for step, size in zip(steps, shape, strict=False))))
        return Placement(tuple(strides), tuple(planes))

    def dense_regions(self, rank: int, plan: Plan) -> list[Bytes]:
        """The regions in the order in which peers count them."""
        pool = self.ranks[rank]
        if self.form != "dense":
            return pool.regions
        found = [pool.planes.get((kind.cache, kind.part), {}) for kind in plan.prefill.kinds]
        back = (0, 1, 2, 3) if self.layout.order == "NHD" else (0, 2, 1, 3)
        return [planes[layer].transpose(back) for planes in found for layer in sorted(planes)]

    def fill(self, truth: dict[Name, Bytes], first: int, end: int) -> None:
        """Write the model's tokens [first, end) into every pool."""
        for rank, pool in enumerate(self.ranks):
            for name, planes in pool.planes.items():
                for layer, plane in planes.items():
                    rows = truth[name][self.parts[name][2].index(layer)]
                    for token in range(first, end):
                        page, slot = self.table[token // self.layout.page_size], token % self.layout.page_size
                        plane[page, slot] = rows[token][self.units(name, rank)]

    def bytes(self) -> list[Bytes]:
        return [region.copy() for pool in self.ranks for region in pool.regions]


def judge(case: Case) -> None:
    """Execute the plan of the case by both routes; AssertionError if any byte of any decode pool is off."""
    plan = Plan(case.prefill, case.decode, case.chunk_tokens)
    number = cuts.chunks(case.tokens, case.prefix, case.chunk_tokens, case.groups)
    for route in (by_runs, by_staging):
        random = np.random.default_rng(case.seed)
        truth = {
            name: random.integers(0, 256, (len(layers), case.tokens, units, row), np.uint8)
            for name, (units, row, layers) in parts_of(case.prefill).items()
        }
        sides = zip((case.prefill, case.decode), case.forms, strict=True)
        prefill, decode = (Group(side, case.tokens, random, form) for side, form in sides)
        prefill.fill(truth, 0, case.tokens)
        kept = decode.bytes()
        wrote = 0
        for k in range(number):
            cut = cuts.cut_at(k, case.tokens, case.prefix, case.chunk_tokens, case.groups)
            for reader in range(case.decode.tp * case.decode.pp):
                for part in parts_apart(plan, reader, cut):
                    wrote += route(plan, part.share, (cut.first, cut.tokens), prefill, decode, part.nbytes)
        moved = decode.bytes()
        for region, before in zip((r for pool in decode.ranks for r in pool.regions), kept, strict=True):
            region[:] = before
        decode.fill(truth, case.prefix, case.tokens)
        for ours, expected in zip(moved, decode.bytes(), strict=True):
            assert np.array_equal(ours, expected), route.__name__
        held = [plane for pool in decode.ranks for planes in pool.planes.values() for plane in planes.values()]
        rows = sum(plane.shape[2] * plane.shape[3] for plane in held)
        assert wrote == rows * (case.tokens - case.prefix), f"{route.__name__} wrote some bytes twice"


def parts_apart(plan: Plan, reader: int, cut: Cut) -> list[Part]:
    """The parts of a grant; each has bytes of its own in it."""
    parts = [plan.part(share.writer, reader, cut) for share in plan.writers(reader)]
    ends = [part.offset + part.nbytes for part in parts]
    assert all(part.nbytes > 0 and part.offset % 256 == 0 for part in parts), "a part that is empty, or begins anywhere"
    assert all(end <= part.offset for end, part in zip(ends, parts[1:], strict=False)), "a part within another one"
    assert ends[-1] <= plan.grant_bytes(reader, cut), "a part beyond its grant"
    return parts


def by_runs(
    plan: Plan, share: Share, cell: tuple[int, int], prefill: Group, decode: Group, nbytes: int
) -> int:  # fmt: skip
    """Move the byte runs from region to region as a transport would; returns the bytes moved."""
    places = prefill.placement(share.writer, plan), decode.placement(share.reader, plan)
    columns = runs.slices(plan, share, prefill.table, decode.table, *cell, *places)
    sources, targets = prefill.dense_regions(share.writer, plan), decode.dense_regions(share.reader, plan)
    for src_region, src, dst_region, dst, size in zip(*(column.tolist() for column in columns), strict=True):
        assert src_region <= len(sources) and dst_region <= len(targets), "a run outside the regions"
        ours, theirs = sources[src_region - 1], targets[dst_region - 1]
        assert ours.flags.c_contiguous and theirs.flags.c_contiguous
        assert src + size <= ours.size and dst + size <= theirs.size, "a run beyond its region"
        theirs.reshape(-1)[dst : dst + size] = ours.reshape(-1)[src : src + size]
    moved = int(columns[4].sum())
    assert moved == nbytes, "a part of more or fewer bytes than its runs"
    return moved


def by_staging(
    plan: Plan, share: Share, cell: tuple[int, int], prefill: Group, decode: Group, nbytes: int
) -> int:  # fmt: skip
    """Copy by the pieces of the share as gather and scatter would; returns the bytes copied."""
    moved, depth = 0, held_layers(prefill.layout)[share.writer // prefill.layout.tp]
    for number, kind in enumerate(plan.prefill.kinds):
        name, piece = (kind.cache, kind.part), share.piece(number)
        ours, theirs = prefill.layers(name, share.writer), decode.layers(name, share.reader)
        for at in range(piece.layers):
            layer, wanted = ours[piece.src_layer + at], theirs[piece.dst_layer + at]
            assert layer == wanted, "a layer of the model that is another one at the reader"
            assert layer in depth[share.src_layer : share.src_layer + share.layers], "a layer that is not computed yet"
            source = prefill.ranks[share.writer].planes[name][layer][:, :, piece.src_unit :][:, :, : piece.units]
            target = decode.ranks[share.reader].planes[name][layer][:, :, piece.dst_unit :][:, :, : piece.units]
            assert source.shape[2] == target.shape[2] == piece.units, "a unit beyond the pool"
            for token in range(cell[0], sum(cell)):
                (page, slot), (to, there) = (divmod(token, g.layout.page_size) for g in (prefill, decode))
                target[decode.table[to], there] = source[prefill.table[page], slot]
                moved += piece.units * kind.row
    assert moved == nbytes, "a part of more or fewer bytes than its rows"
    return moved

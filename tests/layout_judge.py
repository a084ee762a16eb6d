"""Layout judge: executes a plan on real bytes and compares every byte of every decode pool.

It knows the model's KV cache as two arrays and who *should* hold what, by a rule of its own (split the heads, each
repeated once a replica). Pools are dense tensors, or views of blocks that hold several planes (`FORMS`). It fills the
prefill pools, executes a plan over every cell, by slices and by staging, and lets nothing pass but the bytes that
should have moved, each moved once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kvproto.layout import byte_runs_numpy as slicing
from kvproto.layout import cut
from kvproto.layout.cut import Cut
from kvproto.layout.placement import Placement, Strides
from kvproto.layout.plan import Plan, Share
from kvproto.layout.sharding import Layout

Bytes = npt.NDArray[np.uint8]
SliceCopy = list[list[int]]


@dataclass(frozen=True)
class Case:
    prefill: Layout
    decode: Layout
    chunk_tokens: int
    tokens: int
    prefix: int
    seed: int = 0
    forms: tuple[str, str] = ("dense", "dense")


class Group:
    """The pools and page table of one group, filled at random, with the model's KV where it belongs.

    `pools`: of each rank, a view of each plane; `regions`: the memory that they are views of; `placements` say where.
    """

    def __init__(self, held: Layout, tokens: int, random: np.random.Generator, form: str = "dense") -> None:
        self.layout = held
        pages = -(-tokens // held.page_size)
        self.table = random.permutation(pages + 3)[:pages]
        self.heads, self.layers = held_heads(held), held_layers(held)
        made = [FORMS[form](self, pages + 3, rank, random) for rank in range(held.tp * held.pp)]
        self.regions, self.pools = [regions for regions, _ in made], [planes for _, planes in made]
        self.placements = [None if form == "dense" else placed(self.regions[at], self.pools[at], held)
                           for at in range(len(made))]  # fmt: skip

    def shape(self, rank: int, dim: int) -> list[int]:
        """The shape of one page of a plane."""
        rows = [self.layout.page_size, len(self.heads[rank % self.layout.tp])]
        return [*rows[:: 1 if self.layout.order == "NHD" else -1], dim * self.layout.itemsize]

    def dims(self, rank: int) -> list[int]:
        """K's or V's of each plane."""
        layers = len(self.layers[rank // self.layout.tp])
        return [dim for dim in (self.layout.k_dim, self.layout.v_dim) for _ in range(layers) if dim]

    def fill(self, truth: list[Bytes], first: int, end: int) -> None:
        """Write the model's tokens [first, end) into every pool; truth: K, V as [layer, token, head, bytes]."""
        for rank, pool in enumerate(self.pools):
            layers, heads = self.layers[rank // self.layout.tp], self.heads[rank % self.layout.tp]
            planes = [plane[layer] for plane in truth if plane.shape[3] for layer in layers]
            for tensor, plane in zip(pool, planes, strict=True):
                for token in range(first, end):
                    self.at(tensor, token)[:] = plane[token, heads]

    def at(self, tensor: Bytes, token: int) -> Bytes:
        """[head, bytes] of one token, a view."""
        page, slot = self.table[token // self.layout.page_size], token % self.layout.page_size
        view: Bytes = tensor[page, slot] if self.layout.order == "NHD" else tensor[page, :, slot]
        return view


def dense_planes(
    group: Group, pages: int, rank: int, random: np.random.Generator
) -> tuple[list[Bytes], list[Bytes]]:  # fmt: skip
    """A tensor a plane."""
    planes = [random.integers(0, 256, [pages, *group.shape(rank, dim)], np.uint8) for dim in group.dims(rank)]
    return planes, planes


def packed(group: Group, pages: int, rank: int, random: np.random.Generator) -> tuple[list[Bytes], list[Bytes]]:
    """All planes of a page in one block: all layers, K and V."""
    shapes = [group.shape(rank, dim) for dim in group.dims(rank)]
    sizes = [int(np.prod(shape)) for shape in shapes]
    whole = random.integers(0, 256, [pages, sum(sizes)], np.uint8)
    begins = [sum(sizes[:at]) for at in range(len(sizes))]
    planes = [whole[:, at : at + size].reshape([pages, *shape])
              for at, size, shape in zip(begins, sizes, shapes, strict=True)]  # fmt: skip
    return [whole], planes


def in_rows(group: Group, pages: int, rank: int, random: np.random.Generator) -> tuple[list[Bytes], list[Bytes]]:
    """K and V of a head and token side by side, and one more byte; a block a layer, heads outermost."""
    dims, layers = group.dims(rank), len(group.layers[rank // group.layout.tp])
    widths = [dim * group.layout.itemsize for dim in dims[::layers]]
    heads, size = len(group.heads[rank % group.layout.tp]), group.layout.page_size
    blocks = [random.integers(0, 256, [heads, pages, size, sum(widths) + 1], np.uint8) for _ in range(layers)]
    axes = (1, 2, 0, 3) if group.layout.order == "NHD" else (1, 0, 2, 3)
    cuts = [slice(sum(widths[:kind]), sum(widths[: kind + 1])) for kind in range(len(widths))]
    return blocks, [block.transpose(axes)[..., cut] for cut in cuts for block in blocks]


FORMS = {"dense": dense_planes, "packed": packed, "in rows": in_rows}


def placed(regions: list[Bytes], planes: list[Bytes], held: Layout) -> Placement:
    """The placement of views within the memory that they belong to."""
    axes = (0, 1, 2) if held.order == "NHD" else (0, 2, 1)
    layers = len(planes) // (2 if held.v_dim else 1)
    strides = [Strides(*(plane.strides[axis] if plane.shape[axis] > 1 else plane.shape[3] for axis in axes))
               for plane in planes[::layers]]  # fmt: skip
    begins = [region.ctypes.data for region in regions]
    places = []
    for plane in planes:
        at = max(
            region for region, begin in enumerate(begins) if begin <= plane.ctypes.data < begin + regions[region].size
        )
        places.append((at + 1, plane.ctypes.data - begins[at]))
    return Placement(tuple(strides), tuple(places))


def held_heads(held: Layout) -> SliceCopy:
    copies = np.repeat(np.arange(held.heads), max(1, held.tp // held.heads))
    return [part.tolist() for part in np.array_split(copies, held.tp)]


def held_layers(held: Layout) -> SliceCopy:
    """The stages as given, or near-equal with the larger ones last: the usual split from the other end."""
    if held.stages:
        return [part.tolist() for part in np.split(np.arange(held.layers), np.cumsum(held.stages)[:-1])]
    parts = np.array_split(np.arange(held.layers)[::-1], held.pp)
    return [part[::-1].tolist() for part in parts[::-1]]


def judge(case: Case) -> None:
    """Execute the plan of the case by both routes; AssertionError if any byte of any decode pool is off."""
    for route in (by_slices, by_staging):
        random = np.random.default_rng(case.seed)
        held = case.prefill
        truth = [
            random.integers(0, 256, (held.layers, case.tokens, held.heads, dim * held.itemsize), np.uint8)
            for dim in (held.k_dim, held.v_dim)
        ]
        sides = zip((case.prefill, case.decode), case.forms, strict=True)
        prefill, decode = (Group(side, case.tokens, random, form) for side, form in sides)
        prefill.fill(truth, 0, case.tokens)
        before = Group(case.decode, case.tokens, np.random.default_rng(), case.forms[1])
        for kept, regions in zip(before.regions, decode.regions, strict=True):
            for copy, region in zip(kept, regions, strict=True):
                copy[:] = region
        before.table = decode.table
        plan = Plan(case.prefill, case.decode, case.chunk_tokens)
        cuts = [
            cut.cut_at(k, case.tokens, case.prefix, case.chunk_tokens)
            for k in range(cut.chunks(case.tokens, case.prefix, case.chunk_tokens))
        ]
        cells = [(each.first, each.tokens) for each in cuts]
        written = sum(route(plan, cell, prefill, decode) for cell in cells)
        before.fill(truth, case.prefix, case.tokens)
        for ours, theirs in zip(decode.regions, before.regions, strict=True):
            for tensor, expected in zip(ours, theirs, strict=True):
                assert np.array_equal(tensor, expected), route.__name__
        share_of_one = case.decode.itemsize * (case.decode.k_dim + case.decode.v_dim) * (case.tokens - case.prefix)
        places = sum(len(heads) for heads in decode.heads) * sum(len(layers) for layers in decode.layers)
        assert written == places * share_of_one, f"{route.__name__} wrote some bytes twice"


def by_slices(plan: Plan, cell: tuple[int, int], prefill: Group, decode: Group) -> int:
    """Move the runs from tensor to tensor as a transport would; returns the bytes moved."""
    moved = 0
    for share in plan.shares:
        places = prefill.placements[share.writer], decode.placements[share.reader]
        columns = slicing.slices(plan, share, prefill.table, decode.table, *cell, *places)
        source, target = prefill.regions[share.writer], decode.regions[share.reader]
        for src_region, src, dst_region, dst, size in zip(*(column.tolist() for column in columns), strict=True):
            assert src_region <= len(source) and dst_region <= len(target), "a run outside the regions"
            ours, theirs = source[src_region - 1].reshape(-1), target[dst_region - 1].reshape(-1)
            assert src + size <= len(ours) and dst + size <= len(theirs), "a run beyond its region"
            theirs[dst : dst + size] = ours[src : src + size]
            moved += size
    return moved


def by_staging(plan: Plan, cell: tuple[int, int], prefill: Group, decode: Group) -> int:
    """Gather every part into its reader's grant, then scatter the grants; returns the bytes of the parts."""
    moved = 0
    for reader in range(plan.decode.ranks):
        grant = np.zeros(plan.grant_bytes(reader, Cut(0, cell[1])), np.uint8)
        for share in plan.writers(reader):
            moved += len(part(plan, share, cell, grant))
            copy_part(part(plan, share, cell, grant), source_rows(share, cell, prefill), gather=True)
        for share in plan.writers(reader):
            copy_part(part(plan, share, cell, grant), target_rows(share, cell, decode), gather=False)
    return moved


def part(plan: Plan, share: Share, cell: tuple[int, int], grant: Bytes) -> Bytes:
    begin, size = plan.part_offset(share.reader, share.writer, Cut(0, cell[1])), plan.part_bytes(share, Cut(0, cell[1]))
    assert begin + size <= len(grant), "a part beyond its grant"
    return grant[begin : begin + size]


def source_rows(share: Share, cell: tuple[int, int], group: Group) -> Iterator[Bytes]:
    return rows(group, share.writer, (share.src_head, share.heads), (share.src_layer, share.layers), cell)


def target_rows(share: Share, cell: tuple[int, int], group: Group) -> Iterator[Bytes]:
    return rows(group, share.reader, (share.dst_head, share.heads), (share.dst_layer, share.layers), cell)


def rows(
    group: Group, rank: int, heads: tuple[int, int], layers: tuple[int, int], cell: tuple[int, int]
) -> Iterator[Bytes]:
    """The pool's rows of a share in a part's order: K then V, by layer, by token; views of [heads, bytes]."""
    local = len(group.layers[rank // group.layout.tp])
    for plane in range(len(group.pools[rank]) // local):
        for layer in range(layers[0], sum(layers)):
            assert layer < local, "a layer beyond the pool"
            for token in range(cell[0], sum(cell)):
                view = group.at(group.pools[rank][plane * local + layer], token)[heads[0] : sum(heads)]
                assert len(view) == heads[1], "a head beyond the pool"
                yield view


def copy_part(staged: Bytes, views: Iterator[Bytes], *, gather: bool) -> None:
    at = 0
    for view in views:
        piece = staged[at : at + view.size]
        assert piece.size == view.size, "a part too small for its rows"
        if gather:
            piece[:] = view.reshape(-1)
        else:
            view[:] = piece.reshape(view.shape)
        at += view.size
    assert at == len(staged), "a part larger than its rows"

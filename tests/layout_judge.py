"""A judge of plans: executes one on real bytes and compares every byte of every decode pool.

It knows the model's KV cache as two arrays and who *should* hold what, by a rule of its own (split the heads, each
repeated once a replica). It fills the prefill pools, executes a plan over every cell, by slices and by staging, and
lets nothing pass but the bytes that should have moved, each moved once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kvproto.layout import byte_runs_numpy as slicing
from kvproto.layout import sharding
from kvproto.layout.plan import Plan, Share
from kvproto.layout.sharding import Layout, chunks

Bytes = npt.NDArray[np.uint8]
SliceCopy = list[list[int]]


@dataclass(frozen=True)
class Case:
    prefill: Layout
    decode: Layout
    grid: int
    tokens: int
    prefix: int
    seed: int = 0


class Group:
    """The pools and the page table of one group, filled at random, with the model's KV written where it belongs."""

    def __init__(self, held: Layout, tokens: int, random: np.random.Generator) -> None:
        self.layout = held
        pages = -(-tokens // held.page_size)
        self.table = random.permutation(pages + 3)[:pages]
        self.heads, self.layers = held_heads(held), held_layers(held)
        self.pools = [list(self._pool(pages + 3, rank, random)) for rank in range(held.tp * held.pp)]

    def _pool(self, pages: int, rank: int, random: np.random.Generator) -> Iterator[Bytes]:
        rows = [self.layout.page_size, len(self.heads[rank % self.layout.tp])]
        for dim in (self.layout.k_dim, self.layout.v_dim):
            for _ in self.layers[rank // self.layout.tp] if dim else ():
                shape = [pages, *rows[:: 1 if self.layout.order == "NHD" else -1], dim * self.layout.itemsize]
                yield random.integers(0, 256, shape, np.uint8)

    def fill(self, truth: list[Bytes], first: int, end: int) -> None:
        """Write the model's tokens [first, end) into every pool; truth is K and V as [layer, token, head, bytes]."""
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


def held_heads(held: Layout) -> SliceCopy:
    copies = np.repeat(np.arange(held.heads), max(1, held.tp // held.heads))
    return [part.tolist() for part in np.array_split(copies, held.tp)]


def held_layers(held: Layout) -> SliceCopy:
    """Near-equal, the larger stages last: the usual split (larger first), counted from the other end."""
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
        prefill, decode = (Group(side, case.tokens, random) for side in (case.prefill, case.decode))
        prefill.fill(truth, 0, case.tokens)
        before = [[tensor.copy() for tensor in pool] for pool in decode.pools]
        plan = Plan(case.prefill, case.decode, case.grid)
        cells = [
            sharding.cell(k, case.tokens, case.prefix, case.grid)
            for k in range(chunks(case.tokens, case.prefix, case.grid))
        ]
        written = sum(route(plan, cell, prefill, decode) for cell in cells)
        got, decode.pools = decode.pools, before
        decode.fill(truth, case.prefix, case.tokens)
        for ours, theirs in zip(got, before, strict=True):
            for tensor, expected in zip(ours, theirs, strict=True):
                assert np.array_equal(tensor, expected), route.__name__
        share_of_one = case.decode.itemsize * (case.decode.k_dim + case.decode.v_dim) * (case.tokens - case.prefix)
        places = sum(len(heads) for heads in decode.heads) * sum(len(layers) for layers in decode.layers)
        assert written == places * share_of_one, f"{route.__name__} wrote some bytes twice"


def by_slices(plan: Plan, cell: tuple[int, int], prefill: Group, decode: Group) -> int:
    """Move the runs from tensor to tensor as a transport would; returns the bytes moved."""
    moved = 0
    for share in plan.shares:
        columns = slicing.slices(plan, share, prefill.table, decode.table, *cell)
        source, target = prefill.pools[share.writer], decode.pools[share.reader]
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
        grant = np.zeros(plan.grant_bytes(reader, cell[1]), np.uint8)
        for share in plan.writers(reader):
            moved += len(part(plan, share, cell, grant))
            copy_part(part(plan, share, cell, grant), source_rows(share, cell, prefill), gather=True)
        for share in plan.writers(reader):
            copy_part(part(plan, share, cell, grant), target_rows(share, cell, decode), gather=False)
    return moved


def part(plan: Plan, share: Share, cell: tuple[int, int], grant: Bytes) -> Bytes:
    begin, size = plan.part_offset(share.reader, share.writer, cell[1]), plan.part_bytes(share, cell[1])
    assert begin + size <= len(grant), "a part beyond its grant"
    return grant[begin : begin + size]


def source_rows(share: Share, cell: tuple[int, int], group: Group) -> Iterator[Bytes]:
    return rows(group, share.writer, (share.src_head, share.heads), (share.src_layer, share.layers), cell)


def target_rows(share: Share, cell: tuple[int, int], group: Group) -> Iterator[Bytes]:
    return rows(group, share.reader, (share.dst_head, share.heads), (share.dst_layer, share.layers), cell)


def rows(
    group: Group, rank: int, heads: tuple[int, int], layers: tuple[int, int], cell: tuple[int, int]
) -> Iterator[Bytes]:
    """The pool's rows of a share, in the order of a part: K then V, by layer, by token; each [heads, bytes], a view."""
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

"""CacheCase: named caches between two groups, with random pools and a copy one row at a time.

The slow copy is the only judge: plain indexing, without strides, units or words.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from digest_cases import slow_digest

from kvproto.io.kernels.base import Kernels
from kvproto.io.kernels.cache_pool import CachePool
from kvproto.io.kernels.digest import new_table, read_table
from kvproto.layout.caches import Cache, CachePart
from kvproto.layout.cut import Cut
from kvproto.layout.plan import Plan, Share
from kvproto.layout.sharding import Layout

POISON = 0xA5


@dataclass(frozen=True)
class CacheCase:
    """One prefill and one decode group of some caches, and the cell that moves between them."""

    caches: tuple[Cache, ...]
    layers: int = 3
    tp: tuple[int, int] = (1, 1)
    pps: tuple[int, int] = (1, 1)
    pages: tuple[int, int] = (4, 4)
    orders: tuple[str, str] = ("NHD", "NHD")
    first: int = 0
    tokens: int = 11
    #: all parts of a page of all layers in one block
    packed: bool = False
    groups: int = 1

    @property
    def plan(self) -> Plan:
        sides = [
            Layout.of_caches(self.caches, layers=self.layers, page_size=self.pages[side], tp=self.tp[side],
                             pp=self.pps[side], order=self.orders[side])  # type: ignore[arg-type]  # a literal
            for side in (0, 1)
        ]  # fmt: skip
        return Plan(sides[0], sides[1], self.pages[0] * self.pages[1])


#: a sparse-attention model's: a latent, and an index of keys and scales that two of three layers have
SPARSE = (
    Cache("mla", (CachePart("latent", 1, 656),)),
    Cache("index", (CachePart("key", 1, 128), CachePart("scale", 1, 4)), (0, 2)),
)
#: values of four bits and their scales, with a draft's KV of another form on the last layer
SCALED = (
    Cache("kv", (CachePart("k", 4, 64), CachePart("k scale", 4, 8), CachePart("v", 4, 32), CachePart("v scale", 4, 4))),
    Cache("draft", (CachePart("k", 2, 96), CachePart("v", 2, 96)), (2,)),
)
#: odd rows
ODD = (Cache("odd", (CachePart("a", 2, 3), CachePart("b", 1, 7), CachePart("c", 4, 2))),)
#: whole pages of narrow rows
WHOLE = [
    CacheCase(SPARSE, first=4, tokens=8),
    CacheCase(SCALED, tp=(2, 1), tokens=8, packed=True),
    CacheCase(ODD, first=8, tokens=16, pages=(4, 8), layers=2, packed=True),
]
CASES = [
    CacheCase(SPARSE),
    CacheCase(SPARSE, packed=True, tp=(4, 1), tokens=13),
    CacheCase(SPARSE, tp=(2, 4), pages=(4, 16), first=16, tokens=37),
    CacheCase(SCALED, tp=(4, 1)),
    CacheCase(SCALED, tp=(1, 4), orders=("HND", "NHD")),
    CacheCase(SCALED, tp=(2, 2), orders=("HND", "HND"), packed=True, groups=2),
    CacheCase(SCALED, tp=(2, 1), pps=(2, 1), pages=(1, 3), first=3, tokens=7),
    CacheCase(ODD, tp=(4, 2), tokens=9),
    CacheCase(ODD, packed=True, orders=("NHD", "HND"), pages=(8, 2), first=2, tokens=21),
    *WHOLE,
]  # fmt: skip


def pool_of(layout: Layout, rank: int, pages: int, seed: int, *, packed: bool, device: str = "cpu") -> CachePool:
    """A rank's pool of random bytes."""
    random, shapes = torch.Generator().manual_seed(seed * 1000 + rank), []
    for kind in layout.kinds:
        inner = [layout.page_size, layout.units_of(kind, rank)[1]][:: 1 if layout.order == "NHD" else -1]
        shapes += [(kind.name, (*inner, kind.row))] * layout.rows_of(kind, rank)[1]
    sizes = [shape[0] * shape[1] * shape[2] for _, shape in shapes]
    parts: dict[str, list[torch.Tensor]] = {kind.name: [] for kind in layout.kinds}
    block = torch.randint(0, 256, (pages, sum(sizes) + 5), dtype=torch.uint8, generator=random).to(device)
    tensors = {"block": block} if packed else {}
    for at, (name, shape) in enumerate(shapes):
        view = block[:, sum(sizes[:at]) :][:, : sizes[at]].view(pages, *shape)
        parts[name].append(view if packed else view.clone())
        if not packed:
            tensors[f"{name} {at}"] = parts[name][-1]
    return CachePool(layout, rank, parts, tensors, {"block": "padding"} if packed else {})


def rows(
    pool: CachePool, case: CacheCase, share: Share, table: torch.Tensor, *, gather: bool
) -> Iterator[torch.Tensor]:  # fmt: skip
    """The bytes of each row of a share in staged order; views of the pool, so they can be written."""
    for kind, tensors in enumerate(pool.kinds):
        piece = share.piece(kind)
        unit, layer = (piece.src_unit, piece.src_layer) if gather else (piece.dst_unit, piece.dst_layer)
        for tensor in tensors[layer : layer + piece.layers]:
            for token in range(case.first, case.first + case.tokens):
                page, slot = int(table[token // pool.page_size]), token % pool.page_size
                for head in range(unit, unit + piece.units):
                    yield tensor[(page, slot, head) if pool.order == "NHD" else (page, head, slot)]


def slow_digests(
    pool: CachePool, case: CacheCase, share: Share, table: torch.Tensor, *, gather: bool
) -> list[int]:  # fmt: skip
    """The digests of a share's rows where the pool has them, by kind, layer and unit."""
    found, moved = list[int](), rows(pool, case, share, table, gather=gather)
    for piece in share.pieces:
        for _ in range(piece.layers):
            tokens = [[bytes(next(moved).tolist()) for _ in range(piece.units)] for _ in range(case.tokens)]
            found += [slow_digest([list(unit)], case.first) for unit in zip(*tokens, strict=True)]
    return found


def snapshot(pool: CachePool) -> list[torch.Tensor]:
    return [tensor.cpu().clone() for tensors in pool.kinds for tensor in tensors]


def check_case(kernels: Kernels, case: CacheCase, device: str = "cpu", *, digests: bool = False) -> int:
    """Gather every part of every reader and scatter all of a reader's at once; returns the bytes moved."""
    plan, moved = case.plan, 0
    end = case.first + case.tokens
    sizes = [-(-end // page) + 5 for page in case.pages]
    random = torch.Generator().manual_seed(7)
    tables = [torch.randperm(size, generator=random)[: -(-end // page)].to(device)
              for size, page in zip(sizes, case.pages, strict=True)]  # fmt: skip
    for reader in range(plan.decode.ranks):
        ours = pool_of(plan.decode, reader, sizes[1], 2, packed=case.packed, device=device)
        for group in range(case.groups):
            shares = next(cut for at, cut in enumerate(plan.cuts(plan.writers(reader), case.groups))
                          if at == case.groups - 1 + group)  # fmt: skip
            whole = torch.full((plan.grant_bytes(reader, Cut(0, case.tokens, group, case.groups)) + 32,), POISON,
                               dtype=torch.uint8, device=device)  # fmt: skip
            parts, filled = [], torch.zeros(whole.numel(), dtype=torch.bool)
            for share in shares:
                theirs = pool_of(plan.prefill, share.writer, sizes[0], 1, packed=case.packed, device=device)
                begin = plan.part_offset(reader, share.writer, Cut(0, case.tokens, group, case.groups))
                size = plan.part_bytes(share, Cut(0, case.tokens))
                out = whole[begin : begin + size]
                made, held = new_table([share], theirs.device) if digests else None, snapshot(theirs)
                kernels.gather(theirs, tables[0], case.first, case.tokens, share, out, digest=made)
                assert all(map(torch.equal, snapshot(theirs), held)), "a gather wrote into its pool"
                if made is not None:
                    assert read_table(made) == slow_digests(theirs, case, share, tables[0], gather=True)
                expected = torch.cat(list(rows(theirs, case, share, tables[0], gather=True)))
                assert torch.equal(out, expected), f"gather of writer {share.writer} for {reader}"
                filled[begin : begin + size] = True
                parts.append((share, out))
                moved += size
            assert bool((whole.cpu()[~filled] == POISON).all()), "a gather wrote beside its part"
            before = snapshot(ours)
            made = new_table(shares, ours.device) if digests else None
            kernels.scatter(ours, tables[1], case.first, case.tokens, parts, digest=made)
            if made is not None:
                right = [slow_digests(ours, case, share, tables[1], gather=False) for share in shares]
                assert read_table(made) == [number for some in right for number in some]
            after = snapshot(ours)
            for tensor, kept in zip((t for tensors in ours.kinds for t in tensors), before, strict=True):
                tensor.copy_(kept)
            for share, staged in parts:
                at = 0
                for row in rows(ours, case, share, tables[1], gather=False):
                    row.copy_(staged[at : at + row.numel()])
                    at += row.numel()
            assert all(map(torch.equal, after, snapshot(ours))), f"scatter of reader {reader}"
    return moved

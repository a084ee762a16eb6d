"""Kernels' cases: geometries, pools of random bytes, and a copy one head at a time.

The slow copy is the only judge. It uses none of the strides, units or words of the kernels: only plain indexing.

Ranks whose shares lie alike in pools of one form give a kernel the same numbers, and differ by their bytes alone: one
of them is asked (`unlike`).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch

from kvproto.io.kernels.base import Kernels, Pool, StagedPart
from kvproto.io.kernels.crossing import Crossing, Rows
from kvproto.layout.cut import Cut
from kvproto.layout.plan import Plan, Share
from kvproto.layout.sharding import Layout

POISON = 0xA5


@dataclass(frozen=True)
class Case:
    """One prefill and one decode group, and the cell that moves between them."""

    tp: tuple[int, int] = (2, 1)
    heads: int = 4
    layers: int = 2
    dims: tuple[int, int] = (8, 8)
    dtype: torch.dtype = torch.bfloat16
    pages: tuple[int, int] = (4, 4)
    orders: tuple[Literal["NHD", "HND"], Literal["NHD", "HND"]] = ("NHD", "NHD")
    pps: tuple[int, int] = (1, 1)
    first: int = 0
    tokens: int = 11
    #: pools are views: a block of a page holds all layers, K and V, and something else
    packed: bool = False

    @property
    def plan(self) -> Plan:
        prefill, decode = (
            Layout(
                layers=self.layers,
                heads=self.heads,
                k_dim=self.dims[0],
                v_dim=self.dims[1],
                itemsize=self.dtype.itemsize,
                dtype=str(self.dtype).removeprefix("torch."),
                page_size=self.pages[side],
                tp=self.tp[side],
                pp=self.pps[side],
                order=self.orders[side],
            )
            for side in (0, 1)
        )
        return Plan(prefill, decode, self.pages[0] * self.pages[1])


#: Every pair of tensor-parallel sizes that the design names, with the heads it names them for.
PAIRS = [
    Case(tp=tp, heads=heads)
    for tp, heads in [
        ((4, 2), 8), ((2, 4), 8), ((4, 1), 8), ((1, 4), 8), ((8, 1), 8), ((1, 8), 8), ((2, 8), 4), ((8, 2), 4),
        ((1, 4), 2), ((4, 1), 2), ((1, 4), 4), ((6, 4), 12), ((4, 6), 12), ((2, 2), 4), ((1, 1), 1),
    ]
]  # fmt: skip
BASE = Case()
SHAPES = [
    replace(BASE, pages=(1, 1)),
    replace(BASE, pages=(1, 16), first=16, tokens=37),
    replace(BASE, pages=(16, 3), first=3, tokens=50),
    replace(BASE, pages=(64, 5), tokens=70),
    replace(BASE, orders=("HND", "NHD")),
    replace(BASE, orders=("NHD", "HND")),
    replace(BASE, orders=("HND", "HND"), tp=(4, 2), dims=(16, 4), pages=(6, 4)),
    replace(BASE, dims=(24, 16), heads=8, tp=(2, 4)),
    replace(BASE, dims=(3, 5)),
    replace(BASE, dims=(3, 5), dtype=torch.uint8, orders=("HND", "NHD")),
    replace(BASE, dims=(1, 1), dtype=torch.uint8, tp=(4, 4)),
    replace(BASE, dims=(64, 64), dtype=torch.float8_e4m3fn),
    replace(BASE, dims=(64, 64), dtype=torch.float32, heads=2, tp=(2, 2)),
    replace(BASE, dims=(576, 0), heads=1, tp=(1, 1)),
    replace(BASE, dims=(576, 0), heads=1, tp=(2, 2), dtype=torch.float8_e5m2),
    replace(BASE, layers=5, pps=(2, 1)),
    replace(BASE, layers=5, pps=(2, 1), dims=(8, 24)),
    replace(BASE, layers=5, pps=(1, 2), tp=(4, 2)),
    replace(BASE, layers=5, pps=(2, 3), tp=(6, 4), heads=12),
    replace(BASE, first=8, tokens=1),
    replace(BASE, dims=(192, 128), heads=2, tokens=9),
    replace(BASE, heads=16, tp=(16, 1), tokens=5),
    replace(BASE, packed=True),
    replace(BASE, packed=True, orders=("HND", "NHD"), dims=(64, 32), tp=(2, 4)),
    replace(BASE, packed=True, dims=(3, 5), dtype=torch.uint8, pages=(16, 3), first=3, tokens=50),
    replace(BASE, packed=True, dims=(576, 0), heads=1, tp=(1, 1), pages=(1, 16), first=16, tokens=37),
]


def random_bytes(generator: torch.Generator, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """A tensor of any bit pattern, NaNs included."""
    raw = torch.randint(0, 256, (*shape[:-1], shape[-1] * dtype.itemsize), dtype=torch.uint8, generator=generator)
    return raw.view(dtype)


def pool_of(layout: Layout, rank: int, pages: int, seed: int, device: str = "cpu") -> Pool:
    """A rank's pool of random bytes."""
    generator = torch.Generator().manual_seed(seed * 1000 + rank)
    heads, layers = layout.heads_of(rank)[1], layout.layers_of(rank)[1]
    inner = (layout.page_size, heads) if layout.order == "NHD" else (heads, layout.page_size)
    dtype = getattr(torch, layout.dtype)

    def tensors(dim: int) -> list[torch.Tensor]:
        made = [random_bytes(generator, (pages, *inner, dim), dtype) for _ in range(layers)] if dim else []
        return [tensor.to(device) for tensor in made]

    return Pool(tensors(layout.k_dim), tensors(layout.v_dim), layout.order, layout.page_size)


def table_of(pages: int, size: int, tokens: int, seed: int, device: str = "cpu") -> torch.Tensor:
    """Distinct random pages for so many tokens."""
    need = -(-tokens // size)
    return torch.tensor(random.Random(seed).sample(range(pages), need), dtype=torch.int64, device=device)


def pages_for(case: Case, side: int) -> int:
    return -(-(case.first + case.tokens) // case.pages[side]) + 5


def rows(pool: Pool, part_layers: range, heads: range, table: torch.Tensor, tokens: range) -> Iterator[torch.Tensor]:
    """The bytes of each (K or V, layer, token, head) in staged order, as writable views of the pool."""
    for tensors in pool.kinds:
        for layer in part_layers:
            for token in tokens:
                page, slot = int(table[token // pool.page_size]), token % pool.page_size
                for head in heads:
                    where = (page, slot, head) if pool.order == "NHD" else (page, head, slot)
                    yield tensors[layer][where].view(torch.uint8)


def slow_gather(pool: Pool, table: torch.Tensor, case: Case, share: Share) -> torch.Tensor:
    layers = range(share.src_layer, share.src_layer + share.layers)
    heads = range(share.src_head, share.src_head + share.heads)
    return torch.cat(list(rows(pool, layers, heads, table, range(case.first, case.first + case.tokens))))


def slow_scatter(pool: Pool, table: torch.Tensor, case: Case, parts: list[StagedPart]) -> None:
    for share, staged in parts:
        layers = range(share.dst_layer, share.dst_layer + share.layers)
        heads = range(share.dst_head, share.dst_head + share.heads)
        at = 0
        for row in rows(pool, layers, heads, table, range(case.first, case.first + case.tokens)):
            row.copy_(staged[at : at + row.numel()])
            at += row.numel()
        assert at == staged.numel()


def copy_of(pool: Pool, device: str = "cpu") -> Pool:
    return Pool([t.to(device, copy=True) for t in pool.k], [t.to(device, copy=True) for t in pool.v], pool.order)


def pool_like(case: Case, pool: Pool, device: str = "cpu") -> Pool:
    """A copy there, as dense tensors or, where the case says so, as views of blocks."""
    return packed(copy_of(pool, device)) if case.packed else copy_of(pool, device)


def packed(pool: Pool) -> Pool:
    """The same bytes as views: all planes of a page side by side, and a few elements of nobody's."""
    tensors = pool.k + pool.v
    sizes = [tensor[0].numel() for tensor in tensors]
    whole = torch.zeros((pool.pages, sum(sizes) + 3), dtype=tensors[0].dtype, device=pool.device)
    views = []
    for at, (size, tensor) in enumerate(zip(sizes, tensors, strict=True)):
        begin = sum(sizes[:at])
        views.append(whole[:, begin : begin + size].view(tensor.shape))
        views[-1].view(torch.uint8).copy_(tensor.view(torch.uint8))
    return Pool(views[: pool.layers], views[pool.layers :], pool.order)


def same(a: Pool, b: Pool) -> bool:
    """Whether two pools hold the same bytes, everywhere."""
    pairs = zip(a.k + a.v, b.k + b.v, strict=True)
    return all(torch.equal(x.cpu().view(torch.uint8), y.cpu().view(torch.uint8)) for x, y in pairs)


def staging(nbytes: int, shift: int = 0, device: str = "cpu") -> tuple[torch.Tensor, torch.Tensor]:
    """A poisoned buffer with room before and after, and the view of `nbytes` at `64 + shift` in it."""
    whole = torch.full((nbytes + 192,), POISON, dtype=torch.uint8, device=device)
    return whole, whole[64 + shift : 64 + shift + nbytes]


def untouched_around(whole: torch.Tensor, nbytes: int, shift: int = 0) -> bool:
    outside = torch.cat([whole[: 64 + shift], whole[64 + shift + nbytes :]])
    return bool((outside == POISON).all())


def synchronize(device: str) -> Callable[[], object]:
    """Return a call that waits for the device; a CPU has nothing to wait for."""
    return (lambda: torch.cuda.synchronize(device)) if device != "cpu" else object


def unlike(layout: Layout, shares: Callable[[int], Sequence[Share]], *, ours: bool) -> list[int]:
    """One rank for each way in which a rank's shares lie in its pool: their beginning and total size."""
    first: dict[Any, int] = {}
    for rank in range(layout.ranks):
        begin = [(s.src_layer, s.src_head) if ours else (s.dst_layer, s.dst_head) for s in shares(rank)]
        sizes = [(s.layers, s.heads) for s in shares(rank)]
        first.setdefault((layout.heads_of(rank)[1], layout.layers_of(rank)[1], *begin, *sizes), rank)
    return list(first.values())


def check_gathers(kernels: Any, case: Case, device: str = "cpu", shift: int = 0) -> None:
    """Every share of the case's plan, gathered alone and, per writer, together, against the slow copy."""
    plan, sync = case.plan, synchronize(device)
    for writer in unlike(plan.prefill, plan.duties, ours=True):
        host = pool_of(plan.prefill, writer, pages_for(case, 0), 1)
        table = table_of(host.pages, host.page_size, case.first + case.tokens, 7)
        pool, there = pool_like(case, host, device), table.to(device)
        duties = plan.duties(writer)
        expected = [slow_gather(host, table, case, share) for share in duties]
        together = [staging(want.numel(), shift, device) for want in expected]
        for share, want in zip(duties, expected, strict=True):
            whole, out = staging(want.numel(), shift, device)
            ticket = kernels.gather(pool, there, case.first, case.tokens, share, out)
            sync()
            assert ticket.done()
            assert torch.equal(out.cpu(), want)
            assert untouched_around(whole, want.numel(), shift)
        if duties:
            parts = [(share, out) for share, (_, out) in zip(duties, together, strict=True)]
            kernels.gather_parts(pool, there, case.first, case.tokens, parts)
            sync()
        for want, (whole, out) in zip(expected, together, strict=True):
            assert torch.equal(out.cpu(), want)
            assert untouched_around(whole, want.numel(), shift)
        assert same(pool, host)


def check_scatters(kernels: Any, case: Case, device: str = "cpu", shift: int = 0) -> None:
    """Compare whole pools after scatters of all writers, together and one by one, with the slow copy."""
    plan, sync = case.plan, synchronize(device)
    for reader in unlike(plan.decode, plan.writers, ours=False):
        host = pool_of(plan.decode, reader, pages_for(case, 1), 2)
        table = table_of(host.pages, host.page_size, case.first + case.tokens, 9)
        generator = torch.Generator().manual_seed(reader)
        parts: list[StagedPart] = []
        for share in plan.writers(reader):
            _, view = staging(plan.part_bytes(share, Cut(0, case.tokens)), shift)
            view.copy_(torch.randint(0, 256, view.shape, dtype=torch.uint8, generator=generator))
            parts.append((share, view))
        want = copy_of(host)
        slow_scatter(want, table, case, parts)
        at_once, one_by_one = (pool_like(case, host, device) for _ in range(2))
        there = table.to(device)
        sent: list[StagedPart] = []
        for share, view in parts:
            _, moved = staging(view.numel(), shift, device)
            moved.copy_(view)
            sent.append((share, moved))
        kernels.scatter(at_once, there, case.first, case.tokens, sent)
        for part in sent:
            kernels.scatter(one_by_one, there, case.first, case.tokens, [part])
        sync()
        assert not same(want, host)
        assert same(at_once, want)
        assert same(one_by_one, want)


def check_cells(kernels: Any, case: Case, device: str = "cpu", cells: int = 3) -> None:
    """Gather and scatter cells of other tokens and pages in one launch; compare with cells one by one."""
    plan, sync = case.plan, synchronize(device)
    shares = plan.writers(0)
    host = pool_of(plan.decode, 0, cells * pages_for(case, 1), 3)
    one_by_one, joined = (pool_like(case, host, device) for _ in range(2))
    kernels.prepare(joined, "scatter", shares)
    bound = []
    for cell in range(cells):
        first, tokens = case.first + cell, max(1, case.tokens - 2 * cell)
        pages = torch.arange(pages_for(case, 1)).flip(0) * cells + cell
        parts: list[StagedPart] = []
        for share in shares:
            generator = torch.Generator().manual_seed(cell)
            moved = staging(plan.part_bytes(share, Cut(0, tokens)), 0, device)[1]
            moved.copy_(torch.randint(0, 256, moved.shape, dtype=torch.uint8, generator=generator))
            parts.append((share, moved))
        kernels.scatter(one_by_one, pages.to(device), first, tokens, parts)
        bound.append(kernels.bind("scatter", joined, pages.to(device), first, tokens, parts))
    launch = kernels.join(bound)
    assert (launch is None) == (2 * len(shares) > 8), "two cells are the least"
    tickets = [each(None, None) for each in ([launch] if launch is not None else bound)]
    sync()
    assert all(ticket.done() for ticket in tickets) and not same(joined, host) and same(joined, one_by_one)
    again = []
    writer = replace(case, tp=case.tp[::-1], pages=case.pages[::-1], orders=case.orders[::-1], pps=case.pps[::-1])
    share = writer.plan.duties(0)[0]
    source = pool_like(case, pool_of(writer.plan.prefill, 0, cells * pages_for(writer, 0), 4), device)
    kernels.prepare(source, "gather", [share])
    for cell in range(cells):
        tokens = max(1, case.tokens - 2 * cell)
        pages = (torch.arange(pages_for(writer, 0)) * cells + cell).to(device)
        (_, alone), (whole, out) = (staging(writer.plan.part_bytes(share, Cut(0, tokens)), 0, device) for _ in range(2))
        kernels.gather(source, pages, case.first + cell, tokens, share, alone)
        cut = kernels.bind("gather", source, pages, case.first + cell, tokens, [(share, out)])
        again.append((alone, whole, out, cut))
    kernels.join([bound for *_, bound in again])(None, None)
    sync()
    for alone, whole, out, _ in again:
        assert torch.equal(alone, out) and untouched_around(whole, out.numel())


#: beyond what 16 bits tell apart; of pages of one token it is a small pool
FAR_PAGES = 70_000


def check_far_pages(kernels: Kernels, side: str, device: str = "cpu") -> None:
    """Pages whose ids differ in their upper bits alone, of a pool of one token a page."""
    share = Share(writer=0, reader=0, src_head=0, dst_head=0, heads=1, src_layer=0, dst_layer=0, layers=1)
    pages = [65_539, 3, 69_999, 4_463]
    table = torch.tensor(pages, device=device)
    staged = torch.randint(0, 256, (len(pages), 16), dtype=torch.uint8, device=device)
    memory = torch.zeros(FAR_PAGES, 1, 1, 16, dtype=torch.uint8, device=device)
    pool, out = Pool([memory], []), torch.zeros_like(staged).flatten()
    if side == "gather":
        memory[pages, 0, 0] = staged
        ticket = kernels.gather(pool, table, 0, len(pages), share, out)
    else:
        out = staged.flatten()
        ticket = kernels.scatter(pool, table, 0, len(pages), ((share, out),))
    while not ticket.done():
        continue
    assert torch.equal(out.view(len(pages), 16), staged) and torch.equal(memory[pages, 0, 0], staged)
    assert int((memory != 0).any(dim=3).sum()) == len(pages), "no other page"


def check_late_tables(kernels: Kernels, device: str = "cpu") -> None:
    """A bound launch reads the page table when it runs: its pages come, or are replaced, in between."""
    share = Share(writer=0, reader=0, src_head=0, dst_head=0, heads=1, src_layer=0, dst_layer=0, layers=1)
    near, far = (torch.zeros(9, 1, 1, 16, dtype=torch.uint8, device=device) for _ in range(2))
    near.random_(1, 255)
    pool, other = Pool([near], []), Pool([far], [])
    staged, rows = torch.zeros(3 * 16, dtype=torch.uint8, device=device), Rows(16, 16, 16, 1)
    tables = [torch.zeros(3, dtype=torch.int64, device=device) for _ in range(2)]
    theirs = torch.tensor([6, 1, 8], dtype=torch.int32, device=device)
    copy = kernels.cross(pool, [Crossing(16, 1, rows, rows, ((near.data_ptr(), far.data_ptr()),))])
    assert copy is not None
    gather = kernels.bind("gather", pool, tables[0], 0, 3, ((share, staged),))
    scatter = kernels.bind("scatter", other, tables[1], 0, 3, ((share, staged),))
    across = copy.bind(tables[0], theirs.view(torch.uint8), 0, 3)
    for ours, there in (([5, 2, 7], [3, 0, 4]), ([8, 1, 6], [2, 5, 7])):
        for table, pages in zip(tables, (ours, there), strict=True):
            table.copy_(torch.tensor(pages))
        far.zero_()
        for launch in (gather, scatter, across):
            ticket = launch(None, None)
            while not ticket.done():
                continue
        for pages in (there, theirs.tolist()):
            assert torch.equal(far[pages], near[ours])
        assert int(far.flatten(1).any(dim=1).sum()) == 2 * len(ours), "no other page"

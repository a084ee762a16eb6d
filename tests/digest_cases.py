"""Digest cases: a model's KV laid into every pool, and a digest in plain integers.

The slow digest is the judge. It knows nothing of pools, shares, units or words as they are moved: only a head's bytes.
"""

from __future__ import annotations

from typing import Any

import torch
from kernels_cases import Case, copy_of, pages_for, pool_of, rows, same, slow_gather, slow_scatter, table_of, unlike

from kvproto.io.kernels.base import Pool, StagedPart
from kvproto.io.kernels.digest import FACTOR_1, FACTOR_2, KIND_STEP, WORD_DOMAIN, new_table, read_table
from kvproto.layout.cut import Cut
from kvproto.layout.plan import Share
from kvproto.layout.sharding import Layout

Whole = dict[tuple[int, int], list[list[bytes]]]
Digests = dict[tuple[int, int], int]
MASK = (1 << 64) - 1


def odd(number: int) -> int:
    found = (number + 1) * FACTOR_1 & MASK
    found = (found ^ found >> 32) * FACTOR_2 & MASK
    return found ^ found >> 29 | 1


def slow_digest(kinds: list[list[bytes]], first: int) -> int:
    """The digest of one head of one layer: K's bytes of each token, then V's, if there are any."""
    total = 0
    for kind, tokens in enumerate(kinds):
        for token, row in enumerate(tokens, first):
            for at in range(0, len(row), 4):
                word = int.from_bytes(row[at : at + 4], "little")
                total += word * odd(WORD_DOMAIN + kind * KIND_STEP + at // 4) * odd(token)
    return total & MASK


def whole_of(case: Case, seed: int = 5) -> Whole:
    """(layer, head) of the model -> K or V -> token of the cell -> random bytes."""
    generator = torch.Generator().manual_seed(seed)

    def row(dim: int) -> bytes:
        return bytes(torch.randint(0, 256, (dim * case.dtype.itemsize,), generator=generator).tolist())

    dims = [dim for dim in case.dims if dim]
    return {
        (layer, head): [[row(dim) for _ in range(case.tokens)] for dim in dims]
        for layer in range(case.layers) for head in range(case.heads)
    }  # fmt: skip


def places(layout: Layout, rank: int) -> tuple[range, range]:
    """The layers and heads of the model that the rank holds."""
    (layer, layers), (head, heads) = layout.layers_of(rank), layout.heads_of(rank)
    return range(layer, layer + layers), range(head, head + heads)


def laid(case: Case, layout: Layout, rank: int, side: int, whole: Whole, device: str) -> tuple[Pool, torch.Tensor]:
    """A rank's pool with its share of the whole in the pages of a random table."""
    pool, (layers, heads) = pool_of(layout, rank, pages_for(case, side), 1), places(layout, rank)
    table = table_of(pool.pages, pool.page_size, case.first + case.tokens, 7 + rank)
    cell = range(case.first, case.first + case.tokens)
    wanted = [
        whole[layer, head][kind][token]
        for kind in range(len(pool.kinds)) for layer in layers for token in range(case.tokens) for head in heads
    ]  # fmt: skip
    found = rows(pool, range(pool.layers), range(pool.heads), table, cell)
    for row, want in zip(found, wanted, strict=True):
        row.copy_(torch.tensor(list(want), dtype=torch.uint8))
    moved = Pool([t.to(device) for t in pool.k], [t.to(device) for t in pool.v], pool.order)
    return moved, table.to(device)


def named(layout: Layout, rank: int, share: Share, side: int, values: list[int]) -> Digests:
    """The digests of one share, by layer and head of the model."""
    layers, heads = places(layout, rank)
    layer, head = ((share.src_layer, share.src_head), (share.dst_layer, share.dst_head))[side]
    keys = [(layers[layer + i], heads[head + j]) for i in range(share.layers) for j in range(share.heads)]
    return dict(zip(keys, values, strict=True))


def check_digests(kernels: Any, case: Case, device: str = "cpu") -> None:
    """Whatever holds a head, it computes the same number for it, on both sides, and it is the judge's."""
    plan, whole = case.plan, whole_of(case)
    right = {key: slow_digest(kinds, case.first) for key, kinds in whole.items()}
    staged: dict[tuple[int, int], torch.Tensor] = {}
    readers, asked = unlike(plan.decode, plan.writers, ours=False), unlike(plan.prefill, plan.duties, ours=True)
    for writer in range(plan.prefill.ranks):
        pool, table = laid(case, plan.prefill, writer, 0, whole, device)
        for share in plan.duties(writer):
            if writer not in asked:
                staged[writer, share.reader] = slow_gather(pool, table, case, share)
                continue
            digest = new_table([share], pool.device)
            out = torch.empty(plan.part_bytes(share, Cut(0, case.tokens)), dtype=torch.uint8, device=device)
            kernels.gather(pool, table, case.first, case.tokens, share, out, digest=digest)
            staged[writer, share.reader] = out
            found = named(plan.prefill, writer, share, 0, read_table(digest))
            assert found == {key: right[key] for key in found}
    for reader in readers:
        pool = pool_of(plan.decode, reader, pages_for(case, 1), 2)
        pool = Pool([t.to(device) for t in pool.k], [t.to(device) for t in pool.v], pool.order)
        table = table_of(pool.pages, pool.page_size, case.first + case.tokens, 9).to(device)
        shares = plan.writers(reader)
        digest = new_table(shares, pool.device)
        parts: list[StagedPart] = [(share, staged[share.writer, reader]) for share in shares]
        wanted = copy_of(pool)
        slow_scatter(wanted, table.cpu(), case, [(share, staged.cpu()) for share, staged in parts])
        kernels.scatter(pool, table, case.first, case.tokens, parts, digest=digest)
        values = read_table(digest)
        assert same(pool, wanted), "what is counted is scattered, too"
        seen: Digests = {}
        for share in shares:
            size = share.layers * share.heads
            seen |= named(plan.decode, reader, share, 1, values[:size])
            values = values[size:]
        layers, heads = places(plan.decode, reader)
        assert seen == {(layer, head): right[layer, head] for layer in layers for head in heads}

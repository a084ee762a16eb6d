"""Runs of the slice route as writes: none lost, doubled or too large, each part between two regions."""

from __future__ import annotations

import pytest

np = pytest.importorskip("numpy")

from kvproto.layout.byte_runs_numpy import BATCH, Column, batches, slices
from kvproto.layout.plan import Plan
from kvproto.layout.sharding import Layout


def columns(tokens: int) -> tuple[Column, Column, Column, Column, Column]:
    prefill, decode = (
        Layout(layers=6, heads=4, k_dim=8, v_dim=4, itemsize=2, dtype="bfloat16", page_size=16, tp=tp, pp=tp)
        for tp in (1, 2)
    )
    plan = Plan(prefill, decode, 64)
    pages = -(-tokens // 16)
    source, target = (np.random.default_rng(seed).permutation(pages) for seed in (1, 2))
    return slices(plan, plan.share(0, 3), source, target, 0, tokens)


@pytest.mark.parametrize("most", [1, 7, 100, 10**6])
def test_writes_hold_every_run_once_in_order(most: int) -> None:
    given = columns(90)
    writes = list(batches(given, most))
    assert all(sum(len(pieces) for _, _, pieces in write) <= most for write in writes)
    runs = [(src, dst, *piece) for write in writes for src, dst, pieces in write for piece in pieces.tolist()]
    wanted = zip(*(column.tolist() for column in given), strict=True)
    assert runs == [(src, dst, src_off, dst_off, length) for src, src_off, dst, dst_off, length in wanted]


def test_a_write_is_never_so_large_that_it_leaves_the_caches() -> None:
    given = columns(2000)
    assert len(given[0]) > 2 * BATCH
    sizes = [sum(len(pieces) for _, _, pieces in write) for write in batches(given, 1 << 20)]
    assert set(sizes[:-1]) == {BATCH} and sum(sizes) == len(given[0])

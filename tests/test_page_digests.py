"""Digests of pages: the judge's numbers, by gathers of whole pages that fit the scratch memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from digest_cases import slow_digest
from kernels_cases import rows
from msgspec.structs import replace
from support.stories import layout

from kvproto.io.kernels.base import Pool, StagedPart
from kvproto.io.kernels.page_digests import page_digests
from kvproto.io.kernels.torch import TorchKernels
from kvproto.io.ticket import Ticket
from kvproto.layout.caches import END, Cache, CachePart
from kvproto.layout.sharding import Layout
from kvproto.verify.testing.pools import noise

PAGES = (6, 1, 4, 3, 7, 2)


class Watched(TorchKernels):
    """Notes each gather: first token, tokens, bytes of its buffer's memory, and the pool."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = list[tuple[int, int, int]]()
        self.pools = list[Pool]()

    def gather_parts(
        self, pool: Pool, table: torch.Tensor, first: int, tokens: int, parts: Sequence[StagedPart], **more: Any
    ) -> Ticket:  # fmt: skip
        self.calls.append((first, tokens, parts[0][1].untyped_storage().nbytes()))
        self.pools.append(pool)
        return super().gather_parts(pool, table, first, tokens, parts, **more)


def of(side: Layout, kernels: TorchKernels, pool: Pool) -> dict[str, str]:
    """Those of tokens 3 .. 20."""
    return page_digests(kernels, side, 0, pool, PAGES, 3, 21)


def test_a_digest_is_the_judges() -> None:
    side = replace(layout(1), page_size=4)
    pool = noise(side, 0, 8, 1)
    held = iter(rows(pool, range(pool.layers), range(pool.heads), torch.tensor(PAGES), range(3, 21)))
    kinds = {
        (kind, layer, token, head): bytes(next(held).tolist())
        for kind in (0, 1) for layer in range(pool.layers) for token in range(3, 21) for head in range(pool.heads)
    }  # fmt: skip

    def judged(layer: int, head: int) -> str:
        both = [[kinds[kind, layer, token, head] for token in range(3, 21)] for kind in (0, 1)]
        return f"{slow_digest(both, 3):016x}"

    wanted = {f"{layer}/{head}": judged(layer, head) for layer in range(pool.layers) for head in range(pool.heads)}
    assert of(side, TorchKernels(), pool) == wanted


@pytest.mark.parametrize(
    ("pages", "calls"),
    [
        (0.5, [(3, 4), (7, 4), (11, 4), (15, 4), (19, 2)]),
        (1.5, [(3, 4), (7, 4), (11, 4), (15, 4), (19, 2)]),
        (2, [(3, 8), (11, 8), (19, 2)]),
        (100, [(3, 18)]),
    ],
)
def test_as_many_whole_pages_as_fit_the_scratch_are_gathered_at_a_time(
    pages: float, calls: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    side, kernels = replace(layout(1), page_size=4), Watched()
    token = side.held_bytes(0)
    pool = noise(side, 0, 8, 1)
    monkeypatch.setattr("kvproto.io.kernels.page_digests.SCRATCH", int(pages * 4 * token))
    of(side, kernels, pool)
    assert [call[:2] for call in kernels.calls] == calls
    assert {call[2] for call in kernels.calls} == {calls[0][1] * token}


def test_the_loops_kernels_keep_their_cuts_to_themselves() -> None:
    side, kernels = layout(1), Watched()
    pool = noise(side, 0, 8, 1)
    of(side, kernels, pool)
    shares = next(iter(kernels.pools[0]._cuts))[1]
    assert kernels.pools[0].cut("gather", shares) is not pool.cut("gather", shares)


def test_a_stage_that_holds_nothing_but_state_has_none() -> None:
    caches = Cache("kv", (CachePart("k", 1, 8),), (0,)), Cache("state", (CachePart("x", 1, 8),), (1,), "bfloat16", END)
    side = Layout.of_caches(caches, layers=2, page_size=4, tp=1, pp=2)
    made = [page_digests(TorchKernels(), side, rank, noise(side, rank, 8, 1), PAGES, 0, 8) for rank in range(2)]
    assert list(made[0]) == ["0/0/kv.k"] and not made[1]

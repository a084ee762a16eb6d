"""Chunks of models with several caches, as the benchmark of kernels moves and judges them."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from kvproto.io.kernels.base import Side, StagedPart, Ticket
from kvproto.io.kernels.pool import Pool
from kvproto.io.kernels.torch import TorchKernels
from kvproto.lab.bench.cache_calls import SHAPES, CacheCall, CacheShape, make_call

TOKENS, HOST = 20, torch.device("cpu")
SIDES: tuple[Side, ...] = ("gather", "scatter")


class OneShort(TorchKernels):
    """Leaves the last byte of its last part as it was."""

    def gather_parts(
        self, pool: Pool, table: torch.Tensor, first: int, tokens: int, parts: Any, **more: Any
    ) -> Ticket:  # fmt: skip
        (share, out), held = parts[-1], parts[-1][1][-1].clone()
        ticket = super().gather_parts(pool, table, first, tokens, [*parts[:-1], (share, out)], **more)
        out[-1] = held
        return ticket

    def scatter(
        self, pool: Pool, table: torch.Tensor, first: int, tokens: int, parts: Any, **more: Any
    ) -> Ticket:  # fmt: skip
        *rest, (share, staged) = parts
        wrong: list[StagedPart] = [*rest, (share, staged.clone())]
        wrong[-1][1][-1] ^= 1
        return super().scatter(pool, table, first, tokens, wrong, **more)


def calls(shape: CacheShape, side: Side) -> list[CacheCall]:
    short = shape._replace(tokens=TOKENS)
    return [make_call(short, side, cut, HOST) for cut in short.cuts]


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("shape", [SHAPES[2], SHAPES[4]], ids=lambda shape: shape.name)
def test_a_byte_that_is_wrong_is_found(shape: CacheShape, side: Side) -> None:
    for call in calls(shape, side):
        assert call.check(TorchKernels())
        assert not call.check(OneShort())


def test_the_headline_is_a_room_of_one_chunk() -> None:
    (cut,) = SHAPES[0].cuts
    assert (cut.tokens, cut.state) == (1000, True)
    parts = [SHAPES[0].plan.part(writer, 0, cut).nbytes for writer in range(4)]
    assert sum(parts) == pytest.approx(207e6, rel=0.01) and max(parts) / min(parts) < 1.01


def test_an_index_has_its_scales_behind_the_keys_of_each_page() -> None:
    (call,) = calls(SHAPES[2], "gather")
    names = [kind.name for kind in SHAPES[2].plan.prefill.kinds]
    key, scale = (call.pool.kinds[names.index(name)][0] for name in ("index.key", "index.scale"))
    assert scale.data_ptr() - key.data_ptr() == 64 * 128 and key.stride(0) == scale.stride(0) == 64 * 132

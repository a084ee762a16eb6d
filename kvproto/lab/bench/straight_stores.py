"""Straight stores: a kernel of few programs that copies one run of bytes, as fast as they can."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl

#: bytes of a tile and warps of a program, as mapped stores have them beside a forward (`across.SPARING`)
TILE, WARPS = 65536, 32
WORD = 8


def _straight(source: tl.int64, target: tl.int64, tiles: tl.int32, programs: tl.int32, WORDS: tl.constexpr) -> None:  # noqa: N803
    here, there = tl.cast(source, tl.pointer_type(tl.int64)), tl.cast(target, tl.pointer_type(tl.int64))
    words = tl.arange(0, WORDS)
    for tile in range(tl.program_id(0), tiles, programs):
        at = tl.cast(tile, tl.int64) * WORDS + words
        tl.store(there + at, tl.load(here + at))


straight: Any = triton.jit(_straight)


def straight_stores(source: torch.Tensor, target: int, programs: int) -> Callable[[], Any]:
    """Return a launch on the current stream that stores the whole tiles of `source` from this address on."""
    tiles, words = source.numel() // TILE, TILE // WORD
    launch = straight[min(programs, tiles),]
    return lambda: launch(source.data_ptr(), target, tiles, programs, words, num_warps=WARPS)

"""The device code of digests: what one tile adds to them. What a digest is, `digest` says.

A tile's units each lie within one head. The words of a unit are summed first, multiplied by what belongs to their
place in the head, then the unit's sum is multiplied by what belongs to its token, which saves most of the wide
multiplications. Words of 8 bytes count as two of 4; smaller ones as the part of a word of 4 that they are: the
widest words that two ranks can move differ, their digests do not.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from kvproto.io.kernels import digest

FACTOR_1, FACTOR_2 = tl.constexpr(digest.FACTOR_1), tl.constexpr(digest.FACTOR_2)
WORD_DOMAIN, KIND_STEP = tl.constexpr(digest.WORD_DOMAIN), tl.constexpr(digest.KIND_STEP)
SPREAD = tl.constexpr(digest.SPREAD)


def _mixed(number: tl.tensor) -> tl.tensor:
    """As `digest.mixed`, of uint64."""
    found = (number + 1) * FACTOR_1
    found = (found ^ (found >> 32)) * FACTOR_2
    return (found ^ (found >> 29)) | 1


mixed = triton.jit(_mixed)


def _weighed(data: tl.tensor, at: tl.tensor, kind: tl.tensor, WORD: tl.constexpr) -> Any:
    """Words times what belongs to their place; `at` counts words of WORD bytes from the head's first."""
    base = WORD_DOMAIN + kind.to(tl.uint64) * KIND_STEP
    if WORD == 8:
        wide = data.to(tl.uint64, bitcast=True)
        even = base + 2 * at.to(tl.uint64)
        found = (wide & 0xFFFFFFFF) * mixed(even) + (wide >> 32) * mixed(even + 1)
    elif WORD == 4:
        found = data.to(tl.uint32, bitcast=True).to(tl.uint64) * mixed(base + at.to(tl.uint64))
    elif WORD == 2:
        half = data.to(tl.uint16, bitcast=True).to(tl.uint64)
        found = (half << (at % 2 * 16).to(tl.uint64)) * mixed(base + (at // 2).to(tl.uint64))
    else:
        byte = data.to(tl.uint8, bitcast=True).to(tl.uint64)
        found = (byte << (at % 4 * 8).to(tl.uint64)) * mixed(base + (at // 4).to(tl.uint64))
    return found


weighed = triton.jit(_weighed)


def _count(
    data: tl.tensor, words: tl.tensor, live: tl.tensor, held: tl.tensor, token: tl.tensor, piece: tl.tensor,
    kind: tl.tensor, heads: tl.tensor, digests: tl.tensor, entries: tl.tensor, entry: tl.tensor,
    HEADS: tl.constexpr, UNIT: tl.constexpr, PIECES: tl.constexpr, ROWS: tl.constexpr, WORD: tl.constexpr,
) -> None:  # fmt: skip
    """Add a tile to the digests, with zeros where it is not live.

    `entry` is the first of the layer's `heads`; HEADS is the most that a part has. Few heads are summed each by itself:
    units of one head that add to it apart queue for its place."""
    at = words
    if PIECES > 1:
        at = (piece % PIECES)[:, None] * (UNIT // WORD) + words
    sums = tl.sum(weighed(data, at, kind, WORD), 1) * mixed(token.to(tl.uint64))
    sums = sums.to(tl.int64, bitcast=True)
    row = (tl.program_id(0) % SPREAD).to(tl.int64) * entries
    place = (digests + (row + entry) * 8).to(tl.pointer_type(tl.int64))
    head = piece // PIECES
    if HEADS == 1:
        tl.atomic_add(place, tl.sum(sums, 0), mask=held, sem="relaxed")
    elif 2 * HEADS <= ROWS:
        for one in tl.static_range(HEADS):
            total = tl.sum(tl.where(head == one, sums, 0), 0)
            tl.atomic_add(place + one, total, mask=held & (one < heads), sem="relaxed")
    else:
        tl.atomic_add(place + head, sums, mask=live, sem="relaxed")


count = triton.jit(_count)

"""A digest of each head of each layer that does not depend on how heads are cut.

What it is for: a prefill rank and a decode rank hold different shares of the heads, on pages of different sizes, in
different order, so no checksum of what either of them holds or sends can be compared with one of the other's. This
one can: it belongs to one head of one layer over a range of tokens, and says nothing of where it lies. Gather and
scatter make it on their way, from the bytes that pass through them, so it covers the way between the two: staging,
the write, the ring, and the plan that says which head is whose.

What it is: the head's K and V of a token are words of 32 bits, the last one of K and of V filled up with zeros. Word
`w` of token `t` (its index in the room) is multiplied by two odd 64-bit numbers, one mixed from `t` and one from `w`
and from K or V; the digest is the sum, modulo 2**64. Sums can be taken in any order, by any number of programs, and
those of disjoint ranges of tokens add up. One flipped bit always changes it, since odd numbers have inverses; words,
tokens, heads, K and V that changed places have a chance of about 2**-32 to go unseen. It is no defence against
someone who means harm.

A part of a named cache (`kvproto.layout.caches`) has a digest for each of its layers and units, with the words of its
rows numbered as those of K. So a latent, an index key and a scale are told apart by place, and not summed.

Where it lands: `entries` numbers the (layer, head) of one or several shares, of named caches the (part, layer, unit); a
table has SPREAD rows of them, into which programs add in turn, so that they do not queue for one place of memory. A
head's digest is its column's sum. Calls add to what is there: give them a table of zeros.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from kvproto.layout.plan import Share

if TYPE_CHECKING:
    from kvproto.io.kernels.pool import Pool

SPREAD = 16
"""Rows of a table of digests."""
FACTOR_1, FACTOR_2 = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9
"""Odd numbers without a pattern in their bits."""
WORD_DOMAIN, KIND_STEP = 1 << 32, 1 << 24
"""Words are numbered beside tokens: from WORD_DOMAIN on, V's KIND_STEP after K's."""


def entries(shares: Sequence[Share]) -> int:
    """How many digests a call with these shares makes."""
    pieces = (piece for share in shares for piece in share.pieces)
    return sum(share.layers * share.heads for share in shares) + sum(piece.layers * piece.units for piece in pieces)


def new_table(shares: Sequence[Share], device: torch.device) -> torch.Tensor:
    """A table of zeros for a call with these shares, on the current stream."""
    return torch.zeros((SPREAD, entries(shares)), dtype=torch.int64, device=device)


def read_table(table: torch.Tensor) -> list[int]:
    """The digests, unsigned, by share, layer and head; waits for the current stream."""
    return [value & (1 << 64) - 1 for value in table.sum(0).tolist()]


def wrong_table(table: torch.Tensor, wanted: int, pool: Pool) -> str | None:
    """Say why a tensor is no table for so many entries; None: it is one."""
    shape, dense = tuple(table.shape), table.is_contiguous()
    if shape == (SPREAD, wanted) and dense and table.dtype is torch.int64 and table.get_device() == pool.gpu:
        return None
    return (
        f"digests need a dense int64 table of shape {(SPREAD, wanted)} on {pool.device}, "
        f"not {shape} of {table.dtype} on {table.device}"
    )


def mixed(numbers: torch.Tensor) -> torch.Tensor:
    """The odd 64-bit number of each: two multiplications, the high bits folded down after each."""
    found = (numbers + 1) * _signed(FACTOR_1)
    found = (found ^ (found >> 32) & 0xFFFF_FFFF) * _signed(FACTOR_2)
    return (found ^ (found >> 29) & (1 << 35) - 1) | 1


def digest_rows(rows: torch.Tensor, first: int, kind: int) -> torch.Tensor:
    """Return the digests `[head]` of uint8 rows `[token, head, bytes]` of K (kind 0) or V (1).

    Tokens count from `first`. This is the reference, written for readers: it makes eight bytes of each four.
    """
    tokens, heads, size = rows.shape
    padded = torch.nn.functional.pad(rows, (0, -size % 4)).reshape(tokens, heads, -1, 4).long()
    words = sum(padded[..., byte] << 8 * byte for byte in range(4))
    assert isinstance(words, torch.Tensor)
    by_word = mixed(torch.arange(words.shape[-1], device=rows.device) + (WORD_DOMAIN + kind * KIND_STEP))
    by_token = mixed(torch.arange(first, first + tokens, device=rows.device))
    return ((words * by_word).sum(-1) * by_token[:, None]).sum(0)


def _signed(number: int) -> int:
    return number - (1 << 64) if number >> 63 else number

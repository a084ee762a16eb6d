"""Bit for bit: what P computed, what D holds and what the unsharded model says must be the same bytes.

Every process reports, for a room, the bytes of each (layer, K or V, head) it holds, tokens in order, whatever its
pages, its order in them and its share of heads and layers: a `Sheet`. Bytes are compared, not digests of them, so a
difference can be named down to the token; they go through a pipe beside the protocol, which is the point: nothing
that the transfer itself says is used to judge it.

A (layer, kind, head) that several ranks hold must be the same in all; one that no rank holds is a difference too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Literal

Kind = Literal["k", "v"]
Sheet = dict[tuple[int, Kind, int], bytes]  # (layer, kind, head) of the whole model -> tokens * dim * itemsize bytes


@dataclass(frozen=True)
class Difference:
    """One place where `holder` does not have the expected bytes. `tokens` of the room differ there, `first` first."""

    holder: str
    room: int
    layer: int
    kind: Kind
    head: int
    first: int
    tokens: int

    def __str__(self) -> str:
        if self.first < 0:
            return f"room {self.room}: nobody of {self.holder} holds layer {self.layer} {self.kind.upper()} head {self.head}"
        return (
            f"room {self.room}: {self.holder} differs in layer {self.layer} {self.kind.upper()} head {self.head}"
            f" in {self.tokens} tokens, the first of them {self.first}"
        )


def compare(
    room: int, tokens: int, truth: Sheet, holders: Mapping[str, Sheet], group: str, layers: int, heads: int
) -> list[Difference]:
    """All differences between `truth` and what the ranks of one group hold, over every (layer, kind, head)."""
    found: list[Difference] = []
    for layer, kind, head in product(range(layers), _KINDS, range(heads)):
        right = truth[layer, kind, head]
        having = {name: sheet[layer, kind, head] for name, sheet in holders.items() if (layer, kind, head) in sheet}
        if not having:
            found.append(Difference(group, room, layer, kind, head, -1, tokens))
        for name, held in having.items():
            if held != right:
                wrong = unequal_rows(right, held, tokens)
                found.append(Difference(name, room, layer, kind, head, wrong[0], len(wrong)))
    return found


_KINDS: tuple[Kind, Kind] = ("k", "v")


def unequal_rows(a: bytes, b: bytes, rows: int) -> list[int]:
    """Which of `rows` equal pieces of `a` and `b` differ; every one of them if the lengths do."""
    if len(a) != len(b) or len(a) % rows:
        return list(range(rows))
    size = len(a) // rows
    return [r for r in range(rows) if a[r * size : (r + 1) * size] != b[r * size : (r + 1) * size]]


def compare_tokens(room: int, right: Iterable[int], got: Iterable[int]) -> str | None:
    """None if the continuations are equal, else a sentence."""
    a, b = list(right), list(got)
    if a == b:
        return None
    at = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    return f"room {room}: continuation differs from token {at} on: {a[at : at + 4]} expected, {b[at : at + 4]} generated"

"""Where the digests of several ranks disagree; it needs no torch, so whoever collects them need not have it."""

from __future__ import annotations

from collections.abc import Mapping

Place = tuple[int, int, int]
"""First token of a chunk, layer and head of the model."""


def differing(*ranks: Mapping[Place, int]) -> list[Place]:
    """Where ranks disagree, of either side and in any number: places that two of them know by different digests."""
    known: dict[Place, int] = {}
    wrong: set[Place] = set()
    for digests in ranks:
        wrong.update(place for place, digest in digests.items() if known.setdefault(place, digest) != digest)
    return sorted(wrong)

"""Differing digests of several ranks; without torch, so a collector of digests need not have it."""

from __future__ import annotations

from collections.abc import Mapping

Place = tuple[int, int, int] | tuple[int, int, int, str]
"""First token of a chunk, layer and head of the model; of named caches also the part, as "cache.part", whose unit the
head is."""


def differing(*ranks: Mapping[Place, int]) -> list[Place]:
    """Return the places for which two ranks, of either side, have different digests."""
    known: dict[Place, int] = {}
    wrong: set[Place] = set()
    for digests in ranks:
        wrong.update(place for place, digest in digests.items() if known.setdefault(place, digest) != digest)
    return sorted(wrong)

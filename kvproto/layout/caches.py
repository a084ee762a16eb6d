"""Caches: several caches of a model in one page table, each with parts of its own form.

A model may keep more than K and V of equal layers: a latent beside the key and the scale of a sparse-attention index,
block scales beside values of four bits, the KV of a draft model, caches on some of its layers.  Each is a `Cache`: a
name, the model's layers that have it, and its *parts*.  A part is what is cut by itself: so many units (heads, or 1 if
every rank holds all of it), each a row of so many bytes at each token.  No part says what it means; both sides compare
names and numbers.

Caches of which every token travels have the same tokens, and the same page of the one page table holds a token's rows
of every part.  So chunks, page tables and the protocol are as they are for K and V; only what a chunk's bytes are
follows from the parts.  A layout without named caches has one cache with the parts K and V.

Other caches travel at the end.  Such a one is *state*: recurrent state of linear attention, with one slot a request
instead of pages.  Each segment that is cut by itself is a part (q, k and v, or x, B and C of a convolution, and the
heads of the recurrence), with all bytes that a unit has in a layer for a row.  A slot is a page of one token in a
layout of its own (`Layout.ends`), so nothing else about state differs.  Or it is a *window*: layers that look back over
so many tokens only, and keep them in pages of a table of their own.  The last window of the prompt travels as state
does, wherever the decode side's prefix ends.  All that travels at the end does so in the same chunks (`Layout.state`).

A `Kind` is a part as plans, pools and kernels count it.  In a staged part rows of widely aligned kinds come first.  A
kind's rows fill a multiple of its own alignment, so each kind begins aligned, whatever the tokens are.  Caches that
travel at the end have unequal numbers of rows.  So their kinds are ordered by cache, and each cache is a *block* of the
part, which begins at a multiple of the widest alignment.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd
from typing import Annotated, Final

import msgspec

#: caches of a layout, and parts of all of them together, at most: a kernel has a branch for each form of parts
MAX_CACHES: Final = 16
MAX_CACHE_PARTS: Final = 16
#: characters of a name
MAX_NAME: Final = 64
#: units of a part, and bytes of a row
MOST: Final = (1 << 16, 1 << 24)
#: bytes: alignment beyond which no kernel moves faster
WIDEST: Final = 16
#: groups of layers that state is cut into
MAX_STATE_GROUPS: Final = 64
#: tokens of a window
MOST_WINDOW: Final = 1 << 24
#: how a cache travels: every token, with its chunk; the state after the last one; the window that ends with that
ALL: Final = "all"
END: Final = "end"
WINDOW: Final = "window"

Name = Annotated[str, msgspec.Meta(max_length=MAX_NAME)]


class CachePart(msgspec.Struct, frozen=True):
    """Rows of one form in a cache: cut over the tensor-parallel ranks by units, or on all of them."""

    name: Name
    #: heads of the whole model; 1: one row a token, on every rank
    units: int
    #: bytes of one unit at one token
    row_bytes: int


class Cache(msgspec.Struct, frozen=True):
    """One cache of the model: its parts, and the layers that have it."""

    name: Name
    parts: Annotated[tuple[CachePart, ...], msgspec.Meta(max_length=MAX_CACHE_PARTS)]
    #: numbers in the model, ascending; empty: every layer
    layers: Annotated[tuple[int, ...], msgspec.Meta(max_length=1 << 16)] = ()
    #: a name, equal on both sides
    dtype: Name = ""
    #: what is sent: "all" tokens, the state at the "end", or the last "window"
    travels: Name = ALL
    #: of what travels at the end: groups of its layers, each a chunk of its own, alike in all such caches; one is
    #: fastest, and needs the largest slot and region
    groups: Annotated[int, msgspec.Meta(ge=1, le=MAX_STATE_GROUPS)] = 1
    #: tokens of the window; 0: it travels otherwise
    window: Annotated[int, msgspec.Meta(ge=0, le=MOST_WINDOW)] = 0


class Kind(msgspec.Struct, frozen=True, cache_hash=True):
    """A part as plans and kernels count it."""

    cache: str
    part: str
    units: int
    row: int
    #: numbers in the model, ascending
    layers: Sequence[int]
    #: it is of state: a row is of a slot, not of a token
    at_end: bool = False

    @property
    def name(self) -> str:
        """As messages name it: cache.part."""
        return f"{self.cache}.{self.part}"


def kinds_of(caches: Sequence[Cache], layers: int) -> tuple[Kind, ...]:
    """Return the parts of all caches in the order of staged parts; that of declaration does not matter."""
    found = [
        Kind(cache.name, part.name, part.units, part.row_bytes, cache.layers or range(layers), cache.travels == END)
        for cache in caches for part in cache.parts
    ]  # fmt: skip
    last = {cache.name for cache in caches if cache.travels != ALL}

    def place(kind: Kind) -> tuple[str, int, str, str]:
        return kind.cache if kind.cache in last else "", -gcd(WIDEST, kind.row), kind.cache, kind.part

    return tuple(sorted(found, key=place))


def wrong_caches(caches: object, layers: int) -> str:
    """Say why these cannot be the caches of a model with so many layers; empty: they can."""
    if not isinstance(caches, tuple) or not all(isinstance(cache, Cache) for cache in caches):
        return f"caches is {caches!r}; it must be a tuple of Cache"
    if not 1 <= len(caches) <= MAX_CACHES:
        return f"{len(caches)} caches; a layout names from 1 to {MAX_CACHES}"
    if len({cache.name for cache in caches}) < len(caches):
        return f"two caches have one name: {', '.join(cache.name for cache in caches)}"
    parts = sum(len(cache.parts) for cache in caches)
    if parts > MAX_CACHE_PARTS:
        return f"{parts} parts in all caches; there may be {MAX_CACHE_PARTS}"
    found = next((f"cache {cache.name!r}: {why}" for cache in caches if (why := _wrong(cache, layers))), "")
    last = {cache.name: cache.groups for cache in caches if cache.travels != ALL}
    if not found and len(set(last.values())) > 1:
        told = ", ".join(f"{name} in {groups}" for name, groups in last.items())
        return f"what travels at the end is cut together, and its groups differ ({told}): give it equal `groups`"
    return found


def _wrong(cache: Cache, layers: int) -> str:
    held, names = cache.layers, [part.name for part in cache.parts]
    if not names or len(set(names)) < len(names) or not all((cache.name, *names)):
        return f"its parts are named {names}; it needs one part or more, each with a name of its own"
    if cache.travels not in (ALL, END, WINDOW):
        return f"it travels {cache.travels!r}; all tokens do ('all'), the state at the 'end', or the last 'window'"
    most = 1 if cache.travels == ALL else MAX_STATE_GROUPS
    if type(cache.groups) is not int or not 1 <= cache.groups <= most:
        return f"it has {cache.groups!r} groups; there are 1 to {most}, more than one only of what travels at the end"
    few, many = (1, MOST_WINDOW) if cache.travels == WINDOW else (0, 0)
    if type(cache.window) is not int or not few <= cache.window <= many:
        return f"its window has {cache.window!r} tokens; where {cache.travels!r} travels it has {few} to {many}"
    numbers = isinstance(held, tuple) and all(type(layer) is int for layer in held)
    if not numbers or list(held) != sorted(set(held)) or (held and not 0 <= held[0] <= held[-1] < layers):
        return f"its layers are {held!r}; they must be a tuple of ascending numbers below the model's {layers}"
    for part in cache.parts:
        sizes = part.units, part.row_bytes
        if any(type(size) is not int or not 1 <= size <= most for size, most in zip(sizes, MOST, strict=True)):
            return f"part {part.name!r} has {part.units!r} units of {part.row_bytes!r} bytes, out of bounds"
    return ""


def differing_caches(prefill: Sequence[Cache], decode: Sequence[Cache]) -> str:
    """Say by name how the caches of the two sides differ; empty: they do not."""
    if not prefill or not decode:
        named = "prefill" if prefill else "decode"
        return f"only the {named} side names its caches; name them on both" if prefill or decode else ""
    sides = {cache.name: cache for cache in prefill}, {cache.name: cache for cache in decode}
    for name in [*sides[0], *sides[1]]:
        ours, theirs = sides[0].get(name), sides[1].get(name)
        if ours is None or theirs is None:
            return f"cache {name!r} is on the {'decode' if ours is None else 'prefill'} side only"
        if why := _differing(ours, theirs):
            return f"cache {name!r}: {why}"
    return ""


def _differing(ours: Cache, theirs: Cache) -> str:
    for field in ("travels", "dtype", "layers", "groups", "window"):
        one, other = getattr(ours, field), getattr(theirs, field)
        if one != other:
            return f"{field} is {one or 'every one'} on the prefill side and {other or 'every one'} on the decode side"
    sides = {part.name: part for part in ours.parts}, {part.name: part for part in theirs.parts}
    for name in [*sides[0], *sides[1]]:
        one, other = (_told(parts.get(name)) for parts in sides)
        if one != other:
            return f"part {name!r} is {one} on the prefill side and {other} on the decode side"
    return ""


def _told(part: CachePart | None) -> str:
    return "missing" if part is None else f"{part.units} units of {part.row_bytes} bytes"

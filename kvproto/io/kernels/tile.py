"""The device code: one kernel that copies tiles between pages and staging, in either direction.

The staged side of a cut is dense, so it is the side that is counted along. What is contiguous in the pool is a
*group* of heads: all of a share's heads in NHD, one head in HND. A group is split into *units*, the largest power of
two bytes that divides it. Unit number `v` of a layer starts at byte `v * UNIT` of its staged block, whatever the
geometry; only the pool's side needs thought, and only once a unit: which token, hence which page and slot, which
group, which piece of it. Rows of 64 bytes and of 1,152 become full tiles alike, with no idle lanes.

A program copies ROWS units of one layer's K or V. Programs are numbered along the tokens, then layers, then K before
V, so within one layer the staged side is one stream, or one a part; numbering layers first costs 5 % on an H200.
Parts of one pool are neighbouring strips of the same rows. Where they are alike (MIXED), units are dealt out part by
part, and a program moves whole rows between the pool and as many streams; where they differ, programs are, and the
strips meet in the cache.

Addresses are 64-bit integers until the moment of use; alignment, which no compiler can see in them, is stated. They
enter the kernel as plain numbers: no argument is inspected or specialised on, so one compilation serves every call
of a cut.

Where a digest is wanted (DIGESTS), groups are single heads, and what a program has loaded is counted on its way;
where none is, nothing of that is compiled.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from kvproto.io.kernels.count import count

MAX_PARTS = 8
"""Parts that one launch can serve, of all its cells."""


def _aimed(address: tl.tensor, ALIGN: tl.constexpr, WORD: tl.constexpr) -> Any:
    """Integers to pointers to words, with the alignment stated."""
    if WORD == 8:
        pointer = address.to(tl.pointer_type(tl.int64))
    elif WORD == 4:
        pointer = address.to(tl.pointer_type(tl.int32))
    elif WORD == 2:
        pointer = address.to(tl.pointer_type(tl.int16))
    else:
        pointer = address.to(tl.pointer_type(tl.int8))
    return tl.multiple_of(pointer, [ALIGN, ALIGN])


aimed = triton.jit(_aimed)


def _copy(
    base: tl.tensor, block: tl.tensor, held: tl.tensor, table: tl.tensor,
    first: tl.tensor, tokens: tl.tensor, unit: tl.tensor, groups: tl.tensor,
    kind: tl.tensor, digests: tl.tensor, entries: tl.tensor, entry: tl.tensor,
    PAGE: tl.constexpr, PAGE_STEP: tl.constexpr, TOKEN_STEP: tl.constexpr, GROUP_STEP: tl.constexpr,
    UNIT: tl.constexpr, PIECES: tl.constexpr, ROWS: tl.constexpr,
    HEADS: tl.constexpr, GATHER: tl.constexpr, DIGESTS: tl.constexpr, WORD: tl.constexpr, ALIGN: tl.constexpr,
) -> None:  # fmt: skip
    """Copy some units of one layer.

    `base` is its address in the pool, `block` that of its first staged byte, `entry` the first of its digests. `base`
    and `block` may differ from unit to unit."""
    units = groups * PIECES
    # The launch grid covers the largest part: programs beyond a smaller one, or in layers it lacks, do nothing.
    live = unit < tl.where(held, tokens * units, 0)
    token = first + unit // units
    piece = unit % units
    page = tl.load(table.to(tl.pointer_type(tl.int64)) + token // PAGE, mask=live, other=0)
    # In 64 bits before each multiplication: offsets in a pool pass 2**31 bytes.
    spot = page * PAGE_STEP + ((token % PAGE).to(tl.int64) * TOKEN_STEP + (piece // PIECES).to(tl.int64) * GROUP_STEP)
    spot += (piece % PIECES) * UNIT

    words = tl.arange(0, UNIT // WORD)[None, :]
    paged = aimed((base + spot)[:, None], ALIGN, WORD) + words
    dense = aimed((block + unit.to(tl.int64) * UNIT)[:, None], ALIGN, WORD) + words
    if DIGESTS:
        if GATHER:
            data = tl.load(paged, mask=live[:, None], other=0)
            tl.store(dense, data, mask=live[:, None])
        else:
            data = tl.load(dense, mask=live[:, None], other=0)
            tl.store(paged, data, mask=live[:, None])
        count(
            data, words, live, held, token, piece, kind, groups, digests, entries, entry,
            HEADS, UNIT, PIECES, ROWS, WORD,
        )  # fmt: skip
    elif GATHER:
        tl.store(dense, tl.load(paged, mask=live[:, None]), mask=live[:, None])
    else:
        tl.store(paged, tl.load(dense, mask=live[:, None]), mask=live[:, None])


copy = triton.jit(_copy)


def _chosen(
    at: tl.tensor,
    one0: tl.tensor, one1: tl.tensor, one2: tl.tensor, one3: tl.tensor,
    one4: tl.tensor, one5: tl.tensor, one6: tl.tensor, one7: tl.tensor,
    COUNT: tl.constexpr,
) -> Any:  # fmt: skip
    """The argument of this number, of the first COUNT."""
    found = one0
    if COUNT > 1:
        found = tl.where(at == 1, one1, found)
        found = tl.where(at == 2, one2, found)
        found = tl.where(at == 3, one3, found)
    if COUNT > 4:
        found = tl.where(at == 4, one4, found)
        found = tl.where(at == 5, one5, found)
        found = tl.where(at == 6, one6, found)
        found = tl.where(at == 7, one7, found)
    return found


chosen = triton.jit(_chosen)


def _dealt(program: tl.tensor, PARTS: tl.constexpr, MIXED: tl.constexpr, ROWS: tl.constexpr) -> Any:
    if MIXED:
        unit = program * ROWS + tl.arange(0, ROWS)
        part = unit % PARTS
        unit = unit // PARTS
    else:
        part = program % PARTS
        unit = program // PARTS * ROWS + tl.arange(0, ROWS)
    return part, unit


dealt = triton.jit(_dealt)


def _tile(
    places: tl.tensor, table: tl.tensor, first: tl.tensor, tokens: tl.tensor, layers: tl.tensor,
    digests: tl.tensor, entries: tl.tensor, program: tl.tensor, part: tl.tensor, unit: tl.tensor, staged: tl.tensor,
    PARTS: tl.constexpr, KINDS: tl.constexpr, GROUPS: tl.constexpr, PAGE: tl.constexpr,
    K_PAGE: tl.constexpr, K_TOKEN: tl.constexpr, K_GROUP: tl.constexpr, K_UNIT: tl.constexpr, K_PIECES: tl.constexpr,
    V_PAGE: tl.constexpr, V_TOKEN: tl.constexpr, V_GROUP: tl.constexpr, V_UNIT: tl.constexpr, V_PIECES: tl.constexpr,
    K_ROWS: tl.constexpr, V_ROWS: tl.constexpr, ALIKE: tl.constexpr, HEADS: tl.constexpr,
    GATHER: tl.constexpr, DIGESTS: tl.constexpr, WORD: tl.constexpr, ALIGN: tl.constexpr,
) -> None:  # fmt: skip
    layer = tl.program_id(1)
    kind = tl.program_id(2)
    base = tl.load(places.to(tl.pointer_type(tl.int64)) + (part * KINDS + kind) * layers + layer)
    held_layers = layers
    groups = tl.full([], GROUPS, tl.int32)
    entry = part * layers * groups
    if GROUPS == 0:
        tail = places.to(tl.pointer_type(tl.int64)) + PARTS * KINDS * layers + part
        groups = tl.load(tail).to(tl.int32)
        held_layers = tl.load(tail + PARTS).to(tl.int32)
        entry = tl.load(tail + 2 * PARTS).to(tl.int32)
    held = layer < held_layers
    entry += layer * groups
    k_layer = (groups * (K_PIECES * K_UNIT)).to(tl.int64) * tokens
    v_layer = (groups * (V_PIECES * V_UNIT)).to(tl.int64) * tokens
    if ALIKE:
        copy(
            base, staged + k_layer * (held_layers * kind + layer), held, table, first, tokens, unit, groups,
            kind, digests, entries, entry, PAGE, K_PAGE, K_TOKEN, K_GROUP, K_UNIT, K_PIECES, K_ROWS,
            HEADS, GATHER, DIGESTS, WORD, ALIGN,
        )  # fmt: skip
    elif kind == 0:
        copy(
            base, staged + k_layer * layer, held, table, first, tokens, unit, groups,
            kind, digests, entries, entry, PAGE, K_PAGE, K_TOKEN, K_GROUP, K_UNIT, K_PIECES, K_ROWS,
            HEADS, GATHER, DIGESTS, WORD, ALIGN,
        )  # fmt: skip
    else:
        # V's rows have another size than K's here, so a tile of V holds another number of units.
        v_unit = program // PARTS * V_ROWS + tl.arange(0, V_ROWS)
        copy(
            base, staged + k_layer * held_layers + v_layer * layer, held, table, first, tokens, v_unit, groups,
            kind, digests, entries, entry, PAGE, V_PAGE, V_TOKEN, V_GROUP, V_UNIT, V_PIECES, V_ROWS,
            HEADS, GATHER, DIGESTS, WORD, ALIGN,
        )  # fmt: skip


tile = triton.jit(_tile)


def _move(
    places: tl.int64, table: tl.int64, first: tl.int32, tokens: tl.int32, layers: tl.int32,
    digests: tl.int64, entries: tl.int32,
    part0: tl.int64, part1: tl.int64, part2: tl.int64, part3: tl.int64,
    part4: tl.int64, part5: tl.int64, part6: tl.int64, part7: tl.int64,
    PARTS: tl.constexpr, KINDS: tl.constexpr, GROUPS: tl.constexpr, PAGE: tl.constexpr,
    K_PAGE: tl.constexpr, K_TOKEN: tl.constexpr, K_GROUP: tl.constexpr, K_UNIT: tl.constexpr, K_PIECES: tl.constexpr,
    V_PAGE: tl.constexpr, V_TOKEN: tl.constexpr, V_GROUP: tl.constexpr, V_UNIT: tl.constexpr, V_PIECES: tl.constexpr,
    K_ROWS: tl.constexpr, V_ROWS: tl.constexpr, ALIKE: tl.constexpr, MIXED: tl.constexpr, HEADS: tl.constexpr,
    GATHER: tl.constexpr, DIGESTS: tl.constexpr, WORD: tl.constexpr, ALIGN: tl.constexpr,
) -> None:  # fmt: skip
    """Copy one tile.

    `places` is a table of int64: the pool's address of each (part, K or V, layer), with the part's first head in it,
    `layers` a part; then each part's groups; then each part's layers, and its first entry among the
    digests. GROUPS is 0 where parts differ; HEADS is the most groups that a part has."""
    program = tl.program_id(0)
    part, unit = dealt(program, PARTS, MIXED, K_ROWS)
    staged = chosen(part, part0.to(tl.int64), part1, part2, part3, part4, part5, part6, part7, PARTS)
    tile(
        places, table, first, tokens, layers, digests, entries, program, part, unit, staged,
        PARTS, KINDS, GROUPS, PAGE, K_PAGE, K_TOKEN, K_GROUP, K_UNIT, K_PIECES,
        V_PAGE, V_TOKEN, V_GROUP, V_UNIT, V_PIECES, K_ROWS, V_ROWS, ALIKE, HEADS, GATHER, DIGESTS, WORD, ALIGN,
    )  # fmt: skip


move: Any = triton.jit(
    do_not_specialize=["places", "table", "first", "tokens", "layers", "digests", "entries"]
    + [f"part{n}" for n in range(MAX_PARTS)]
)(_move)

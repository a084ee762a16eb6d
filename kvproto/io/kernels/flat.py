"""Flat: the device code for named caches; one launch copies the planes of all kinds.

Kinds have rows, strides and numbers of layers of their own, so programs are numbered through, plane by plane: a flat
grid.  Planes whose rows have one form (widths, strides, alignment) follow one another, whatever their kind: K and V of
a cache are one form.  Each form is a branch of its own with its numbers compiled in, and a program finds its branch by
comparing its own number with the programs before each form.  Within a form it divides: a plane has as many programs as
its rows fill tiles.

Forms are of up to four *sources*, which differ in page table, page size and tokens: the pages of a room, and each cache
that travels at the end.  So a joint chunk is one launch, too.  How many planes a form has is compiled in as well: a
program that had to load it first would wait half a microsecond longer for its first byte.

A row is cut into units as `kvproto.io.kernels.tile` has it: the largest power of two bytes that divides what is
contiguous in the pool, within a tile.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from kvproto.io.kernels.count import count
from kvproto.io.kernels.tile import MAX_PARTS, aimed, chosen

MAX_SOURCES = 4
"""Sources that one launch can serve."""


def _source(
    one0: tl.tensor, one1: tl.tensor, one2: tl.tensor, one3: tl.tensor, AT: tl.constexpr,
) -> Any:  # fmt: skip
    """The argument of the source of this number."""
    found = one0
    if AT == 1:
        found = one1
    if AT == 2:
        found = one2
    if AT == 3:
        found = one3
    return found


source = triton.jit(_source)


def _plane(
    planes: tl.tensor, table: tl.tensor, first: tl.tensor, tokens: tl.tensor, digests: tl.tensor, entries: tl.tensor,
    local: tl.tensor, each: tl.tensor,
    part0: tl.tensor, part1: tl.tensor, part2: tl.tensor, part3: tl.tensor,
    part4: tl.tensor, part5: tl.tensor, part6: tl.tensor, part7: tl.tensor,
    PARTS: tl.constexpr, PAGE_STEP: tl.constexpr, TOKEN_STEP: tl.constexpr,
    GROUP_STEP: tl.constexpr, GROUPS: tl.constexpr, UNIT: tl.constexpr, PIECES: tl.constexpr, ROWS: tl.constexpr,
    WORD: tl.constexpr, ALIGN: tl.constexpr, PAGE: tl.constexpr, SHIFTED: tl.constexpr, PART: tl.constexpr,
    GATHER: tl.constexpr, DIGESTS: tl.constexpr,
) -> None:  # fmt: skip
    """Copy program `local` of a form: some units of one of its planes, which have `each` programs."""
    place = planes + local // each * 5
    part = tl.load(place + 1).to(tl.int32) + PART
    staged = chosen(part, part0.to(tl.int64), part1, part2, part3, part4, part5, part6, part7, PARTS)
    unit = (local % each) * ROWS + tl.arange(0, ROWS)
    live = unit < tokens * (GROUPS * PIECES)
    token = first + unit // (GROUPS * PIECES)
    piece = unit % (GROUPS * PIECES)
    row = token // PAGE
    if SHIFTED:
        row += tl.load(place + 4)
    page = tl.load(table.to(tl.pointer_type(tl.int64)) + row, mask=live, other=0)
    # In 64 bits before each multiplication: offsets in a pool pass 2**31 bytes.
    spot = tl.load(place) + page * PAGE_STEP + (token % PAGE).to(tl.int64) * TOKEN_STEP
    spot += (piece // PIECES).to(tl.int64) * GROUP_STEP + (piece % PIECES) * UNIT
    block = staged + tl.load(place + 2) * tokens + unit.to(tl.int64) * UNIT
    words = tl.arange(0, UNIT // WORD)[None, :]
    paged, dense = aimed(spot[:, None], ALIGN, WORD) + words, aimed(block[:, None], ALIGN, WORD) + words
    if DIGESTS:
        if GATHER:
            data = tl.load(paged, mask=live[:, None], other=0)
            tl.store(dense, data, mask=live[:, None])
        else:
            data = tl.load(dense, mask=live[:, None], other=0)
            tl.store(paged, data, mask=live[:, None])
        count(
            data, words, live, tokens > 0, token, piece, tokens * 0, tokens * 0 + GROUPS, digests, entries,
            tl.load(place + 3).to(tl.int32), GROUPS, UNIT, PIECES, ROWS, WORD,
        )  # fmt: skip
    elif GATHER:
        tl.store(dense, tl.load(paged, mask=live[:, None]), mask=live[:, None])
    else:
        tl.store(paged, tl.load(dense, mask=live[:, None]), mask=live[:, None])


plane = triton.jit(_plane)


def _flat(
    planes0: tl.int64, planes1: tl.int64, planes2: tl.int64, planes3: tl.int64,
    table0: tl.int64, table1: tl.int64, table2: tl.int64, table3: tl.int64,
    first0: tl.int32, first1: tl.int32, first2: tl.int32, first3: tl.int32,
    tokens0: tl.int32, tokens1: tl.int32, tokens2: tl.int32, tokens3: tl.int32,
    digests: tl.int64, entries: tl.int32,
    part0: tl.int64, part1: tl.int64, part2: tl.int64, part3: tl.int64,
    part4: tl.int64, part5: tl.int64, part6: tl.int64, part7: tl.int64,
    FORMS: tl.constexpr, COUNT: tl.constexpr, PARTS: tl.constexpr, GATHER: tl.constexpr, DIGESTS: tl.constexpr,
) -> None:  # fmt: skip
    """Copy one tile.

    `planes` of a source is a table of int64: for each plane its address in the pool with the first unit in it, its
    staged part among those of the source, the staged bytes of one token before it, the first of its digests, and the
    entry of the table that its first page is in.  FORMS has for each form what `_plane` calls PAGE_STEP to PART, in
    that order; then its source, and the first of its planes and how many there are.  SHIFTED is 0 where every plane's
    first page is in the table's first entry: a program that loaded that number would ask for its page a load later."""
    program = tl.program_id(0)
    begin = program * 0
    for at in tl.static_range(COUNT):
        tokens = source(tokens0, tokens1, tokens2, tokens3, FORMS[at][12])
        each = tl.cdiv(tokens * (FORMS[at][3] * FORMS[at][5]), FORMS[at][6])
        end = begin + each * FORMS[at][14]
        if (program >= begin) & (program < end):
            planes = source(planes0, planes1, planes2, planes3, FORMS[at][12])
            plane(
                planes.to(tl.pointer_type(tl.int64)) + FORMS[at][13] * 5,
                source(table0, table1, table2, table3, FORMS[at][12]),
                source(first0, first1, first2, first3, FORMS[at][12]), tokens, digests, entries, program - begin, each,
                part0, part1, part2, part3, part4, part5, part6, part7, PARTS,
                FORMS[at][0], FORMS[at][1], FORMS[at][2], FORMS[at][3], FORMS[at][4], FORMS[at][5], FORMS[at][6],
                FORMS[at][7], FORMS[at][8], FORMS[at][9], FORMS[at][10], FORMS[at][11],
                GATHER, DIGESTS,
            )  # fmt: skip
        begin = end


flat: Any = triton.jit(
    do_not_specialize=[f"{what}{n}" for what in ("planes", "table", "first", "tokens") for n in range(MAX_SOURCES)]
    + ["digests", "entries"]
    + [f"part{n}" for n in range(MAX_PARTS)]
)(_flat)

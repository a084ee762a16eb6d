"""Several cells in one launch: of one room or of several, all with the same parts of one pool.

A small cell costs its launch and nothing else: 22 to 54 us of the host on H200s, where the kernel itself takes two or
three. So cells that are to be moved at the same moment go together, up to eight parts in all. What a launch says of one
cell (its page table, first token, tokens, staged parts) this one says of each, as plain arguments: nothing is copied to
the device for it, and nothing has to be kept there until it is over. What a program does then is `tile`.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from kvproto.io.kernels.tile import MAX_PARTS, chosen, dealt, tile


def _move_cells(
    places: tl.int64, layers: tl.int32,
    table0: tl.int64, table1: tl.int64, table2: tl.int64, table3: tl.int64,
    table4: tl.int64, table5: tl.int64, table6: tl.int64, table7: tl.int64,
    first0: tl.int32, first1: tl.int32, first2: tl.int32, first3: tl.int32,
    first4: tl.int32, first5: tl.int32, first6: tl.int32, first7: tl.int32,
    tokens0: tl.int32, tokens1: tl.int32, tokens2: tl.int32, tokens3: tl.int32,
    tokens4: tl.int32, tokens5: tl.int32, tokens6: tl.int32, tokens7: tl.int32,
    part0: tl.int64, part1: tl.int64, part2: tl.int64, part3: tl.int64,
    part4: tl.int64, part5: tl.int64, part6: tl.int64, part7: tl.int64,
    CELLS: tl.constexpr,
    PARTS: tl.constexpr, KINDS: tl.constexpr, GROUPS: tl.constexpr, PAGE: tl.constexpr,
    K_PAGE: tl.constexpr, K_TOKEN: tl.constexpr, K_GROUP: tl.constexpr, K_UNIT: tl.constexpr, K_PIECES: tl.constexpr,
    V_PAGE: tl.constexpr, V_TOKEN: tl.constexpr, V_GROUP: tl.constexpr, V_UNIT: tl.constexpr, V_PIECES: tl.constexpr,
    K_ROWS: tl.constexpr, V_ROWS: tl.constexpr, ALIKE: tl.constexpr, MIXED: tl.constexpr, HEADS: tl.constexpr,
    GATHER: tl.constexpr, DIGESTS: tl.constexpr, WORD: tl.constexpr, ALIGN: tl.constexpr,
) -> None:  # fmt: skip
    """Copy one tile of one of CELLS cells, which take turns.

    A cell has its table, its tokens and PARTS staged parts; a missing cell has no tokens. All else is as `_move` has
    it."""
    cell = tl.program_id(0) % CELLS
    program = tl.program_id(0) // CELLS
    part, unit = dealt(program, PARTS, MIXED, K_ROWS)
    table = chosen(cell, table0.to(tl.int64), table1, table2, table3, table4, table5, table6, table7, CELLS)
    first = chosen(cell, first0.to(tl.int32), first1, first2, first3, first4, first5, first6, first7, CELLS)
    tokens = chosen(cell, tokens0.to(tl.int32), tokens1, tokens2, tokens3, tokens4, tokens5, tokens6, tokens7, CELLS)
    staged = chosen(
        cell * PARTS + part, part0.to(tl.int64), part1, part2, part3, part4, part5, part6, part7, CELLS * PARTS
    )  # fmt: skip
    tile(
        places, table, first, tokens, layers, places, layers, program, part, unit, staged,
        PARTS, KINDS, GROUPS, PAGE, K_PAGE, K_TOKEN, K_GROUP, K_UNIT, K_PIECES,
        V_PAGE, V_TOKEN, V_GROUP, V_UNIT, V_PIECES, K_ROWS, V_ROWS, ALIKE, HEADS, GATHER, DIGESTS, WORD, ALIGN,
    )  # fmt: skip


move_cells: Any = triton.jit(
    do_not_specialize=["places", "layers"]
    + [f"{what}{n}" for what in ("table", "first", "tokens", "part") for n in range(MAX_PARTS)]
)(_move_cells)

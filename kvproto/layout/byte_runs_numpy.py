"""The byte runs of one share in one cell, computed with numpy: `kvproto.layout.byte_runs` for real sizes.

The slice route writes a head slice straight into the reader's pages, one run a token, layer, K and V at worst, so a
cell is easily a million runs; the direct route needs one a page at most. Both take their runs from here, as five
columns that a transport passes on without a Python object a run.

The work is done once on rows (see `kvproto.layout.byte_runs` for the walk and for what a row is): pieces that are
contiguous by construction, then a merge of the pieces that adjoin on both sides, then a scaled copy of the merged runs
for each plane.

Is that the best form? A million runs cost 5 ns each here, some 20 in batches, 50 in the transport's checks and 40 in
NIXL's request; posting them costs 2,500 to 4,000, a copy of its own each. So lists that NIXL keeps prepared would save
less than 3 %, and would need an entry for every row of the pool. What does matter is that a batch stays in the
processor's caches while it is posted: batches of a few thousand are 15 to 20 % faster than one of all, and the loop
gets its turn between them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from kvproto.layout.byte_runs import by_head, covered, planes
from kvproto.layout.plan import Plan, Share
from kvproto.layout.sharding import Layout, LayoutError

BATCH = 4096
Column = npt.NDArray[np.uint64]
Rows = npt.NDArray[np.int64]
Table = Sequence[int] | npt.NDArray[np.integer]


def slices(
    plan: Plan, share: Share, src_table: Table, dst_table: Table, first: int, tokens: int
) -> tuple[Column, Column, Column, Column, Column]:
    """(src_region, src_off, dst_region, dst_off, length): the runs of `descriptors`, in its order, as uint64 columns.

    The tables hold the page ids of the whole room; offsets and lengths are bytes. Raises `LayoutError` if a table ends
    before the tokens or names a negative page.
    """
    source, target, rows = _runs(plan, share, src_table, dst_table, first, tokens)
    held = np.array(planes(plan, share), np.uint64)
    row, shape = held[:, 2:], (len(held), len(rows))
    columns = (held[:, :1], source * row, held[:, 1:2], target * row, rows * row)
    src_region, src_off, dst_region, dst_off, length = (np.broadcast_to(each, shape).ravel() for each in columns)
    return src_region, src_off, dst_region, dst_off, length


def batches(
    columns: tuple[Column, Column, Column, Column, Column], most: int
) -> Iterator[list[tuple[int, int, Column]]]:
    """The runs of `slices` as writes of at most `most` pieces (or BATCH): each (src_region, dst_region, pieces)s.

    Pieces are (n, 3): source offset, destination offset, length, all between that one pair of regions.
    """
    src_region, src_off, dst_region, dst_off, length = columns
    most = min(most, BATCH)
    descs = np.stack([src_off, dst_off, length], 1)
    pairs = np.stack([src_region, dst_region], 1)
    for start in range(0, len(descs), most):
        some, of = descs[start : start + most], pairs[start : start + most]
        edges = np.flatnonzero(np.any(of[1:] != of[:-1], axis=1)) + 1
        yield [(int(of[a][0]), int(of[a][1]), some[a:b]) for a, b in pairwise([0, *edges.tolist(), len(of)])]


def _runs(
    plan: Plan, share: Share, src_table: Table, dst_table: Table, first: int, tokens: int
) -> tuple[Column, Column, Column]:
    """(source row, target row, rows) of each maximal run along the walk."""
    starts, lengths, heads, width = _pieces(plan, share, first, tokens)
    source = _rows(plan.prefill, src_table, first, tokens, starts, share.src_head + heads)
    target = _rows(plan.decode, dst_table, first, tokens, starts, share.dst_head + heads)
    counts = np.broadcast_to(lengths * width, source.shape)
    return _merged(source.ravel(), target.ravel(), counts.ravel())


def _pieces(plan: Plan, share: Share, first: int, tokens: int) -> tuple[Rows, Rows, Rows, int]:
    """What is contiguous on both sides whatever the tables say.

    Start tokens [n, 1], tokens a piece [n, 1], first heads of the pieces at each start [m], rows a token of a piece.
    """
    every = np.arange(first, first + tokens, dtype=np.int64)
    heads = np.arange(share.heads, dtype=np.int64)
    if by_head(plan):
        edge = (every % plan.prefill.page_size == 0) | (every % plan.decode.page_size == 0)
        edge[:1] = True
        starts = every[edge]
        return starts[:, None], np.diff(starts, append=first + tokens)[:, None], heads, 1
    whole = plan.prefill.order == plan.decode.order == "NHD"
    return every[:, None], np.ones_like(every)[:, None], heads[:1] if whole else heads, share.heads if whole else 1


def _rows(layout: Layout, table: Table, first: int, tokens: int, starts: Rows, heads: Rows) -> Rows:
    """Which row of the pool tensor each (start token, local head) is."""
    begin, end = covered(layout, table, first, tokens)
    pages = np.asarray(table[begin:end], np.int64)
    if pages.size and pages.min() < 0:
        index = begin + int(pages.argmin())
        raise LayoutError("negative-page", f"entry {index} of the page table is {table[index]}; pages count from 0")
    page, slot = pages[starts // layout.page_size - begin], starts % layout.page_size
    if layout.order == "NHD":
        return (page * layout.page_size + slot) * layout.local_heads + heads
    return (page * layout.local_heads + heads) * layout.page_size + slot


def _merged(source: Rows, target: Rows, counts: Rows) -> tuple[Column, Column, Column]:
    """The pieces, those that adjoin on both sides joined."""
    apart = np.ones(len(source), bool)
    apart[1:] = (source[1:] != (source + counts)[:-1]) | (target[1:] != (target + counts)[:-1])
    starts = np.flatnonzero(apart)
    rows = np.add.reduceat(counts, starts) if len(starts) else counts
    return source[starts].astype(np.uint64), target[starts].astype(np.uint64), rows.astype(np.uint64)

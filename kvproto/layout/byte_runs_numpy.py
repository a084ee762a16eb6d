"""Byte runs with numpy: the runs of one share in one cell, as `kvproto.layout.byte_runs` defines them.

The slice route writes a head slice straight into the reader's pages: at worst one run for each token, layer, K and V,
so a cell may have a million runs.  The direct route needs at most one run a page.  Both get their runs from here, as
five columns that a transport passes on without one Python object for each run.

The work is done once for each kind, so for K and for V (`kvproto.layout.byte_runs` explains the walk and the rows).
First come pieces that are contiguous by construction, then a merge of the pieces that adjoin on both sides, then a copy
of the merged runs to the beginning of each plane.  Only planes that share a region are merged once more.

A million runs cost 5 ns each here, some 20 in batches, 50 in the transport's checks and 40 in NIXL's request.  Posting
them costs 2,500 to 4,000, since each is a copy of its own.  So lists that NIXL keeps prepared would save less than 3 %,
and would need an entry for every row of the pool.  It matters more that a batch stays in the processor's caches while
it is posted: batches of a few thousand are 15 to 20 % faster than one of all, and the loop runs between them. """

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from kvproto.layout.byte_runs import Form, Plane, covered, forms, planes
from kvproto.layout.contacts import Piece
from kvproto.layout.placement import Placement, Strides, dense
from kvproto.layout.plan import Plan, Share
from kvproto.layout.sharding import Layout, LayoutError

BATCH = 4096
Column = npt.NDArray[np.uint64]
Rows = npt.NDArray[np.int64]
Table = Sequence[int] | npt.NDArray[np.integer]
Columns3 = tuple[Column, Column, Column]
Columns = tuple[Column, Column, Column, Column, Column]


def slices(
    plan: Plan, share: Share, src_table: Table, dst_table: Table, first: int, tokens: int,
    ours: Placement | None = None, theirs: Placement | None = None,
) -> Columns:  # fmt: skip
    """Return the runs of `descriptors`, in its order, as uint64 columns.

    The columns are (src_region, src_off, dst_region, dst_off, length); offsets and lengths are bytes.  The tables hold
    the page ids of the whole room.  Raises `LayoutError` if a table ends before the tokens or names a negative page.
    A caller that needs the same share again keeps a `PageRuns`.
    """
    return PageRuns(plan, share, ours, theirs).columns(src_table, dst_table, first, tokens)


class PageRuns:
    """The constants of a share for all cells: where its planes begin on both sides, and its rows' strides."""

    def __init__(
        self, plan: Plan, share: Share, ours: Placement | None = None, theirs: Placement | None = None
    ) -> None:
        """`ours` and `theirs` say where the writer's and the reader's rows lie (None: `dense`)."""
        self.plan, self.share = plan, share
        ours, theirs = ours or dense(plan.prefill, share.writer), theirs or dense(plan.decode, share.reader)
        self.forms = forms(plan, ours, theirs)
        self.pairs = planes(plan, share, ours, theirs)
        self._pieces = [share.piece(kind) for kind in range(len(self.forms))]
        #: K and V lie alike, so one walk serves both
        self.alike = len(set(self.forms)) == 1 and not share.pieces
        self.alone = all(len(places) == 1 for places in self.pairs.values())
        #: by walk, of planes that share no region: source region, target region, and where they begin there
        self._begins: list[Column] = []
        for kind in range(1 if self.alike else len(self.forms)):
            places = [(pair, found[0]) for pair, found in self.pairs.items() if self.alike or found[0][2] == kind]
            begins = np.array([(*pair, src, dst) for pair, (src, dst, _) in places], np.uint64)
            self._begins.append(begins.reshape(len(places), 4))

    def columns(self, src_table: Table, dst_table: Table, first: int, tokens: int) -> Columns:
        """As `slices`."""
        walked = zip(self._pieces, self.forms[:1] if self.alike else self.forms, strict=False)
        runs = [_runs(self.plan, piece, form, src_table, dst_table, first, tokens) for piece, form in walked]
        if self.alone:
            return _stacked([_moved(*each) for each in zip(self._begins, runs, strict=True)])
        return _stacked([self._together(*each, runs) for each in self.pairs.items()])

    def _together(self, pair: tuple[int, int], places: list[Plane], runs: list[Columns3]) -> list[Column]:
        """Join the runs of the planes of one region, run by run over all planes."""
        moved = []
        for src, dst, kind in places:
            source, target, sizes = runs[0 if self.alike else kind]
            moved.append((source + src, target + dst, sizes))
        together = len({len(sizes) for _, _, sizes in moved}) == 1
        flat = [np.stack(side, 1).ravel() if together else np.concatenate(side) for side in zip(*moved, strict=True)]
        source, target, sizes = _merged(*(column.astype(np.int64) for column in flat))
        src_region, dst_region = (np.full(len(sizes), region, np.uint64) for region in pair)
        return [src_region, source, dst_region, target, sizes]


def _moved(begins: Column, runs: Columns3) -> list[Column]:
    (source, target, sizes), shape = runs, (len(begins), len(runs[2]))
    each = begins[:, :1], source + begins[:, 2:3], begins[:, 1:2], target + begins[:, 3:], sizes
    return [np.broadcast_to(column, shape).ravel() for column in each]


def _stacked(columns: list[list[Column]]) -> Columns:
    src_region, src_off, dst_region, dst_off, length = (
        side[0] if len(side) == 1 else np.concatenate(side) for side in zip(*columns, strict=True)
    )
    return src_region, src_off, dst_region, dst_off, length


def batches(columns: Columns, most: int) -> Iterator[list[tuple[int, int, Column]]]:
    """Yield the runs of `slices` as writes of at most `most` (or BATCH) pieces.

    Each write is a list of (src_region, dst_region, pieces).  Pieces are an array [n, 3]: source offset, destination
    offset, length, all between that one pair of regions.
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
    plan: Plan, piece: Piece, form: Form, src_table: Table, dst_table: Table, first: int, tokens: int
) -> Columns3:
    """(source offset, target offset, bytes) of each maximal run along the walk, in a plane of this form."""
    starts, lengths, heads, width = _walk(plan, piece.units, form, first, tokens)
    source = _offsets(plan.prefill, form.source, src_table, first, tokens, starts, piece.src_unit + heads)
    target = _offsets(plan.decode, form.target, dst_table, first, tokens, starts, piece.dst_unit + heads)
    sizes = np.broadcast_to(lengths * (width * form.row), source.shape)
    return _merged(source.ravel(), target.ravel(), sizes.ravel())


def _walk(plan: Plan, units: int, form: Form, first: int, tokens: int) -> tuple[Rows, Rows, Rows, int]:
    """Return the pieces that are contiguous on both sides, whatever the tables say.

    Start tokens [n, 1], tokens a piece [n, 1], first heads of the pieces at each start [m], rows a token of a piece.
    """
    every = np.arange(first, first + tokens, dtype=np.int64)
    heads = np.arange(units, dtype=np.int64)
    if form.by_head(units):
        edge = (every % plan.prefill.page_size == 0) | (every % plan.decode.page_size == 0)
        edge[:1] = True
        starts = every[edge]
        return starts[:, None], np.diff(starts, append=first + tokens)[:, None], heads, 1
    ones = np.ones_like(every)[:, None]
    return (every[:, None], ones, heads[:1], units) if form.whole else (every[:, None], ones, heads, 1)


def _offsets(
    layout: Layout, strides: Strides, table: Table, first: int, tokens: int, starts: Rows, heads: Rows
) -> Rows:  # fmt: skip
    """Return the offset in its plane of the row of each (start token, local head)."""
    begin, end = covered(layout, table, first, tokens)
    pages = np.asarray(table[begin:end], np.int64)
    if pages.size and pages.min() < 0:
        index = begin + int(pages.argmin())
        raise LayoutError("negative-page", f"entry {index} of the page table is {table[index]}; pages count from 0")
    page, slot = pages[starts // layout.page_size - begin], starts % layout.page_size
    return page * strides.page + slot * strides.token + heads * strides.head


def _merged(source: Rows, target: Rows, sizes: Rows) -> Columns3:
    """The pieces, those that adjoin on both sides joined."""
    apart = np.ones(len(source), bool)
    apart[1:] = (source[1:] != (source + sizes)[:-1]) | (target[1:] != (target + sizes)[:-1])
    starts = np.flatnonzero(apart)
    total = np.add.reduceat(sizes, starts) if len(starts) else sizes
    return source[starts].astype(np.uint64), target[starts].astype(np.uint64), total.astype(np.uint64)

"""The byte runs of one share in one cell, which the slice route and the direct route write.

A pool is rows, the ``dim`` elements of one head at one token, placed by strides (`kvproto.layout.placement`): by itself
one tensor a layer for K and one for V, ``[page, token, head, dim]`` (NHD) or ``[page, head, token, dim]`` (HND).  Of
those, regions are numbered from 1: K of local layer i is ``1 + i``, V of it ``1 + layers + i``, with as many local
layers as that rank holds; region 0 is the staging ring.  Offsets count bytes from the start of a region.

The planes (a layer's K or V) of one kind are alike, so rows are walked and merged once for K and once for V, or for
each kind of named caches, and the result is shifted to the beginning of each plane.

Two rows join if they adjoin on *both* sides.  The order of the walk
decides which rows can join: token by token as a rule; head by head, within the tokens that share a page on both sides,
if both sides keep a head's tokens together.  In the tables' order of pages this walk misses no join of a dense pool,
and a direct share becomes whole pages, or runs of them.  (If heads lie outside of pages, neighbouring pages are not
joined.)

Planes that share a region on both sides, as in a block that holds all layers, are walked together, run by run.  So runs
that adjoin from plane to plane join, too: a block of all layers, K and V, can be one run.

This module is the definition, row by row in plain Python. `kvproto.layout.byte_runs_numpy` computes the same with
numpy. """

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Sized

import msgspec

from kvproto.layout.contacts import Piece
from kvproto.layout.placement import Placement, Strides, dense, planes_of, rows
from kvproto.layout.plan import Plan, Share
from kvproto.layout.sharding import Layout, LayoutError

Descriptor = tuple[int, int, int, int, int]  #: (source region, source offset, target region, target offset, bytes)
Run = tuple[int, int, int]  #: (source offset, target offset, bytes)
Plane = tuple[int, int, int]  #: where it begins in the source region and in the target region; its kind


class Form(msgspec.Struct, frozen=True):
    """How the rows of one kind lie on both sides."""

    row: int
    source: Strides
    target: Strides

    def by_head(self, heads: int) -> bool:
        """Whether a walk goes head by head: both sides keep a head's tokens in a page together."""
        return self.source.token == self.target.token == self.row and (heads == 1 or not self.whole)

    @property
    def whole(self) -> bool:
        """Whether both sides keep the heads of a token together."""
        return self.source.head == self.target.head == self.row


def descriptors(
    plan: Plan, share: Share, src_table: Sequence[int], dst_table: Sequence[int], first: int, tokens: int,
    ours: Placement | None = None, theirs: Placement | None = None,
) -> Iterator[Descriptor]:  # fmt: skip
    """The byte runs of `share` for the tokens ``[first, first + tokens)``, plane by plane, merged.

    The tables hold the page ids of the whole room on each side: token t lies in page ``table[t // page_size]``.  `ours`
    and `theirs` say where the writer's and the reader's rows lie (None: `dense`).  Raises `LayoutError` if a table ends
    before the tokens or names a negative page.
    """
    covered(plan.prefill, src_table, first, tokens)
    covered(plan.decode, dst_table, first, tokens)
    ours, theirs = ours or dense(plan.prefill, share.writer), theirs or dense(plan.decode, share.reader)
    runs = [list(_joined(_pieces(plan, share.piece(kind), form, src_table, dst_table, first, tokens)))
            for kind, form in enumerate(forms(plan, ours, theirs))]  # fmt: skip
    for (src_region, dst_region), places in planes(plan, share, ours, theirs).items():
        for source, target, size in _joined(_placed(places, [runs[kind] for _, _, kind in places])):
            yield src_region, source, dst_region, target, size


def pieces_of_pages(
    plan: Plan, share: Share, pages: int, ours: Placement | None = None, theirs: Placement | None = None
) -> int:
    """Count the runs of neighbouring pages (of the side with smaller ones), as `descriptors` does."""
    table, tokens = range(pages), pages * min(plan.prefill.page_size, plan.decode.page_size)
    ours, theirs = ours or dense(plan.prefill, share.writer), theirs or dense(plan.decode, share.reader)
    runs = [list(_joined(_pieces(plan, share.piece(kind), form, table, table, 0, tokens)))
            for kind, form in enumerate(forms(plan, ours, theirs))]  # fmt: skip
    return sum(
        len(runs[places[0][2]]) if len(places) == 1
        else sum(1 for _ in _joined(_placed(places, [runs[kind] for _, _, kind in places])))
        for places in planes(plan, share, ours, theirs).values()
    )  # fmt: skip


def forms(plan: Plan, ours: Placement, theirs: Placement) -> list[Form]:
    """Return the form of each kind: of K and, if there is any, of V."""
    sides = zip(rows(plan.prefill), ours.strides, theirs.strides, strict=True)
    return [Form(row, source, target) for row, source, target in sides]


def planes(plan: Plan, share: Share, ours: Placement, theirs: Placement) -> dict[tuple[int, int], list[Plane]]:
    """Return the share's planes by (source region, target region): K of its layers, then V."""
    found: dict[tuple[int, int], list[Plane]] = {}
    source = target = 0
    counts = zip(planes_of(plan.prefill, share.writer), planes_of(plan.decode, share.reader), strict=True)
    for kind, (src_count, dst_count) in enumerate(counts):
        piece = share.piece(kind)
        for layer in range(piece.layers):
            src_region, src = ours.planes[source + piece.src_layer + layer]
            dst_region, dst = theirs.planes[target + piece.dst_layer + layer]
            found.setdefault((src_region, dst_region), []).append((src, dst, kind))
        source, target = source + src_count, target + dst_count
    for places in found.values():
        places.sort()
    return found


def covered(layout: Layout, table: Sized, first: int, tokens: int) -> tuple[int, int]:
    """(first, end) of the table's entries that hold the tokens; refuses a table that does not reach them."""
    if first < 0 or tokens < 0:
        raise LayoutError("negative-tokens", f"{tokens} tokens from token {first}; take both from a cut")
    begin, end = first // layout.page_size, -((first + tokens) // -layout.page_size)
    if end > len(table):
        size = f"{len(table)} pages of {layout.page_size}"
        raise LayoutError("table-too-short", f"{size} end before token {first + tokens}; pass the whole room's table")
    return begin, end


def _placed(places: Sequence[Plane], runs: Sequence[Sequence[Run]]) -> Iterator[Run]:
    """The runs of these planes: run by run if they have equally many, else plane by plane."""
    moved = [[(src + source, dst + target, size) for source, target, size in some]
             for (src, dst, _), some in zip(places, runs, strict=True)]  # fmt: skip
    together = len({len(some) for some in runs}) == 1
    return (run for some in (zip(*moved, strict=True) if together else moved) for run in some)


def _joined(pieces: Iterable[Run]) -> Iterator[Run]:
    """The same bytes in as few runs as their order allows."""
    source = target = size = 0
    for ours, theirs, more in pieces:
        if (ours, theirs) == (source + size, target + size):
            size += more
            continue
        if size:
            yield source, target, size
        source, target, size = ours, theirs, more
    if size:
        yield source, target, size


def _pieces(
    plan: Plan, piece: Piece, form: Form, src_table: Sequence[int], dst_table: Sequence[int], first: int, tokens: int
) -> Iterator[Run]:
    """Each row, in the order in which rows can join."""
    for token, head in _walk(plan, piece.units, form, first, tokens):
        ours = _offset(plan.prefill, form.source, src_table, token, piece.src_unit + head)
        theirs = _offset(plan.decode, form.target, dst_table, token, piece.dst_unit + head)
        yield ours, theirs, form.row


def _walk(plan: Plan, heads: int, form: Form, first: int, tokens: int) -> Iterator[tuple[int, int]]:
    """(token, head of the share) in that order."""
    token, end = first, first + tokens
    while token < end:
        stop = min(end, token + 1)
        if form.by_head(heads):
            stop = min(end, *(size - token % size + token for size in (plan.prefill.page_size, plan.decode.page_size)))
        yield from ((each, head) for head in range(heads) for each in range(token, stop))
        token = stop


def _offset(layout: Layout, strides: Strides, table: Sequence[int], token: int, head: int) -> int:
    """Return the offset in its plane of the row of this token and local head."""
    index, slot = divmod(token, layout.page_size)
    page = int(table[index])
    if page < 0:
        raise LayoutError("negative-page", f"entry {index} of the page table is {page}; pages count from 0")
    return page * strides.page + slot * strides.token + head * strides.head

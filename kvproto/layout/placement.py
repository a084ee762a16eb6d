"""The placement of the rows of one rank's pool, for peers that write into it.

A *row* is the ``dim`` elements of one head at one token, dense.  A *plane* is K, or V, of one local layer; planes
count K of every layer first, then V.  Of named caches each kind (`kvproto.layout.caches`) has rows and planes of its
own, in the layout's order of kinds.  Engines place rows as suits their kernels: K and V side by side in a page,
blocks that hold all layers, heads outside of pages.  Such forms differ only in three strides (from page to page, token
to token, head to head, in bytes; one set for K, one for V, or one for each kind) and in the beginning of each plane.

The layout implies the usual form, one dense tensor for each plane in a region of its own: region ``1 + plane``, offset
0 (`dense`).  A rank with that form sends no placement; any other sends its placement in HELLO, and the writer's byte
runs (`kvproto.layout.byte_runs`) follow it.  A pool that is not open to writes says why (``closed``), and its parts are
staged.  Each cache that travels at the end has a placement of its own within it (`ends`), of slots of state or pages of
a window; a rank that sends none has these staged.

A placement comes off the wire.  Its numbers are bounded where it is decoded, and `fault` checks whether it can be this
rank's.  A wrong one harms only its own rank: a writer's transport writes into the regions of that peer alone.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec

from kvproto.layout.caches import MAX_CACHE_PARTS, MAX_CACHES
from kvproto.layout.sharding import Layout, units_at

#: planes of one rank at most, as much as layers there may be
MAX_PLANES: Final = 1 << 17
Bytes = Annotated[int, msgspec.Meta(ge=0, lt=1 << 48)]
Region = Annotated[int, msgspec.Meta(ge=1, lt=1 << 31)]
#: in what order the rows of a page follow one another if they are one run: either, if one of the two counts one
Run = Literal["NHD", "HND", "either", ""]


class Strides(msgspec.Struct, frozen=True, array_like=True):
    """Bytes from one page, token or head to the next; the row's bytes if there is only one."""

    page: Bytes  #: from a page to the next
    token: Bytes  #: from a token to the next in its page
    head: Bytes  #: from a local head to the next


class Placement(msgspec.Struct, frozen=True, array_like=True):
    """The places of the rows of one rank's pool."""

    #: of K and, if there is any, of V; or of each kind
    strides: Annotated[tuple[Strides, ...], msgspec.Meta(max_length=MAX_CACHE_PARTS)]
    #: region, and byte in it, where each plane begins: K of each local layer, then V of each; or by kind
    planes: Annotated[tuple[tuple[Region, Bytes], ...], msgspec.Meta(max_length=MAX_PLANES)]
    #: why nothing can be written into it, or read from it, by a transport; empty: it can
    closed: Annotated[str, msgspec.Meta(max_length=256)] = ""
    #: of each cache that travels at the end, by name (`Layout.ends`); none: nothing is written into their rows
    ends: Annotated[tuple[Placement, ...], msgspec.Meta(max_length=MAX_CACHES)] = ()


def rows(layout: Layout) -> tuple[int, ...]:
    """Bytes of a row of K and, if there is any, of V; or of each kind."""
    return tuple(kind.row for kind in layout.kinds)


def planes_of(layout: Layout, rank: int) -> tuple[int, ...]:
    """How many planes the rank has of each kind: as many as layers."""
    return tuple(layout.rows_of(kind, rank)[1] for kind in layout.kinds)


def dense(layout: Layout, rank: int) -> Placement:
    """The usual form: a dense tensor a plane, each in a region of its own."""
    size, by_token, strides = layout.page_size, layout.order == "NHD", list[Strides]()
    for kind in layout.kinds:
        row, units = kind.row, layout.units_of(kind, rank)[1]
        token = units * row if by_token and size > 1 else row
        strides.append(Strides(size * units * row, token, size * row if units > 1 and not by_token else row))
    return Placement(tuple(strides), tuple((1 + plane, 0) for plane in range(sum(planes_of(layout, rank)))))


def fault(placement: Placement, layout: Layout, rank: int) -> str:
    """Why this cannot be the placement of the layout's rank; empty: it can."""
    planes, ends = planes_of(layout, rank), layout.ends if layout.state is not None else ()
    if placement.ends:
        if len(placement.ends) != len(ends):
            return f"placements of {len(placement.ends)} caches at the end, of which the layout has {len(ends)}"
        found = (fault(each, end, rank) for each, end in zip(placement.ends, ends, strict=True))
        if wrong := next(filter(None, found), ""):
            return wrong
    if placement.closed:
        return ""
    if len(placement.strides) != len(planes) or len(placement.planes) != sum(planes):
        told = f"{len(placement.strides)} strides and {len(placement.planes)} planes"
        return f"a placement of {told} for a rank of {sum(planes)} planes, {len(planes)} a layer"
    return ""


def closed_between(ours: Placement | None, theirs: Placement | None) -> str:
    """Why nothing goes from the writer's pages to the reader's, in words; empty: it may."""
    for side, placement in (("prefill", ours), ("decode", theirs)):
        if placement is not None and placement.closed:
            return f"the pool of the {side} rank is closed: {placement.closed}"
    return ""


def page_runs(layout: Layout, placement: Placement | None) -> tuple[Run, ...]:
    """Return for each kind the order in which a page's rows are one run of bytes; empty: they are not."""
    size, kinds = layout.page_size, layout.kinds
    held = [units_at(kind.units, layout.tp, 0)[1] for kind in kinds]
    if placement is None:
        return tuple("either" if size == 1 or units == 1 else layout.order for units in held)
    sides = zip(placement.strides, kinds, held, strict=True)
    return tuple(_run(at, kind.row, size, units) for at, kind, units in sides)


def _run(at: Strides, row: int, size: int, heads: int) -> Run:
    if size == 1 or heads == 1:
        alone = at.head if heads > 1 else at.token
        return "either" if alone == row or size == heads == 1 else ""
    if at.head == row and at.token == heads * row:
        return "NHD"
    return "HND" if at.token == row and at.head == size * row else ""

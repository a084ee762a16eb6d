"""Page lists: the runs of bytes of all pages of two pools, prepared once, and written by page number.

Every page of a pool has the same form, so a write of whole pages needs no offsets: the pieces of one page and the steps
from page to page describe all of them, and a write names pages.  Pieces and steps are checked against both region
tables once; a write checks the page numbers only.  A backend that keeps prepared descriptors (`WriteRecords._prep`)
makes its request from indices; any other gets the rows that the numbers stand for (`PagesRequest.laid`).

Pages that follow one another on both sides are joined where a piece fills its step, as whole pages do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

from .base import Descs, MemoryRegion, PeerId, RemoteRegion, StaleEndpoint, TransportCaps, UsageError
from .regions import RegionTable, Request

#: page numbers, in the order of the write
PageNumbers: TypeAlias = npt.NDArray[np.integer[Any]]
Side = Literal["near", "far"]


class PagePiece(msgspec.Struct, frozen=True):
    """A run of `nbytes` in every page: its place in page 0 on both sides, and the bytes to the next page."""

    src: MemoryRegion
    dst: RemoteRegion
    src_off: int
    dst_off: int
    src_step: int
    dst_step: int
    nbytes: int

    def side(self, side: Side) -> tuple[MemoryRegion | RemoteRegion, int, int]:
        return (self.src, self.src_off, self.src_step) if side == "near" else (self.dst, self.dst_off, self.dst_step)


class PageLists:
    """The pieces of all pages between two pools, and the backend's prepared form of them (`raw`)."""

    __slots__ = ("far", "joins", "link", "nbytes", "near", "peer", "pieces", "raw", "sources", "tables")

    def __init__(self, peer: PeerId, pieces: tuple[PagePiece, ...]) -> None:
        self.peer, self.pieces = peer, pieces
        self.sources = tuple({piece.src.index: None for piece in pieces})
        #: bytes of a page
        self.nbytes = sum(piece.nbytes for piece in pieces)
        #: whether pages that follow one another on both sides are one piece
        self.joins = all(piece.nbytes == piece.src_step == piece.dst_step for piece in pieces)
        self.near = self.far = 0  # pages of either side
        self.link: Any = None
        self.tables: tuple[Any, int] = (None, -1)
        self.raw: Any = None

    def fit(self, table: RegionTable, remotes: Mapping[int, RemoteRegion]) -> None:
        """Check the pieces against both tables and count the pages.  Raises UsageError, StaleEndpoint."""
        if not self.pieces:
            raise UsageError("a list of pages needs at least one piece")
        first = self.pieces[0]
        for piece in self.pieces:
            table.check(piece.src)
            if remotes.get(piece.dst.index) != piece.dst:
                raise StaleEndpoint(f"region {piece.dst.index} of peer {self.peer} is not in its current endpoint")
            if (piece.src.kind, piece.dst.kind) != (first.src.kind, first.dst.kind):
                raise UsageError("one list cannot mix memory kinds: split it by the kinds of source and target")
        self.near, self.far = (min(_pages(piece, side) for piece in self.pieces) for side in ("near", "far"))

    def starts(self, near: PageNumbers, far: PageNumbers) -> npt.NDArray[np.intp]:
        """Return where in the order of these pages a new run begins."""
        if not self.joins or len(near) < 2:  # noqa: PLR2004
            return np.arange(len(near))
        return np.concatenate(([0], np.flatnonzero((np.diff(near) != 1) | (np.diff(far) != 1)) + 1))

    def rows(self, side: Side) -> npt.NDArray[np.uint64]:
        """Return (address, bytes, device, step, pages) of each piece."""
        pages = self.near if side == "near" else self.far
        rows = [(region.addr + off, piece.nbytes, region.dev, step, pages)
                for piece in self.pieces for region, off, step in (piece.side(side),)]  # fmt: skip
        return np.array(rows, np.uint64)


class PagesRequest:
    """A write of whole pages that was checked."""

    def __init__(self, lists: PageLists, near: PageNumbers, far: PageNumbers, caps: TransportCaps) -> None:
        """Raises UsageError: these are no pages of the two pools."""
        for pages, most, whose in ((near, lists.near, "source"), (far, lists.far, "target")):
            if pages.ndim != 1 or pages.dtype.kind not in "iu" or not len(pages) or len(pages) != len(near):
                raise UsageError(f"page numbers are two equally long rows of integers, not {near.shape} {far.shape}")
            if int(pages.min()) < 0 or int(pages.max()) >= most:
                raise UsageError(f"pages {int(pages.min())}..{int(pages.max())} of a {whose} of {most} pages")
        self.lists = lists
        # signed, and wide enough that no difference or product wraps around
        self.near, self.far = near.astype(np.int64, copy=False), far.astype(np.int64, copy=False)
        self._starts = lists.starts(self.near, self.far)
        self.count = len(lists.pieces) * len(self._starts)
        if self.count > caps.max_descs:
            raise UsageError(f"{self.count} descriptors; {caps.backend} takes at most {caps.max_descs} a write")
        self.sources = lists.sources
        self.local_kind, self.remote_kind = lists.pieces[0].src.kind, lists.pieces[0].dst.kind

    def indices(self, side: Side) -> npt.NDArray[np.int32]:
        """Return the entries of a side's prepared list: all pages of its first piece, then of the next."""
        pages, most = (self.near, self.lists.near) if side == "near" else (self.far, self.lists.far)
        begins = np.arange(len(self.lists.pieces), dtype=np.int64)[:, None] * most
        return (begins + pages).ravel().astype(np.int32)

    def laid(self) -> Request:
        return Request(self._rows("near"), self._rows("far"), self.local_kind, self.remote_kind, self.sources)

    def _rows(self, side: Side) -> Descs:
        starts, pages = self._starts, self.near if side == "near" else self.far
        rows, runs = self.lists.rows(side), np.diff(starts, append=len(pages))
        out = np.empty((len(rows), len(starts), 3), np.uint64)
        out[:, :, 0] = rows[:, 0, None] + pages[starts].astype(np.uint64) * rows[:, 3, None]
        out[:, :, 1] = rows[:, 1, None] * runs.astype(np.uint64)
        out[:, :, 2] = rows[:, 2, None]
        return out.reshape(-1, 3)


def _pages(piece: PagePiece, side: Side) -> int:
    """Count the pages whose piece lies inside its region.  UsageError: there is none, or they overlap."""
    region, off, step = piece.side(side)
    left = region.nbytes - off - piece.nbytes
    if min(off, left) < 0 or not 0 < piece.nbytes <= step:
        raise UsageError(f"a piece of {piece.nbytes} bytes at {off}, every {step}, in a region of {region.nbytes}")
    return left // step + 1

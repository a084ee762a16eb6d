"""Page writes: the batches of a part that the transport writes into a peer's pages.

Where pages have one size on both sides, the byte runs of a part are the same in every page, but for where the page
lies.  They are computed once for a link and a part, and the transport prepares them (`Transport.page_lists`).  Then a
chunk is two rows of page numbers: nothing is laid out again, and a pool whose pages hold all layers in one block is
written a whole page at a time.  Only the pages that the chunk covers in part, its first and its last, have byte runs of
their own; for each such cut of a page they are kept, too.

What travels at the end is so for each of its caches, with the slot or the pages of its own table.

Where page sizes differ, each chunk is laid out anew (`kvproto.layout.byte_runs_numpy`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from kvproto.data.end_pages import near_pages, of_cache, unpacked
from kvproto.data.room_entry import HostPages, RoomEntry
from kvproto.io.kernels.base import Pool
from kvproto.io.transports.base import MemoryRegion, PeerId, Transport, WritePart
from kvproto.io.transports.page_lists import PageLists, PageNumbers, PagePiece
from kvproto.layout.byte_runs import covered
from kvproto.layout.byte_runs_numpy import BATCH, Column, Columns, PageRuns, batches
from kvproto.layout.cut import Cut
from kvproto.layout.end_share import EndShare
from kvproto.layout.placement import Placement
from kvproto.layout.plan import Plan, Share

#: cuts of a page whose byte runs are kept for a part
CUTS = 256


@dataclass(frozen=True, slots=True)
class PagesBatch:
    """Whole pages, by their numbers on both sides; `pieces` are those that the transport posts."""

    lists: PageLists
    near: PageNumbers
    far: PageNumbers
    pieces: int

    @property
    def nbytes(self) -> int:
        return len(self.near) * self.lists.nbytes


#: one write of the transport
PageBatch = PagesBatch | list[WritePart]


@dataclass(slots=True)
class PartForm:
    """The constants of the writes of a part, from chunk to chunk."""

    runs: PageRuns
    #: the byte runs of a page; None: pages are not alike
    lists: PageLists | None
    #: by (first slot, end) of a page that is written in part: its byte runs in page 0, and the steps to the next page
    cuts: dict[tuple[int, int], tuple[Columns, Column, Column]] = field(default_factory=dict)

    def cut(self, first: int, end: int, near: int, far: int) -> Columns:
        """Return the byte runs of these slots from our page `near` to their page `far`."""
        if (first, end) not in self.cuts:
            if len(self.cuts) >= CUTS:
                self.cuts.clear()
            found = template(self.runs, first, end)
            # Rows of a part of a page lie between rows of K and V that might adjoin in page 0 alone.
            assert found is not None, "whole pages are alike"
            self.cuts[first, end] = found
        (src_region, src_off, dst_region, dst_off, length), src_step, dst_step = self.cuts[first, end]
        near_off, far_off = src_off + src_step * np.uint64(near), dst_off + dst_step * np.uint64(far)
        return src_region, near_off, dst_region, far_off, length


class PageWrites:
    """The page-to-page writes of one prefill rank."""

    def __init__(self, transport: Transport, regions: Sequence[MemoryRegion], ours: Placement) -> None:
        """`regions` and `ours`: the pool as the transport has it."""
        self.transport, self.regions, self.ours = transport, regions, ours
        self._forms: dict[int, dict[tuple[Plan, Share], PartForm]] = {}
        #: called with a link of which nothing is kept any more
        self.left: Callable[[int], None] = lambda _link: None
        caps = transport.caps
        self.most = min(BATCH, caps.max_descs, caps.max_inflight_descs)

    def move(self, ours: Placement) -> None:
        """Take another pool, or none: no byte runs that were computed hold any more."""
        for link in list(self._forms):
            self.forget(link)
        self.ours = ours

    def batches(
        self, link: int, peer: PeerId, plan: Plan, part: Share, theirs: Placement | None,
        pages: HostPages, peer_pages: HostPages, cut: Cut, ours: Placement | None = None,
    ) -> deque[PageBatch]:  # fmt: skip
        """Return the writes of a part's tokens.

        Args:
            link: the link.
            peer: the transport's name of its peer.
            plan: the plan between the two groups.
            part: what this rank writes of a chunk.
            theirs: where the peer's rows lie (None: as its layout says).
            pages: the whole room's pages.
            peer_pages: the peer's, from the page of the first token on.
            cut: the tokens.
            ours: where this rank's rows lie (None: as its pool's do).

        Raises:
            LayoutError: a table ends before the tokens.
            TransportError: the peer is not connected, or its regions are not those of its pages.

        """
        form = self._form_of(link, peer, plan, part, ours or self.ours, theirs)
        size, begin = plan.decode.page_size, cut.first // plan.decode.page_size
        if form.lists is None:
            table = np.concatenate([np.zeros(begin, np.int64), peer_pages])
            return self._laid_out(peer, form.runs.columns(pages, table, cut.first, cut.tokens))
        covered(plan.prefill, pages, cut.first, cut.tokens)
        covered(plan.decode, peer_pages, cut.first - begin * size, cut.tokens)
        first, end = -(-cut.first // size), cut.end // size
        made = self._whole(form.lists, pages[first:end], peer_pages[first - begin : end - begin])
        for page, low, high in _edges(cut, size):
            made += self._laid_out(peer, form.cut(low, high, int(pages[page]), int(peer_pages[page - begin])))
        return made

    def pieces(self, link: int, peer: PeerId, plan: Plan, part: Share, theirs: Placement | None) -> int:
        """Count the pieces of a page of this part; 0: its pages do not go by number.  Raises as `batches`."""
        lists = self._form_of(link, peer, plan, part, self.ours, theirs).lists
        return len(lists.pieces) if lists is not None else 0

    def end_batches(
        self, link: int, peer: PeerId, ends: Sequence[EndShare], pool: Pool, entry: RoomEntry, peer_pages: bytes
    ) -> deque[PageBatch]:  # fmt: skip
        """Return the writes of a part of what travels at the end; `peer_pages`: as the peer has named them."""
        made, names, pages = deque[PageBatch](), [end.end.name for end in pool.ends], unpacked(peer_pages)
        for each in ends:
            layout = each.plan.prefill
            near = near_pages(entry, names.index(layout.name))
            far = page_ids(of_cache(pages, each.at))
            cut = Cut(layout.first_row(entry.tokens), layout.last_rows(entry.tokens))
            made += self.batches(link, peer, each.plan, each.share, each.theirs, near, far, cut, each.ours)
        return made

    def forget(self, link: int) -> None:
        """Drop what is kept for the link: it is gone, or its peer's rows may lie elsewhere."""
        self.left(link)
        for form in self._forms.pop(link, {}).values():
            if form.lists is not None:
                self.transport.drop_lists(form.lists)

    def _form_of(
        self, link: int, peer: PeerId, plan: Plan, part: Share, ours: Placement, theirs: Placement | None
    ) -> PartForm:  # fmt: skip
        forms = self._forms.setdefault(link, {})
        form = forms.get((plan, part))  # a cache at the end may have a share that looks like another's
        if form is None:
            form = forms[plan, part] = self._form(peer, plan, part, ours, theirs)
        return form

    def _form(
        self, peer: PeerId, plan: Plan, part: Share, ours: Placement, theirs: Placement | None
    ) -> PartForm:  # fmt: skip
        runs, size = PageRuns(plan, part, ours, theirs), plan.prefill.page_size
        found = template(runs, 0, size) if size == plan.decode.page_size else None
        if found is None:
            return PartForm(runs, None)
        columns, src_steps, dst_steps = found
        length = columns[4]
        if len(length) > self.most or bool((length > np.minimum(src_steps, dst_steps)).any()):
            return PartForm(runs, None)
        rows = zip(*(column.tolist() for column in (*columns, src_steps, dst_steps)), strict=True)
        pieces = [
            PagePiece(self.regions[ours], self.transport.remote(peer, its), src, dst, src_step, dst_step, nbytes)
            for ours, src, its, dst, nbytes, src_step, dst_step in rows
        ]
        return PartForm(runs, self.transport.page_lists(peer, pieces))

    def _whole(self, lists: PageLists, near: HostPages, far: HostPages) -> deque[PageBatch]:
        """Return the writes of whole pages, each of at most `most` pieces after pages in a row are joined."""
        starts, each = lists.starts(near, far), len(lists.pieces)
        per = self.most // each
        made = deque[PageBatch]()
        for at in range(0, len(starts), per):
            begin, end = int(starts[at]), int(starts[at + per]) if at + per < len(starts) else len(near)
            runs = min(per, len(starts) - at)
            made.append(PagesBatch(lists, near[begin:end], far[begin:end], runs * each))
        return made

    def _laid_out(self, peer: PeerId, columns: Columns) -> deque[PageBatch]:
        return deque(
            [WritePart(self.regions[ours], self.transport.remote(peer, its), descs) for ours, its, descs in batch]
            for batch in batches(columns, self.most)
        )


def batch_size(batch: PageBatch) -> tuple[int, int]:
    """Return the pieces and the bytes of a batch."""
    if isinstance(batch, PagesBatch):
        return batch.pieces, batch.nbytes
    nbytes = sum(int(part.descs[0, 2] if len(part.descs) == 1 else part.descs[:, 2].sum()) for part in batch)
    return sum(len(part.descs) for part in batch), nbytes


def page_ids(pages: bytes) -> HostPages:
    """Return page numbers as messages have them."""
    return np.frombuffer(pages, "<u4").astype(np.int64)


def template(runs: PageRuns, first: int, end: int) -> tuple[Columns, Column, Column] | None:
    """Return the byte runs of these slots of page 0, and both sides' steps to page 1; None: none are.

    Where K and V have steps of their own, runs of both may adjoin in page 0 and in no other.
    """
    here, (_, src_off, _, dst_off, length) = (runs.columns([page], [page], first, end - first) for page in (0, 1))
    if not np.array_equal(here[4], length):
        return None
    return here, src_off - here[1], dst_off - here[3]


def _edges(cut: Cut, size: int) -> list[tuple[int, int, int]]:
    """Return (page, first slot, end) of the pages that the tokens cover in part, two at most."""
    found = list[tuple[int, int, int]]()
    for page in dict.fromkeys((cut.first // size, (cut.end - 1) // size)):
        low, high = max(cut.first - page * size, 0), min(cut.end - page * size, size)
        if 0 < high - low < size:
            found.append((page, low, high))
    return found

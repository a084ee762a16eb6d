"""Indexed pages: a room's pages by the own lists and indices of NIXL, with nothing around them.

NIXL's descriptors in their best form: both sides' lists are prepared once, a write names entries by their indices, and
NIXL joins those that follow one another.  The time runs from the making of the request to its end at the writer; its
note at the decode rank comes later, which is the floor of a room: it has nothing else of a protocol around it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from kvproto.lab.bench.bare import TAG, PagesThere, begin_at
from kvproto.verify.testing import inside

LONGEST_S = 60.0


class IndexedPages:
    """The lists of one prefill rank and the decode rank that it is connected to."""

    def __init__(self, endpoint: Any, packed: bool) -> None:
        """`packed`: all planes of a page are one block of one region; else each plane is a region."""
        self.endpoint, data = endpoint, inside(endpoint).data
        transport, pool = data.transport, data.gathers.pool
        self._agent, (self._peer,) = transport._agent, set(data.link_peer.values())  # noqa: SLF001
        regions = data.regions[1:]
        block = regions[0].nbytes // pool.pages
        assert len(regions) == (1 if packed else 2 * len(pool.k))
        theirs = [transport.remote(self._peer, each.index) for each in regions]
        self._pages = pool.pages, theirs[0].nbytes // block
        sides = zip((regions, theirs), self._pages, ("NIXL_INIT_AGENT", self._peer), strict=True)
        self._lists = [self._prepared(whose, side, block, pages) for side, pages, whose in sides]
        self._planes = len(regions)

    def _prepared(self, whose: str, regions: Sequence[Any], block: int, pages: int) -> Any:
        at = np.arange(pages, dtype=np.uint64) * np.uint64(block)
        rows = [np.stack([at + np.uint64(each.addr), np.full(pages, block, np.uint64),
                          np.full(pages, each.dev, np.uint64)], 1) for each in regions]  # fmt: skip
        return self._agent.prep_xfer_dlist(whose, self._agent.get_xfer_descs(np.concatenate(rows), regions[0].kind))

    def write(self, pages: Sequence[int], there: PagesThere, at: float) -> tuple[float, float]:
        """Write these pages to those of the one decode rank, from the moment `at`: (begin, end)."""
        (theirs,) = there.values()
        agent, planes = self._agent, np.arange(self._planes)[:, None]
        begin = begin_at(self.endpoint, at)
        entries = [
            (planes * most + np.array(each)).ravel().astype(np.int32)
            for each, most in zip((pages, theirs), self._pages, strict=True)
        ]
        made = agent.make_prepped_xfer("WRITE", self._lists[0], entries[0], self._lists[1], entries[1], TAG)
        state = agent.transfer(made)
        while state != "DONE":
            state = agent.check_xfer_state(made)
            if time.perf_counter() > begin + LONGEST_S:
                raise TimeoutError("a write by indices did not end")
        end = time.perf_counter()
        agent.release_xfer_handle(made)
        return begin, end

"""Described rows: rooms' pages and state by NIXL's own descriptors, with nothing around them.

A descriptor is a run of bytes that is one on both sides: a head's row, or a whole page where heads agree.  All is ready
before the clock runs, in NIXL's best form: lists of whole pages are prepared, and so are the requests of all else.  The
time runs to the last write's end at its sender, so neither a notification nor a decode rank is in it.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from kvproto.data.page_writes import PageBatch, PagesBatch
from kvproto.data.room_entry import HostPages, RoomEntry
from kvproto.io.transports.base import Busy, Completed, Handle
from kvproto.lab.bench.bare import begin_at
from kvproto.lab.bench.pipeline_rank import give_way
from kvproto.layout.cut import Cut
from kvproto.layout.end_share import end_shares
from kvproto.layout.plan import Plan
from kvproto.verify.testing import inside


class DescribedRows:
    """The writes of one prefill rank."""

    def __init__(self, endpoint: Any, plan: Plan, index: int) -> None:
        self.endpoint, self.plan, self.index = endpoint, plan, index
        self.count = 0
        self._posts = deque[Callable[[], Handle]]()

    def add(self, link: int, entry: RoomEntry, pages: HostPages, slot: int) -> None:
        """Make a room's writes ready, to these pages and this slot of the rank at the end of the link."""
        parts, plan = inside(self.endpoint), self.plan
        data, theirs = parts.data, parts.rank.peers[link].placement
        peer, ours, writes = data.link_peer[link], data.memory.placement, data.page_writes
        last, cut, made = np.array([1, slot], "<u4").tobytes(), Cut(0, entry.tokens), list[PageBatch]()
        for share in plan.duties(self.index):
            made += writes.batches(link, peer, plan, share, theirs, entry.pages, pages, cut)
        assert plan.state is not None
        for share in plan.state.duties(self.index):
            ends = end_shares(plan, share, ours, theirs)
            made += writes.end_batches(link, peer, ends, data.gathers.pool, entry, last)
        for batch in made:
            if isinstance(batch, PagesBatch):
                self.count += batch.pieces
                post = partial(data.transport.write_pages, batch.lists, batch.near, batch.far, b"")
            else:
                self.count += sum(len(each.descs) for each in batch)
                post = partial(data.transport.post, data.transport.prepare(peer, batch, b""))
            self._posts.append(post)

    def post(self, at: float) -> tuple[float, float]:
        """Post them once, from the moment `at`, as soon as the transport takes them: (begin, end)."""
        transport, live = inside(self.endpoint).data.transport, set[Handle]()
        begin = begin_at(self.endpoint, at)
        while self._posts or live:
            try:
                while self._posts:
                    live.add(self._posts[0]())
                    self._posts.popleft()
            except Busy:
                pass  # so much is in flight: the rest once some has ended
            live -= {event.handle for event in transport.poll() if isinstance(event, Completed)}
            give_way()
        return begin, time.perf_counter()

"""End pages: the slots and pages that a room has of each cache at its end, in answers.

A decode rank answers a request for the pages of a chunk at the end with those of every such cache, by name: for each
how many there are, and then its slots of state or the pages of its window, as little-endian u32.  The writer takes
those of the caches that it has a part of.  Before them an answer for a joint chunk has the pages of its tokens.
"""

from __future__ import annotations

import numpy as np

from kvproto.data.room_entry import NO_PAGES, HostPages, RoomEntry
from kvproto.io.kernels.base import Pool
from kvproto.io.transports.base import UsageError
from kvproto.layout.cut import Cut
from kvproto.layout.sharding import Layout

WORD = 4
#: a peer's pages of a chunk's tokens, and the packed ones at the end
FarPages = tuple[bytes, bytes]


def packed(layout: Layout, pool: Pool, entry: RoomEntry) -> bytes:
    """Return the answer of a decode rank of this layout."""
    held = {end.end.name: mine for end, mine in zip(pool.ends, entry.ends, strict=True)}
    found = list[int]()
    for end in layout.ends:
        mine = held.get(end.name, ())
        found += [len(mine), *mine]
    return np.array(found, "<u4").tobytes()


def far_pages(pages: bytes, cut: Cut, page_size: int) -> FarPages:
    """Return both of an answer for this chunk."""
    size = WORD * (-(-cut.end // page_size) - cut.first // page_size) if cut.tokens else 0
    return (pages[:size], pages[size:]) if cut.state else (pages, b"")


def unpacked(pages: bytes) -> list[bytes]:
    """Return the slots or pages of each cache.  UsageError: this is no such answer."""
    found, at = list[bytes](), 0
    while at < len(pages):
        count = int.from_bytes(pages[at : at + WORD], "little")
        begin, at = at + WORD, at + WORD * (1 + count)
        if at > len(pages):
            raise UsageError(f"{count} pages at the end are announced, and {(len(pages) - begin) // WORD} came")
        found.append(pages[begin:at])
    return found


def of_cache(found: list[bytes], at: int) -> bytes:
    """Return the unpacked slots or pages of the cache of this number.

    UsageError: there is none, or it has none.
    """
    if at >= len(found) or not found[at]:
        raise UsageError(f"the decode rank names no page of cache {at} at the end, of {len(found)}")
    return found[at]


def near_pages(entry: RoomEntry, at: int) -> HostPages:
    """Return the room's slot, or its pages, of the pool's cache of this number; none before they come."""
    return np.array(entry.ends[at], np.int64) if entry.ends else NO_PAGES

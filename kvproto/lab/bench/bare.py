"""One room by hand: the same gathers, writes and scatters with nothing of a protocol around them.

No protocol in this language can go below it: two kernels launched and seen to end, a write posted, and a notification
on its way. All writes are made ready before the clock runs, both ends know beforehand where everything goes, and both
poll without end. Where the decode rank's pages are mapped it is a kernel for each chunk and a tag that says so.

Smaller chunks at both ends of a room would gain a fiftieth at most (1 GiB by hand on two H200s: 2.96 ms instead of 3.01
in chunks of 128 MiB, 2.78 in bulk), so a room has chunks of one size.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

from kvproto.data.mapped_parts import MappedPart
from kvproto.data.room_entry import RoomEntry
from kvproto.io.kernels.base import Ticket
from kvproto.io.transports.base import Arrived, Completed, PreparedWrite, WritePart
from kvproto.layout.cut import Cut, chunks, cut_at
from kvproto.layout.plan import Plan, Share
from kvproto.verify.testing import inside

#: the number of the decode group, as ranks have it
DECODE = 2
LONGEST_S = 60.0
#: what a storing kernel's end is told by
TAG = b"0"
Part = tuple[int, Share, int, PreparedWrite]
#: by decode rank a room's pages
PagesThere = dict[int, list[int]]


def send(endpoint: Any, plan: Plan, table: torch.Tensor, tokens: int, at: float) -> tuple[float, float]:
    """A prefill rank's side: (begin, when all its writes are over)."""
    inner = inside(endpoint)
    transport, settings = inner.data.transport, inner.rank.settings
    later = deque(_parts(inner, plan, tokens))
    going: deque[tuple[Ticket, int, PreparedWrite]] = deque()
    free, flying = list(range(settings.slots))[::-1], dict[Any, int]()
    begin = begin_at(endpoint, at)
    while (later or going or flying) and _in_time(begin):
        if later and later[0][2] in free:
            chunk, share, slot, prepared = later.popleft()
            free.remove(slot)
            going.append((_gather(inner, plan, table, tokens, chunk, share, slot), slot, prepared))
        while going and going[0][0].done():
            _, slot, prepared = going.popleft()
            flying[transport.post(prepared)] = slot
        for event in transport.poll():
            if isinstance(event, Completed):
                free.append(flying.pop(event.handle))
    return begin, time.perf_counter()


def receive(endpoint: Any, plan: Plan, table: torch.Tensor, tokens: int) -> tuple[float, float]:
    """A decode rank's side, which is there before anything comes: (begin, when its last scatter is over)."""
    inner = inside(endpoint)
    index, writers = inner.rank.index, plan.writers(inner.rank.index)
    left, came, going = chunks(tokens, 0, plan.chunk_tokens), Counter[bytes](), deque[Ticket]()
    begin = time.perf_counter()
    while (left or going) and _in_time(begin):
        for event in inner.data.transport.poll():
            if isinstance(event, Arrived):
                came[event.tag] += 1
                if came[event.tag] == len(writers):
                    left -= 1
                    going.append(_scatter(inner, plan, table, tokens, int(event.tag), index))
        while going and going[0].done():
            going.popleft()
    return begin, time.perf_counter()


def store(
    endpoint: Any, plan: Plan, rooms: Sequence[tuple[torch.Tensor, PagesThere]], tokens: int, at: float
) -> tuple[float, float]:  # fmt: skip
    """Run a prefill rank's side with mapped pages: storing kernels and their tags, room after room.

    `rooms`: our pages, and theirs by decode rank.
    """
    inner = inside(endpoint)
    transport, flying, streams = inner.data.transport, dict[Any, Any](), inner.data.streams
    launches = [each for room in rooms for each in bound_stores(inner, plan, *room, tokens)]
    begin, stream = begin_at(endpoint, at), streams.next_store()
    for peer, launch, sources in launches:
        flying[transport.run(peer, partial(launch, stream, None), sources)] = peer
    while flying and _in_time(begin):
        for event in transport.poll():
            if isinstance(event, Completed):
                transport.tell(flying.pop(event.handle), TAG)
    return begin, time.perf_counter()


def await_tags(endpoint: Any, tags: int) -> tuple[float, float]:
    """A decode rank's side where its pages are written directly: (begin, when so many tags are here)."""
    transport, begin = inside(endpoint).data.transport, time.perf_counter()
    while tags and _in_time(begin):
        tags -= sum(isinstance(event, Arrived) for event in transport.poll())
    return begin, time.perf_counter()


def begin_at(endpoint: Any, at: float) -> float:
    """Poll the endpoint until the moment `at`; when that was over."""
    while time.perf_counter() < at:
        endpoint.poll()
    return time.perf_counter()


def _in_time(begin: float) -> bool:
    if time.perf_counter() > begin + LONGEST_S:
        raise TimeoutError("a room by hand did not end")
    return True


def _parts(inner: Any, plan: Plan, tokens: int) -> list[Part]:
    """(chunk, share, slot, write made ready) of all that this rank owes."""
    data, slots, parts = inner.data, inner.rank.settings.slots, list[Part]()
    for chunk in range(chunks(tokens, 0, plan.chunk_tokens)):
        cut = cut_at(chunk, tokens, 0, plan.chunk_tokens)
        for share in plan.duties(inner.rank.index):
            slot, peer = len(parts) % slots, data.link_peer[inner.rank.link_of[DECODE, share.reader]]
            part = plan.part(share.writer, share.reader, cut)
            start = chunk * plan.grant_bytes(share.reader, Cut(0, plan.chunk_tokens)) + part.offset
            descs = np.array([[slot * data.slot_bytes, start, part.nbytes]], np.uint64)
            piece = WritePart(data.regions[0], data.transport.remote(peer, 0), descs)
            parts.append((chunk, share, slot, data.transport.prepare(peer, [piece], b"%d" % chunk)))
    return parts


def bound_stores(
    inner: Any, plan: Plan, table: torch.Tensor, there: PagesThere, tokens: int
) -> Iterator[tuple[Any, Any, Any]]:  # fmt: skip
    """Yield (peer, launch that is bound, sources) of each chunk and decode rank."""
    entry, size = RoomEntry(tokens, table, table.cpu().numpy(), len(table)), plan.decode.page_size
    for chunk in range(chunks(tokens, 0, plan.chunk_tokens)):
        cut = cut_at(chunk, tokens, 0, plan.chunk_tokens)
        for share in plan.duties(inner.rank.index):
            peer = inner.data.link_peer[inner.rank.link_of[DECODE, share.reader]]
            pages = np.array(there[share.reader][cut.first // size : -(-cut.end // size)], "<u4").tobytes()
            part: MappedPart = inner.data.mapped.get(peer, share)
            pool, streams = inner.data.gathers.pool, inner.data.streams
            yield peer, part.bind(entry, (pages, b""), cut.first, cut.tokens, streams, pool), part.sources


def _gather(inner: Any, plan: Plan, table: torch.Tensor, tokens: int, chunk: int, share: Share, slot: int) -> Ticket:
    data, cut = inner.data, cut_at(chunk, tokens, 0, plan.chunk_tokens)
    start = slot * data.slot_bytes
    end = start + plan.part_bytes(share, cut)
    pool, streams = data.gathers.pool, data.streams
    ticket: Ticket = data.kernels.gather(
        pool, table, cut.first, cut.tokens, share, data.staging.near[start:end], stream=streams.stream
    )
    sent: Ticket = data.staging.sent_off(start, end, ticket)
    return sent


def _scatter(inner: Any, plan: Plan, table: torch.Tensor, tokens: int, chunk: int, index: int) -> Ticket:
    data, cut = inner.data, cut_at(chunk, tokens, 0, plan.chunk_tokens)
    whole = chunk * plan.grant_bytes(index, Cut(0, plan.chunk_tokens))
    parts = []
    for share in plan.writers(index):
        part = plan.part(share.writer, index, cut)
        start = whole + part.offset
        parts.append((share, data.ring.near[start : start + part.nbytes]))
    data.ring.bring(whole, whole + plan.grant_bytes(index, cut))
    ticket: Ticket = data.kernels.scatter(data.pool, table, cut.first, cut.tokens, parts, stream=data.streams.stream)
    return ticket

"""The prefill rank's data: staging slots, gathers, writes.

One buffer holds the slots; it and the pool's tensors are registered with the transport once.  A gather is
launched into a slot, ordered after the forward by the room's event, and watched by its ticket.  A staged part is
one piece of one write.  A part that goes over pages is many pieces: it is cut into writes that the transport
takes, posted as the transport has room for them, and reported as one.

Every write ends in one event: completed, or failed, and a failed one is reported again once it has settled.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from kvproto import effects as do
from kvproto import events as ev
from kvproto.handlers.book import Entry, open_memory
from kvproto.handlers.kernels.base import Kernels, Pool, Ticket
from kvproto.handlers.slices import slices
from kvproto.handlers.transports.base import (
    Busy,
    Completed,
    Failed,
    Handle,
    Part,
    PeerId,
    PeerLost,
    Transport,
    TransportError,
)
from kvproto.layout import Plan, Share, cell
from kvproto.loop import Loop
from kvproto.rank_prefill import PrefillRank

Key = tuple[int, int, int]


@dataclass(slots=True)
class Flight:
    """One send's writes: what is not yet posted, what has not ended, and whether something went wrong."""

    key: Key
    peer: PeerId
    parts: deque[list[Part]]
    live: set[Handle] = field(default_factory=set)
    failed: bool = False
    doubt: bool = False


class PrefillData:
    """Gathers and writes of one rank."""

    def __init__(
        self, loop: Loop, rank: PrefillRank, pool: Pool, kernels: Kernels, transport: Transport, book: dict[int, Entry]
    ) -> None:  # fmt: skip
        """The slots' size comes from the rank's settings; the largest part is a whole chunk of what this rank holds."""
        self.loop, self.rank, self.pool, self.kernels, self.transport, self.book = (
            loop, rank, pool, kernels, transport, book,
        )  # fmt: skip
        _, heads = rank.layout.heads_of(rank.index)
        _, layers = rank.layout.layers_of(rank.index)
        self.slot_bytes = rank.settings.slot_bytes or rank.grid * layers * heads * rank.layout.cell_bytes
        self.staging = torch.empty(rank.settings.slots * self.slot_bytes, dtype=torch.uint8, device=pool.device)
        self.regions = open_memory(transport, [self.staging, *pool.k, *pool.v])
        self.link_peer: dict[int, PeerId] = {}
        self.gathers: dict[Key, Ticket] = {}
        self.flights: dict[Handle, Flight] = {}
        self.posting: deque[Flight] = deque()
        self.doubtful: list[tuple[Flight, Handle]] = []
        self.leaving: set[PeerId] = set()
        self.stats = {"writes": 0, "slices": 0, "direct": 0, "pieces": 0, "bytes": 0}
        loop.handlers |= {
            do.LaunchGather: self._gather, do.PostWrite: self._write, do.PostPages: self._write_pages,
            do.Disconnect: self._disconnect,
        }  # fmt: skip
        loop.sources.append(self)

    # ---------------------------------------------------------------------------------------- as a source
    def adopt(self) -> None:
        """The calling thread is the loop's."""
        self.transport.adopt()

    def busy(self) -> bool:
        """A gather or a write is in flight."""
        return bool(self.gathers or self.posting or self.flights) or self.transport.busy()

    def poll(self) -> bool:
        """Finished gathers, ended writes, writes that found no room before."""
        done = [key for key, ticket in self.gathers.items() if self._gathered(key, ticket)]
        for key in done:
            del self.gathers[key]
        news = self.transport.poll()
        for event in news:
            self._hear(event)
        for _ in range(len(self.posting)):
            self._post(self.posting.popleft())
        if self.doubtful:
            self.doubtful = [(flight, handle) for flight, handle in self.doubtful if not self._over(flight, handle)]
        for peer in list(self.leaving):
            self._leave(peer)
        return bool(done or news)

    def close(self) -> None:
        """End the transport."""
        self.transport.close()

    # ------------------------------------------------------------------------------------------- gather
    def _duty(self, room: int, chunk: int, peer: int) -> tuple[Plan, Share, int, int]:
        link = self.rank.link_to(room, peer)
        plan = self.rank.peers[link].plan if link is not None else None
        value = self.rank.value_of(room)
        assert plan is not None
        first, tokens = cell(chunk, value.tokens, value.prefix, self.rank.grid)
        return plan, plan.share(self.rank.index, peer), first, tokens

    def _gathered(self, key: Key, ticket: Ticket) -> bool:
        try:
            if not ticket.done():
                return False
        except Exception as error:  # noqa: BLE001  # a device's fault ends the room, not the loop
            self._gather_failed(key, error)
        else:
            self.loop.raise_event(ev.Gathered(*key))
        return True

    def _gather_failed(self, key: Key, error: Exception) -> None:
        self.loop.reports.append(f"gather of {key}: {type(error).__name__}: {error}")
        self.loop.raise_event(ev.GatherFailed(*key))

    def _gather(self, effect: do.LaunchGather) -> None:
        key = effect.room, effect.chunk, effect.peer
        try:
            entry = self.book[effect.room]
            plan, share, first, tokens = self._duty(*key)
            start = effect.slot * self.slot_bytes
            out = self.staging[start : start + plan.part_bytes(share, tokens)]
            ticket = self.kernels.gather(self.pool, entry.table, first, tokens, share, out, after=entry.after)
        except Exception as error:  # noqa: BLE001  # a kernel's fault ends the room, not the loop
            self._gather_failed(key, error)
            return
        if ticket.done():
            self.loop.raise_event(ev.Gathered(*key))
        else:
            self.gathers[key] = ticket

    # -------------------------------------------------------------------------------------------- writes
    def _write(self, effect: do.PostWrite) -> None:
        key = effect.room, effect.chunk, effect.peer

        def parts(peer: PeerId) -> list[list[Part]]:
            plan, share, _, tokens = self._duty(*key)
            offset = effect.offset + plan.part_offset(share.reader, share.writer, tokens)
            descs = np.array([[effect.slot * self.slot_bytes, offset, plan.part_bytes(share, tokens)]], np.uint64)
            self.stats["writes"] += 1
            return [[Part(self.regions[0], self.transport.remote(peer, 0), descs)]]

        self._launch(key, parts)

    def _write_pages(self, effect: do.PostPages) -> None:
        key = effect.room, effect.chunk, effect.peer

        def parts(peer: PeerId) -> list[list[Part]]:
            plan, share, first, tokens = self._duty(*key)
            theirs = np.frombuffer(effect.pages, "<u4").astype(np.int64)
            table = np.concatenate([np.zeros(first // plan.decode.page_size, np.int64), theirs])
            ours = self.book[effect.room].pages.numpy()
            columns = slices(plan, share, ours, table, first, tokens)
            self.stats["direct" if plan.direct(share) else "slices"] += 1
            return self._batches(peer, columns)

        self._launch(key, parts)

    def _batches(self, peer: PeerId, columns: tuple[Any, ...]) -> list[list[Part]]:
        """Writes of at most `max_descs` pieces, each a list of parts between one pair of regions."""
        caps = self.transport.caps
        most = min(caps.max_descs, caps.max_inflight_descs)
        src_region, src_off, dst_region, dst_off, length = columns
        descs = np.stack([src_off, dst_off, length], 1)
        batches: list[list[Part]] = []
        for start in range(0, len(descs), most):
            batch = slice(start, start + most)
            pairs = np.stack([src_region[batch], dst_region[batch]], 1)
            edges = np.flatnonzero(np.any(pairs[1:] != pairs[:-1], axis=1)) + 1
            bounds = [0, *edges.tolist(), len(pairs)]
            batches.append([
                Part(self.regions[int(pairs[a][0])], self.transport.remote(peer, int(pairs[a][1])), descs[batch][a:b])
                for a, b in zip(bounds, bounds[1:], strict=False)
            ])  # fmt: skip
        return batches

    def _launch(self, key: Key, parts: Any) -> None:
        link = self.rank.link_to(key[0], key[2])
        peer = self.link_peer.get(link) if link is not None else None
        try:
            if peer is None:
                raise TransportError("the transport is not connected to this peer")  # noqa: TRY301
            flight = Flight(key, peer, deque(parts(peer)))
        except Exception as error:  # noqa: BLE001  # nothing was posted: the room ends, not the loop
            self.loop.reports.append(f"write of {key}: {type(error).__name__}: {error}")
            self.loop.raise_event(ev.WriteFailed(*key, settled=True))
            return
        self._post(flight)

    def _post(self, flight: Flight) -> None:
        """Post what the transport has room for; what it has none for waits for the next pass."""
        while flight.parts and not flight.failed:
            parts = flight.parts[0]
            try:
                handle = self.transport.write_many(flight.peer, parts, b"")
            except Busy:
                self.posting.append(flight)
                return
            except Exception as error:  # noqa: BLE001  # by the contract nothing was posted
                self._fail(flight, f"{type(error).__name__}: {error}", doubt=False)
                break
            flight.parts.popleft()
            flight.live.add(handle)
            self.flights[handle] = flight
            self.stats["pieces"] += sum(len(part.descs) for part in parts)
            self.stats["bytes"] += sum(int(np.asarray(part.descs)[:, 2].sum()) for part in parts)
        self._settle(flight)

    def _hear(self, event: Any) -> None:
        if isinstance(event, PeerLost):
            for link, peer in self.link_peer.items():
                if peer == event.peer:
                    self.loop.raise_event(ev.TransportLost(link))
            return
        if not isinstance(event, Completed | Failed):
            return
        flight = self.flights.get(event.handle)
        if flight is None:
            return
        if isinstance(event, Failed):
            self._fail(flight, str(event.error), doubt=not event.quiescent)
            if not event.quiescent:
                self.doubtful.append((flight, event.handle))
                return
        del self.flights[event.handle]
        flight.live.discard(event.handle)
        self._settle(flight)

    def _fail(self, flight: Flight, why: str, *, doubt: bool) -> None:
        flight.failed = True
        flight.parts.clear()
        self.loop.reports.append(f"write of {flight.key}: {why}")
        if doubt and not flight.doubt:
            flight.doubt = True
            self.loop.raise_event(ev.WriteFailed(*flight.key, settled=False))

    def _over(self, flight: Flight, handle: Handle) -> bool:
        """Whether a write in doubt can no longer move a byte."""
        if not self.transport.quiescent(handle):
            return False
        del self.flights[handle]
        flight.live.discard(handle)
        self._settle(flight)
        return True

    def _settle(self, flight: Flight) -> None:
        if flight.live or flight.parts:
            return
        event = ev.WriteFailed(*flight.key, settled=True) if flight.failed else ev.WriteCompleted(*flight.key)
        self.loop.raise_event(event)

    # --------------------------------------------------------------------------------------------- links
    def meet(self, link: int, peer: PeerId) -> None:
        """The link's writes go to this peer from now on; a former one is left."""
        if self.link_peer.get(link, peer) != peer:
            self.part(link)
        self.link_peer[link] = peer
        self.leaving.discard(peer)

    def part(self, link: int) -> None:
        """Let the link's peer go, once nothing is in flight to it."""
        peer = self.link_peer.pop(link, None)
        if peer is not None and peer not in self.link_peer.values():
            self.leaving.add(peer)
            self._leave(peer)

    def _disconnect(self, effect: do.Disconnect) -> None:
        self.part(effect.link)

    def _leave(self, peer: PeerId) -> None:
        try:
            self.transport.disconnect(peer)
        except Busy:
            return
        self.leaving.discard(peer)

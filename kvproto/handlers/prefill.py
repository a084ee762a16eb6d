"""The prefill rank's data: staging slots and writes.

One buffer holds the slots; it and the pool's tensors are registered with the transport once.  What is gathered into a
slot is one piece of one write, and the write carries its notification, where the transport can (`handlers.notes`).
A part that goes over pages is many pieces: it is cut into writes that the transport takes, posted as the transport has
room for them, and reported as one.

Every write ends in one event: completed, or failed, and a failed one is reported again once it has settled.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kvproto import effects as do
from kvproto import events as ev
from kvproto.handlers.book import Entry, open_memory
from kvproto.handlers.drafts import Drafts
from kvproto.handlers.gathers import Gathers, Key, duty
from kvproto.handlers.kernels.base import Kernels, Pool
from kvproto.handlers.lane import Lane
from kvproto.handlers.slices import batches, slices
from kvproto.handlers.staging import Kind, Staging
from kvproto.handlers.transports.base import (
    Busy,
    Completed,
    Draft,
    Failed,
    Handle,
    Part,
    PeerId,
    PeerLost,
    Transport,
    TransportError,
)
from kvproto.loop import Loop
from kvproto.messages import ChunkAck, Message, StgNotify
from kvproto.rank_prefill import PrefillRank

#: (room, chunk, link) of a notification that a write carries
Note = tuple[int, int, int]


@dataclass(slots=True)
class Flight:
    """One send's writes: what is not yet posted, what has not ended, and whether something went wrong."""

    key: Key
    peer: PeerId
    parts: deque[Draft | list[Part]]
    live: set[Handle] = field(default_factory=set)
    failed: bool = False
    doubt: bool = False
    noted: Note | None = None


class PrefillData:
    """Staging, gathers and writes of one rank."""

    def __init__(
        self, loop: Loop, rank: PrefillRank, pool: Pool, kernels: Kernels, transport: Transport, book: dict[int, Entry],
        staging: Kind = "device",
    ) -> None:  # fmt: skip
        """The slots' size comes from the rank's settings; the largest part is a whole chunk of what this rank holds."""
        self.loop, self.rank, self.kernels, self.transport, self.book = loop, rank, kernels, transport, book
        self.lane = Lane(pool.device)
        _, heads = rank.layout.heads_of(rank.index)
        _, layers = rank.layout.layers_of(rank.index)
        self.slot_bytes = rank.settings.slot_bytes or rank.grid * layers * heads * rank.layout.cell_bytes
        self.staging = Staging(rank.settings.slots * self.slot_bytes, self.lane, staging)
        self.regions = open_memory(transport, [self.staging.wire, *pool.k, *pool.v])
        self.drafts = Drafts(rank, transport, self.regions[0], self.slot_bytes, self._reach)
        self.gathers = Gathers(loop, rank, pool, kernels, book, self.staging, self.slot_bytes, self.drafts.ready)
        self.link_peer: dict[int, PeerId] = {}
        self.flights: dict[Handle, Flight] = {}
        self.posting: deque[Flight] = deque()
        self.doubtful: list[tuple[Flight, Handle]] = []
        self.leaving: set[PeerId] = set()
        self._noted: dict[Note, int] = {}
        self._told: set[Note] = set()
        self.stats = {"writes": 0, "slices": 0, "direct": 0, "pieces": 0, "bytes": 0}
        loop.handlers |= {
            do.PostWrite: self._write, do.PostPages: self._write_pages, do.Disconnect: self._disconnect,
            do.Transmit: self._transmit,
        }  # fmt: skip
        loop.keep = self._keep
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
        moved = self.gathers.poll()
        news = self.transport.poll()
        for event in news:
            self._hear(event)
        if self._told:
            self._hand_on()
        for _ in range(len(self.posting)):
            self._post(self.posting.popleft())
        if self.doubtful:
            self.doubtful = [(flight, handle) for flight, handle in self.doubtful if not self._over(flight, handle)]
        for peer in list(self.leaving):
            self._leave(peer)
        return moved or bool(news)

    def close(self) -> None:
        """End the transport."""
        self.transport.close()

    # -------------------------------------------------------------------------------------------- writes
    def _write(self, effect: do.PostWrite) -> None:
        self.stats["writes"] += 1
        key = effect.room, effect.chunk, effect.peer
        self._launch(key, lambda _: [self.drafts.take(effect)], noted=self.transport.caps.native_notify)

    def _reach(self, room: int, peer: int) -> tuple[int, PeerId]:
        """The link to this peer, and the transport's name of it."""
        link = self.rank.link_to(room, peer)
        to = self.link_peer.get(link) if link is not None else None
        if link is None or to is None:
            raise TransportError("the transport is not connected to this peer")
        return link, to

    def _keep(self, link: int, epoch: int, room: int, body: Message) -> bool:
        """The answer to a note may come before the write is seen to be over; it is kept until then."""
        noted = self._noted
        if not noted or type(body) is not ChunkAck or (room, body.chunk, link) not in noted:
            return False
        noted[room, body.chunk, link] = epoch
        return True

    def _hand_on(self) -> None:
        """Have the rank know of the writes that are over, then of the answers that came before."""
        self.loop.submit([])
        for key in self._told:
            epoch = self._noted.pop(key, 0)
            if epoch:
                room, chunk, link = key
                self.loop.submit(self.rank.receive(link, epoch, room, ChunkAck(chunk), self.loop.now))
        self._told.clear()

    def _transmit(self, effect: do.Transmit) -> None:
        """What a write has told is not told again by a message, unless it is asked for later."""
        body = effect.body
        if not self._told or type(body) is not StgNotify or (effect.room, body.chunk, effect.link) not in self._told:
            self.loop.send(effect.link, effect.epoch, effect.room, body)

    def _write_pages(self, effect: do.PostPages) -> None:
        key, caps = (effect.room, effect.chunk, effect.peer), self.transport.caps

        def parts(peer: PeerId) -> list[list[Part]]:
            plan, share, first, tokens = duty(self.rank, *key)
            theirs = np.frombuffer(effect.pages, "<u4").astype(np.int64)
            table = np.concatenate([np.zeros(first // plan.decode.page_size, np.int64), theirs])
            columns = slices(plan, share, self.book[effect.room].pages.numpy(), table, first, tokens)
            self.stats["direct" if plan.direct(share) else "slices"] += 1
            return [
                [Part(self.regions[ours], self.transport.remote(peer, theirs), descs) for ours, theirs, descs in batch]
                for batch in batches(columns, min(caps.max_descs, caps.max_inflight_descs))
            ]

        self._launch(key, parts)

    def _launch(self, key: Key, parts: Any, *, noted: bool = False) -> None:
        try:
            link, peer = self._reach(key[0], key[2])
            flight = Flight(key, peer, deque(parts(peer)))
            if noted:
                flight.noted = key[0], key[1], link
                self._noted[flight.noted] = 0
        except Exception as error:  # noqa: BLE001  # nothing was posted: the room ends, not the loop
            self.loop.reports.append(f"write of {key}: {type(error).__name__}: {error}")
            self.loop.raise_event(ev.WriteFailed(*key, settled=True))
            return
        self._post(flight)

    def _post(self, flight: Flight) -> None:
        """Post what the transport has room for; what it has none for waits for the next pass."""
        while flight.parts and not flight.failed:
            work = flight.parts[0]
            try:
                if isinstance(work, Draft):
                    parts, handle = work.parts, self.transport.post(work)
                else:
                    parts, handle = work, self.transport.write_many(flight.peer, work, b"")
            except Busy:
                self.posting.append(flight)
                return
            except Exception as error:  # noqa: BLE001  # by the contract nothing was posted
                self._fail(flight, f"{type(error).__name__}: {error}", doubt=False)
                break
            flight.parts.popleft()
            flight.live.add(handle)
            self.flights[handle] = flight
            for part in parts:
                self.stats["pieces"] += len(part.descs)
                self.stats["bytes"] += int(part.descs[0, 2] if len(part.descs) == 1 else part.descs[:, 2].sum())
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
        for work in flight.parts:
            if isinstance(work, Draft):
                self.transport.drop(work)
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
        if flight.noted is not None:
            self._told.add(flight.noted)
        done = not flight.failed
        self.loop.raise_event(ev.WriteCompleted(*flight.key) if done else ev.WriteFailed(*flight.key, settled=True))

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
            self.drafts.leave(peer)
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

"""The prefill rank's data: staging slots and writes.

One buffer holds the slots; it and the pool's tensors are registered with the transport once.  What is gathered into a
slot is one piece of one write, and the write carries its notification, where the transport can
(`protocol.notification`).  A part that goes over pages is many pieces: it is cut into writes that the transport takes.
What is posted, and how it ends, is in `writes`.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np

from kvproto.engine.device_streams import Lane
from kvproto.engine.gathers import Gathers, Key, duty
from kvproto.engine.loop import Loop
from kvproto.engine.prepared_writes import Drafts
from kvproto.engine.room_entry import Entry, open_memory
from kvproto.engine.staging_buffers import Kind, Staging
from kvproto.engine.writes import Flight, Flights, Note
from kvproto.io.kernels.base import Kernels, Pool
from kvproto.io.transports.base import Busy, Completed, Failed, Part, PeerId, PeerLost, Transport, TransportError
from kvproto.layout.byte_runs_numpy import batches, slices
from kvproto.protocol import effects as do
from kvproto.protocol import events as ev
from kvproto.protocol.messages import ChunkAck, Message, StgNotify
from kvproto.rank.prefill import PrefillRank


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
        self.leaving: set[PeerId] = set()
        self._noted: dict[Note, int] = {}
        self._told: set[Note] = set()
        self.flights = Flights(loop, transport, self._told.add, self._may_post)
        self._counts = {"writes": 0, "slices": 0, "direct": 0}
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
        return bool(self.gathers or self.flights) or self.transport.busy()

    def poll(self) -> bool:
        """Finished gathers, ended writes, writes that found no room before."""
        moved = self.gathers.poll()
        news = self.transport.poll()
        for event in news:
            if isinstance(event, Completed | Failed):
                self.flights.hear(event)
            elif isinstance(event, PeerLost):
                self._lost(event.peer)
        if self._told:
            self._hand_on()
        moved |= self.flights.poll()
        for peer in list(self.leaving):
            self._leave(peer)
        return moved or bool(news)

    def close(self) -> None:
        """End the transport."""
        self.transport.close()

    @property
    def stats(self) -> dict[str, int]:
        """Sends by their way (staged, slices, page to page), and what they came to."""
        return {**self._counts, "pieces": self.flights.pieces, "bytes": self.flights.nbytes}

    # -------------------------------------------------------------------------------------------- writes
    def _write(self, effect: do.PostWrite) -> None:
        self._counts["writes"] += 1
        key = effect.room, effect.chunk, effect.peer
        self._launch(key, lambda _: [self.drafts.take(effect)], noted=self.transport.caps.native_notify)

    def _may_post(self, key: Key) -> bool:
        return self.rank.may_post(*key, self.loop.clock.again())

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
            self.loop.lines.send(effect.link, effect.epoch, effect.room, body)

    def _write_pages(self, effect: do.PostPages) -> None:
        key, caps = (effect.room, effect.chunk, effect.peer), self.transport.caps

        def parts(peer: PeerId) -> list[list[Part]]:
            plan, share, first, tokens = duty(self.rank, *key)
            theirs = np.frombuffer(effect.pages, "<u4").astype(np.int64)
            table = np.concatenate([np.zeros(first // plan.decode.page_size, np.int64), theirs])
            columns = slices(plan, share, self.book[effect.room].pages.numpy(), table, first, tokens)
            self._counts["direct" if plan.direct(share) else "slices"] += 1
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
        self.flights.post(flight)

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

    def _lost(self, lost: PeerId) -> None:
        for link, peer in list(self.link_peer.items()):
            if peer == lost:
                self.loop.raise_event(ev.TransportLost(link))
                self.part(link)

    def _disconnect(self, effect: do.Disconnect) -> None:
        self.part(effect.link)

    def _leave(self, peer: PeerId) -> None:
        try:
            self.transport.disconnect(peer)
        except Busy:
            return
        self.leaving.discard(peer)

"""Staged writes: makes them, and prepares them while their gathers run.

A write is known completely when its gather is launched: slot, region, notification.  Everything but the posting is done
then, in parallel to the device; after the gather only one call of the transport is left.

A prepared write decides nothing.  It is stored under its slot, and used by its write if that is the expected one; any
other write of the slot drops it, so there are never more than slots.  A write that cannot be prepared is not reported
here: the write itself raises the same error later.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kvproto.io.transports.base import MemoryRegion, PeerId, PreparedWrite, Transport, TransportError, WritePart
from kvproto.protocol import effects as do
from kvproto.protocol.messages import StgNotify
from kvproto.protocol.notification import Note, make_tag

Guess = do.LaunchGather | do.PostWrite
NOT_CONNECTED = "the transport is not connected to this peer"
#: bytes of a write that is rather posted with others than as soon as it can be
SMALL = 1 << 18


@dataclass(slots=True)
class StagedWrite:
    """One piece of a staged write, its notification, and the transport's prepared write, if any."""

    peer: PeerId
    #: source offset, destination offset, length in bytes
    piece: tuple[int, int, int]
    note: Note
    prepared: PreparedWrite | None = None


class PreparedWrites:
    """The staged writes of one rank, and what is ready of them by its slots."""

    def __init__(
        self, writer: tuple[int, int], transport: Transport, staging: MemoryRegion, slot_bytes: int,
        peers: dict[int, PeerId],
    ) -> None:  # fmt: skip
        """`writer`: this rank's (group, index); `peers`: by link."""
        self.writer, self.transport, self.peers = writer, transport, peers
        self.staging, self.slot_bytes = staging, slot_bytes
        self._kept: dict[int, tuple[tuple[object, ...], StagedWrite]] = {}

    def ready(self, effect: do.LaunchGather) -> None:
        try:
            mark, kept = self._mark(effect), self._kept.get(effect.slot)
            if kept is not None and kept[0] == mark:
                return
            self._drop(effect.slot)
            made = self._make(effect)
            made.prepared = self.transport.prepare(made.peer, self.parts([made]), self.tag([made]))
            self._kept[effect.slot] = mark, made
        except Exception:  # noqa: BLE001  # whatever it is, the write raises it again and reports it
            return

    def take(self, effect: do.PostWrite) -> StagedWrite:
        """This write, ready if it was made so.  Raises what stands in its way."""
        kept = self._kept.pop(effect.slot, None)
        if kept is not None and kept[0] == self._mark(effect):
            return kept[1]
        if kept is not None and kept[1].prepared is not None:
            self.transport.drop(kept[1].prepared)
        return self._make(effect)

    def parts(self, writes: list[StagedWrite]) -> list[WritePart]:
        """Return the transport's parts of these writes to one peer.  TransportError: not connected."""
        descs = np.array([write.piece for write in writes], np.uint64)
        return [WritePart(self.staging, self.transport.remote(writes[0].peer, 0), descs)]

    def tag(self, writes: list[StagedWrite]) -> bytes:
        """Return the tag with their notifications; empty if the transport cannot carry one."""
        if not self.transport.caps.native_notify:
            return b""
        return make_tag(*self.writer, [write.note for write in writes])

    def leave(self, peer: PeerId) -> None:
        """Nothing more is written to this peer."""
        for slot in [slot for slot, (_, made) in self._kept.items() if made.peer == peer]:
            self._drop(slot)

    def move(self, staging: MemoryRegion) -> None:
        """Take slots from other memory: nothing that was made ready holds any more."""
        for slot in list(self._kept):
            self._drop(slot)
        self.staging = staging

    def _drop(self, slot: int) -> None:
        kept = self._kept.pop(slot, None)
        if kept is not None and kept[1].prepared is not None:
            self.transport.drop(kept[1].prepared)

    def _mark(self, about: Guess) -> tuple[object, ...]:
        to = about.to
        return about.room, about.chunk, about.peer, to, about.offset, about.grant, self.peers.get(to.link)

    def _make(self, about: Guess) -> StagedWrite:
        to = about.to
        peer = self.peers.get(to.link)
        if peer is None:
            raise TransportError(NOT_CONNECTED)
        piece = about.slot * self.slot_bytes, about.offset + to.part.offset, to.part.nbytes
        return StagedWrite(peer, piece, (to.epoch, about.room, StgNotify(about.chunk, about.grant)))

"""Writes that are made ready while their gathers run.

A write is known in full when its gather is launched: slot, region, notification.  All of it but the posting is done
then, in the time that the device needs anyway; what is left for the moment when the gather has ended is one call of
the transport.

A draft is a guess and decides nothing.  It is kept by its slot and taken by the write that it was made for, if what
that write says is what was guessed; any other that comes to the slot has it dropped, so there are never more drafts
than slots.  What cannot be made ready is not told here: the write itself will meet the same fault, and tell.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from kvproto.engine.gathers import duty
from kvproto.io.transports.base import Draft, Part, PeerId, Region, Transport
from kvproto.protocol import effects as do
from kvproto.protocol.messages import StgNotify
from kvproto.protocol.notification import note
from kvproto.rank.prefill import PrefillRank

#: what a write is about: room, chunk, peer, offset in the ring, grant, epoch of the link, the transport's peer
Mark = tuple[int, int, int, int, int, int, PeerId]


class Drafts:
    """The drafts of one rank's slots."""

    def __init__(
        self, rank: PrefillRank, transport: Transport, staging: Region, slot_bytes: int,
        reach: Callable[[int, int], tuple[int, PeerId]],
    ) -> None:  # fmt: skip
        """`reach` says by which link, and by which name of the transport, a room's peer is reached, or raises."""
        self.rank, self.transport, self.reach = rank, transport, reach
        self.staging, self.slot_bytes = staging, slot_bytes
        self._kept: dict[int, tuple[Mark, Draft]] = {}

    def ready(self, effect: do.LaunchGather) -> None:
        """This gather is on its way: make its write ready."""
        self._drop(effect.slot)
        try:
            send = self.rank.sends[effect.room][effect.chunk << 16 | effect.peer]
            mark = self._mark(effect, send.offset)
            self._kept[effect.slot] = mark, self._make(mark, effect.slot)
        except Exception:  # noqa: BLE001  # whatever it is, the write meets it again and tells it
            return

    def take(self, effect: do.PostWrite) -> Draft:
        """The draft of this write; made now if there is none.  Raises what stands in the way of the write."""
        mark = self._mark(effect, effect.offset)
        kept = self._kept.pop(effect.slot, None)
        if kept is not None and kept[0] == mark:
            return kept[1]
        if kept is not None:
            self.transport.drop(kept[1])
        return self._make(mark, effect.slot)

    def leave(self, peer: PeerId) -> None:
        """Nothing more is written to this peer."""
        for slot in [slot for slot, (_, draft) in self._kept.items() if draft.peer == peer]:
            self._drop(slot)

    def _drop(self, slot: int) -> None:
        kept = self._kept.pop(slot, None)
        if kept is not None:
            self.transport.drop(kept[1])

    def _mark(self, about: do.LaunchGather | do.PostWrite, offset: int) -> Mark:
        room, chunk, peer = about.room, about.chunk, about.peer
        link, to = self.reach(room, peer)
        grant = self.rank.sends[room][chunk << 16 | peer].grant
        return room, chunk, peer, offset, grant, self.rank.links[link].epoch, to

    def _make(self, mark: Mark, slot: int) -> Draft:
        room, chunk, peer, offset, grant, epoch, to = mark
        plan, share, _, tokens = duty(self.rank, room, chunk, peer)
        start = offset + plan.part_offset(share.reader, share.writer, tokens)
        descs = np.array([[slot * self.slot_bytes, start, plan.part_bytes(share, tokens)]], np.uint64)
        tag = b""
        if self.transport.caps.native_notify:
            tag = note(self.rank.group, self.rank.index, epoch, room, StgNotify(chunk, grant))
        return self.transport.prepare(to, [Part(self.staging, self.transport.remote(to, 0), descs)], tag)

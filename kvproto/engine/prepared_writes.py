"""Writes that are made ready before they are due: while nothing happens, or while their gathers run.

A write is known in full when its gather is launched: slot, region, notification.  All of it but the posting is done
then at the latest, in the time that the device needs anyway; what is left for the moment when the gather has ended is
one call of the transport.  Where a region was granted before its KV was there, even the slot can be guessed, and a loop
that has nothing else to do makes the write ready then: a small gather takes less time than that, so the first write of
a room waits for no more than its gather.

A draft is a guess and decides nothing.  It is kept by its slot and taken by the write that it was made for, if what
that write says is what was guessed; any other that comes to the slot has it dropped, so there are never more drafts
than slots.  What cannot be made ready is not told here: the write itself will meet the same fault, and tell.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from kvproto.io.transports.base import MemoryRegion, PeerId, Transport, WriteDraft, WritePart
from kvproto.layout.plan import Plan, Share, layers_of
from kvproto.protocol import effects as do
from kvproto.protocol.messages import StgNotify
from kvproto.protocol.notification import note

#: says what is written to a link's peer: its name with the transport, the plan, the share of it
Reach = Callable[[int], tuple[PeerId, Plan, Share]]
Guess = do.LaunchGather | do.PrepareWrite


class PreparedWrites:
    """The drafts of one rank's slots."""

    def __init__(
        self, writer: tuple[int, int], transport: Transport, staging: MemoryRegion, slot_bytes: int, reach: Reach
    ) -> None:  # fmt: skip
        """`writer`: this rank's (group, index); `reach` raises where a link has no connection."""
        self.writer, self.transport, self.reach = writer, transport, reach
        self.staging, self.slot_bytes = staging, slot_bytes
        self._kept: dict[int, tuple[tuple[object, ...], WriteDraft]] = {}

    def ready(self, effect: do.LaunchGather) -> None:
        """This gather is on its way, or will be: make its write ready, if it is not."""
        try:
            mark, kept = self._mark(effect), self._kept.get(effect.slot)
            if kept is not None and kept[0] == mark:
                return
            self._drop(effect.slot)
            self._kept[effect.slot] = mark, self._make(effect)
        except Exception:  # noqa: BLE001  # whatever it is, the write meets it again and tells it
            return

    def take(self, effect: do.PrepareWrite) -> WriteDraft:
        """The draft of this write; made now if there is none.  Raises what stands in the way of the write."""
        kept = self._kept.pop(effect.slot, None)
        if kept is not None and kept[0] == self._mark(effect):
            return kept[1]
        if kept is not None:
            self.transport.drop(kept[1])
        return self._make(effect)

    def leave(self, peer: PeerId) -> None:
        """Nothing more is written to this peer."""
        for slot in [slot for slot, (_, draft) in self._kept.items() if draft.peer == peer]:
            self._drop(slot)

    def _drop(self, slot: int) -> None:
        kept = self._kept.pop(slot, None)
        if kept is not None:
            self.transport.drop(kept[1])

    def _mark(self, about: Guess) -> tuple[object, ...]:
        """What the write is about, and to whom it goes as the links are now."""
        to = self.reach(about.link)[0]
        return about.room, about.chunk, about.peer, about.link, about.epoch, about.offset, about.grant, to

    def _make(self, about: Guess) -> WriteDraft:
        (to, plan, share), groups = self.reach(about.link), about.layer_groups
        group = about.chunk % groups
        start = about.offset + plan.part_offset(share.reader, share.writer, about.tokens, group, groups)
        length = plan.part_bytes(layers_of(share, group, groups), about.tokens)
        descs = np.array([[about.slot * self.slot_bytes, start, length]], np.uint64)
        tag = b""
        if self.transport.caps.native_notify:
            tag = note(*self.writer, about.epoch, about.room, StgNotify(about.chunk, about.grant))
        return self.transport.prepare(to, [WritePart(self.staging, self.transport.remote(to, 0), descs)], tag)

"""The prefill rank: rooms, sends and writes.

What its sends share, credits, slots, permits and watermarks, is `prefill_queues`.  A send's key within its room is one
number, `chunk` above 16 bits of peer.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Any, Final

from kvproto.fsm.machine import Machine
from kvproto.fsm.vocabulary import Event
from kvproto.layout.costs import NO_ROUTE
from kvproto.layout.plan import layers_of
from kvproto.layout.sharding import Layout, cell, cell_end
from kvproto.protocol import effects as do
from kvproto.protocol import events as ev
from kvproto.protocol.events import ROOM_CHUNK, TimerFired
from kvproto.protocol.messages import AUX_CHUNK
from kvproto.protocol.states import PSend
from kvproto.protocol.tables.prefill_send import WRITTEN, PSendValue, prefill_send
from kvproto.protocol.tables.prefill_write import PWriteValue, prefill_write
from kvproto.rank.base import bits, by_room
from kvproto.rank.prefill_queues import PrefillQueues
from kvproto.settings import Settings

#: rooms that are looked at for what will be written next
OLDEST: Final = 16


def by_send(event: Any) -> Any:
    """Of an event of a send: its key within its room."""
    return event.chunk << 16 | event.peer


def by_write(event: Any) -> Any:
    """Of an event of a write: its room, and its send's key there."""
    return event.room, event.chunk << 16 | event.peer


class PrefillRank(PrefillQueues):
    """One prefill rank."""

    SEND, WRITE = prefill_send, prefill_write

    sends: dict[int, dict[int, PSendValue]]

    def __init__(
        self, layout: Layout, index: int, *, group: int, chunk_tokens: int, incarnation: int,
        settings: Settings | None = None
    ) -> None:  # fmt: skip
        super().__init__(
            layout, index, group=group, chunk_tokens=chunk_tokens, incarnation=incarnation, settings=settings
        )
        self.send_machine: Machine[PSendValue] = self.add(
            "sends", self.SEND, by_send, within=by_room, timer=self.send_timer, ended=self._forget_group
        )  # fmt: skip
        self.write_machine: Machine[PWriteValue] = self.add("writes", self.WRITE, by_write)
        #: windows of rooms that were opened so far
        self.windows = 0
        #: staged writes carry their own notification: the transport's word, before the first link
        self.tells = False
        #: called with a room whose first window opens: every decode rank has opened it, and the engine is at work
        self.met: Callable[[int], None] = lambda _room: None
        self.inner |= {
            do.OpenWindow: self._open_window, do.GatherChunk: self._gather, do.WriteRegion: self._write_region,
            do.MakePages: self._make_pages, do.OfferKv: self._offer_kv, do.OfferAux: self._offer_aux,
            do.WithdrawKv: self._withdraw_kv,
            do.StopSends: self._stop_sends, do.SendAux: self._send_aux,
        }  # fmt: skip

    # ------------------------------------------------------------------------------------------- writes
    def _where(self, room: int, chunk: int, peer: int) -> tuple[int, int, int, int, int]:
        """Of a send: its link and epoch, the first token of its chunk, how many they are, the room's layer groups."""
        value = self.rooms.get(room) or self.tombs[room]
        link = self.link_of.get((self._groups.get(room) or self._group_of(room), peer), 0)
        at, groups = self.links.get(link), value.terms.layer_groups
        first, count = cell(chunk, value.tokens, value.prefix, self.chunk_tokens, groups)
        return link, at.epoch if at is not None else 0, first, count, groups

    def _gather(self, effect: do.GatherChunk) -> None:
        room, chunk, peer, slot = effect.room, effect.chunk, effect.peer, effect.slot
        link, epoch, first, count, groups = self._where(room, chunk, peer)
        self._out.append(
            do.LaunchGather(
                room, chunk, peer, link, epoch, slot, effect.offset, effect.grant, first, count, groups
            )
        )  # fmt: skip

    def _write_region(self, effect: do.WriteRegion) -> None:
        room, chunk, peer, slot = effect.room, effect.chunk, effect.peer, effect.slot
        link, epoch, first, count, groups = self._where(room, chunk, peer)
        self._out.append(
            do.PostWrite(
                room, chunk, peer, link, epoch, slot, effect.offset, effect.grant, first, count, groups
            )
        )  # fmt: skip

    def foreseen(self) -> list[do.LaunchGather]:
        """What would be gathered if the KV of the oldest rooms came now, into the slots that it would get: a guess, and
        the region is not known."""
        slots, found = self.free_slots[::-1], list[do.LaunchGather]()
        for room, sends in islice(self.sends.items(), OLDEST):
            for key, send in sends.items():
                if len(found) == len(slots):
                    return found
                if send.state is PSend.AWAIT_KV:
                    chunk, peer, slot = key >> 16, key & 0xFFFF, slots[len(found)]
                    link, epoch, *cut = self._where(room, chunk, peer)
                    found.append(do.LaunchGather(room, chunk, peer, link, epoch, slot, 0, 0, *cut))
        return found

    def foreseen_pages(self) -> list[do.PreparePages]:
        """What would be written over pages if the KV of the oldest rooms came now: as many as may at a time."""
        found = list[do.PreparePages]()
        for room, sends in islice(self.sends.items(), OLDEST):
            for key, send in sends.items():
                if len(found) == self.settings.page_writes:
                    return found
                if send.state is PSend.AWAIT_PAGES_KV:
                    chunk, peer = key >> 16, key & 0xFFFF
                    link, epoch, *cut = self._where(room, chunk, peer)
                    found.append(do.PreparePages(room, chunk, peer, link, epoch, send.pages, *cut))
        return found

    def _make_pages(self, effect: do.MakePages) -> None:
        room, chunk, peer = effect.room, effect.chunk, effect.peer
        link, epoch, *cut = self._where(room, chunk, peer)
        self._out.append(do.PreparePages(room, chunk, peer, link, epoch, effect.pages, *cut))

    # ------------------------------------------------------------------------------------------- sends
    def kind_of(self, event: Event) -> str:
        """Timers of sends name a chunk."""
        assert isinstance(event, TimerFired)
        return "sends" if event.chunk != ROOM_CHUNK else super().kind_of(event)

    def send_timer(self, room: int, key: int, tries: int) -> TimerFired:
        """The end of a send's timer, with what its row has to know besides."""
        chunk, peer = key >> 16, key & 0xFFFF
        at = self.link_to(room, peer)
        link = self.links.get(at)
        if link is None:
            return TimerFired(room, chunk, peer, tries)
        left = self.settings.page_writes - len(self.permits)
        mark, full = link.mark_round << 48 | link.mark_tail, not left or self._barred(left, self.permits) == at
        pages_extra_s = self.estimate(room, peer).pages_extra_s if chunk != AUX_CHUNK else 0.0
        return TimerFired(room, chunk, peer, tries, mark=mark, full=full, pages_extra_s=pages_extra_s)

    def _forget_group(self, room: int) -> None:
        """The last send of a room has ended."""
        self._groups.pop(room, None)

    def _open_window(self, effect: do.OpenWindow) -> None:
        room, value, put = effect.room, self.rooms[effect.room], self._queue.append
        if effect.aux:  # the first window: the aux sends are opened once
            self.met(room)
        work, terms, chunks = value.work, value.terms, range(effect.first, effect.last)
        self.windows += 1
        if (terms.writes and chunks) or (terms.aux and effect.aux):
            self._groups[room] = terms.group
        known = [(peer, self.estimate(room, peer)) for peer in bits(terms.writes)] if chunks else []
        for chunk in chunks:
            end = self._end_of(value, chunk)
            for peer, costs in known:
                ready = work is not None and self._computed(room, value, chunk, peer, end)
                closed = costs.pages >= NO_ROUTE
                put(ev.SendOpened(room, chunk, peer, ready, self.tells, False, costs.staged, costs.pages, closed))
        if effect.aux:
            ready = work is not None and work.aux
            for peer in bits(terms.aux):
                put(ev.SendOpened(room, AUX_CHUNK, peer, ready, aux=True))

    def _offer_kv(self, effect: do.OfferKv) -> None:
        room = effect.room
        value = self.rooms[room]
        for key, send in self.sends.get(room, {}).items():
            if key < 0 or send.kv:
                continue
            chunk, peer = key >> 16, key & 0xFFFF
            end = self._end_of(value, chunk)
            if self._computed(room, value, chunk, peer, end):
                self._queue.append(ev.KvProduced(room, chunk, peer))

    def _end_of(self, value: Any, chunk: int) -> int:
        """Up to which token the room's chunk reaches."""
        return cell_end(chunk, value.tokens, value.prefix, self.chunk_tokens, value.terms.layer_groups)

    def _computed(self, room: int, value: Any, chunk: int, peer: int, end: int) -> bool:
        """Whether the KV of what this chunk, up to token `end`, has for the peer is there: of all layers, or of those
        that it wants.
        """
        work, groups = value.work, value.terms.layer_groups
        if work.produced >= end or work.ahead < end:
            return bool(work.produced >= end)
        to = self.peers.get(self.link_to(room, peer))
        if to is None or to.plan is None:
            return False
        part = layers_of(to.plan.share(self.index, peer), chunk % groups, groups)
        return bool(work.layers >= part.src_layer + part.layers)

    def _withdraw_kv(self, effect: do.WithdrawKv) -> None:
        room = effect.room
        value = self.rooms[room]
        for key, send in self.sends.get(room, {}).items():
            chunk, peer = key >> 16, key & 0xFFFF
            if send.kv and not self._computed(room, value, chunk, peer, self._end_of(value, chunk)):
                self._queue.append(ev.KvWithdrawn(room, chunk, peer))

    def unsent(self, room: int, peer: int) -> bool:
        """Whether the decode rank lacks a part of which a send is open."""
        sends = self.sends.get(room, {}).items()
        return any(key & 0xFFFF == peer for key, send in sends if send.state not in WRITTEN)

    def _offer_aux(self, effect: do.OfferAux) -> None:
        for key in self.sends.get(effect.room, {}):
            if key < 0:
                self._queue.append(ev.AuxReady(effect.room, AUX_CHUNK, key & 0xFFFF))

    def _stop_sends(self, effect: do.StopSends) -> None:
        for key in self.sends.get(effect.room, {}):
            self._queue.append(ev.SendStopped(effect.room, key >> 16, key & 0xFFFF))
        self._queue.append(ev.SendsStopped(effect.room))

    def _send_aux(self, effect: do.SendAux) -> None:
        link = self.link_to(effect.room, effect.peer)
        value = self._link_up(link)
        if value is not None:
            room = self.value_of(effect.room)
            self._leave(do.TransmitAux(link, value.epoch, effect.room, room.traceparent if room is not None else b""))

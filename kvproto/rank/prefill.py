"""The prefill rank: rooms, sends and writes.

What its sends share, credits, slots, permits and watermarks, is `prefill_queues`.  A send's key within its room is one
number, `chunk` above 16 bits of peer.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from itertools import islice
from typing import Any, Final

from kvproto.fsm.machine import Machine
from kvproto.fsm.vocabulary import Event
from kvproto.layout.costs import NO_ROUTE
from kvproto.layout.cut import NO_PART, Cut, Part
from kvproto.layout.plan import Plan
from kvproto.layout.sharding import Layout
from kvproto.protocol import effects as do
from kvproto.protocol import events as ev
from kvproto.protocol.events import ROOM_CHUNK, Target, TimerFired
from kvproto.protocol.messages import AUX_CHUNK
from kvproto.protocol.room_chunks import at_end
from kvproto.protocol.states import PSend
from kvproto.protocol.tables.prefill_room import PrefillWork
from kvproto.protocol.tables.prefill_send import WRITTEN, PSendValue, may_have_told, prefill_send
from kvproto.protocol.tables.prefill_write import PWriteValue, prefill_write
from kvproto.rank.base import bits, by_room, cut_of
from kvproto.rank.prefill_queues import PrefillQueues
from kvproto.rank.value import PrefillValue, RankValue
from kvproto.settings import Settings

#: rooms that are looked at for what will be gathered next, and for what will be written into pages: as many as one
#: forward may end
OLDEST: Final = 16
BATCH: Final = 64


def by_send(event: Any) -> Any:
    """Return a send's key within its room, of an event."""
    return event.chunk << 16 | event.peer


def by_write(event: Any) -> Any:
    """Return the room of a write's event, and its send's key there."""
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
        self.native_notify = False
        #: called with a room whose first window opens: every decode rank has opened it, and the engine is at work
        self.met: Callable[[int], None] = lambda _room: None
        self.inner |= {
            do.OpenWindow: self._open_window, do.OfferKv: self._offer_kv, do.OfferAux: self._offer_aux,
            do.ConfirmTold: self._confirm_told,
            do.WithdrawKv: self._withdraw_kv, do.StopSends: self._stop_sends, do.TransmitAux: self._leave,
        }  # fmt: skip

    def value(self) -> PrefillValue:
        """Return all that later steps depend on; the rank and its value share what they hold."""
        return PrefillValue.of(self)

    def restore(self, value: RankValue, *, timers: bool = True) -> None:
        """Go on from this value; its queues ask this rank which link a send goes by."""
        super().restore(value, timers=timers)
        self.slot_queue.link = self.permit_queue.link = self._link_of_send

    # ------------------------------------------------------------------------------------------- writes
    def expected_gathers(self) -> list[do.LaunchGather]:
        """Predict gathers and slots if the KV of the oldest rooms came now; regions are not known yet."""
        # Slots are taken from the end of the list, so the guess has to be in that order to come true.
        slots, found = self.free_slots[::-1], list[do.LaunchGather]()
        for room, sends in islice(self.sends.items(), OLDEST):
            for key, send in sends.items():
                if len(found) == len(slots):
                    return found
                if send.state is PSend.AWAIT_KV:
                    chunk, peer, slot = key >> 16, key & 0xFFFF, slots[len(found)]
                    found.append(do.LaunchGather(room, chunk, peer, send.to, slot, 0, 0))
        return found

    def expected_stores(self, made: Container[tuple[int, int, int]], most: int) -> list[do.PreparePages]:
        """Predict the writes into pages if the KV of the oldest rooms came now.

        `made`: (room, chunk, peer) of those that are made ready already; `most`: how many there may be with these.
        """
        found, left = list[do.PreparePages](), most
        for room, sends in islice(self.sends.items(), BATCH):
            for key, send in sends.items():
                if send.state is not PSend.AWAIT_PAGES_KV:
                    continue
                if not left:
                    return found
                left -= 1
                chunk, peer = key >> 16, key & 0xFFFF
                if (room, chunk, peer) not in made:
                    found.append(do.PreparePages(room, chunk, peer, send.to, send.pages))
        return found

    # ------------------------------------------------------------------------------------------- sends
    def kind_of(self, event: Event) -> str:
        assert isinstance(event, TimerFired)
        return "sends" if event.chunk != ROOM_CHUNK else super().kind_of(event)

    def send_timer(self, room: int, key: int, tries: int) -> TimerFired:
        """The end of a send's timer, with what its row has to know besides."""
        chunk, peer = key >> 16, key & 0xFFFF
        at = self.link_to(room, peer)
        link = self.links.get(at)
        if link is None:
            return TimerFired(room, chunk, peer, tries)
        # A send gives the ring up only if pages would take it at once, so the row needs to know about permits.
        left = self.settings.page_writes - len(self.permits)
        send = self.sends.get(room, {}).get(key)
        mark, full = link.mark_round << 48 | link.mark_tail, not left or self._barred(left, self.permits) == at
        # Where it cannot go page to page, waiting is always cheaper.
        pages_extra_s = NO_ROUTE if send is not None and send.closed else 0.0
        if not pages_extra_s and chunk != AUX_CHUNK:
            estimate = self.end_estimate if send is not None and send.to.cut.state else self.estimate
            pages_extra_s = estimate(room, peer).pages_extra_s
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
        # The group is remembered only while sends are open; `_forget_group` drops it with the last one.
        if ((terms.writes | terms.state_writes) and chunks) or (terms.aux and effect.aux):
            self._groups[room] = terms.group
        cuts = [(chunk, cut_of(value, chunk)) for chunk in chunks]
        some = bits(terms.writes) if cuts and not cuts[0][1].state else ()
        known = [(peer, self._reach(room, peer), self.estimate(room, peer)) for peer in some]
        some = bits(at_end(value)) if cuts and cuts[-1][1].state else ()
        state = [(peer, self._reach(room, peer), self.end_estimate(room, peer)) for peer in some]
        for chunk, cut in cuts:
            for peer, (link, epoch, plan), costs in state if cut.state else known:
                part = plan.part(self.index, peer, cut) if plan is not None else NO_PART
                ready = work is not None and _computed(work, cut, part)
                to, closed = Target(link, epoch, cut, part), costs.pages >= NO_ROUTE
                put(
                    ev.SendOpened(
                        room, chunk, peer, to, ready, self.native_notify, False, costs.staged, costs.pages, closed
                    )
                )
        if effect.aux:
            ready = work is not None and work.aux
            for peer in bits(terms.aux):
                link, epoch, _ = self._reach(room, peer)
                put(ev.SendOpened(room, AUX_CHUNK, peer, Target(link, epoch), ready, aux=True))

    def _reach(self, room: int, peer: int) -> tuple[int, int, Plan | None]:
        """Link and epoch (0: there is none) of the room's sends to this decode rank, and the plan."""
        link = self.link_to(room, peer)
        at = self.links.get(link)
        return (link, at.epoch, self.peers[link].plan) if at is not None else (0, 0, None)

    def _offer_kv(self, effect: do.OfferKv) -> None:
        room = effect.room
        work = self.rooms[room].work
        for key, send in self.sends.get(room, {}).items():
            if key >= 0 and not send.kv and _computed(work, send.to.cut, send.to.part):
                self._queue.append(ev.KvProduced(room, key >> 16, key & 0xFFFF))

    def _withdraw_kv(self, effect: do.WithdrawKv) -> None:
        room = effect.room
        work = self.rooms[room].work
        for key, send in self.sends.get(room, {}).items():
            if send.kv and not _computed(work, send.to.cut, send.to.part):
                self._queue.append(ev.KvWithdrawn(room, key >> 16, key & 0xFFFF))

    def unsent(self, room: int, peer: int) -> bool:
        """Whether the decode rank lacks a part of which a send is open."""
        sends = self.sends.get(room, {}).items()
        return any(key & 0xFFFF == peer for key, send in sends if send.state not in WRITTEN and not may_have_told(send))

    def _confirm_told(self, effect: do.ConfirmTold) -> None:
        for key, send in self.sends.get(effect.room, {}).items():
            # A decode rank that forgot the room had success: a part that was told counts as confirmed.
            if key & 0xFFFF == effect.peer and may_have_told(send):
                self._queue.append(ev.ChunkAcked(effect.room, key >> 16, effect.peer))

    def _offer_aux(self, effect: do.OfferAux) -> None:
        for key in self.sends.get(effect.room, {}):
            if key < 0:
                self._queue.append(ev.AuxReady(effect.room, AUX_CHUNK, key & 0xFFFF))

    def _stop_sends(self, effect: do.StopSends) -> None:
        for key in self.sends.get(effect.room, {}):
            self._queue.append(ev.SendStopped(effect.room, key >> 16, key & 0xFFFF))
        self._queue.append(ev.SendsStopped(effect.room))


def _computed(work: PrefillWork, cut: Cut, part: Part) -> bool:
    """Whether the KV of this part is there: of all layers, or of those that it has."""
    end = cut.first + cut.tokens
    if cut.state:  # it is there when all tokens have passed all layers
        return work.produced >= end
    # Whole tokens decide first; only between the two marks does the depth in layers matter.
    if work.produced >= end or work.ahead < end:
        return work.produced >= end
    return part.nbytes > 0 and work.layers >= part.share.src_layer + part.share.layers

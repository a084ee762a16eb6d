"""The prefill rank: rooms, sends and local staging slots.

Beside its machines it owns the slots (which send holds one, which queue for one, first come first served) and,
a link, the sends that wait for the watermark, ordered by their regions, so that a watermark costs only the sends
that it lets go.  A send's key within its room is one number, `chunk` above 16 bits of peer.
"""

from __future__ import annotations

from collections import OrderedDict
from heapq import heappop, heappush
from typing import Any

from kvproto.fsm.machine import Fire, Machine
from kvproto.fsm.timer_wheel import INFINITY
from kvproto.fsm.vocabulary import Effect, TimerFired
from kvproto.layout.sharding import Layout, cell
from kvproto.protocol import effects as do
from kvproto.protocol import events as ev
from kvproto.protocol import messages as msg
from kvproto.protocol.events import Route
from kvproto.protocol.messages import AUX_CHUNK
from kvproto.protocol.ring import usable
from kvproto.protocol.tables.prefill_send import FLYING, PSendValue, prefill_send
from kvproto.rank.base import bits
from kvproto.rank.driver import PARTS, ROOM_CHUNK, On, own
from kvproto.rank.prefill_links import PrefillLinks
from kvproto.rank.settings import Settings

SendKey = tuple[int, int, int]


class PrefillRank(PrefillLinks):
    """One prefill rank."""

    SEND = prefill_send

    def __init__(
        self, layout: Layout, index: int, *, group: int, grid: int, incarnation: int, settings: Settings | None = None
    ) -> None:  # fmt: skip
        super().__init__(layout, index, group=group, grid=grid, incarnation=incarnation, settings=settings)
        self.send_machine: Machine[PSendValue] = Machine(self.SEND, self.settings.timing)
        self.sends: dict[int, dict[int, PSendValue]] = {}
        #: of each room that has sends: when the earliest of their timers was put into the wheel
        self._wakes: dict[int, float] = {}
        self.free_slots = list(range(self.settings.slots))
        self.slot_of: dict[SendKey, int] = {}
        self.slot_queue: OrderedDict[SendKey, None] = OrderedDict()
        self.watch: dict[int, list[tuple[int, int, int, int, int]]] = {}
        self._sends_on = {event: self._on_send(steps) for event, steps in self.send_machine.steps.items()}
        self._route |= self._sends_on | {
            TimerFired: self._timed, ev.WriteCompleted: self._write_completed, ev.WriteFailed: self._write_failed,
        }  # fmt: skip
        self._inner |= {
            do.PostWrite: self._post, do.PostPages: self._post, do.OpenWindow: self._open_window,
            do.OfferKv: self._offer_kv, do.OfferAux: self._offer_aux, do.StopSends: self._stop_sends,
            do.FinishSend: self._finish_send, do.TakeSlot: self._take_slot, do.LeaveQueue: self._leave_queue,
            do.FreeSlot: self._free_slot, do.WatchWatermark: self._watch, do.ReleaseWaiting: self._release,
            do.AskWatermark: self._ask_watermark, do.SendAux: self._send_aux,
        }  # fmt: skip

    # ------------------------------------------------------------------------------------------- writes
    def _post(self, effect: do.PostWrite | do.PostPages) -> None:
        self.posted.add((effect.room, effect.chunk << 16 | effect.peer))
        self._out.append(effect)

    def _write_completed(self, event: ev.WriteCompleted, now: float) -> None:
        self.posted.discard((event.room, event.chunk << 16 | event.peer))
        self._sends_on[ev.WriteCompleted](event, now)

    def _write_failed(self, event: ev.WriteFailed, now: float) -> None:
        if event.settled:
            self.posted.discard((event.room, event.chunk << 16 | event.peer))
        self._sends_on[ev.WriteFailed](event, now)

    def may_post(self, room: int, chunk: int, peer: int, now: float) -> bool:
        """Whether a piece of this send may still be posted: nobody has stopped it, and what it was given holds."""
        send = self.sends.get(room, {}).get(chunk << 16 | peer)
        return send is not None and send.state in FLYING and now < send.lease

    # ------------------------------------------------------------------------------------------- sends
    def _on_send(self, steps: list[Fire]) -> On:
        """As `_on_room`, of sends: only `SendOpened` makes one."""
        ends, initial, inner, log = self.send_machine.ends, self.send_machine.initial, self._inner, self._log

        def on(event: Any, now: float) -> None:
            room, key = event.room, event.chunk << 16 | event.peer
            try:
                sends = self.sends[room]
                old = sends[key]
            except KeyError:
                if type(event) is not ev.SendOpened:
                    self.counts["late events"] += 1
                    return
                old, sends = initial, self.sends.setdefault(room, {})
            row, new, effects = steps[old.state](old, event, now)
            log((now, row, event, old, new))
            if new is not old:
                if ends[new.state]:
                    self._drop_send(room, key)
                else:
                    sends[key] = new
                    if new.due < old.due and new.due < self._wakes.get(room, INFINITY):
                        self._wake_at(new.due, room)
            for effect in effects:
                act = inner.get(type(effect))
                if act is None:
                    self._out.append(effect)
                else:
                    act(effect)

        return own(on)

    def _drop_send(self, room: int, key: int) -> None:
        sends = self.sends[room]
        del sends[key]
        if not sends:
            del self.sends[room]
            self._wakes.pop(room, None)
            self._groups.pop(room, None)

    def _wake_at(self, due: float, room: int) -> None:
        self._wakes[room] = due
        self.wheel.put(due, room + PARTS)

    def _wake_parts(self, room: int, due: float, now: float, out: list[Effect]) -> None:
        if self._wakes.get(room) != due:
            return
        del self._wakes[room]
        for key in [key for key, send in self.sends.get(room, {}).items() if send.due <= now]:
            send = self.sends.get(room, {}).get(key)
            if send is not None and send.due <= now:
                tries = self.send_machine.timers[send.state].tries
                out += self.handle(TimerFired(room, key >> 16, key & 0xFFFF, tries), now)
        left = min((send.due for send in self.sends.get(room, {}).values()), default=INFINITY)
        if left < self._wakes.get(room, INFINITY):
            self._wake_at(left, room)

    def _timed(self, event: TimerFired, now: float) -> None:
        if event.chunk != ROOM_CHUNK:
            self._sends_on[TimerFired](event, now)
        else:
            super()._timed(event, now)

    def _open_window(self, effect: do.OpenWindow) -> None:
        room, value, put = effect.room, self.rooms[effect.room], self._queue.append
        work, terms = value.work, value.terms
        if (terms.writes and effect.first < effect.last) or (terms.aux and effect.aux):
            self._groups[room] = terms.group
        for chunk in range(effect.first, effect.last):
            first, count = cell(chunk, value.tokens, value.prefix, self.grid)
            ready = work is not None and work.produced >= first + count
            for peer in bits(terms.writes):
                put(ev.SendOpened(room, chunk, peer, self._way(terms.group, peer, count), ready))
        if effect.aux:
            ready = work is not None and work.aux
            for peer in bits(terms.aux):
                put(ev.SendOpened(room, AUX_CHUNK, peer, Route.AUX, ready))

    def _way(self, group: int, peer: int, tokens: int) -> Route:
        link = self.link_of.get((group, peer))
        plan = self.peers[link].plan if link is not None else None
        if plan is None:
            return Route.STAGED
        share = plan.share(self.index, peer)
        large = 0 < self.settings.slot_bytes < plan.part_bytes(share, tokens)
        return Route.PAGES if self.settings.pages_only or large or plan.direct(share) else Route.STAGED

    def _offer_kv(self, effect: do.OfferKv) -> None:
        room = effect.room
        value = self.rooms[room]
        produced = value.work.produced
        whole = value.tokens if produced >= value.tokens else (produced - value.prefix) // self.grid
        for key, send in self.sends.get(room, {}).items():
            if 0 <= key >> 16 < whole and not send.kv:
                self._queue.append(ev.KvProduced(room, key >> 16, key & 0xFFFF))

    def _offer_aux(self, effect: do.OfferAux) -> None:
        for key in self.sends.get(effect.room, {}):
            if key >> 16 == AUX_CHUNK:
                self._queue.append(ev.AuxReady(effect.room, AUX_CHUNK, key & 0xFFFF))

    def _stop_sends(self, effect: do.StopSends) -> None:
        for key in self.sends.get(effect.room, {}):
            self._queue.append(ev.SendStopped(effect.room, key >> 16, key & 0xFFFF))
        self._queue.append(ev.SendsStopped(effect.room))

    def _finish_send(self, effect: do.FinishSend) -> None:
        self._queue.append(ev.SendFinished(effect.room, effect.chunk, effect.peer))

    def _send_aux(self, effect: do.SendAux) -> None:
        link = self.link_to(effect.room, effect.peer)
        value = self._up(link)
        if value is not None and link is not None:
            self._leave(do.TransmitAux(link, value.epoch, effect.room))

    # ------------------------------------------------------------------------------- slots and watermarks
    def _connect(self, effect: do.Connect) -> None:
        self.watch[effect.link] = []
        super()._connect(effect)

    def _forget(self, link: int) -> None:
        super()._forget(link)
        self.watch.pop(link, None)

    def _take_slot(self, effect: do.TakeSlot) -> None:
        key = effect.room, effect.chunk, effect.peer
        if self.free_slots:
            self._give_slot(key, self.free_slots.pop())
        else:
            self.slot_queue[key] = None

    def _give_slot(self, key: SendKey, slot: int) -> None:
        self.slot_of[key] = slot
        self._queue.append(ev.SlotTaken(*key, slot))

    def _leave_queue(self, effect: do.LeaveQueue) -> None:
        self.slot_queue.pop((effect.room, effect.chunk, effect.peer), None)

    def _free_slot(self, effect: do.FreeSlot) -> None:
        slot = self.slot_of.pop((effect.room, effect.chunk, effect.peer), None)
        if slot is None:
            return
        if self.slot_queue:
            self._give_slot(self.slot_queue.popitem(last=False)[0], slot)
        else:
            self.free_slots.append(slot)

    def _watch(self, effect: do.WatchWatermark) -> None:
        link = self.link_to(effect.room, effect.peer)
        if link is not None:
            heappush(self.watch[link], (effect.round, effect.end, effect.room, effect.chunk, effect.peer))

    def _release(self, effect: do.ReleaseWaiting) -> None:
        waiting, value = self.watch.get(effect.link, []), self.links[effect.link]
        while waiting and usable(waiting[0][0], waiting[0][1], (value.mark_round, value.mark_tail)):
            _, _, room, chunk, peer = heappop(waiting)
            self._queue.append(ev.WatermarkReached(room, chunk, peer))

    def _ask_watermark(self, effect: do.AskWatermark) -> None:
        self._to(self.link_to(effect.room, effect.peer), 0, msg.WatermarkReq())

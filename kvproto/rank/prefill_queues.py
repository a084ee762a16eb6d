"""Prefill queues: sends share credits to request, staging slots, permits for pages, and watermarks.

Each is bounded (by `Settings.max_unanswered_requests` of a decode rank, `slots`, `page_writes`), belongs to the send
that it was given to until that gives it back, and has a queue.  A send holds none of them while it waits for something
of the other side but for an answer that comes at once, so no cycle of waits goes through them.

Queues are first come first served, but decode ranks take turns for slots and permits, and rooms for slots: a room that
gives one back is last, with all that it has waiting (`kvproto.rank.fair_queue`).  So a small room's send is next,
however many of a large room were there before it, and one slot is enough for that.

A slot or a permit is held while its write is in flight, and writes to a decode rank that has stopped stay in flight.
So the last free one is not given to a decode rank that holds all others (`_barred`), where there is another decode
rank: one that stops takes no time from rooms of the others.

The sends that wait for the watermark are kept by link, ordered by their regions, so that a watermark costs only the
sends that it lets go.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection
from heapq import heappop, heappush

from kvproto.layout.sharding import Layout
from kvproto.protocol import effects as do
from kvproto.protocol import events as ev
from kvproto.protocol import messages as msg
from kvproto.protocol.ring import usable
from kvproto.rank.fair_queue import FairQueue, SendKey
from kvproto.rank.prefill_links import PrefillLinks
from kvproto.settings import Settings


class PrefillQueues(PrefillLinks):
    """A prefill rank with what its sends share, and without them."""

    def __init__(
        self, layout: Layout, index: int, *, group: int, chunk_tokens: int, incarnation: int,
        settings: Settings | None = None
    ) -> None:  # fmt: skip
        super().__init__(
            layout, index, group=group, chunk_tokens=chunk_tokens, incarnation=incarnation, settings=settings
        )
        self._requests = self.settings.max_unanswered_requests
        self.free_slots = list(range(self.settings.slots))
        self.slot_of: dict[SendKey, int] = {}
        self.slot_queue = FairQueue(link=self._link_of_send)
        #: by link: sends whose request is unanswered, and that queue to ask
        self.credits: dict[int, set[SendKey]] = {}
        self.credit_queues: dict[int, OrderedDict[SendKey, None]] = {}
        #: sends that write page to page, and that queue for it
        self.permits: set[SendKey] = set()
        self.permit_queue = FairQueue(link=self._link_of_send)
        self.watch: dict[int, list[tuple[int, int, int, int, int]]] = {}
        self.inner |= {
            do.TakeSlot: self._take_slot, do.FreeSlot: self._free_slot, do.TakeCredit: self._take_credit,
            do.FreeCredit: self._free_credit, do.TakePermit: self._take_permit, do.FreePermit: self._free_permit,
            do.LeaveQueue: self._leave_queue, do.WatchWatermark: self._watch, do.ReleaseWaiting: self._release,
            do.AskWatermark: self._ask_watermark,
        }  # fmt: skip

    def _leave_queue(self, effect: do.LeaveQueue) -> None:
        key = effect.room, effect.chunk, effect.peer
        self.slot_queue.leave(key)
        self.permit_queue.leave(key)
        link = self.link_to(effect.room, effect.peer)
        asking = self.credit_queues.get(link)
        if asking is not None:
            asking.pop(key, None)
            self._tidy(link)

    # ----------------------------------------------------------------------------------------------------- credits
    def _take_credit(self, effect: do.TakeCredit) -> None:
        room, chunk, peer = key = effect.room, effect.chunk, effect.peer
        link = self.link_of.get((self._groups.get(room) or self._group_of(room), peer), 0)
        unanswered = self.credits.get(link)
        if unanswered is None:
            self.credits[link] = {key}
        elif len(unanswered) < self._requests:
            unanswered.add(key)
        else:
            self.credit_queues.setdefault(link, OrderedDict())[key] = None
            return
        # In front of the queue: the send that took the credit makes its request in this very step.
        self._queue.appendleft(ev.CreditTaken(room, chunk, peer))

    def _free_credit(self, effect: do.FreeCredit) -> None:
        room, peer = effect.room, effect.peer
        link = self.link_of.get((self._groups.get(room) or self._group_of(room), peer), 0)
        unanswered = self.credits.get(link)
        if unanswered:
            unanswered.discard((room, effect.chunk, peer))
        if link in self.credit_queues:
            self._credit(link)
        # Sets of idle links would pile up over many restarts of peers.
        elif unanswered is not None and not unanswered:
            del self.credits[link]

    def _credit(self, link: int) -> None:
        """Give a credit to the oldest queued send, if fewer requests than the bound are unanswered."""
        unanswered = self.credits[link]
        if len(unanswered) < self._requests:
            key, _ = self.credit_queues[link].popitem(last=False)
            unanswered.add(key)
            self.give(ev.CreditTaken(*key))
            self._tidy(link)

    def _tidy(self, link: int) -> None:
        """Nothing is kept for a link to which nobody asks."""
        for kept in (self.credits, self.credit_queues):
            if not kept.get(link, True):
                del kept[link]

    # ----------------------------------------------------------------------------------------------------- permits
    def _take_permit(self, effect: do.TakePermit) -> None:
        key = effect.room, effect.chunk, effect.peer
        left = self.settings.page_writes - len(self.permits)
        # As with slots: while several are free, and nobody waits, a write has one without going through the queue.
        if left > 1 and not self.permit_queue.turns:
            self.permits.add(key)
            self._queue.appendleft(ev.PermitTaken(*key))
        else:
            self.permit_queue.put(key)
            self._permit()

    def _permit(self) -> None:
        """Give the free permits to the sends that wait, decode ranks in turn."""
        taken: list[SendKey] = []
        while self.permit_queue and (left := self.settings.page_writes - len(self.permits)):
            key = self.permit_queue.take(self._barred(left, self.permits))
            if key is None:
                break
            taken.append(key)
            self.permits.add(key)
        self.give(*[ev.PermitTaken(*key) for key in taken])

    def _free_permit(self, effect: do.FreePermit) -> None:
        self.permits.discard((effect.room, effect.chunk, effect.peer))
        if self.permit_queue.turns:
            self._permit()

    # ------------------------------------------------------------------------------------------------------- slots
    def _link_of_send(self, key: SendKey) -> int:
        return self.link_to(key[0], key[2])

    def _barred(self, left: int, holders: Collection[SendKey]) -> int | None:
        """Return the link whose decode rank may not have the last one: it holds all others, and has company.

        `left`: slots, or permits, that are free; `holders`: the sends that have the others.
        """
        # With one link there is no other decode rank whose rooms the last one could serve.
        if left != 1 or len(self.links) == 1:
            return None
        links = {self._link_of_send(key) for key in holders}
        return links.pop() if len(links) == 1 else None

    def _take_slot(self, effect: do.TakeSlot) -> None:
        key = effect.room, effect.chunk, effect.peer
        left = len(self.free_slots)
        # While several are free nobody can take the last one, so the holders need not be looked at.
        if left > 1 or (left and self._barred(left, self.slot_of) != self._link_of_send(key)):
            self._give_slot(key, self.free_slots.pop())
        else:
            self.slot_queue.put(key)

    def _give_slot(self, key: SendKey, slot: int) -> None:
        room, chunk, peer = key
        self.slot_of[key] = slot
        # In front of the queue: the gather is launched in the step that found the slot.
        self._queue.appendleft(ev.SlotTaken(room, chunk, peer, slot))

    def _free_slot(self, effect: do.FreeSlot) -> None:
        slot = self.slot_of.pop((effect.room, effect.chunk, effect.peer), None)
        if slot is None:
            return
        self.free_slots.append(slot)
        if not self.slot_queue.turns:  # its length would be a call more for each chunk
            return
        # Before the next one is taken: the room that has just written must not get its own slot back while others wait.
        self.slot_queue.put_last((effect.room, effect.chunk, effect.peer))
        while self.free_slots:
            key = self.slot_queue.take(self._barred(len(self.free_slots), self.slot_of))
            if key is None:
                return
            self._give_slot(key, self.free_slots.pop())

    # -------------------------------------------------------------------------------------------------- watermarks
    def _connect(self, effect: do.Connect) -> None:
        self.watch[effect.link] = []
        super()._connect(effect)

    def _forget(self, link: int) -> None:
        super()._forget(link)
        self.watch.pop(link, None)

    def _watch(self, effect: do.WatchWatermark) -> None:
        link = self.link_to(effect.room, effect.peer)
        if link:
            # By place in the ring: a watermark releases the head of the heap and never looks at the rest.
            heappush(self.watch[link], (effect.round, effect.end, effect.room, effect.chunk, effect.peer))

    def _release(self, effect: do.ReleaseWaiting) -> None:
        waiting, value = self.watch.get(effect.link, []), self.links[effect.link]
        while waiting and usable(waiting[0][0], waiting[0][1], (value.mark_round, value.mark_tail)):
            _, _, room, chunk, peer = heappop(waiting)
            self._queue.append(ev.WatermarkReached(room, chunk, peer))

    def _ask_watermark(self, effect: do.AskWatermark) -> None:
        self._transmit_to(self.link_to(effect.room, effect.peer), 0, msg.WatermarkReq())

"""The prefill worker: it opens rooms without pages; each forward brings the pages that it computes."""

from __future__ import annotations

import time
from collections.abc import Callable

from kvproto.adapters.card import group_of
from kvproto.adapters.geometry import Geometry
from kvproto.adapters.request_words import GiveBlocks, GiveUp, OpenRoom, Withdraw
from kvproto.adapters.worker import LOG, Worker, room_of
from kvproto.endpoint.prefill_endpoint import PrefillEndpoint
from kvproto.protocol.states import Cause, PRoom
from kvproto.room import Room

#: seconds that a withdrawal may take at most, and between two looks
WITHDRAW_S, PAUSE_S = 10.0, 50e-6


class PrefillWorker(Worker[PrefillEndpoint]):
    """A prefill rank."""

    side = "prefill"

    def __init__(self, endpoint: PrefillEndpoint, geometry: Geometry) -> None:
        super().__init__(endpoint, geometry)
        self.carry = {OpenRoom: self._open, GiveBlocks: self._give, Withdraw: self._withdraw, GiveUp: self._give_up}

    def _open(self, order: OpenRoom) -> None:
        self._tickets[order.request] = order.ticket
        room, ticket = self._room(order.request), order.ticket
        tokens = self._units(ticket.tokens, ticket.tokens)
        self.endpoint.open(room, tokens, group=group_of(ticket.peer) if ticket.peer else None, secret=ticket.secret)
        self._enter(order.request)
        self.endpoint.prefetch(room)

    def _give(self, order: GiveBlocks) -> None:
        if not self._holds(order.request):
            return
        room, tokens = self._room(order.request), self._tickets[order.request].tokens
        upto, slot, whole = self._units(order.upto, tokens), self.geometry.slot(order.slots), order.upto >= tokens
        # A window that is not the prompt's last one is in blocks that the engine takes away.
        window = self.geometry.window(order.windows, upto) if whole else None
        self.endpoint.produced(room, upto, self._after, pages=order.blocks, slot=slot, window=window)
        if whole:
            self.endpoint.aux(room, b"")

    def _withdraw(self, order: Withdraw) -> None:
        """The one order that waits, for what is being read: when it returns, others write to the blocks."""
        if not self._holds(order.request):
            return
        room = self._room(order.request)
        self.endpoint.withdraw(room, 0)
        if not _comes(lambda: self.endpoint.withdrawn(room)):
            self._forgo(room)

    def _forgo(self, room: Room) -> None:
        """Fail a room of which a write still reads, as one to a process that stands may for a minute.

        What is read by a write of a failed room never counts as KV, so its blocks may be written to.
        """
        LOG.warning("%s still reads blocks that were taken away %g s ago: it is given up", room, WITHDRAW_S)
        self.endpoint.abort(room)
        if not _comes(lambda: room not in self.endpoint.rooms().get(PRoom.OPEN.name, ())):
            raise TimeoutError(f"{room} still reads blocks that were taken away: its loop stands")

    def _give_up(self, order: GiveUp) -> None:
        room = room_of(order.ticket)
        if self._requests.get(room, order.request) == order.request:
            self.endpoint.refuse(room, Cause.PREFILL_ABORTED)


def _comes(what: Callable[[], bool]) -> bool:
    """Wait until this is true, WITHDRAW_S seconds at most; whether it is."""
    end = time.monotonic() + WITHDRAW_S
    while not what():
        if time.monotonic() > end:
            return False
        time.sleep(PAUSE_S)
    return True

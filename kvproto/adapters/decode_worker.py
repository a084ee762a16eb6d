"""The decode worker: it calls a prefill instance when a request first brings its card."""

from __future__ import annotations

from collections import OrderedDict

from kvproto.adapters.card import Card
from kvproto.adapters.geometry import Geometry
from kvproto.adapters.request_words import Announce, GiveUp, Load, Skip
from kvproto.adapters.worker import Worker, room_of
from kvproto.endpoint.decode_endpoint import DecodeEndpoint
from kvproto.errors import LinkError

#: prefill instances that a decode rank knows; beyond it, it lets go of the one that was not asked for longest
INSTANCES = 1024


class DecodeWorker(Worker[DecodeEndpoint]):
    """A decode rank."""

    side = "decode"

    def __init__(self, endpoint: DecodeEndpoint, geometry: Geometry) -> None:
        super().__init__(endpoint, geometry)
        self.carry = {Announce: self._announce, Load: self._load, Skip: self._skip, GiveUp: self._give_up}
        #: by group: the card by which it is known; the one that was asked for last stands last
        self._cards: OrderedDict[int, Card] = OrderedDict()

    def _announce(self, order: Announce) -> None:
        ticket = self._tickets[order.request] = order.ticket
        card = Card.decode(ticket.peer)
        self._call(card)
        tokens = self._units(ticket.tokens, ticket.tokens)
        self.endpoint.announce(room_of(ticket), tokens, group=card.group, secret=ticket.secret)
        self._enter(order.request)

    def _call(self, card: Card) -> None:
        known = self._cards.pop(card.group, None)
        if known is not None and card.replaces(known) and (known.layout, known.grid) != (card.layout, card.grid):
            self.endpoint.disconnect(card.group)  # it came back as another one
        if card.replaces(known) or self._lost(card.group):
            self.endpoint.connect(card.layout, card.addresses, group=card.group, grid=card.grid)
            known = card
        self._cards[card.group] = known or card
        if len(self._cards) > INSTANCES:
            self.endpoint.disconnect(self._cards.popitem(last=False)[0])

    def _lost(self, group: int) -> bool:
        """It was refused, or forgotten: another call may do."""
        try:
            self.endpoint.ready(group)
        except LinkError:
            return True
        return False

    def renew(self, request: str) -> None:
        """There are no blocks for it yet: neither side gives it up."""
        if self._holds(request):
            self.endpoint.renew(self._room(request))

    def _load(self, order: Load) -> None:
        self._open(order.request, order.blocks, order.prefix)

    def _skip(self, order: Skip) -> None:
        self._open(order.request, None, self._tickets[order.request].tokens)

    def _give_up(self, order: GiveUp) -> None:
        if self._holds(order.request):
            self.endpoint.abort(self._room(order.request))

    def _open(self, request: str, blocks: tuple[int, ...] | None, prefix: int) -> None:
        if not self._holds(request):
            return
        ticket, size = self._tickets[request], self.endpoint.pool.page_size
        tokens, have = self._units(ticket.tokens, ticket.tokens), self._units(prefix, ticket.tokens)
        pages = [0] * -(-tokens // size) if blocks is None else blocks
        group = Card.decode(ticket.peer).group
        self.endpoint.open(self._room(request), tokens, pages, prefix=have, group=group, secret=ticket.secret)

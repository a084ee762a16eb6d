"""The decode worker: it calls a prefill instance when a request first brings its card."""

from __future__ import annotations

from kvproto.adapters.card import Card
from kvproto.adapters.card_trust import CardTrust
from kvproto.adapters.geometry import Geometry
from kvproto.adapters.introductions import Introductions
from kvproto.adapters.request_words import Announce, GiveUp, Load, Skip
from kvproto.adapters.worker import Worker, room_of
from kvproto.endpoint.decode_endpoint import DecodeEndpoint


class DecodeWorker(Worker[DecodeEndpoint]):
    """A decode rank."""

    side = "decode"

    def __init__(self, endpoint: DecodeEndpoint, geometry: Geometry, trust: CardTrust | None = None) -> None:
        """`trust`: what cards must show (default: nothing)."""
        super().__init__(endpoint, geometry)
        self.carry = {Announce: self._announce, Load: self._load, Skip: self._skip, GiveUp: self._give_up}
        self.known = Introductions(endpoint, trust or CardTrust())

    def _announce(self, order: Announce) -> None:
        ticket = self._tickets[order.request] = order.ticket
        card = Card.decode(ticket.peer)
        self.known.call(card)
        tokens = self._units(ticket.tokens, ticket.tokens)
        self.endpoint.announce(room_of(ticket), tokens, group=card.group, secret=ticket.secret)
        self._enter(order.request)

    def renew(self, request: str) -> None:
        """There are no blocks for it yet: neither side gives it up."""
        if self._holds(request):
            self.endpoint.renew(self._room(request))

    def _load(self, order: Load) -> None:
        self._open(order.request, order.blocks, order.prefix, order.slots, order.windows)

    def _skip(self, order: Skip) -> None:
        if self.geometry.pool.ends:  # it would move, whatever the prefix is
            self.endpoint.abort(self._room(order.request))
            return
        self._open(order.request, None, self._tickets[order.request].tokens)

    def _give_up(self, order: GiveUp) -> None:
        if self._holds(order.request):
            self.endpoint.abort(self._room(order.request))

    def _open(
        self, request: str, blocks: tuple[int, ...] | None, prefix: int, slots: tuple[int, ...] = (),
        windows: tuple[tuple[int, ...], ...] = (),
    ) -> None:  # fmt: skip
        if not self._holds(request):
            return
        ticket, size = self._tickets[request], self.endpoint.pool.page_size
        tokens, have = self._units(ticket.tokens, ticket.tokens), self._units(prefix, ticket.tokens)
        pages = [0] * -(-tokens // size) if blocks is None else blocks
        group = Card.decode(ticket.peer).group
        room, secret, slot = self._room(request), ticket.secret, self.geometry.slot(slots)
        window = self.geometry.window(windows, tokens, have)
        self.endpoint.open(room, tokens, pages, prefix=have, group=group, secret=secret, slot=slot, window=window)

"""Introductions: the prefill instances that a decode rank knows by the cards of requests.

A card is foreign input.  It may introduce an instance, up to a bound, or name other addresses of a known one; it never
displaces a link that is up, nor a call.  Other addresses are tried beside it (`DecodeEndpoint.connect`), whatever the
card's incarnation says: who answers decides.  Another layout is refused while a link is up, since it would end the
instance's rooms.  While the link is down it is refused, too, if the instance has answered by the layout that is known:
until that call is refused or forgotten, or `STANDS_S` have passed since the first such card.  Beyond the bound an
instance without a link gives way, and if there is none the card is refused.  So is one of an instance that has said
goodbye, until its successor, whose card is another, answers.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from typing import TYPE_CHECKING

from kvproto.adapters.card import Card, CardError
from kvproto.adapters.card_trust import CardTrust
from kvproto.errors import LinkError, NotFoundError

if TYPE_CHECKING:
    from kvproto.endpoint.decode_endpoint import DecodeEndpoint


#: seconds for which a layout that was agreed to stands against cards with another one, while its link is down
STANDS_S = 60.0


class Introductions:
    """The instances of one decode endpoint; the engine's thread."""

    def __init__(self, endpoint: DecodeEndpoint, trust: CardTrust) -> None:
        self.endpoint, self.trust = endpoint, trust
        #: by group: the card that was called by last; the one that was asked for last stands last
        self.cards: OrderedDict[int, Card] = OrderedDict()
        #: by group: when a card first contradicted a layout that was agreed to, while its link was down
        self._contradicted: dict[int, float] = {}

    def call(self, card: Card) -> None:
        """Know the card's instance, and call it where a call may do.

        Raises: CardError: the card is not trusted, contradicts a link that is up, is one too many, or of one that left.
        """
        self.trust.check(card)
        if self.endpoint.has_left(card.group, card.incarnation):
            raise CardError(f"group {card.group} has said goodbye since it gave this card: its successor has another")
        known = self.cards.get(card.group)
        if known is None:
            self._make_room()
        elif (known.layout, known.chunk_tokens) != (card.layout, card.chunk_tokens):
            self._check_contradiction(card.group)
            self.endpoint.disconnect(card.group)
        if known is None or not self._called(card):
            self.endpoint.connect(card.layout, card.addresses, group=card.group, chunk_tokens=card.chunk_tokens)
        self.cards[card.group] = card
        self.cards.move_to_end(card.group)

    def _check_contradiction(self, group: int) -> None:
        """Raise CardError while the layout that is known stands against another one."""
        if self.endpoint.any_up(group):
            self._contradicted.pop(group, None)
            raise CardError(f"group {group} is connected with another layout or chunk size than the card's: "
                            "the card is heard when that link is lost")  # fmt: skip
        now = time.monotonic()
        if self.endpoint.agreed(group) and now - self._contradicted.setdefault(group, now) < STANDS_S:
            raise CardError(f"group {group} has answered with another layout or chunk size than the card's: the card "
                            f"is heard when that instance refuses, or is called in vain for {STANDS_S:g} s")
        self._contradicted.pop(group, None)

    def _called(self, card: Card) -> bool:
        """Whether the links lead to the card's addresses or try them, and none was refused or forgotten."""
        try:
            self.endpoint.ready(card.group, card.addresses)
            return self.endpoint.leads_to(card.addresses, card.group)
        except (LinkError, NotFoundError):
            return False

    def _make_room(self) -> None:
        while len(self.cards) >= self.trust.instances:
            idle = next((group for group in self.cards if not self.endpoint.any_up(group)), None)
            if idle is None:
                bound = f"{len(self.cards)} prefill instances are connected, as many as requests may introduce"
                raise CardError(f"{bound}: raise card_instances")
            del self.cards[idle]
            self._contradicted.pop(idle, None)
            self.endpoint.disconnect(idle)

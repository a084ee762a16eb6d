"""Params, `kv_transfer_params`: the parameters of a request between a router and vLLM's instances.

They are foreign input.  Wrong ones raise a ValueError here, in the scheduler, where only one request loses its
transfer; in a worker the error would stop the engine. """

from __future__ import annotations

import secrets
from typing import Any

from kvproto.adapters.card import Card, group_of
from kvproto.adapters.card_trust import CardTrust
from kvproto.adapters.request_words import Ticket
from kvproto.endpoint.validation import need_secret
from kvproto.room import Room


def ticket_of(params: dict[str, Any], tokens: int, trust: CardTrust, *, produces: bool) -> Ticket:
    """Return the ticket of a request at a prefill (`produces`) or decode instance, from its parameters.

    A prefill instance that is told no room draws one.  `trust`: what a card must show.
    """
    try:
        secret = need_secret(bytes.fromhex(params.get("secret", "")))
        room = params.get("room", secrets.randbits(63)) if produces else params["room"]
        peer = params.get("decode_group", "") if produces else params["card"]
    except KeyError as error:
        raise ValueError(f"there is no {error}") from error
    except TypeError as error:
        raise ValueError(f"secret: {error}") from error
    if type(room) is not int or not isinstance(peer, str):
        raise ValueError(f"room is a {type(room).__name__}, decode_group or card a {type(peer).__name__}: int and str")
    Room(room)
    if produces:
        group_of(peer)  # UnicodeError: what JSON can say, and no text
    else:
        trust.check(Card.decode(peer))
    return Ticket(room, tokens, peer, secret=secret)


def answer_of(ticket: Ticket, card: str) -> dict[str, Any]:
    """Return the parameters for the decode instance of a request of this card's prefill instance."""
    secret = {"secret": ticket.secret.hex()} if ticket.secret else {}
    return {"do_remote_prefill": True, "room": ticket.room, "card": card, **secret}

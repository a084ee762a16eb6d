"""`kv_transfer_params`: what travels with a request, between a router and vLLM's instances.

They come from outside, so whatever cannot be used is a ValueError with a sentence, here, in the scheduler, where it
costs one request its transfer; in a worker it would cost all of them their engine.
"""

from __future__ import annotations

import secrets
from typing import Any

from kvproto.adapters.card import Card
from kvproto.adapters.request_words import Ticket
from kvproto.endpoint.validation import need_secret
from kvproto.room import Room


def ticket_of(params: dict[str, Any], tokens: int, *, produces: bool) -> Ticket:
    """The ticket of a request at a prefill instance (`produces`) or a decode instance; ValueError says what is wrong.

    A prefill instance that is told no room draws one.
    """
    try:
        secret = need_secret(bytes.fromhex(params.get("secret", "")))
        room = params.get("room", secrets.randbits(63)) if produces else params["room"]
        peer = params.get("decode_group", "decode") if produces else params["card"]
    except KeyError as error:
        raise ValueError(f"there is no {error}") from error
    except TypeError as error:
        raise ValueError(f"secret: {error}") from error
    if type(room) is not int or not isinstance(peer, str):
        raise ValueError(f"room is a {type(room).__name__}, decode_group or card a {type(peer).__name__}: int and str")
    Room(room)
    if not produces:
        Card.decode(peer)
    return Ticket(room, tokens, peer, secret=secret)


def answer_of(ticket: Ticket, card: str) -> dict[str, Any]:
    """What the decode instance needs of a request that the prefill instance with this card hands over."""
    secret = {"secret": ticket.secret.hex()} if ticket.secret else {}
    return {"do_remote_prefill": True, "room": ticket.room, "card": card, **secret}

"""The card: there and back, and what is said of one that is none; requests of vLLM that bring one."""

from __future__ import annotations

import json
from ipaddress import ip_network
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from kvproto import ArgumentError, KvprotoError, Layout
from kvproto.adapters.card import MAX_TEXT, PROTOCOL, Card, CardError, group_of
from kvproto.adapters.card_trust import CardTrust
from kvproto.adapters.request_words import Ticket
from kvproto.adapters.vllm.params import answer_of, ticket_of

LAYOUT = Layout(layers=4, heads=4, k_dim=64, v_dim=64, itemsize=2, dtype="bfloat16", page_size=16, tp=2)
CARD = Card(7, 1, LAYOUT, 64, ("tcp://10.0.0.1:5000", "tcp://10.0.0.2:5000"))


@example((1 << 64) - 1, (1 << 48) - 1, 1)
@given(st.integers(0, (1 << 64) - 1), st.integers(0, (1 << 48) - 1), st.integers(1, 64))
def test_there_and_back(group: int, incarnation: int, pages: int) -> None:
    card = Card(group, incarnation, LAYOUT, 16 * pages, CARD.addresses)
    assert Card.decode(card.encode()) == card
    assert Card.from_dict(json.loads(json.dumps(card.to_dict()))) == card


def test_what_a_later_version_adds_is_passed_over() -> None:
    assert Card.from_dict(CARD.to_dict() | {"colour": "blue"}) == CARD


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"group": -1}, "group is -1"),
        ({"group": "seven"}, "group"),
        ({"group": 1 << 64}, "group is 18446744073709551616"),
        ({"incarnation": 1 << 48}, "incarnation is 281474976710656: it is a number from 0 to 281474976710655"),
        ({"signature": "x" * 65}, "signature"),
        ({"addresses": ["x" * 513, "x"]}, "1 to 512 printable characters"),
        ({"chunk_tokens": 24}, "not whole pages of 16"),
        ({"addresses": ["tcp://10.0.0.1:5000"]}, "1 addresses for 2 ranks"),
        ({"addresses": ["", "x"]}, "address ''"),
        ({"protocol": [2, 1]}, "the lowest version comes first"),
        ({"layout": {"tp": 3}}, "layout"),
        ({"layout": "NHD"}, "layout"),
        ({"signature": "\ud800"}, "surrogates"),
        ({"group": "\ud800"}, "surrogates"),
        ({"protocol": [PROTOCOL[1] + 1, PROTOCOL[1] + 2]}, "this side is the older one"),
    ],
)
def test_what_is_wrong_is_named(change: dict[str, Any], said: str) -> None:
    with pytest.raises(CardError, match=said):
        Card.from_dict(CARD.to_dict() | change)


def test_a_layout_that_cannot_be_is_named() -> None:
    plain = CARD.to_dict()
    plain["layout"]["tp"] = 3
    with pytest.raises(CardError, match=r"heads-do-not-divide.*tp must divide"):
        Card.from_dict(plain)


def test_an_older_peer_is_named() -> None:
    with pytest.raises(CardError, match="the prefill instance is the older one"):
        msgspec.structs.replace(CARD, protocol=(PROTOCOL[0] - 1, PROTOCOL[0] - 1)).check()


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"group": 1}', b"\xff", "x" * (MAX_TEXT + 1), "[" * 100_000, '{"more": ' + "[" * 100_000]
)
def test_what_is_no_card_is_an_error_of_ours(text: str | bytes) -> None:
    with pytest.raises(CardError) as raised:
        Card.decode(text)
    assert isinstance(raised.value, KvprotoError)
    assert isinstance(raised.value, ValueError)


def test_text_and_addresses_have_bounds_that_every_build_keeps() -> None:
    long = msgspec.structs.replace(CARD, addresses=("a" * 512, "b" * 512))
    text = long.encode()
    assert Card.decode(text.ljust(1 << 18)) == long
    with pytest.raises(CardError, match="262145 characters, more than 262144"):
        Card.decode(text.ljust((1 << 18) + 1))


def test_a_card_that_contradicts_itself_is_not_made() -> None:
    with pytest.raises(ArgumentError, match="2 addresses for 4 ranks"):
        Card(7, 1, msgspec.structs.replace(LAYOUT, tp=4), 64, CARD.addresses)


def test_a_group_has_the_same_number_everywhere() -> None:
    assert group_of("prefill-0") == 1105085501571659358
    assert group_of("prefill-0") != group_of("prefill-1")


# ----------------------------------------------------------------------------------- vLLM's request parameters
FOREIGN = replace(CARD, addresses=("tcp://10.9.0.1:5000", "tcp://10.9.0.2:5000"))


def ticket(*, produces: bool, **params: Any) -> Ticket:
    return ticket_of(params, 30, CardTrust(networks=(ip_network("10.0.0.0/24"),)), produces=produces)


def test_a_prefill_instance_draws_a_room_or_takes_the_router_s() -> None:
    drawn = {ticket(produces=True).room for _ in range(8)}
    assert len(drawn) == 8 and max(drawn) < 1 << 63
    given = {"room": 7, "decode_group": "d", "secret": "0a", "card": "no card"}
    named = ticket(produces=True, **given)
    assert named == Ticket(7, 30, "d", secret=b"\n")
    assert answer_of(named, "a card") == {"do_remote_prefill": True, "room": 7, "card": "a card", "secret": "0a"}
    assert ticket(produces=False, room=8, card=CARD.encode()) == Ticket(8, 30, CARD.encode())


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({"card": CARD.encode()}, "there is no 'room'"),
        ({"room": 7}, "there is no 'card'"),
        ({"room": "7", "card": CARD.encode()}, "room is a str, decode_group or card a str"),
        ({"room": 7, "card": b"card"}, "room is a int, decode_group or card a bytes"),
        ({"room": True, "card": CARD.encode()}, "room is a bool"),
        ({"room": 1 << 64, "card": CARD.encode()}, "64 bits|u64"),
        ({"room": 7, "card": CARD.encode(), "secret": 5}, "secret: "),
        ({"room": 7, "card": FOREIGN.encode()}, "10.9.0.1"),
        ({"room": 7, "card": "[" * 100_000}, "this is no card"),
    ],
)  # fmt: skip
def test_parameters_that_name_no_transfer_are_refused_with_the_reason(params: dict[str, Any], said: str) -> None:
    with pytest.raises((ValueError, CardError), match=said):
        ticket(produces=False, **params)


def test_a_decode_group_that_is_no_text_is_refused_here_and_not_in_a_worker() -> None:
    with pytest.raises(ValueError, match="surrogates"):
        ticket(produces=True, decode_group="\ud800")

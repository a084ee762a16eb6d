"""The card: what a decode instance has to know of a prefill instance before it can call it.

It travels outside the protocol, by any means of the engine: in a request's parameters, from a bootstrap server, in a
file.  So it is text (`encode`, JSON) or plain values (`to_dict`).  It is foreign input: `decode` and `from_dict` refuse
by name what they cannot use, and ignore unknown fields of later versions.  The handshake still compares what both ends
must *agree* on; the card only avoids a call that cannot succeed, and says why.

    group         the instance's number (u64); an instance that restarts keeps its group
    incarnation   the number of this start (u48), higher than those of earlier ones
    layout        how the instance cuts its cache
    chunk_tokens  tokens a chunk: the prefill instance's choice, which the decode side takes over
    addresses     where its ranks listen, in their order
    protocol      (lowest, highest) version of the wire that it speaks
    data_parallel instances behind the same server, each with a card of its own; `by_room`: a room is in the instance
                  room % data_parallel, otherwise the server is asked which
    signature     what shows that it comes from who has the card secret (`card_trust`); empty: nothing

A card claims; what it claims is not believed until a rank of that group answers at its addresses.
"""

from __future__ import annotations

import hashlib
from typing import Annotated, Any, Self

import msgspec

from kvproto.errors import ArgumentError, KvprotoError
from kvproto.fsm.codec import UNREADABLE
from kvproto.layout.sharding import Layout, LayoutError
from kvproto.protocol.messages import OLDEST, VERSION

#: what this build speaks
PROTOCOL = OLDEST, VERSION
#: characters of an encoded card, of an address
MAX_TEXT, MAX_ADDRESS = 1 << 18, 512
#: data-parallel instances behind one server
MAX_DATA_PARALLEL = 1 << 12
U48, U64 = 1 << 48, 1 << 64


class CardError(KvprotoError, ValueError):
    """The input is no card, or that of an instance that this build cannot call; the sentence says which."""


class Card(msgspec.Struct, frozen=True):
    """A prefill instance, for those who call it; ArgumentError: it contradicts itself."""

    group: int
    incarnation: int
    layout: Layout
    chunk_tokens: int
    addresses: tuple[str, ...]
    protocol: tuple[int, int] = PROTOCOL
    data_parallel: int = 1
    by_room: bool = True
    signature: Annotated[str, msgspec.Meta(max_length=64)] = ""

    def __post_init__(self) -> None:
        for name, low, high in (
            ("group", 0, U64),
            ("incarnation", 0, U48),
            ("chunk_tokens", 1, 1 << 32),
            ("data_parallel", 1, MAX_DATA_PARALLEL + 1),
        ):
            value = getattr(self, name)
            if not low <= value < high:
                raise ArgumentError(f"card: {name} is {value}: it is a number from {low} to {high - 1}")
        if self.chunk_tokens % self.layout.page_size:
            page = self.layout.page_size
            raise ArgumentError(
                f"card: chunk_tokens {self.chunk_tokens} is not whole pages of {page} tokens: take a multiple of {page}"
            )
        if len(self.addresses) != self.layout.ranks:
            raise ArgumentError(f"card: {len(self.addresses)} addresses for {self.layout.ranks} ranks: one a rank")
        for address in self.addresses:
            if not address.isprintable() or not 0 < len(address) <= MAX_ADDRESS:
                raise ArgumentError(f"card: address {address[:40]!r}: 1 to {MAX_ADDRESS} printable characters")
        if self.protocol[0] > self.protocol[1]:
            raise ArgumentError(f"card: protocol {self.protocol}: the lowest version comes first")

    def to_dict(self) -> dict[str, Any]:
        """As plain values that JSON knows."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        return plain

    def encode(self) -> str:
        """As JSON text."""
        return msgspec.json.encode(self).decode()

    @classmethod
    def from_dict(cls, plain: Any) -> Self:
        """The card of these values; CardError names what is wrong with them."""
        try:
            card = msgspec.convert(plain, cls)
            card.encode()  # UnicodeError: a string that is no text, which others would meet later
        except (msgspec.ValidationError, ArgumentError, LayoutError, UnicodeError) as error:
            raise CardError(f"this is no card: {error}") from error
        card.check()
        return card

    @classmethod
    def decode(cls, text: str | bytes) -> Self:
        """The card of this text; CardError names what is wrong with it."""
        if len(text) > MAX_TEXT:
            raise CardError(f"this is no card: {len(text)} characters, more than {MAX_TEXT}")
        try:
            plain = msgspec.json.decode(text)
        except UNREADABLE as error:
            raise CardError(f"this is no card: {error}") from error
        return cls.from_dict(plain)

    def check(self) -> None:
        """CardError unless there is a version of the protocol that both speak."""
        (low, high), (ours, newest) = self.protocol, PROTOCOL
        if low > newest or high < ours:
            older, which = ("this side", "here") if low > newest else ("the prefill instance", "there")
            raise CardError(
                f"group {self.group} speaks protocol {low} to {high}, this side {ours} to {newest}: "
                f"{older} is the older one; install a kvproto of the same version {which}"
            )


def group_of(name: str) -> int:
    """Return the number of an instance by its name, the same in every process and at every start."""
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little")


def data_parallel_group(group: int, dp_rank: int, data_parallel: int) -> int:
    """Return the group of a data-parallel rank of this instance; a single one is the instance itself."""
    return group if data_parallel == 1 else group_of(f"{group}_dp{dp_rank}")

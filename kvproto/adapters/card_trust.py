"""Card trust: which cards of requests and bootstrap servers a decode instance accepts.

A card names addresses that ranks of this instance will call.  Two checks are there for whoever wants them.  With a
*secret*, both sides share a file: a prefill instance signs its card (HMAC-SHA256 over its JSON without the signature),
and a card without that signature is refused.  With *networks*, every address of a card has to be in one of them.  And
the number of instances that requests may introduce is bounded in any case (`introductions`).

A card that passes is still only an address to be tried: a link that is up is never given up for it.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import stat
from collections.abc import Sequence
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from pathlib import Path
from typing import Self

import msgspec
from msgspec.structs import replace

from kvproto.adapters.card import Card, CardError
from kvproto.errors import ArgumentError

#: the environment variable that names the file of the secret, where the options of an engine do not
SECRET_FILE = "KVPROTO_CARD_SECRET_FILE"  # noqa: S105  # a name, not a secret
#: bytes of a secret, at least
SHORTEST = 16
#: prefill instances that requests may introduce to a decode rank
INSTANCES = 256

Network = IPv4Network | IPv6Network


class CardTrust(msgspec.Struct, frozen=True):
    """The conditions for a card.  `secret` empty: no signature; `networks` empty: any address."""

    secret: bytes = b""
    networks: tuple[Network, ...] = ()
    instances: int = INSTANCES

    @classmethod
    def read(cls, secret_file: str = "", networks: Sequence[str] = (), instances: int = INSTANCES) -> Self:
        """Read an engine's options; an empty `secret_file` means the one of the environment, if any.

        Raises: ArgumentError: the file is missing, short or open to others; a network is none; `instances` is no count.
        """
        if type(instances) is not int or instances < 1:
            raise ArgumentError(f"card_instances is {instances!r}: it is a whole number from 1 on")
        try:
            known = tuple(ip_network(each) for each in networks)
        except ValueError as error:
            raise ArgumentError(f"card_networks: {error}; write each as 10.0.0.0/8") from error
        path = secret_file or os.environ.get(SECRET_FILE, "")
        return cls(_secret(Path(path)) if path else b"", known, instances)

    def sign(self, card: Card) -> Card:
        """Return the card with its signature; without a secret, as it is."""
        return replace(card, signature=self.signature_of(self._plain(card))) if self.secret else card

    def check(self, card: Card) -> None:
        """Raise CardError unless the card shows what is asked for."""
        if not self.signed(self._plain(card), card.signature):
            kind = "another signature than" if card.signature else "no signature with"
            raise CardError(f"the card of group {card.group} has {kind} this instance's card secret: "
                            "give both sides the same secret file")  # fmt: skip
        strange = [each for each in card.addresses if self.networks and not self._known(each)]
        if strange:
            raise CardError(f"the card of group {card.group} names {strange[0]!r}, which is in none of card_networks")

    def signature_of(self, data: bytes) -> str:
        return hmac.new(self.secret, data, hashlib.sha256).hexdigest()

    def signed(self, data: bytes, signature: str) -> bool:
        """Whether this signs these bytes; without a secret anything does."""
        return not self.secret or hmac.compare_digest(signature.encode(), self.signature_of(data).encode())

    def _plain(self, card: Card) -> bytes:
        return msgspec.json.encode(replace(card, signature=""), order="sorted")

    def _known(self, address: str) -> bool:
        host = address.rpartition(":")[0].partition("://")[2].strip("[]")
        try:
            found = ip_address(host)
        except ValueError:  # a name leads wherever its owner likes
            return False
        return any(found in network for network in self.networks)


def _secret(path: Path) -> bytes:
    try:
        mode, secret = path.stat().st_mode, path.read_bytes().strip()
    except OSError as error:
        raise ArgumentError(f"card secret: {error}; write {SHORTEST} or more random bytes into that file") from error
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise ArgumentError(f"card secret: {path} is open to others than its owner: chmod 600 {path}")
    if len(secret) < SHORTEST:
        raise ArgumentError(f"card secret: {path} has {len(secret)} bytes: write {SHORTEST} or more random ones")
    return secret

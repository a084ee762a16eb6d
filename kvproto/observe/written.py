"""Written forms: how heads, room keys and secrets appear in logs of ranks.

Room keys are written as `"ID.GEN"`: room ids may have 64 bits, and many JSON readers lose digits beyond 53.  A room's
secret is replaced by a digest, the same for the same secret: a trace can be replayed, and does not reveal the secret.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Literal

import msgspec

from kvproto.fsm.plain_json import DIGITS, PlainError
from kvproto.protocol.events import room_key
from kvproto.protocol.timing import Timing


class RankLogHead(msgspec.Struct, frozen=True):
    """The head of a log: its rank and its links.

    `links` gives the (group, rank) at the other end of each link; `native_notify`: its staged writes carry
    their notification.
    """

    side: Literal["prefill", "decode"]
    group: int
    index: int
    digest: str
    timing: Timing
    whole: bool
    links: dict[int, tuple[int, int]]
    native_notify: bool = False

    @property
    def name(self) -> str:
        """Return `P0` or `D1`: side and index; a caller that shows several groups tells them apart."""
        return f"{self.side[0].upper()}{self.index}"

    @property
    def routes(self) -> str:
        """Name of the routes by which its messages come."""
        return self.side


def room_from(data: object, where: str) -> int:
    """The room key that `"ROOM.GEN"` names."""
    room, dot, gen = str(data).partition(".")
    written = str(data).isascii() and dot and room.isdecimal() and gen.isdecimal()
    if not (written and len(room) <= DIGITS and len(gen) <= DIGITS and int(room) < 1 << 64 and int(gen) < 1 << 32):
        raise PlainError(f"{where}: {str(data)[:80]!r} is no room; write ROOM.GEN")
    return room_key(int(room), int(gen))


def hidden(secret: bytes) -> str:
    """Return the digest that replaces a secret; empty for none."""
    return blake2b(secret, digest_size=16).hexdigest() if secret else ""


def hidden_from(data: object, where: str) -> bytes:
    try:
        return bytes.fromhex(data)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise PlainError(f"{where}: {str(data)[:40]!r} is no digest of a secret") from None

"""Rooms as an engine sees them: their names, statuses and outcomes."""

from __future__ import annotations

from enum import IntEnum

import msgspec
from msgspec.structs import force_setattr

from kvproto.call_arguments import whole
from kvproto.errors import ArgumentError
from kvproto.protocol.states import Cause


class Status(IntEnum):
    """The status of a room; it only rises, except to FAILED."""

    FAILED = 0
    #: some rank has not opened the room
    BOOTSTRAPPING = 1
    #: every rank knows it; the forward has not begun
    WAITING = 2
    #: under way
    TRANSFERRING = 3
    SUCCESS = 4


class Room(msgspec.Struct, frozen=True):
    """A room's name."""

    id: int
    gen: int = 0

    def __post_init__(self) -> None:
        if type(self.id) is not int or type(self.gen) is not int:
            for name in ("id", "gen"):  # a numpy integer is as good; msgspec's encoder wants a plain one
                force_setattr(self, name, whole(f"Room.{name}", getattr(self, name)))
        if not 0 <= self.id < 1 << 64 or not 0 <= self.gen < 1 << 32:
            raise ArgumentError(f"room {self.id} gen {self.gen}: an id has 64 bits, a gen 32, and neither a sign")

    @property
    def key(self) -> int:
        """The room key (`room_key`)."""
        return self.gen << 64 | self.id


class Outcome(msgspec.Struct, frozen=True):
    """How a room ended; `cause` is NONE for success; `aux` is the aux row.

    `reason`: the cause in words, with what this rank knows of it, 300 characters at most; empty for success.
    `traceparent`: the trace that the room belongs to: what this engine has opened it with, or else what the other side
    said (a decode rank with `OPEN`, a prefill rank with the aux row); empty: none.
    """

    room: Room
    cause: Cause
    aux: bytes = b""
    reason: str = ""
    traceparent: str = ""

    @property
    def ok(self) -> bool:
        """Whether it succeeded."""
        return self.cause is Cause.NONE


class Caller(msgspec.Struct, frozen=True):
    """The decode instance that has opened a room, on all of its ranks, before the prefill engine has.

    `cause`: why it has given the room up again; NONE: it waits.
    """

    group: int
    #: tokens of the prompt, and of its first ones that are there already
    tokens: int
    prefix: int
    #: tokens a page there
    page_size: int
    cause: Cause = Cause.NONE

"""Endpoint events: the types that `events()` returns, one for each thing that happens to an endpoint.

    for event in endpoint.events():
        match event:
            case RoomFinished(outcome):
                answer(outcome)
            case RoomReleased(room):
                free(room)

A room's events begin with `RoomOpened` and end with `RoomFinished`, then `RoomReleased`.  These two come for every room
that the engine has opened.  The other types tell what happens: an engine that ignores them misses nothing that it has
to act on.
"""

from __future__ import annotations

import msgspec

from kvproto.protocol.effects import CLOSED, SILENT
from kvproto.room import Outcome, Room


class EndpointEvent(msgspec.Struct, frozen=True):
    """Base of all events of an endpoint."""


class RoomOpened(EndpointEvent, frozen=True):
    """This engine has opened or announced the room, for a prompt of so many tokens."""

    room: Room
    tokens: int


class RoomMet(EndpointEvent, frozen=True):
    """Every decode rank has opened the room, and sends can begin.  Prefill ranks only.

    The decode ranks have the KV of the first `prefix` tokens already.
    """

    room: Room
    prefix: int


class RoomProduced(EndpointEvent, frozen=True):
    """The loop has taken a call of `produced`.  Prefill ranks only.

    The KV of the first `tokens` tokens is, or soon will be, in this rank's first `layers` layers.
    """

    room: Room
    tokens: int
    layers: int


class RoomFinished(EndpointEvent, frozen=True):
    """The room has its outcome, once; `finished()` would have returned it."""

    outcome: Outcome


class RoomReleased(EndpointEvent, frozen=True):
    """The transfer does not touch the room's pages any more, once; `released()` would have returned it."""

    room: Room


class PeerUp(EndpointEvent, frozen=True):
    """The link to this rank of a group of the other side is up."""

    group: int
    rank: int


class PeerSilent(EndpointEvent, frozen=True):
    """The peer misses heartbeats, and its process still holds its connection; its link stays up."""

    group: int
    rank: int


class PeerLost(EndpointEvent, frozen=True):
    """The link has ended, or was refused; `why` in words."""

    group: int
    rank: int
    why: str


class PeerLeft(EndpointEvent, frozen=True):
    """The peer has said goodbye: it was closed in good order."""

    group: int
    rank: int


class PoolDetached(EndpointEvent, frozen=True):
    """The pool is the engine's: `detach` is over."""


class PoolAttached(EndpointEvent, frozen=True):
    """The endpoint has a pool again: `attach` is over, and rooms may be opened."""


class Reported(EndpointEvent, frozen=True):
    """An error in words, as `reports()` lists it."""

    text: str


class EventsMissed(EndpointEvent, frozen=True):
    """Too many events were not taken in time, and some are missing; never an outcome or a release.

    `links()`, `rooms()` and `reports()` say what holds now.
    """


def peer_event(group: int, rank: int, why: str) -> EndpointEvent:
    """Return the event of a link to this peer; `why` as in `AnnounceLink`."""
    if why in KINDS:
        return KINDS[why](group, rank)
    return PeerLost(group, rank, why)


#: by the words of `AnnounceLink`
KINDS = {"": PeerUp, SILENT: PeerSilent, CLOSED: PeerLeft}

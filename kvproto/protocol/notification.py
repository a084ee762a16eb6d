"""Notes: a part's notification, carried by its write.

Where a transport can carry a tag, it brings the word that a part is in place together with the part: nothing has
to go through a socket and two more threads before the scatter can begin. A note is the frame that the control plane
would carry (`StgNotify`), and before it who writes, because a transport's peers have other names.

It is the first telling only. Whoever asks again (a timer) asks through the control plane, and a notification that
comes twice counts once, so nothing rests on a note.
"""

from __future__ import annotations

import struct

from kvproto.fsm.codec import WireError
from kvproto.protocol.codec import decode, encode
from kvproto.protocol.messages import StgNotify

_HEAD = struct.Struct("<QI")


def note(group: int, rank: int, epoch: int, room: int, body: StgNotify) -> bytes:
    """The tag of a write by this rank."""
    return _HEAD.pack(group, rank) + encode(epoch, room, body)


def read_note(tag: bytes) -> tuple[tuple[int, int], int, int, StgNotify]:
    """((group, rank), epoch, room, body) of a tag; WireError for anything else."""
    if len(tag) < _HEAD.size:
        raise WireError(f"a tag of {len(tag)} bytes is no note")
    epoch, room, body = decode(tag[_HEAD.size :])
    if not isinstance(body, StgNotify):
        raise WireError(f"a note is a StgNotify, not {type(body).__name__}")
    return _HEAD.unpack_from(tag), epoch, room, body

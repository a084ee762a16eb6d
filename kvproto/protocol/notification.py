"""Notes: the notifications of parts, carried by the write that brings them.

Where a transport can carry a tag, it brings the word that a part is in place together with the part: nothing has
to go through a socket and two more threads before the scatter can begin. A note says what the control plane's frame
would say (`StgNotify` with its header). One write may bring several parts of one writer, and then its tag is all of
their notes; before them it says who writes, because a transport's peers have other names.

The aux row of a room may come with the note of its last part, to a peer that can read it there (`AUX_NOTES`): a
message of its own would be under way for longer than the KV of a short room.

It is the first telling only. Whoever asks again (a timer) asks through the control plane, and what comes twice counts
once, so nothing rests on a note.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Annotated

import msgspec

from kvproto.fsm.codec import U32, U64, UNREADABLE, WireError, packer
from kvproto.protocol.codec import ROOM_ID
from kvproto.protocol.messages import Aux, StgNotify

#: notes of one tag, at most
MAX_NOTES = 64
#: of a part, or of a room's aux row: epoch, room key and what is said
Note = tuple[int, int, StgNotify | Aux]

_HEAD = struct.Struct("<QI")
_notes = msgspec.msgpack.Decoder(
    Annotated[list[tuple[U64, U64, U32, StgNotify | Aux]], msgspec.Meta(min_length=1, max_length=MAX_NOTES)]
)


def make_tag(group: int, rank: int, notes: Iterable[Note]) -> bytes:
    """The tag of a write by this rank that brings these parts, `MAX_NOTES` at most."""
    return _HEAD.pack(group, rank) + packer([(epoch, room & ROOM_ID, room >> 64, body) for epoch, room, body in notes])


def read_tag(tag: bytes) -> tuple[tuple[int, int], list[Note]]:
    """The writer's (group, rank) and the notes of a tag; WireError for anything else."""
    if len(tag) < _HEAD.size:
        raise WireError(f"a tag of {len(tag)} bytes holds no notes")
    try:
        found = _notes.decode(tag[_HEAD.size :])
    except UNREADABLE as error:
        raise WireError(f"{type(error).__name__}: {error}") from error
    return _HEAD.unpack_from(tag), [(epoch, gen << 64 | room, body) for epoch, room, gen, body in found]

"""Codec: encodes a message with its header as a frame in MessagePack, and decodes it.

A frame is an array: the header's fields, then the body, itself an array whose first element is its name.  A received
frame is validated here, before any machine sees it: types, ranges, sizes and names have to be those of the header and
of the union of bodies.  Any other frame raises a `WireError` that names the fault.  No size in a frame allocates
memory here: bodies bound their bytes and numbers by `Meta`.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from kvproto.fsm.errors import KvprotoError
from kvproto.fsm.vocabulary import Event

#: MessagePack itself has no larger integers
U64 = Annotated[int, Meta(ge=0)]
U32 = Annotated[int, Meta(ge=0, le=2**32 - 1)]

#: takes a tuple of the header's fields and the body
packer = msgspec.msgpack.Encoder().encode
#: what a reader's `decode` raises of bytes that are no frame
UNREADABLE = msgspec.DecodeError, ValueError, RecursionError


class WireError(KvprotoError, ValueError):
    """A frame that is not a message of this protocol."""


class Body(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Base of every message body; each has its name on the wire as its `tag`."""


class Message(Body, Event, frozen=True):
    """Base of a message that is itself the event of the machine that hears it; its key comes first."""


def reader(header: tuple[Any, ...], bodies: Any) -> msgspec.msgpack.Decoder[Any]:
    """Return a decoder of frames with these header types, and one of these bodies (a union)."""
    return msgspec.msgpack.Decoder(tuple[(*header, bodies)])  # type: ignore[valid-type]  # made of what is given


def pack(*frame: Any) -> bytes:
    """The frame of a header's fields and a body."""
    return packer(frame)


def unpack(frame: bytes, read: msgspec.msgpack.Decoder[Any], most: int) -> tuple[Any, ...]:
    """Header's fields and body of a frame of at most `most` bytes; raises WireError for anything else."""
    if len(frame) > most:
        raise WireError(f"a frame of {len(frame)} bytes, more than {most}")
    try:
        found: tuple[Any, ...] = read.decode(frame)
    except UNREADABLE as error:
        raise WireError(f"{type(error).__name__}: {error}") from error
    return found

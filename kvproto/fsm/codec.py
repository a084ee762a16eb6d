"""Frames: a message with its header, in MessagePack.

A frame is an array: the header's fields, then the body, itself an array whose first element is its name.  What arrives
is judged here, before any machine sees it: types, ranges, sizes and names are those of the header and of the union of
bodies, and a frame of another kind is a `WireError` that says what was wrong with it.  No size in a frame sizes
anything here: bodies bound their bytes and numbers by `Meta`.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from kvproto.fsm.errors import KvprotoError

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


def reader(header: tuple[Any, ...], bodies: Any) -> msgspec.msgpack.Decoder[Any]:
    """What reads frames with these types of a header, and one of these bodies (a union)."""
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

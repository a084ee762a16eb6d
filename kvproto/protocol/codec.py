"""The codec: one frame is one message, in MessagePack.

A frame is an array of four: the link's epoch (u64), the room id (u64), the room's gen (u32), and the body, itself
an array whose first element is its name.  Messages about a link have room and gen 0.

Everything that arrives is judged here, before the protocol sees it: types, ranges, sizes, names, and the layout
in a call.  A frame that does not pass is a `WireError` that says what was wrong with it; the loop counts it and
goes on.  No size in a frame sizes anything here: page lists and aux rows are bounded bytes, indices are bounded
integers.

Frames of newer builds pass as far as they can: fields behind those that are known are passed over, and a message of an
unknown name is an `UnknownMessageError`, which is counted apart and ends nothing.

One frame that does not pass deserves an answer: the HELLO of another build, whose fields are not ours.  Its beginning
is the same in every build (`RawHello`), and so is REFUSAL; without the two, a caller would call until it gives up.
"""

from __future__ import annotations

from typing import Annotated, get_args

import msgspec

from kvproto.fsm.codec import U32, U64, UNREADABLE, WireError, packer, reader, unpack
from kvproto.protocol.messages import MAX_AUX, MAX_ENDPOINT, MAX_PAGES, Abort, LinkBody, Message, Open, Words

#: the longest frame that is sent or accepted, in bytes
MAX_FRAME = max(MAX_AUX, MAX_ENDPOINT, MAX_PAGES) + 64 * 1024
Frame = tuple[int, int, Message]

#: of a room key, the room id (`room_of`)
ROOM_ID = (1 << 64) - 1
HEADER = U64, U64, U32
_frames = reader(HEADER, Message)
ABOUT_LINKS = frozenset(get_args(LinkBody))


class RawHello(msgspec.Struct, tag="HELLO", array_like=True, frozen=True):
    """How the HELLO of every build begins; whatever follows is passed over."""

    version: U32
    digest: Words
    session: U64


class NamedBody(msgspec.Struct, array_like=True, frozen=True):
    """How every message begins: with its name; whatever follows is passed over."""

    name: Annotated[str, msgspec.Meta(max_length=64)]


_calls, _named = reader(HEADER, RawHello), reader(HEADER, NamedBody)
NAMES = frozenset(str(kind.__struct_config__.tag) for kind in get_args(Message))


class ForeignCallError(WireError):
    """A HELLO of which only the beginning can be read: `call`."""

    def __init__(self, call: RawHello, sentence: str) -> None:
        super().__init__(sentence)
        self.call = call


class UnknownMessageError(WireError):
    """A frame whose message has a name that this build does not know: a newer peer's."""


def encode(epoch: int, room: int, body: Message) -> bytes:
    """The frame of this message; `room` is a room key (0: the message is about the link)."""
    return packer((epoch, room & ROOM_ID, room >> 64, body))


def decode(frame: bytes) -> Frame:
    """Decode a frame into epoch, room key and body.

    Raises:
        ForeignCallError: the frame is a call of another version
        UnknownMessageError: the frame's message is one of a newer version
        WireError: the frame is anything else

    """
    if len(frame) > MAX_FRAME:
        raise WireError(f"a frame of {len(frame)} bytes, more than {MAX_FRAME}")
    try:
        epoch, room_id, gen, body = _frames.decode(frame)
    except UNREADABLE as error:
        raise _unread(frame, f"{type(error).__name__}: {error}") from error
    kind = type(body)
    if kind in ABOUT_LINKS:
        if room_id or gen:
            raise WireError(f"{kind.__name__} is about a link, not about room {room_id}")
        return epoch, 0, body
    if kind is Open and body.prefix > body.tokens:
        raise WireError(f"a prefix of {body.prefix} tokens in a room of {body.tokens}")
    if kind is Abort and not body.cause:
        raise WireError("an abort without a cause: it would read as success")
    return epoch, gen << 64 | room_id if gen else room_id, body


def _unread(frame: bytes, error: str) -> WireError:
    try:
        name = unpack(frame, _named, MAX_FRAME)[3].name
        if name not in NAMES:
            return UnknownMessageError(f"this build knows no message {name}")
        return ForeignCallError(unpack(frame, _calls, MAX_FRAME)[3], error)
    except WireError:
        return WireError(error)

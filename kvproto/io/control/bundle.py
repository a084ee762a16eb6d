"""Bundle: several frames in one part of a message.

A message of several parts is read a part at a time.  If the connection falls meanwhile, a socket that dials (DEALER,
with IMMEDIATE) loses its pipe, and libzmq ends the process: half a message has no end (`!_more` in fq.cpp).  A message
of one part has no middle.  So who dials says by the name of its connection that it reads bundles, and a listener sends
it several frames in one part.  A dialler of an earlier build has another name, and gets a part for each frame, as ever.

What is sent to a listener may have parts: its socket (ROUTER) reads what a connection has left before it lets it go.
"""

from __future__ import annotations

from collections.abc import Sequence

#: frames that leave in one message, at most, and that are taken of one
BUNDLE = 64
#: of the name of a connection whose owner reads bundles; libzmq keeps names that begin with a zero byte for itself
READS = b"p"
#: the byte with which no frame begins: MessagePack uses it for nothing
MARK = b"\xc1"
_LENGTH = 4
#: bytes that a bundle adds to its frames, at most
ADDED = len(MARK) + _LENGTH * BUNDLE


def packed(frames: Sequence[bytes]) -> bytes:
    pieces = [MARK]  # by a loop: a generator would be a call of Python's for each piece
    for frame in frames:
        pieces += (len(frame).to_bytes(_LENGTH, "big"), frame)
    return b"".join(pieces)


def frames_in(part: bytes) -> list[bytes]:
    """Return the frames of a part; one that is no bundle, or a damaged one, is a frame by itself."""
    if part[: len(MARK)] != MARK:
        return [part]
    found, at = list[bytes](), len(MARK)
    while at < len(part):
        begin = at + _LENGTH
        at = begin + int.from_bytes(part[at:begin], "big")
        if at > len(part) or len(found) == BUNDLE:
            return [part]
        found.append(part[begin:at])
    return found or [part]

"""Frames of any protocol: a packed frame is read again, and all else is refused with its fault."""

from __future__ import annotations

import pytest

from kvproto.fsm.codec import U32, U64, Body, WireError, pack, reader, unpack


class Ping(Body, frozen=True, tag="PING"):
    n: U32


class Pong(Body, frozen=True, tag="PONG"):
    data: bytes


def test_a_frame_is_read_as_it_was_packed_up_to_its_bound() -> None:
    read = reader((U64, bool), Ping | Pong)
    for header, body in (((7, True), Ping(3)), ((0, False), Pong(b"x" * 40))):
        frame = pack(*header, body)
        assert unpack(frame, read, len(frame)) == (*header, body)
        with pytest.raises(WireError, match=f"a frame of {len(frame)} bytes, more than {len(frame) - 1}"):
            unpack(frame, read, len(frame) - 1)


@pytest.mark.parametrize(
    ("frame", "why"),
    [(pack(7, True), "length"), (pack(7, True, Ping(3), 1), "length"), (pack(-1, True, Ping(3)), "Expected `int` >= 0"),
     (pack(7, True, ["PANG", 3]), "Invalid value 'PANG'"), (pack(7, True, ["PING", 1 << 32]), "Expected `int` <="),
     (b"", "truncated"), (b"\xc1", "malformed"), (b"\x91" * 5000, "Recursion|Expected")],
)  # fmt: skip
def test_what_is_no_frame_is_refused_with_what_is_wrong(frame: bytes, why: str) -> None:
    with pytest.raises(WireError, match=why):
        unpack(frame, reader((U64, bool), Ping | Pong), 1 << 20)

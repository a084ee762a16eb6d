from __future__ import annotations

from typing import Any, get_args

import msgspec
import pytest
from hypothesis import example, given
from support.strategies import BODIES, damaged, frames

from kvproto.fsm.codec import WireError
from kvproto.layout.sharding import Layout
from kvproto.protocol import messages as msg
from kvproto.protocol.codec import MAX_FRAME, ForeignCallError, RawHello, decode, encode
from kvproto.protocol.events import room_key, room_name, room_of
from kvproto.protocol.messages import LinkBody, Message
from kvproto.protocol.states import Cause

LAYOUT = Layout(layers=2, heads=4, k_dim=8, v_dim=8, itemsize=2, dtype="bfloat16", page_size=4, tp=2)


@given(frames())
def test_what_is_packed_comes_back(frame: tuple[int, int, Message]) -> None:
    assert decode(encode(*frame)) == frame


def test_every_message_has_a_name_of_its_own() -> None:
    names = [kind.__struct_config__.tag for kind in BODIES]
    assert len(set(names)) == len(names) == 25


@given(damaged())
@example(b"")
@example(b"\x94")
@example(b"\xc1" * 40)
@example(b"\x91" * 100_000)
def test_a_damaged_frame_is_a_message_or_a_wire_error(data: bytes) -> None:
    try:
        frame = encode(*decode(data))
    except WireError:
        return
    assert encode(*decode(frame)) == frame, "what passes is a message like any other"


def test_a_frame_that_is_too_long_is_not_even_read() -> None:
    with pytest.raises(WireError, match="more than"):
        decode(bytes(MAX_FRAME + 1))
    with pytest.raises(WireError) as caught:
        decode(bytes(MAX_FRAME))
    assert "more than" not in str(caught.value), "as long as it may be it is read, and found to be none"


@pytest.mark.parametrize("tag", [b"\xa1X", b"\xa5HELLO"])
def test_a_frame_that_is_nested_deeper_than_a_reader_goes_is_none(tag: bytes) -> None:
    with pytest.raises(WireError, match=r"^ValidationError: "):  # by what the reader of all messages says of it
        decode(b"\x94\x00\x00\x00\x92" + tag + b"\x91" * 60_000)


def test_a_call_of_another_build_is_told_as_one_with_what_is_wrong_in_it() -> None:
    with pytest.raises(ForeignCallError, match=r"^ValidationError: ") as caught:
        decode(pack(1, 0, 0, ("HELLO", 7, "messages:0", 9, "whatever")))
    assert caught.value.call == RawHello(7, "messages:0", 9)


@pytest.mark.parametrize("kind", get_args(LinkBody), ids=lambda kind: kind.__name__)
def test_messages_about_a_link_name_no_room(kind: Any) -> None:
    samples: dict[str, Any] = {
        "version": 1, "digest": "", "session": 1, "group": 1, "rank": 0, "layout": LAYOUT, "chunk_tokens": 8,
        "lease": 1.0,
        "endpoint": b"", "placement": None, "to_group": 5, "to_rank": 1, "epoch": 1, "why": "", "round": 0, "tail": 0,
        "nonce": 3, "quiet": True, "oldest": 1, "agreements": "ring:1", "capabilities": "announce",
    }  # fmt: skip
    body = kind(**{name: samples[name] for name in kind.__struct_fields__})
    assert decode(encode(1, 0, body)) == (1, 0, body)
    for room in (room_key(7, 0), room_key(0, 7)):
        with pytest.raises(WireError, match="about a link"):
            decode(encode(1, room, body))


def test_a_room_of_another_gen_is_another_room() -> None:
    rooms = [(room, gen) for room in (7, (1 << 64) - 1) for gen in (0, 1, (1 << 32) - 1)]
    keys = [room_key(*room) for room in rooms]
    assert len({*keys}) == 6 and [room_of(key) for key in keys] == rooms and keys[::3] == [7, (1 << 64) - 1]
    assert [decode(encode(1, key, msg.Opened()))[1] for key in keys] == keys
    assert [room_name(key) for key in keys[:2]] == ["room 7", "room 7 (gen 1)"]


def pack(*frame: object) -> bytes:
    return msgspec.msgpack.encode(frame)


BAD = {
    "negative chunk": pack(1, 1, 0, ("STAGING_REQ", -1)),
    "huge chunk": pack(1, 1, 0, ("STAGING_REQ", 2**24)),
    "float chunk": pack(1, 1, 0, ("STAGING_REQ", 1.5)),
    "no chunk": pack(1, 1, 0, ("STAGING_REQ",)),
    "unknown name": pack(1, 1, 0, ("STAGING_RESPONSE", 1)),
    "no body": pack(1, 1, 0),
    "negative room": pack(1, -1, 0, ("OPENED",)),
    "long gen": pack(1, 1, 2**32, ("OPENED",)),
    "aux too long": pack(1, 1, 0, ("AUX", bytes(msg.MAX_AUX + 1))),
    "why too long": pack(1, 0, 0, ("REFUSAL", 1, "w" * 1025)),
    "unknown cause": pack(1, 1, 0, ("ABORT", 99)),
    "no cause": pack(1, 1, 0, ("ABORT", int(Cause.NONE))),
    "prefix beyond the tokens": pack(1, 1, 0, ("OPEN", 5, 6)),
    "hostile layout": pack(1, 0, 0, ("HELLO", 1, "", 1, 1, 0, {"layers": 2, "heads": 4, "k_dim": 8, "v_dim": 8,
        "itemsize": 2, "dtype": "x", "page_size": 4, "tp": 2**40}, 8, 1.0, b"")),
}  # fmt: skip


def test_a_prefix_may_be_the_whole_room() -> None:
    for prefix in (0, 4, 5):
        assert decode(encode(1, 7, msg.Open(5, prefix))) == (1, 7, msg.Open(5, prefix))


def test_an_abort_says_why() -> None:
    for cause in set(Cause) - {Cause.NONE}:
        assert decode(encode(1, 7, msg.Abort(cause))) == (1, 7, msg.Abort(cause))


@pytest.mark.parametrize("name", BAD)
def test_what_no_rank_would_say_is_refused(name: str) -> None:
    with pytest.raises(WireError):
        decode(BAD[name])

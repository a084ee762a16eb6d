"""Strategies for hypothesis: every message, and frames that are damaged."""

from __future__ import annotations

from typing import Any, get_args

from hypothesis import strategies as st

from kvproto.fsm.codec import Body
from kvproto.layout.placement import Placement, Strides
from kvproto.layout.sharding import Layout
from kvproto.protocol import messages as msg
from kvproto.protocol.codec import encode
from kvproto.protocol.events import room_key
from kvproto.protocol.messages import Message
from kvproto.protocol.states import Cause

U64 = st.integers(0, 2**64 - 1)
U32 = st.integers(0, 2**32 - 1)
SIZES = st.integers(0, 2**48 - 1)
CHUNKS = st.integers(0, 2**24 - 1)
WORDS = st.text(max_size=40)

rooms = st.builds(room_key, U64, U32)


@st.composite
def layouts(draw: st.DrawFn) -> Layout:
    """Any layout of a small group that is a layout at all."""
    count = draw(st.sampled_from((1, 2, 4, 6, 8, 12)))
    tps = [tp for tp in range(1, 17) if count % tp == 0 or tp % count == 0]
    return Layout(
        layers=draw(st.integers(4, 8)), heads=count, k_dim=draw(st.sampled_from((8, 64))),
        v_dim=draw(st.sampled_from((0, 8, 64))), itemsize=draw(st.sampled_from((1, 2, 4))),
        dtype=draw(st.sampled_from(("bfloat16", "float8_e4m3fn", "float32"))),
        page_size=draw(st.sampled_from((1, 4, 16))), tp=draw(st.sampled_from(tps)), pp=draw(st.integers(1, 4)),
        order=draw(st.sampled_from(("NHD", "HND"))),
    )  # fmt: skip


STRIDES = st.builds(Strides, *[SIZES] * 3)
PLANES = st.tuples(st.integers(1, 2**31 - 1), SIZES)
PLACEMENTS = st.builds(
    Placement, st.lists(STRIDES, max_size=2).map(tuple), st.lists(PLANES, max_size=4).map(tuple), WORDS
)


#: what a field of this name holds, where its type alone would be too narrow or too wide
_FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "chunk": CHUNKS, "grant": U64, "offset": SIZES, "end": SIZES, "round": U64, "mark_round": U64, "mark_tail": SIZES,
    "tail": SIZES, "session": U64, "epoch": U64, "group": st.integers(1, 2**64 - 1), "rank": U32,
    "chunk_tokens": U32, "version": U32,
    "to_group": U64, "to_rank": U32, "nonce": U64,
    "secret": st.binary(max_size=msg.MAX_SECRET), "traceparent": st.binary(max_size=msg.MAX_TRACEPARENT),
    "tokens": U32, "prefix": U32, "runs": U32, "digest": st.text(max_size=64), "why": st.text(max_size=200),
    "oldest": U32, "agreements": st.text(max_size=64), "capabilities": st.text(max_size=64),
    "layer_groups": st.integers(1, msg.MAX_LAYER_GROUPS),
    "asked": st.floats(0.0, 2.0**47), "queued": st.booleans(), "early": st.booleans(),
    "again": st.booleans(), "quiet": st.booleans(),
    "lease": st.floats(allow_nan=False), "endpoint": st.binary(max_size=200), "pages": st.binary(max_size=64),
    "data": st.binary(max_size=200), "layout": layouts(),
    "blame": st.none() | st.builds(msg.Blame, st.sampled_from(("prefill", "decode")), U32, st.text(max_size=200)),
    "placement": st.none() | PLACEMENTS, "cause": st.sampled_from(tuple(Cause)[1:]),
}  # fmt: skip

BODIES: tuple[type[Body], ...] = get_args(Message)


def _fits(body: object) -> bool:
    return not isinstance(body, msg.Open) or body.prefix <= body.tokens


def messages() -> st.SearchStrategy[Any]:
    """Every message that the codec lets through."""
    kinds: list[st.SearchStrategy[Any]] = [
        st.builds(kind, **{name: _FIELDS[name] for name in kind.__struct_fields__}) for kind in BODIES
    ]
    return st.one_of(kinds).filter(_fits)


@st.composite
def frames(draw: st.DrawFn) -> tuple[int, int, Message]:
    """(epoch, room key, body); the room is 0 for messages about a link."""
    body = draw(messages())
    room = draw(rooms) if isinstance(body, get_args(msg.RoomBody)) else 0
    return draw(U64), room, body


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A frame that was cut, flipped, lengthened, doubled, or was never one."""
    if draw(st.integers(0, 9)) == 0:
        return draw(st.binary(max_size=200))
    data = bytearray(encode(*draw(frames())))
    match draw(st.sampled_from(("cut", "flip", "insert", "append", "double", "splice"))):
        case "cut":
            del data[draw(st.integers(0, len(data) - 1)) :]
        case "flip":
            for _ in range(draw(st.integers(1, 4))):
                data[draw(st.integers(0, len(data) - 1))] ^= 1 << draw(st.integers(0, 7))
        case "insert":
            at = draw(st.integers(0, len(data)))
            data[at:at] = draw(st.binary(min_size=1, max_size=16))
        case "append":
            data += draw(st.binary(min_size=1, max_size=16))
        case "double":
            data = data * 2
        case "splice":
            other = encode(*draw(frames()))
            data[draw(st.integers(0, len(data))) :] = other[draw(st.integers(0, len(other))) :]
    return bytes(data)

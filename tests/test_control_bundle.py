"""Bundles: several frames in one part, to whoever says by its name that it reads them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import zmq
from test_control import collect, introduced

from kvproto.fsm.codec import WireError
from kvproto.io.control.bundle import ADDED, BUNDLE, MARK, READS, frames_in, packed
from kvproto.io.control.control import LOOPBACK, Control, Peer
from kvproto.protocol import codec
from kvproto.protocol.messages import Heartbeat


@pytest.mark.parametrize("frames", [[b"a"], [b"", b""], [b"a", b"", bytes(70000)], [b"%d" % i for i in range(BUNDLE)]])
def test_what_is_packed_comes_out_again(frames: list[bytes]) -> None:
    part = packed(frames)
    assert frames_in(part) == frames and len(part) <= sum(map(len, frames)) + ADDED


@pytest.mark.parametrize(
    "part",
    [
        b"", b"a", MARK, MARK + b"\0\0\0", packed([b"ab", b"cd"])[:-1], packed([b"ab"]) + b"\0", MARK + b"\xff" * 4,
        packed([b""] * (BUNDLE + 1)),
    ],
    ids=["nothing", "a frame", "a mark", "half a length", "half a frame", "a rest", "beyond its end", "too many"],
)  # fmt: skip
def test_what_is_no_bundle_or_a_damaged_one_is_a_frame_by_itself(part: bytes) -> None:
    assert frames_in(part) == [part]


def test_a_bundle_saves_calls_and_is_read_in_one_turn() -> None:
    assert 32 <= BUNDLE <= 256, "a call of libzmq costs as much as some frames; a turn of the loop reads hundreds"


def test_no_frame_begins_as_a_bundle_does() -> None:
    frame = codec.encode(1, 2, Heartbeat())
    assert not frame.startswith(MARK) and frames_in(frame) == [frame]
    with pytest.raises(WireError):
        codec.decode(packed([frame, frame])[:-1])


def dialled(control: Control, name: bytes) -> tuple[zmq.Socket[bytes], Peer]:
    """A socket that dials under this name, and what it is to the listener."""
    socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.DEALER)
    socket.set(zmq.LINGER, 0)
    socket.set(zmq.RCVTIMEO, 10_000)
    socket.set(zmq.ROUTING_ID, name)
    socket.connect(str(control.address))
    socket.send(b"hello")
    return socket, collect(control, 1)[0][0]


@pytest.mark.parametrize(("name", "parts"), [(READS + b"1", 1), (b"k1", 3)], ids=["reads bundles", "an earlier build"])
def test_a_dialler_gets_what_its_name_says_it_reads(opened: Callable[..., Control], name: bytes, parts: int) -> None:
    control = opened(LOOPBACK)
    socket, peer = dialled(control, name)
    with socket:
        for frame in (b"one", b"", b"three"):
            control.send(peer, frame, later=True)
        control.flush()
        came = socket.recv_multipart()
        assert len(came) == parts
        assert [frame for part in came for frame in frames_in(part)] == [b"one", b"", b"three"]
        control.send(peer, b"alone")
        assert socket.recv_multipart() == [b"alone"], "a lone frame is as it was"


def test_a_bundle_is_no_longer_than_a_frame_may_be(opened: Callable[..., Control]) -> None:
    """Else its reader would hang up."""
    listener, here, reader, there = introduced(opened, max_frame=4096)
    frames = [bytes([i]) * 60 for i in range(2 * BUNDLE)] + [bytes(4096)]
    for frame in frames:
        assert listener.send(here, frame, later=True)
    listener.flush()
    assert collect(reader, len(frames)) == [(there, frame) for frame in frames]
    assert reader.stands(there)

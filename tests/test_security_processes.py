"""Strangers at the control port of a prefill rank, in processes of their own over NIXL.

With the right key a transfer is a transfer.  Whoever has no key, the wrong one, or one that is not on the list may say
what it likes: the HELLO that ends a process by its NIXL metadata, rooms that are somebody's, bytes.  Nothing changes
but counters.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zmq
from support.fleet import CHUNK_TOKENS, LAYOUT, PAGE, QUICK, THEIRS, Process, until

from kvproto.io.control.gate import STRANGE, UNLISTED
from kvproto.io.control.keys import Keys, make_pair, split_key
from kvproto.io.transports.base import BackendUnavailable
from kvproto.io.transports.endpoint import VERSION, InstanceDescription, RegionEntry, encode
from kvproto.io.transports.endpoint import decode as decode_endpoint
from kvproto.protocol import messages as msg
from kvproto.protocol.codec import decode as decode_frame
from kvproto.protocol.codec import encode as frame_of
from kvproto.protocol.digest import tables_digest
from kvproto.protocol.events import room_key
from kvproto.protocol.states import Cause

#: what may change when a stranger calls
COUNTERS = {UNLISTED, STRANGE}


class Two:
    """A prefill and a decode rank with each other's keys, and a stranger with a key pair and the address."""

    def __init__(self, place: Path) -> None:
        files = {name: make_pair(place / name, name) for name in ("P1", "D1", "stranger")}
        for name, peer in (("P1", "D1"), ("D1", "P1")):
            public = files[peer][1]
            (place / name / public.name).write_bytes(public.read_bytes())
        self.stranger, self.friend = (Keys.load(files[name][0]) for name in ("stranger", "D1"))
        self.prefill = Process("P1", "tcp://127.0.0.1:*", str(files["P1"][0]))
        self.decode = Process("D1", "", str(files["D1"][0]))
        self.address: str = self.prefill.ask("address")
        self.decode.ask("connect", {1: self.address})
        until(lambda: self.decode.ask("ready", [1]), "the link", 30)
        self.next = 1

    def transfer(self) -> None:
        """A room of 100 tokens, compared byte by byte."""
        room, self.next = self.next, self.next + 1
        theirs = [4 * (room % 8) + at for at in range(4)]
        ours = [2 * page + half for page in theirs for half in (1, 0)]
        self.decode.ask("open", room, 100, theirs, 1)
        self.prefill.ask("open", room, 100, ours, 11)
        self.prefill.ask("call", "produced", room, 100)
        self.prefill.ask("call", "aux", room, b"aux")
        for side in (self.prefill, self.decode):
            assert until(lambda side=side: side.ask("told", room), f"room {room} on {side.name}")[0] == "NONE"  # type: ignore[misc]
        assert self.decode.ask("equal", ours, theirs, 100)

    def state(self) -> dict[str, Any]:
        """Everything of the prefill rank that a stranger could have changed."""
        held, metrics = self.prefill.ask("held"), self.prefill.ask("metrics")
        passing = {"descriptors"}  # a connection that is being refused has one
        return {key: value for key, value in (held | metrics).items() if key not in COUNTERS | passing}

    def close(self) -> None:
        for each in (self.prefill, self.decode):
            each.ask("close")
            each.process.join(10)


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Two]:
    try:
        import nixl._api  # noqa: F401
    except (ImportError, BackendUnavailable):
        pytest.skip("nixl is not installed here")
    two = Two(tmp_path_factory.mktemp("keys"))
    yield two
    two.close()


def made_up() -> bytes:
    """An endpoint whose metadata no library survives."""
    table = (RegionEntry(0, 1 << 20, 1 << 16, "DRAM", 0),)
    return encode(InstanceDescription("nixl", VERSION, "stranger", 1, table, b"nixlSerDes|" + bytes(range(256))))


def call(endpoint: bytes, group: int) -> msg.Hello:
    """A call that fits."""
    return msg.Hello(
        msg.VERSION, tables_digest(), 1 << 40, group, 0, THEIRS, CHUNK_TOKENS, QUICK.lease.period, endpoint
    )


def attacks() -> list[bytes]:
    """Frames that would be heard if their sender were: a call, and rooms."""
    rooms = [room_key(number, 0) for number in range(1, 20)]
    said: list[bytes] = [frame_of(0, 0, call(made_up(), 11)), b"", b"\xc1", os.urandom(4096)]
    said += [frame_of(1 << 16, room, msg.Open(100, 0)) for room in rooms]
    said += [frame_of(1 << 16, room, msg.Abort(Cause.DECODE_ABORTED)) for room in rooms]
    return said


def attack(two: Two, seconds: float, **options: Any) -> None:
    """One connection after another, each of which says everything."""
    place, key = split_key(two.address)
    assert key is not None
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        dealer = context.socket(zmq.DEALER)
        dealer.set(zmq.LINGER, 0)
        for option, value in options.items():
            dealer.set(getattr(zmq, option), value or key)
        dealer.connect(place)
        with contextlib.suppress(zmq.Again):  # it was refused in the meantime
            for frame in attacks():
                dealer.send(frame, zmq.NOBLOCK)
            dealer.send_multipart([b"part"] * 1000, zmq.NOBLOCK)
        time.sleep(0.05)
        dealer.close()
    context.term()


def test_with_keys_a_transfer_is_a_transfer(two: Two) -> None:
    assert THEIRS.page_size == 2 * PAGE and LAYOUT.page_size == PAGE
    for _ in range(3):
        two.transfer()
    metrics = two.prefill.ask("metrics")
    assert metrics["writes"] >= 3 and not COUNTERS & metrics.keys()


@pytest.mark.parametrize("who", ["no key", "wrong key of ours", "not on the list"])
def test_a_stranger_changes_counters_and_nothing_else(two: Two, who: str) -> None:
    two.transfer()
    until(lambda: not two.prefill.ask("held")["rooms"] and not two.prefill.ask("held")["writes"], "rest")
    before, counted = two.state(), two.prefill.ask("metrics")
    keys, ours = {
        "no key": (None, b""), "wrong key of ours": (two.friend, two.stranger.public),
        "not on the list": (two.stranger, b""),
    }[who]  # fmt: skip
    pair = {} if keys is None else {"CURVE_PUBLICKEY": keys.public, "CURVE_SECRETKEY": keys.secret}
    attack(two, 2.0, **pair, **({"CURVE_SERVERKEY": ours} if pair else {}))
    now = two.prefill.ask("metrics")
    counter = UNLISTED if who == "not on the list" else STRANGE
    assert now.get(counter, 0) > counted.get(counter, 0), "it was never turned away"
    assert two.state() == before
    two.transfer()


def refused(address: str, endpoint: bytes, group: int) -> str:
    """Call a rank that has no keys, with this for the transport's description: why it refuses."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    dealer = context.socket(zmq.DEALER)
    dealer.set(zmq.LINGER, 0)
    try:
        dealer.connect(address)
        dealer.send(frame_of(0, 0, call(endpoint, group)))
        assert dealer.poll(10_000), "no answer"
        answer = decode_frame(dealer.recv())[2]
        assert isinstance(answer, msg.Refusal), answer
        return answer.why
    finally:
        dealer.close()
        context.term()


def test_without_keys_what_is_damaged_or_made_up_reaches_no_library(two: Two) -> None:
    """On loopback anybody may call; what did not come whole, or cannot be NIXL's metadata, ends nothing."""
    bare = Process("P2", "tcp://127.0.0.1:*")
    try:
        address, real = bare.ask("address"), two.decode.ask("description")
        for at in range(40, len(real), 97):
            spoilt = bytearray(real)
            spoilt[at] ^= 0x40
            assert "endpoint" in refused(address, bytes(spoilt), 100 + at)
        assert "not an endpoint" in refused(address, b"", 50)
        assert "is not NIXL's" in refused(address, made_up(), 51)
        other = msgspec.structs.replace(decode_endpoint(real, "nixl"), instance="another")
        assert "it is of agent" in refused(address, encode(other), 52)
        assert bare.ask("held")["peers"] == 0
    finally:
        bare.ask("close")
        bare.process.join(10)


def test_a_rank_with_keys_that_meets_one_without_says_why(two: Two) -> None:
    bare = Process("D2", "")
    try:
        bare.ask("connect", {1: two.address})
        until(lambda: any("this process has none" in each for each in bare.ask("refusals", 1)), "the reason")
    finally:
        bare.ask("close")
        bare.process.join(10)

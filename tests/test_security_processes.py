"""Strangers at the control port of a prefill rank, in processes of their own over NIXL.

With the right key a transfer is a transfer.  Without keys, on loopback, the HELLO that would end a process by its NIXL
metadata reaches no library.  What strangers say to ranks with keys is the torture's (`test_torture_attack`).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
import zmq
from support.fleet import CHUNK_TOKENS, LAYOUT, PAGE, QUICK, THEIRS, Process, until

from kvproto.io.control.gate import STRANGE, UNLISTED
from kvproto.io.transports.base import BackendUnavailable
from kvproto.io.transports.endpoint import VERSION, InstanceDescription, RegionEntry, encode
from kvproto.io.transports.endpoint import decode as decode_endpoint
from kvproto.lab.torture.attack import keys_of
from kvproto.protocol import messages as msg
from kvproto.protocol.codec import decode as decode_frame
from kvproto.protocol.codec import encode as frame_of
from kvproto.protocol.digest import tables_digest

#: counts of callers that were turned away
COUNTERS = {UNLISTED, STRANGE}


class Two:
    """A prefill and a decode rank with each other's keys."""

    def __init__(self, place: Path) -> None:
        files = keys_of(place)
        self.prefill = Process("P1", "tcp://127.0.0.1:*", str(files["P"]))
        self.decode = Process("D1", "", str(files["D"]))
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


def test_with_keys_a_transfer_is_a_transfer(two: Two) -> None:
    assert THEIRS.page_size == 2 * PAGE and LAYOUT.page_size == PAGE
    for _ in range(3):
        two.transfer()
    metrics = two.prefill.ask("metrics")
    assert metrics["writes"] >= 3 and not COUNTERS & metrics.keys()


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

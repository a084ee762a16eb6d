"""A decode rank written from PROTOCOL.md alone, with the real prefill endpoint: nothing is said twice."""

from __future__ import annotations

import ast
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("zmq")

import msgspec
from support import plain_decode_rank
from support.plain_decode_rank import PlainDecodeRank
from support.plain_description import describe

from kvproto.endpoint.prefill_endpoint import PrefillEndpoint
from kvproto.io.kernels.pool import Pool
from kvproto.io.transports.base import Arrived
from kvproto.io.transports.fabric import Fabric
from kvproto.io.transports.memory import MemoryTransport
from kvproto.layout.sharding import Layout
from kvproto.protocol.states import Cause
from kvproto.protocol.timing import Timing
from kvproto.room import Outcome, Room, Status
from kvproto.settings import Settings
from kvproto.verify.testing.pair import PATIENT
from kvproto.verify.testing.pools import noise

CHUNKS, CHUNK_TOKENS, PAGE = 20, 16, 16
OURS = Layout(layers=2, heads=2, k_dim=8, v_dim=8, itemsize=2, dtype="bfloat16", page_size=PAGE, tp=1, order="NHD")
THEIRS = msgspec.structs.replace(OURS, order="HND")
TOKENS = CHUNKS * CHUNK_TOKENS
REPEATED = ("OPEN", "OPENED", "STAGING_REQ", "STG_NOTIFY", "CHUNK_ACK", "AUX", "AUX_ACK", "WATERMARK_REQ")


@contextmanager
def two(*, notify: bool) -> Iterator[tuple[PrefillEndpoint, PlainDecodeRank, MemoryTransport, Pool]]:
    """The real prefill rank, the plain decode rank, and the transport that writes into the plain ring."""
    fabric = Fabric(auto=True, native_notify=notify)
    pool = noise(OURS, 0, CHUNKS, 1)
    bytes_each = TOKENS * OURS.layers * OURS.heads * (OURS.k_dim + OURS.v_dim) * OURS.itemsize
    ring = torch.zeros(bytes_each, dtype=torch.uint8)
    transport = MemoryTransport(fabric)
    transport.register(ring.data_ptr(), bytes_each, "DRAM", 0)
    endpoint = describe("memory", transport.instance, 1, [[0, ring.data_ptr(), bytes_each, "DRAM", 0]], b"")
    prefill = PrefillEndpoint(
        OURS,
        0,
        pool,
        MemoryTransport(fabric),
        chunk_tokens=CHUNK_TOKENS,
        settings=Settings(window=CHUNKS, slots=CHUNKS, timing=PATIENT.timing),
    )
    layout = msgspec.to_builtins(THEIRS)
    peer = PlainDecodeRank(
        prefill.address, layout, CHUNK_TOKENS, Timing().lease.period, endpoint, memoryview(ring.numpy())
    )
    try:
        yield prefill, peer, transport, pool
    finally:
        peer.close()
        prefill.close()


@pytest.mark.parametrize("notify", [True, False], ids=["notified by the write", "notified by message"])
def test_twenty_chunks_without_a_resend(notify: bool) -> None:
    with two(notify=notify) as (prefill, peer, transport, pool):
        begin, room = time.monotonic(), Room(11)
        prefill.open(room, TOKENS, list(range(CHUNKS)))
        opened = False
        while peer.aux is None or len(peer.chunks) < CHUNKS or not prefill.finished():
            prefill.poll()
            peer.poll([event.tag for event in transport.poll() if isinstance(event, Arrived)])
            assert not peer.refused, peer.refused
            assert time.monotonic() - begin < 20.0, (peer.heard, peer.said)
            if peer.epoch and not opened:
                opened = True
                peer.open(room.id, TOKENS)
                prefill.produced(room, TOKENS)
                prefill.aux(room, b"first token")
        took = time.monotonic() - begin
        assert peer.aux == b"first token"
        for chunk, data in peer.chunks.items():
            tensors = [tensor[chunk] for tensor in (*pool.k, *pool.v)]  # a chunk is a page here: [token, head, dim]
            want = b"".join(tensor.contiguous().view(torch.uint8).numpy().tobytes() for tensor in tensors)
            assert data == want, f"chunk {chunk}"
        by_write, by_message = peer.heard["STG_NOTIFY with its write"], peer.heard["STG_NOTIFY"]
        assert (by_write, by_message) == ((CHUNKS, 0) if notify else (0, CHUNKS)), "each part is told once"
        once = {"STAGING_REQ": CHUNKS, "AUX": 1, "OPENED": 1, "WATERMARK_REQ": 0}
        assert {name: peer.heard[name] for name in once} == once
        assert peer.said["STAGING_RSP"] == CHUNKS == peer.said["CHUNK_ACK"]
        assert took < PATIENT.timing.resend.period, "no timer had to help"


@pytest.mark.parametrize("who", ["prefill", "decode"])
def test_a_room_that_is_given_up_is_drained_and_noted_once(who: str) -> None:
    with two(notify=True) as (prefill, peer, transport, _):
        begin, room, opened, outcomes = time.monotonic(), Room(12), False, list[Outcome]()
        prefill.open(room, TOKENS, list(range(CHUNKS)))
        while peer.drained is None or not prefill.released():
            prefill.poll()
            outcomes += prefill.finished()
            peer.poll([event.tag for event in transport.poll() if isinstance(event, Arrived)])
            assert time.monotonic() - begin < 20.0, (peer.heard, peer.said)
            if peer.epoch and not opened:
                opened = True
                peer.open(room.id, TOKENS)
            elif opened and peer.heard["OPENED"] and not (peer.said["ABORT"] or prefill.status(room) is Status.FAILED):
                if who == "prefill":
                    prefill.abort(room)
                else:
                    peer.abort(room.id, int(Cause.DECODE_ABORTED))
        assert Cause(peer.drained) is (Cause.PREFILL_ABORTED if who == "prefill" else Cause.DECODE_ABORTED)
        assert [outcome.cause for outcome in outcomes] == [Cause(peer.drained)]
        assert peer.heard["DRAINED"] == peer.said["NOTED"] == 1


def test_the_plain_rank_knows_nothing_of_the_package() -> None:
    tree = ast.parse(Path(plain_decode_rank.__file__).read_text())
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert not {name for name in names if name.startswith("kvproto")}
    assert {name for name in names if name.partition(".")[0] not in sys.stdlib_module_names} == {"msgspec", "zmq"}

"""Fuzz: damaged input for everything that reads foreign bytes, with counts of inputs and outcomes.

A decoder may take an input or raise what it says that it raises; anything else is a finding.  The inputs are samples of
what is really said, changed in a few places: bits and bytes, numbers at the edge of their range, parts that are cut
out, doubled or taken from another sample, and now and then nothing but noise.  Where a sum would hide a decoder from
them, it is made anew after the change.

Nothing is random but the seed, and each input has its number: what is found is found again.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from hashlib import blake2b
from typing import Any

import msgspec

from kvproto.adapters.card import Card, CardError
from kvproto.adapters.sglang.bootstrap_ranks import Rank, Ranks
from kvproto.adapters.sglang.room_directory import RoomDirectory
from kvproto.errors import ArgumentError
from kvproto.fsm.codec import WireError
from kvproto.io.control.keys import beyond_loopback, split_key
from kvproto.io.transports import endpoint as endpoints
from kvproto.io.transports import nixl_metadata, ucx_address
from kvproto.io.transports.base import BadEndpoint
from kvproto.lab.torture.nixl_samples import KEY, connection, metadata
from kvproto.layout.sharding import Layout
from kvproto.protocol import messages as msg
from kvproto.protocol.codec import decode, encode
from kvproto.protocol.events import room_key
from kvproto.protocol.notification import make_tag, read_tag
from kvproto.protocol.states import Cause
from kvproto.rank.decode import DecodeRank
from kvproto.rank.prefill import PrefillRank
from kvproto.verify.trace.stories import TraceError, lines, log_of, parse

#: findings of one decoder that are told
ENOUGH = 5
#: bytes at the edge of what MessagePack and fields of fixed size mean by them
EDGES = (0x00, 0x01, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xC0, 0xC1, 0xC4, 0xC6, 0xCB, 0xCF, 0xD3, 0xDC, 0xDF, 0xFF)
NUMBERS = (0, 1, 1 << 31, (1 << 32) - 1, 1 << 32, (1 << 63) - 1, 1 << 63, (1 << 64) - 1)
LAYOUT = Layout(layers=2, heads=2, k_dim=8, v_dim=8, itemsize=2, dtype="bfloat16", page_size=16, tp=1)


class Decoder(msgspec.Struct, frozen=True):
    """Something that reads foreign bytes: what it is called with, and what it may raise."""

    name: str
    read: Callable[[bytes], object]
    documented: tuple[type[Exception], ...]
    samples: tuple[bytes, ...]
    #: makes anew what follows from the other bytes
    mend: Callable[[bytes], bytes] = bytes


class FuzzResult(msgspec.Struct):
    """The result of one decoder; `undocumented`: number, error and first bytes of the first few inputs."""

    decoder: str
    inputs: int = 0
    taken: int = 0
    documented: int = 0
    undocumented: int = 0
    seconds: float = 0.0
    #: the longest that one input took
    slowest_ms: float = 0.0
    found: list[str] = []


def fuzz(decoder: Decoder, seed: int, inputs: int) -> FuzzResult:
    result = FuzzResult(decoder.name, inputs)
    began = time.perf_counter()
    for number in range(inputs):
        data = decoder.mend(damaged(decoder.samples, random.Random(f"{decoder.name} {seed} {number}")))
        at = time.perf_counter()
        try:
            decoder.read(data)
        except decoder.documented:
            result.documented += 1
        except Exception as error:  # noqa: BLE001  # what is looked for
            result.undocumented += 1
            if len(result.found) < ENOUGH:
                text = f"input {number}: {type(error).__name__}: {str(error)[:120]}; {data[:64].hex()}"
                result.found.append(text + ("..." if len(data) > 64 else ""))
        else:
            result.taken += 1
        result.slowest_ms = max(result.slowest_ms, 1e3 * (time.perf_counter() - at))
    result.seconds = time.perf_counter() - began
    return result


def damaged(samples: tuple[bytes, ...], dice: random.Random) -> bytes:
    """One sample with up to six changes; now and then noise, and now and then the sample as it is."""
    if dice.random() < 0.02:
        return dice.randbytes(dice.randrange(200))
    data = bytearray(dice.choice(samples))
    for _ in range(dice.randrange(7)):
        dice.choice(CHANGES)(data, samples, dice)
    return bytes(data)


def _flip(data: bytearray, _: tuple[bytes, ...], dice: random.Random) -> None:
    if data:
        data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)


def _edge(data: bytearray, _: tuple[bytes, ...], dice: random.Random) -> None:
    if data:
        data[dice.randrange(len(data))] = dice.choice(EDGES)


def _number(data: bytearray, _: tuple[bytes, ...], dice: random.Random) -> None:
    at = dice.randrange(len(data) + 1)
    data[at : at + 8] = dice.choice(NUMBERS).to_bytes(8, dice.choice(("little", "big")))


def _cut(data: bytearray, _: tuple[bytes, ...], dice: random.Random) -> None:
    at = dice.randrange(len(data) + 1)
    del data[at : at + dice.choice((1, 2, 8, len(data)))]


def _double(data: bytearray, _: tuple[bytes, ...], dice: random.Random) -> None:
    at, end = sorted(dice.randrange(len(data) + 1) for _ in range(2))
    data[at:at] = data[at:end][:4096]


def _splice(data: bytearray, samples: tuple[bytes, ...], dice: random.Random) -> None:
    other = dice.choice(samples)
    at, end = sorted(dice.randrange(len(other) + 1) for _ in range(2))
    to = dice.randrange(len(data) + 1)
    data[to : to + dice.choice((0, end - at))] = other[at:end]


def _nest(data: bytearray, _: tuple[bytes, ...], dice: random.Random) -> None:
    # More than the interpreter may go down: an array of one array, in MessagePack and in JSON.
    at = dice.randrange(len(data) + 1)
    data[at:at] = dice.choice((b"\x91", b"[")) * 2000


CHANGES: tuple[Callable[[bytearray, tuple[bytes, ...], random.Random], None], ...] = (
    _flip, _edge, _number, _cut, _double, _splice, _nest,
)  # fmt: skip


# ---------------------------------------------------------------------------------------------- what is read
def decoders() -> Iterator[Decoder]:
    """Everything that reads what another process, or another day, has written."""
    frames = tuple(encode(7, 0 if isinstance(body, msg.LinkBody) else room_key(9, 1), body) for body in bodies())
    yield Decoder("control frame", decode, (WireError,), frames)
    tag = make_tag(1, 0, [(7, room_key(9, 1), msg.StgNotify(3, 5)), (7, 9, msg.StgNotify(0, 6))])
    yield Decoder("notification of a write", read_tag, (WireError,), (tag,))
    said = description()
    yield Decoder("transport endpoint", _endpoint, (BadEndpoint,), (said,))
    yield Decoder("transport endpoint, its sum made anew", _endpoint, (BadEndpoint,), (said,), _summed)
    more = metadata(rows=((0, 64, 0), (4096, 64, 0)), devices=((8192, 64, 1),))
    yield Decoder("NIXL metadata", _metadata, (ucx_address.FormError,), (metadata(), more))
    yield Decoder("UCX worker address", ucx_address.read_address, (ucx_address.FormError,), (connection(),))
    yield Decoder("UCX key", ucx_address.read_key, (ucx_address.FormError,), (KEY, KEY + b"\x01\x02\x03\xff"))
    places = b"tcp://127.0.0.1:4000", b"tcp://10.0.0.1:4000#" + b"ab" * 32, b"ipc:///tmp/x", b"tcp://[::1]:1"
    yield Decoder("address of a rank", _address, (ValueError,), places)
    yield Decoder("recorded trace", _trace, (TraceError,), tuple(traces()))
    card = Card(7, 1, LAYOUT, 32, ("tcp://10.0.0.1:5000",))
    yield Decoder("card", Card.decode, (CardError,), (card.encode().encode(),))
    rank = msgspec.json.encode(Rank(0, "tcp://10.0.0.1:5000", 7, 1, LAYOUT, 32))
    yield Decoder("announced rank", _rank, (ArgumentError,), (rank,))
    rooms = RoomDirectory()
    report = b'{"dp_rank": 1, "rooms": [5, 9], "awaited": [7]}'
    yield Decoder("report of rooms", rooms.report, (ArgumentError,), (report,))
    yield Decoder("question for rooms", rooms.find, (ArgumentError,), (b'{"bootstrap_rooms": [5, 9]}',))


def bodies() -> list[Any]:
    """One message of every kind, with numbers that are all different."""
    hello = (msg.VERSION, "layout:1 ring:2", 3, 4, 0, LAYOUT, 32, 30.0)
    build = msg.OLDEST, "ring:1 timers:2", "announce"
    return [
        msg.Hello(*hello, b"endpoint", None, 1, 2, *build),
        msg.Welcome(msg.VERSION, "layout:1 ring:2", 3, 5, 4, 0, LAYOUT, 32, 30.0, *build),
        msg.Refusal(3, "no"), msg.Reset(), msg.Heartbeat(), msg.Open(200, 64, b"secret", b"00-1"), msg.Opened(),
        msg.Announce(200, b"secret"),
        msg.StagingReq(1), msg.StagingRsp(1, 2, 256, 3, 512, 4, 128), msg.StagingRefused(1), msg.PagesReq(2),
        msg.StagingQueued(1, 2, 256),
        msg.PagesRsp(2, bytes(range(16))), msg.Watermark(3, 256), msg.WatermarkReq(), msg.StgNotify(1, 2),
        msg.ChunkAck(1), msg.Aux(b"row", b"00-1"), msg.AuxAck(),
        msg.Abort(Cause.DECODE_ABORTED, b"secret", msg.Blame("prefill", 1, "why")),
        msg.Drained(Cause.STALLED, msg.Blame("decode", 2)), msg.Noted(), msg.Gone(),
        msg.Goodbye(quiet=True),
    ]  # fmt: skip


def description() -> bytes:
    table = tuple(endpoints.RegionEntry(at, 4096 * (at + 1), 4096, "DRAM", 0) for at in range(3))
    return endpoints.encode(endpoints.InstanceDescription("nixl", endpoints.VERSION, "me", 1, table, metadata()))


def traces() -> Iterator[bytes]:
    """Two ranks that have met, as `save` writes them."""
    decode_rank = DecodeRank(LAYOUT, 0, group=2, chunk_tokens=32, incarnation=1)
    prefill_rank = PrefillRank(LAYOUT, 0, group=1, chunk_tokens=32, incarnation=1)
    prefill_rank.hello(decode_rank.hello(1), 0.0, b"place")
    for rank in (prefill_rank, decode_rank):
        yield "\n".join(lines(log_of(rank))).encode()


def _endpoint(data: bytes) -> object:
    return endpoints.decode(data, "nixl")


def _summed(data: bytes) -> bytes:
    body = data[: -endpoints.SUM]
    return body + blake2b(body, digest_size=endpoints.SUM).digest()


def _metadata(data: bytes) -> object:
    return nixl_metadata.read(data, 4)


def _address(data: bytes) -> object:
    place, _ = split_key(data.decode("latin-1"))
    return beyond_loopback(place)


def _rank(data: bytes) -> object:
    return Ranks().put(data)


def _trace(data: bytes) -> object:
    return parse(data.splitlines())

"""A decode rank in plain Python, written from PROTOCOL.md alone: sockets, MessagePack and a ring; nothing of kvproto.

It does what the pages say a decode rank has to: calls, beats, opens a room, gives out regions of its ring in a row,
hears of parts by the notification that a write carries or by message, copies each chunk out when all writers' parts are
there, confirms, tells the watermark, takes the aux row.  It knows no timers but its beat and no failures: it is here to
show that the pages say enough, and that nothing has to be said twice between two ends that keep to them.

The digest, which both ends compare and no document can give in words, is read from `spec/kvproto.json`.
"""

from __future__ import annotations

import json
import struct
import time
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import zmq

SPEC = json.loads((Path(__file__).parents[2] / "spec" / "kvproto.json").read_text())["protocol"]
BEAT_S = 1.0
NOTE_HEAD = struct.Struct("<QI")


class PlainDecodeRank:
    """One decode rank of a group of one; `ring` is its staging memory, a writable view of bytes."""

    def __init__(
        self, address: str, layout: dict[str, Any], grid: int, lease: float, endpoint: bytes, ring: memoryview
    ) -> None:  # fmt: skip
        self.layout, self.grid, self.ring = layout, grid, ring
        self.socket: Any = zmq.Context.instance().socket(zmq.DEALER)
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.connect(address)
        self.epoch, self.session = 0, 7
        self.heard: Counter[str] = Counter()
        self.said: Counter[str] = Counter()
        self.refused = ""
        self.head, self.grants = 0, 0
        self.chunks: dict[int, bytes] = {}
        self.aux: bytes | None = None
        #: of chunks under way: offset and end of the region, its grant, the writers whose parts are there
        self.filling: dict[int, tuple[int, int, int, set[int]]] = {}
        self.room, self.tokens = 0, 0
        self.beat = time.monotonic()
        hello = ["HELLO", SPEC["wire_version"], SPEC["digest"], self.session, 2, 0, layout, grid, lease, endpoint]
        self.say(0, *hello)

    def say(self, room: int, name: str, *fields: Any) -> None:
        """A frame: epoch, room id, generation, body."""
        self.said[name] += 1
        self.socket.send(msgspec.msgpack.encode([self.epoch, room, 0, [name, *fields]]))

    def open(self, room: int, tokens: int) -> None:
        """The pages are there: the prefill rank may begin."""
        self.room, self.tokens = room, tokens
        self.say(room, "OPEN", tokens, 0)

    def poll(self, notes: list[bytes]) -> None:
        """Hear what has come; `notes`: what writes carried, as the transport gives it."""
        if time.monotonic() - self.beat > BEAT_S:
            self.beat = time.monotonic()
            self.say(0, "HEARTBEAT")
        for note in notes:
            self.hear(msgspec.msgpack.decode(note[NOTE_HEAD.size :]), by_note=True)
        while self.socket.poll(0):
            self.hear(msgspec.msgpack.decode(self.socket.recv()))

    def hear(self, frame: Any, *, by_note: bool = False) -> None:
        """One message; who writes is the one prefill rank at the end of the link."""
        epoch, room, _, (name, *fields) = frame
        self.heard[f"{name} with its write" if by_note else name] += 1
        if name == "WELCOME":
            self.epoch = fields[3]
        elif name == "REFUSAL":
            self.refused = fields[1]
        elif epoch != self.epoch:
            return
        elif name == "STAGING_REQ":
            self.grant(room, fields[0])
        elif name == "WATERMARK_REQ":
            self.say(0, "WATERMARK", *self.mark())
        elif name == "STG_NOTIFY":
            self.part(room, *fields)
        elif name == "AUX":
            self.aux = fields[0]
            self.say(room, "AUX_ACK")

    def grant(self, room: int, chunk: int) -> None:
        """A region in a row: this ring is as large as the room, so round 0 is all there is."""
        if chunk not in self.filling and chunk not in self.chunks:
            self.grants += 1
            size = self.part_bytes(chunk)
            self.filling[chunk] = (self.head, self.head + size, self.grants, set())
            self.head += size
        offset, end, grant, _ = self.filling[chunk]
        self.say(room, "STAGING_RSP", chunk, grant, offset, 0, end, *self.mark())

    def part(self, room: int, chunk: int, grant: int) -> None:
        """The one writer's part is in place: copy it out, free the region, confirm."""
        if chunk in self.filling:
            offset, end, given, _ = self.filling[chunk]
            assert grant == given, "a part for another region"
            self.chunks[chunk] = bytes(self.ring[offset:end])
            del self.filling[chunk]
        self.say(room, "CHUNK_ACK", chunk)

    def mark(self) -> tuple[int, int]:
        """(round, tail) of the oldest region that is not freed."""
        return 0, min((offset for offset, *_ in self.filling.values()), default=self.head)

    def part_bytes(self, chunk: int) -> int:
        """K of each layer, then V of each, for the tokens of this chunk and all heads."""
        tokens = min(self.grid, self.tokens - chunk * self.grid)
        about = self.layout
        size: int = tokens * about["layers"] * about["heads"] * (about["k_dim"] + about["v_dim"]) * about["itemsize"]
        return size

    def close(self) -> None:
        self.socket.close()

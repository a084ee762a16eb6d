"""A plain decode rank in Python, written from PROTOCOL.md alone, without kvproto.

It does what the pages say a decode rank has to: calls, beats, opens a room, gives out regions of its ring in a row,
hears of parts by the notification that a write carries or by message, copies each chunk out when all writers' parts are
there, confirms, tells the watermark, takes the aux row.  It knows no timers but its beat and no failures: it is here to
show that the pages say enough, and that nothing has to be said twice between two ends that keep to them.

The order of each message's fields is read from `spec/kvproto.json`: what is said and heard here goes by their names.
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

EXPORT = json.loads((Path(__file__).parents[2] / "spec" / "kvproto.json").read_text())
SPEC = EXPORT["protocol"]
FIELDS = {each["name"]: [field["name"] for field in each["fields"]] for each in EXPORT["messages"]}
BEAT_S = 1.0
NOTE_HEAD = struct.Struct("<QI")


class PlainDecodeRank:
    """One decode rank of a group of one; `ring` is its staging memory, a writable view of bytes."""

    def __init__(
        self, address: str, layout: dict[str, Any], chunk_tokens: int, lease: float, endpoint: bytes, ring: memoryview
    ) -> None:  # fmt: skip
        self.layout, self.chunk_tokens, self.ring = layout, chunk_tokens, ring
        self.socket: Any = zmq.Context.instance().socket(zmq.DEALER)
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.connect(address)
        self.epoch, self.session = 0, 7
        self.heard: Counter[str] = Counter()
        self.said: Counter[str] = Counter()
        self.refused = ""
        self.drained: int | None = None
        self.head, self.grants = 0, 0
        self.chunks: dict[int, bytes] = {}
        self.aux: bytes | None = None
        #: of chunks under way: offset and end of the region, its grant, the writers whose parts are there
        self.filling: dict[int, tuple[int, int, int, set[int]]] = {}
        self.room, self.tokens = 0, 0
        self.beat = time.monotonic()
        me = {"version": SPEC["wire_version"], "digest": "plain", "session": self.session, "group": 2, "rank": 0}
        self.say(0, "HELLO", **me, layout=layout, chunk_tokens=chunk_tokens, lease=lease, endpoint=endpoint)

    def say(self, room: int, name: str, **fields: Any) -> None:
        """Read a frame: epoch, room id, generation, body; trailing fields with defaults may be missing."""
        self.said[name] += 1
        order = FIELDS[name][: len(fields)]
        self.socket.send(msgspec.msgpack.encode([self.epoch, room, 0, [name, *(fields[each] for each in order)]]))

    def open(self, room: int, tokens: int) -> None:
        """The pages are there: the prefill rank may begin."""
        self.room, self.tokens = room, tokens
        self.say(room, "OPEN", tokens=tokens, prefix=0)

    def abort(self, room: int, cause: int) -> None:
        """Nobody wants the room any more; its memory is free when `drained` has been heard."""
        self.say(room, "ABORT", cause=cause)

    def poll(self, notes: list[bytes]) -> None:
        """Hear what has come; `notes`: what writes carried, as the transport gives it."""
        if time.monotonic() - self.beat > BEAT_S:
            self.beat = time.monotonic()
            self.say(0, "HEARTBEAT")
        for tag in notes:
            for frame in msgspec.msgpack.decode(tag[NOTE_HEAD.size :]):
                self.hear(frame, by_note=True)
        while self.socket.poll(0):
            self.hear(msgspec.msgpack.decode(self.socket.recv()))

    def hear(self, frame: Any, *, by_note: bool = False) -> None:
        """One message; who writes is the one prefill rank at the end of the link."""
        epoch, room, _, (name, *values) = frame
        said = dict(zip(FIELDS[name], values, strict=False))
        self.heard[f"{name} with its write" if by_note else name] += 1
        if name == "WELCOME":
            self.epoch = said["epoch"]
        elif name == "REFUSAL":
            self.refused = said["why"]
        elif epoch != self.epoch:
            return
        elif name == "STAGING_REQ":
            self.grant(room, said["chunk"], said["asked"])
        elif name == "WATERMARK_REQ":
            round_, tail = self.mark()
            self.say(0, "WATERMARK", round=round_, tail=tail, nonce=said.get("nonce", 0))
        elif name == "STG_NOTIFY":
            self.part(room, said["chunk"], said["grant"])
        elif name == "AUX":
            self.aux = said["data"]
            self.say(room, "AUX_ACK")
        elif name == "DRAINED":
            self.drained = said["cause"]
            self.say(room, "NOTED")

    def grant(self, room: int, chunk: int, asked: float) -> None:
        """A region in a row: this ring is as large as the room, so round 0 is all there is."""
        if chunk not in self.filling and chunk not in self.chunks:
            self.grants += 1
            size = self.part_bytes(chunk)
            self.filling[chunk] = (self.head, self.head + size, self.grants, set())
            self.head += size
        offset, end, grant, _ = self.filling[chunk]
        region = {"grant": grant, "offset": offset, "round": 0, "end": end}
        round_, tail = self.mark()
        self.say(room, "STAGING_RSP", chunk=chunk, **region, mark_round=round_, mark_tail=tail, asked=asked)

    def part(self, room: int, chunk: int, grant: int) -> None:
        """The one writer's part is in place: copy it out, free the region, confirm."""
        if chunk in self.filling:
            offset, end, given, _ = self.filling[chunk]
            assert grant == given, "a part for another region"
            self.chunks[chunk] = bytes(self.ring[offset:end])
            del self.filling[chunk]
        self.say(room, "CHUNK_ACK", chunk=chunk)

    def mark(self) -> tuple[int, int]:
        """(round, tail) of the oldest region that is not freed."""
        return 0, min((offset for offset, *_ in self.filling.values()), default=self.head)

    def part_bytes(self, chunk: int) -> int:
        """K of each layer, then V of each, for the tokens of this chunk and all heads."""
        tokens = min(self.chunk_tokens, self.tokens - chunk * self.chunk_tokens)
        about = self.layout
        size: int = tokens * about["layers"] * about["heads"] * (about["k_dim"] + about["v_dim"]) * about["itemsize"]
        return size

    def close(self) -> None:
        self.socket.close()

"""Host rank: a rank in a process on a host of its own, which does what it reads, a line at a time."""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

import torch

from kvproto.endpoint.decode_endpoint import DecodeEndpoint
from kvproto.endpoint.prefill_endpoint import PrefillEndpoint
from kvproto.io.transports.base import Transport
from kvproto.lab.torture.rank import ucx_over_tcp
from kvproto.layout.sharding import Layout
from kvproto.room import Room
from kvproto.settings import Settings
from kvproto.verify.testing.pools import left_over, noise
from support.fleet import QUICK

PAGES, CHUNK_TOKENS = 96, 64
P = Layout(layers=4, heads=4, k_dim=64, v_dim=64, itemsize=2, dtype="bfloat16", page_size=16, tp=1)
D = Layout(layers=4, heads=4, k_dim=64, v_dim=64, itemsize=2, dtype="bfloat16", page_size=32, tp=1)
SETTINGS = Settings(timing=QUICK, ring_bytes=1 << 21, slots=4, window=4, costs="free")


def transport_of(backend: str, address: str) -> Transport:
    """A transport that others reach at this address, over TCP."""
    if backend == "mooncake":
        from kvproto.io.transports.mooncake import MooncakeTransport

        return MooncakeTransport(address)
    os.environ["UCX_MODULES"], os.environ["UCX_TLS"] = "^ib", ucx_over_tcp()
    from kvproto.io.transports.nixl import NixlTransport

    return NixlTransport()


class HostRank:
    """The calls that the other end of the pipe may make."""

    def __init__(self, side: str, backend: str, address: str, keys: str) -> None:
        torch.set_num_threads(1)
        self.side, held = side, P if side == "prefill" else D
        self.pool = noise(held, 0, PAGES, 1 if side == "prefill" else 2)
        given: Any = {"chunk_tokens": CHUNK_TOKENS, "settings": SETTINGS, "keys": keys}
        transport = transport_of(backend, address)
        self.endpoint: Any = (
            PrefillEndpoint(held, 0, self.pool, transport, bind=f"tcp://{address}:*", **given)
            if side == "prefill" else DecodeEndpoint(held, 0, self.pool, transport, **given)
        )  # fmt: skip
        self.endpoint.start()
        self.seen: dict[int, dict[str, Any]] = {}

    def address(self) -> str:
        return str(self.endpoint.address)

    def connect(self, address: str) -> bool:
        """Connect to the other host; whether the link came up."""
        self.endpoint.connect(P, [address])
        return self.ready(10.0)

    def ready(self, limit: float) -> bool:
        """Whether the link is up within so many seconds."""
        until = time.monotonic() + limit
        while not self.endpoint.ready() and time.monotonic() < until:
            time.sleep(0.01)
        return bool(self.endpoint.ready())

    def open(self, number: int, tokens: int) -> None:
        self.endpoint.open(Room(number), tokens, table_of(number, tokens, self.side))

    def produce(self, number: int, tokens: int) -> None:
        self.endpoint.produced(Room(number), tokens)
        self.endpoint.aux(Room(number), b"first token")

    def ended(self, number: int, tokens: int, limit: float) -> dict[str, Any]:
        """How a room ended, when, whether it is released, and on D whether every byte is right."""
        begun, found = time.monotonic(), self.seen.setdefault(number, {})
        while len(found) < 2 and time.monotonic() < begun + limit:
            released = self.endpoint.released()
            for outcome in self.endpoint.finished():
                self.seen.setdefault(outcome.room.id, {})["cause"] = outcome.cause.name
            for room in released:
                self.seen.setdefault(room.id, {})["released"] = True
            time.sleep(0.005)
        right = self.side == "prefill" or self.right(number, tokens)
        return {**found, "seconds": time.monotonic() - begun, "right": right}

    def right(self, number: int, tokens: int) -> bool:
        """Whether D's pages hold what P's pool, which is known here, had in the room's pages."""
        theirs, token = noise(P, 0, PAGES, 1), torch.arange(tokens)
        ours = torch.tensor(table_of(number, tokens, "decode"))[token // D.page_size], token % D.page_size
        sent = torch.tensor(table_of(number, tokens, "prefill"))[token // P.page_size], token % P.page_size
        pairs = zip((*self.pool.k, *self.pool.v), (*theirs.k, *theirs.v), strict=True)
        # As bytes: noise has numbers that are none, which equal nothing.
        return all(torch.equal(mine.view(torch.uint8)[ours], other.view(torch.uint8)[sent]) for mine, other in pairs)

    def left(self) -> list[str]:
        """Whatever is still held of rooms, a moment after the last one."""
        until = time.monotonic() + 5.0
        while left_over(self.endpoint) and time.monotonic() < until:
            time.sleep(0.05)
        return left_over(self.endpoint)

    def lines(self) -> list[str]:
        """The state of the links, and the reports."""
        return [*self.endpoint.links(), *self.endpoint.reports()]


def table_of(number: int, tokens: int, side: str) -> list[int]:
    """A room's pages on either side, which differ."""
    size = (P if side == "prefill" else D).page_size
    return [(number * 7 + at * (5 if side == "prefill" else 3)) % PAGES for at in range(-(-tokens // size))]


if __name__ == "__main__":
    rank = HostRank(*sys.argv[1:])
    for line in sys.stdin:
        call, *args = json.loads(line)
        print(f"> {json.dumps(getattr(rank, call)(*args))}", flush=True)

"""Soak: rooms without end over one link that is never restarted, and the memory that it takes.

Two processes, an endpoint each, KV of a page; rooms go as fast as the two loops take them, so many at a time, each with
a new id. After every batch both say what they hold and how much memory they have. Flat means: the line through the
samples of the second half (what is bounded, tombstones and traces, is full by then) rises by no more than `FLAT_BYTES`
a room, and everything that can be counted is what it was after the first batch.

Each room's KV is some page of a pool of noise, chosen by the room's number, and the decode rank knows the same pool: it
compares every room, and marks the page again before the next one has it.
"""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Callable
from typing import Any

import torch

from kvproto.endpoint.decode_endpoint import DecodeEndpoint
from kvproto.endpoint.prefill_endpoint import PrefillEndpoint
from kvproto.fsm.timing import Timer
from kvproto.io.kernels.base import Pool
from kvproto.lab.bench.members import Members
from kvproto.lab.bench.pools import MARKER, mark
from kvproto.lab.torture.fleet import Carrier
from kvproto.lab.torture.rank import make_transport
from kvproto.lab.torture.result import ENOUGH, SoakResult, slope
from kvproto.layout.sharding import Layout
from kvproto.protocol.timing import Timing
from kvproto.room import Room
from kvproto.settings import Settings
from kvproto.verify.testing.holdings import holdings, resident
from kvproto.verify.testing.pools import noise

TOKENS, PAGES, AT_WORK = 32, 128, 64
LONGEST_S = 60.0
FLAT_BYTES = 4.0
#: what is looked for is memory: a machine that has other things to do must not cost the link
PATIENT = Timing(heartbeat=Timer(1.0, 120))
LAYOUT = Layout(layers=1, heads=2, k_dim=8, v_dim=8, itemsize=2, dtype="bfloat16", page_size=TOKENS, tp=1)
HALVES = Layout(layers=1, heads=2, k_dim=8, v_dim=8, itemsize=2, dtype="bfloat16", page_size=TOKENS // 2, tp=1)


def soak(
    rooms: int, carrier: Carrier, watch: Callable[[SoakResult], None] = lambda _result: None, batch: int = 5000
) -> SoakResult:
    """Carry so many rooms. RuntimeError: a rank could not, and why."""
    members, result = Members(), SoakResult(rooms=0, carrier=carrier)
    for side in "PD":
        members.start(side, 0, SoakRank, side, carrier)
    members.tell("D", "connect", *members.tell("P", "address").values())
    began, at, first = time.monotonic(), list[float](), dict[tuple[str, int], Any]()
    while result.rooms < rooms:
        count = min(batch, rooms - result.rooms)
        told = members.tell("PD", "flood", result.rooms, count)
        result.rooms += count
        result.seconds = time.monotonic() - began
        at.append(result.rooms)
        for (side, _), (rss, holds, wrong) in told.items():
            result.rss.setdefault(side, []).append(round(rss / (1 << 20), 2))
            before = first.setdefault((side, 0), holds)
            result.found += [f"{side}: {text}" for text in wrong[:ENOUGH]]
            result.found += [f"{side}: {k}: {before[k]} at first, {v} now" for k, v in holds.items() if v != before[k]]
        watch(result)
        if result.found:
            break
    members.tell("PD", "end")
    result.rooms_a_second = round(result.rooms / result.seconds, 1)
    for side, mib in result.rss.items():
        result.slope[side] = round(slope(at, [each * (1 << 20) for each in mib]), 3)
        if result.slope[side] > FLAT_BYTES:
            result.found.append(f"{side}: {result.slope[side]} bytes a room, more than {FLAT_BYTES}")
    return result


class SoakRank:
    """One of the two processes."""

    def __init__(self, side: str, carrier: Carrier, keys: str | None = None) -> None:
        self.prefill = side == "P"
        layout = HALVES if self.prefill else LAYOUT
        self.truth = noise(LAYOUT, 0, PAGES, 1)
        self.pool: Pool = noise(layout, 0, PAGES * TOKENS // layout.page_size, 1)
        if not self.prefill:
            mark(self.pool)
        make: Callable[..., Any] = PrefillEndpoint if self.prefill else DecodeEndpoint
        settings = Settings(timing=PATIENT, ring_bytes=8 << 20, slots=16, costs="free")
        self.endpoint = make(
            layout, 0, self.pool, make_transport(carrier), chunk_tokens=TOKENS, settings=settings, keys=keys
        )
        self.free = list(range(PAGES))
        self.pages: dict[Room, int] = {}
        self.wrong: list[str] = []
        gc.collect()
        gc.freeze()

    def idle(self) -> None:
        if not self.endpoint.poll():
            self.endpoint.wait(0.001)

    def end(self) -> None:
        self.endpoint.close()

    def address(self) -> str:
        return str(self.endpoint.address)

    def connect(self, address: str) -> None:
        """Call the prefill rank, and wait until the link is up."""
        self.endpoint.connect(HALVES, [address])
        limit = time.monotonic() + LONGEST_S
        while not self.endpoint.ready():
            self.idle()
            if time.monotonic() > limit:
                raise TimeoutError(str(self.endpoint.reports()))

    def flood(self, first: int, count: int) -> tuple[int, dict[str, object], list[str]]:
        """Carry so many rooms: (resident bytes, holdings, what is wrong). TimeoutError: none is released."""
        opened = gone = 0
        limit = time.monotonic() + LONGEST_S
        while gone < count:
            while opened < count and len(self.pages) < AT_WORK:
                self._open(first + opened)
                opened += 1
            moved = self.endpoint.poll()
            for outcome in self.endpoint.finished():
                self._finished(outcome)
            for room in self.endpoint.released():
                page = self.pages.pop(room)
                gone, limit = gone + 1, time.monotonic() + LONGEST_S
                if not self.prefill:
                    self.free.append(page)
            if not moved:
                self.endpoint.wait(0.001)
            if time.monotonic() > limit:
                raise TimeoutError("\n".join(self.endpoint.explain(room) for room in self.pages))
        return resident(), holdings(self.endpoint), self.wrong

    def rest(self, seconds: float) -> None:
        limit = time.monotonic() + seconds
        while time.monotonic() < limit:
            self.idle()

    def look(self) -> dict[str, Any]:
        held, counted = holdings(self.endpoint), self.endpoint.metrics()
        return {"holds": held, "metrics": counted, "rss": round(resident() / (1 << 20), 1)}

    def _open(self, number: int) -> None:
        room = Room(number)
        page = source_of(number) if self.prefill else self.free.pop()
        self.pages[room] = page
        if self.prefill:  # it only reads: several rooms may have one page
            self.endpoint.open(room, TOKENS, [2 * page, 2 * page + 1])
            self.endpoint.produced(room, TOKENS)
            self.endpoint.aux(room, b"token")
        else:
            self.endpoint.open(room, TOKENS, [page])

    def _finished(self, outcome: Any) -> None:
        page = self.pages[outcome.room]
        if not outcome.ok:
            self.wrong.append(f"{outcome.room}: {outcome.cause.name}: {outcome.reason}")
        elif not self.prefill:
            source = source_of(outcome.room.id)
            for ours, theirs in zip(self.pool.k + self.pool.v, self.truth.k + self.truth.v, strict=True):
                if not torch.equal(ours[page].view(torch.uint8), theirs[source].view(torch.uint8)):
                    self.wrong.append(f"{outcome.room}: wrong bytes")
                ours[page].view(torch.uint8).fill_(MARKER)


def source_of(number: int) -> int:
    """The page of the prefill pool that this room's KV is."""
    return random.Random(number).randrange(PAGES)

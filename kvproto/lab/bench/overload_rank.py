"""One endpoint of the overload benchmark: a process that carries rooms, and counts what became of them."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kvproto.endpoint.decode_endpoint import DecodeEndpoint
from kvproto.endpoint.prefill_endpoint import PrefillEndpoint
from kvproto.io.transports.nixl import NixlTransport
from kvproto.layout.sharding import Layout
from kvproto.room import Room
from kvproto.settings import Settings
from kvproto.verify.testing.pools import noise

#: tokens and chunks of a room of the load; bytes of a chunk's region; regions that the ring has
CHUNK_TOKENS, CHUNKS = 64, 4
CHUNK_BYTES = CHUNK_TOKENS * 4 * 4 * 128 * 2
RING_CHUNKS, SLOTS = 4, 2
#: pages of a pool: rooms share them, since nobody looks at the bytes here
PAGES = 1024
#: seconds after which something hangs
LONGEST_S = 300.0


def layout(tp: int, page: int) -> Layout:
    return Layout(layers=4, heads=4, k_dim=64, v_dim=64, itemsize=2, dtype="bfloat16", page_size=page, tp=tp)


def without_core() -> float:
    """Seconds for which this thread had work and no core; 0 where the system does not count them."""
    try:
        return 1e-9 * int(Path("/proc/thread-self/schedstat").read_text("ascii").split()[1])
    except (OSError, IndexError, ValueError):
        return 0.0


class OverloadRank:
    """One endpoint."""

    def __init__(self, side: str, index: int) -> None:
        self.prefill = side == "P"
        mine = layout(2, 16) if self.prefill else layout(1, 32)
        self.page = mine.page_size
        settings = Settings(ring_bytes=RING_CHUNKS * CHUNK_BYTES, slots=SLOTS, costs="free")
        make: Callable[..., Any] = PrefillEndpoint if self.prefill else DecodeEndpoint
        self.endpoint = make(
            mine, index, noise(mine, index, PAGES, 1), NixlTransport(), chunk_tokens=CHUNK_TOKENS, settings=settings
        )

    def idle(self) -> None:
        if not self.endpoint.poll():
            self.endpoint.wait(0.002)

    def end(self) -> None:
        self.endpoint.close()

    def address(self) -> str:
        return str(self.endpoint.address)

    def connect(self, addresses: list[str]) -> None:
        self.endpoint.connect(layout(2, 16), addresses)
        self._drive(self.endpoint.ready)

    def carry(self, first: int, rooms: int, live: int) -> dict[str, Any]:
        """So many rooms from this id on, `live` of them open at a time."""
        opened = gone = failed = 0
        pages, begin = self._by_pages(), time.monotonic()
        while gone < rooms:
            while opened < rooms and opened - gone < live:
                self._open(Room(first + opened), CHUNKS)
                opened += 1
            moved = self.endpoint.poll()
            failed += sum(not outcome.ok for outcome in self.endpoint.finished())
            gone += len(self.endpoint.released())
            self._rest(moved, begin)
        return {"begin": begin, "end": time.monotonic(), "failed": failed, "by_pages": self._by_pages() - pages}

    def pace(self, first: int, rooms: int, pace: float, start: float, huge: int) -> dict[str, Any]:
        """Small rooms `pace` seconds apart from `start` on (the host's monotonic clock), beside a huge one if asked.

        `coreless` is the part of the time for which it had work and no core, `cpu` what it took of one while there were
        small rooms.  A decode rank tells chunks of the huge
        one a second, too: while there were small ones (`beside`), and when they were over (`by_itself`; 0: it was over
        before them).
        """
        due, gone, failed, coreless = 0, 0, 0, without_core()
        took: list[float] = []
        entered = began = last = whole = time.monotonic()
        worked = spent = time.process_time()
        first_chunk = then = self._scatters()
        if huge:
            self._open(Room(first + rooms), huge)
        while gone < rooms + bool(huge):
            now = time.monotonic()
            while due < rooms and now >= start + due * pace:
                if not due:
                    began, first_chunk, worked = now, self._scatters(), time.process_time()
                self._open(Room(first + due), 1)
                due += 1
            moved = self.endpoint.poll()
            for outcome in self.endpoint.finished():
                failed += not outcome.ok
                at = outcome.room.id - first
                if at < rooms:
                    last, then, spent = time.monotonic(), self._scatters(), time.process_time()
                    took.append(last - (start + at * pace))
                else:
                    whole = time.monotonic()
            gone += len(self.endpoint.released())
            self._rest(moved, start)
        beside = (then - first_chunk - rooms) / (last - began)
        by_itself = (self._scatters() - then) / (whole - last) if whole > last else 0.0
        coreless = (without_core() - coreless) / (time.monotonic() - entered)
        cpu = (spent - worked) / (last - began)
        return {
            "took": took, "failed": failed, "beside": beside, "by_itself": by_itself, "coreless": coreless, "cpu": cpu
        }  # fmt: skip

    def _open(self, room: Room, chunks: int) -> None:
        tokens = chunks * CHUNK_TOKENS
        pages = [(room.id + i) % PAGES for i in range(tokens // self.page)]
        self.endpoint.open(room, tokens, pages)
        if self.prefill:
            self.endpoint.produced(room, tokens)
            self.endpoint.aux(room, b"token")

    def _scatters(self) -> int:
        return int(self.endpoint.metrics().get("scatters", 0))

    def _by_pages(self) -> int:
        return int(self.endpoint.metrics().get("slices", 0))

    def _drive(self, over: Callable[[], bool]) -> None:
        begin = time.monotonic()
        while not over():
            self._rest(self.endpoint.poll(), begin)

    def _rest(self, moved: bool, since: float) -> None:
        if not moved:
            self.endpoint.wait(0.002)
        if time.monotonic() > since + LONGEST_S:
            raise TimeoutError(str(self.endpoint.reports()[-3:]))


class Stranger:
    """A process that knows nothing of rooms, and takes what it is told to of a core."""

    def __init__(self) -> None:
        self.part = 0.0

    def idle(self) -> None:
        time.sleep(0.002)

    def end(self) -> None:
        """Nothing is to be closed."""

    def take(self, part: float) -> None:
        """What part of a core, from now on."""
        self.part = part

    def pace(self, _first: int, rooms: int, pace: float, start: float, _huge: int) -> None:
        """Compute while small rooms come, a millisecond at a time."""
        time.sleep(max(0.0, start - time.monotonic()))
        began, spent = time.monotonic(), time.process_time()
        while self.part and (now := time.monotonic()) < start + rooms * pace:
            if time.process_time() - spent > self.part * (now - began):
                time.sleep(0.001)
            else:
                while time.monotonic() < now + 0.001:
                    pass

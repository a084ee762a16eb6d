"""The endpoint of the churn benchmark: instances of the other side come to it, and go.

Whatever an endpoint keeps by link, group or peer is one of its *books*; what stands in them is counted by walking
through the objects that make it up, so that a book that somebody adds is counted, too.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sized
from typing import Any, Self

from msgspec.structs import replace

from kvproto.endpoint.decode_endpoint import DecodeEndpoint
from kvproto.endpoint.endpoint import Endpoint
from kvproto.endpoint.prefill_endpoint import PrefillEndpoint
from kvproto.fsm.timing import Timer
from kvproto.io.transports.fabric import Fabric
from kvproto.io.transports.memory import MemoryTransport
from kvproto.layout.sharding import Layout
from kvproto.protocol.timing import Timing
from kvproto.room import Room
from kvproto.settings import Settings
from kvproto.verify.testing.access import inside
from kvproto.verify.testing.pools import noise

#: a link is lost after as long as by default, and let go of four times as soon
TIMING = Timing(heartbeat=Timer(0.25, 20))
SETTINGS = Settings(ring_bytes=1 << 16, slot_bytes=1 << 12, tombstones=64, timing=TIMING)
CHUNK_TOKENS, PAGES = 8, 8
#: the first number of the groups that come
FIRST = 1000
#: what is counted by the second is cleared by then
SECOND_S = 1.1
#: what was said last is heard by then
TOLD_S = 0.1
#: seconds after which something hangs
LONGEST_S = 60.0
#: books that are bounded by a number of their own, and that count kinds of things
BOUNDED = {"tombs", "trace", "reports", "_equals", "timer_ends", "entered", "counts", "heard",
           "said", "_unheard", "_summed", "_out"}  # fmt: skip


def held_layout() -> Layout:
    """One rank, hardly any KV."""
    return Layout(layers=1, heads=2, k_dim=8, v_dim=8, itemsize=2, dtype="bfloat16", page_size=CHUNK_TOKENS, tp=1)


class ChurnEndpoint:
    """One endpoint of a side ("D" or "P"), with so many links at most, and those of the other while they are there."""

    def __init__(self, side: str, links: int) -> None:
        self.side, self.fabric, self.settings = side, Fabric(auto=True), replace(SETTINGS, links=links)
        self.endpoint: Any = self._make(side, 1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.endpoint.close()

    def _make(self, side: str, group: int) -> Endpoint:
        layout, make = held_layout(), DecodeEndpoint if side == "D" else PrefillEndpoint
        pool, transport = noise(layout, 0, PAGES, 1), MemoryTransport(self.fabric)
        return make(layout, 0, pool, transport, chunk_tokens=CHUNK_TOKENS, group=group, settings=self.settings)

    def drive(self, over: Callable[[], bool], seconds: float = LONGEST_S, others: tuple[Any, ...] = ()) -> bool:
        """Poll until it is over, or so many seconds have passed; whether it is over."""
        end = time.monotonic() + seconds
        while not over():
            moved = self.endpoint.poll()
            for other in others:
                moved |= other.poll()
            if not moved:
                self.endpoint.wait(0.0005 if others else max(0.0, end - time.monotonic()))
            if time.monotonic() >= end:
                return False
        return True

    def _arrive(self, first: int, count: int) -> tuple[Any, ...]:
        """So many instances of the other side, linked to the endpoint."""
        groups = range(FIRST + first, FIRST + first + count)
        others: tuple[Any, ...] = tuple(self._make("P" if self.side == "D" else "D", group) for group in groups)
        for group, other in zip(groups, others, strict=True):
            decode, prefill = (self.endpoint, other) if self.side == "D" else (other, self.endpoint)
            decode.connect(held_layout(), [prefill.address], group=group if self.side == "D" else 1)
        ready = [(lambda g=group: self.endpoint.ready(g)) if self.side == "D" else other.ready
                 for group, other in zip(groups, others, strict=True)]  # fmt: skip
        self._must(lambda: all(each() for each in ready), others)
        return others

    def departures(self, first: int, count: int) -> None:
        """So many instances come, and end without a word."""
        for at in range(first, first + count, 25):
            for other in self._arrive(at, min(25, first + count - at)):
                other.close()

    def visits(self, first: int, count: int) -> None:
        """So many instances come, carry a room each, are let go of, and end."""
        others = self._arrive(first, count)
        for at, other in enumerate(others, FIRST + first):
            decode, prefill = (self.endpoint, other) if self.side == "D" else (other, self.endpoint)
            room, group = Room(at), at if self.side == "D" else 1
            decode.open(room, CHUNK_TOKENS, [1], group=group)
            prefill.open(room, CHUNK_TOKENS, [1], group=inside(decode).rank.group)
            prefill.produced(room, CHUNK_TOKENS)
            prefill.aux(room, b"x")
        ends, over = (self.endpoint, *others), Counter[int]()

        def all_over() -> bool:
            for end in ends:
                bad = [outcome for outcome in end.finished() if not outcome.ok]
                if bad:
                    raise RuntimeError(str(bad))
                over[id(end)] += len(end.released())
            return over[id(self.endpoint)] == count and all(over[id(other)] == 1 for other in others)

        self._must(all_over, others)
        if self.side == "D":
            for group in range(FIRST + first, FIRST + first + count):
                self.endpoint.disconnect(group)
            self._must(lambda: not inside(self.endpoint).rank.links, others)
        else:  # their links stay until others need the room
            for other in others:
                other.disconnect()
            self._must(lambda: not any(inside(other).rank.links for other in others), others)
            self.drive(lambda: False, TOLD_S)
        for other in others:
            other.close()

    def _must(self, over: Callable[[], bool], others: tuple[Any, ...]) -> None:
        if not self.drive(over, LONGEST_S, others):
            raise TimeoutError(str([*self.endpoint.links()[:3], *self.endpoint.reports()[-3:]]))

    def books(self) -> Counter[str]:
        """By name: how much stands in each of the endpoint's books."""
        found: Counter[str] = Counter()
        self.drive(lambda: False, SECOND_S)
        for name, book in _books(self.endpoint, {id(self.fabric)}):
            found[name] += len(book)
        return found


def _books(owner: Any, seen: set[int]) -> Iterator[tuple[str, Sized]]:
    if id(owner) in seen or type(owner).__module__.partition(".")[0] != "kvproto":
        return
    seen.add(id(owner))
    names = getattr(owner, "__dict__", {})
    for name, value in list(names.items()):
        if name in BOUNDED:
            continue
        if isinstance(value, dict | set | list | deque):
            yield f"{type(owner).__name__}.{name}", value
        else:
            yield from _books(value, seen)

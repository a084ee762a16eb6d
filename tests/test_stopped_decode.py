"""A stopped decode rank keeps the slots of writes to it, and takes no time from others' rooms."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest
from support.stories import layout

from kvproto import DecodeEndpoint, Outcome, PrefillEndpoint, Room, Settings
from kvproto.io.clock import ManualClock
from kvproto.io.transports.fabric import Fabric
from kvproto.io.transports.memory import MemoryTransport
from kvproto.rank.prefill import PrefillRank
from kvproto.settings import Route
from kvproto.verify.testing import inside
from kvproto.verify.testing.pair import TICK_S
from kvproto.verify.testing.pools import noise

CHUNK_TOKENS, PAGES, CHUNKS = 8, 64, 6
PAGE = layout(1).page_size
STOPS, WORKS = 2, 3
#: seconds in which something has to happen, and in which nothing does where nothing will
LONGEST_S, STILL_S = 10.0, 0.5


class Trio(NamedTuple):
    """A prefill rank, and decode ranks of two groups, of which one is to stop; their clocks stand still."""

    fabric: Fabric
    prefill: PrefillEndpoint
    decodes: dict[int, DecodeEndpoint]

    def open(self, number: int, group: int, chunks: int) -> Room:
        """A room of this decode group whose KV is computed."""
        room, tokens = Room(number), chunks * CHUNK_TOKENS
        pages = [number * 16 + page for page in range(tokens // PAGE)]
        self.decodes[group].open(room, tokens, pages)
        self.prefill.open(room, tokens, pages, group=group)
        self.prefill.produced(room, tokens)
        self.prefill.aux(room, b"row")
        return room

    def turn(self, stopped: int = 0) -> bool:
        """One pass of each rank that runs; whether something happened."""
        moved = self.prefill.poll()
        for group, decode in self.decodes.items():
            if group != stopped:
                moved |= decode.poll()
        return moved

    def until(self, done: Callable[[], bool], stopped: int = 0) -> bool:
        """Whether this comes to pass before all ranks that run are still."""
        moved = begun = time.monotonic()
        while not done():
            if self.turn(stopped):
                moved = time.monotonic()
            elif time.monotonic() - moved > STILL_S:
                return False
            else:
                time.sleep(TICK_S)
            assert time.monotonic() - begun < LONGEST_S
        return True


@pytest.fixture(params=["cost", "staged", "pages"])
def trio(request: pytest.FixtureRequest) -> Iterator[Trio]:
    yield from made(request.param)


def made(route: Route) -> Iterator[Trio]:
    settings = Settings(ring_bytes=1 << 20, slot_bytes=1 << 14, slots=2, page_writes=2, route=route)
    fabric = Fabric(auto=True)
    prefill = PrefillEndpoint(
        layout(1), 0, noise(layout(1), 0, PAGES, 1), MemoryTransport(fabric), chunk_tokens=CHUNK_TOKENS,
        settings=settings,
        clock=ManualClock(1000.0),
    )  # fmt: skip
    decodes = {
        group: DecodeEndpoint(
            layout(1), 0, noise(layout(1), 0, PAGES, 2), MemoryTransport(fabric), chunk_tokens=CHUNK_TOKENS,
            group=group,
            settings=settings, clock=ManualClock(1000.0),
        )
        for group in (STOPS, WORKS)
    }  # fmt: skip
    trio = Trio(fabric, prefill, decodes)
    for decode in decodes.values():
        decode.connect(layout(1), [prefill.address])
    try:
        while not all(decode.ready() for decode in decodes.values()):
            trio.turn()
        yield trio
    finally:
        for endpoint in (*decodes.values(), prefill):
            endpoint.close()


def ends_beside_a_stopped_rank(trio: Trio) -> bool:
    """Whether the working decode rank's room ends while writes to the other hang and no clock moves."""
    trio.open(1, STOPS, CHUNKS)
    rank = inside(trio.prefill).rank
    trio.fabric.stall(inside(trio.decodes[STOPS]).data.transport.instance)
    waits = trio.until(lambda: bool(rank.slot_queue or rank.permit_queue))
    assert waits, "some part waits, and no write to the stopped rank ends"
    room, ended = trio.open(2, WORKS, CHUNKS), list[Outcome]()

    def over() -> bool:
        ended.extend(trio.decodes[WORKS].finished())
        return bool(ended)

    trio.until(over, STOPS)
    return [(each.room, each.ok) for each in ended] == [(room, True)]


def test_a_decode_rank_that_stops_leaves_a_slot_and_a_permit_to_the_others(trio: Trio) -> None:
    assert ends_beside_a_stopped_rank(trio)


def test_without_the_rule_for_the_last_one_it_has_all(trio: Trio, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PrefillRank, "_barred", lambda *_: None)
    assert not ends_beside_a_stopped_rank(trio)

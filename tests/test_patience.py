"""A room whose KV is there never waits for another room's forward: endpoints, NIXL, simulated time.

The ring has space for one chunk.  One room's forward is scheduled and takes as long as it likes; it holds nothing of
the ring meanwhile, so the other room's chunk goes through the ring at once.  Whether that happens does not depend on
how fast anything is: only on who asks first.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import pytest
import torch

from kvproto import DecodeEndpoint, Layout, NixlTransport, Outcome, PrefillEndpoint, Room, Settings
from kvproto.io.clock import ManualClock
from kvproto.io.transports.fabric import Fabric
from kvproto.protocol.states import Cause, PSend
from kvproto.protocol.timing import Timing
from kvproto.rank.decode import DecodeRank
from kvproto.settings import PREFILL_GROUP, Route
from kvproto.verify.testing import inside
from kvproto.verify.testing.pair import Pair
from kvproto.verify.testing.pools import noise

LAYOUT = Layout(layers=2, heads=2, k_dim=32, v_dim=16, itemsize=2, dtype="bfloat16", page_size=16, tp=1)
CHUNK_TOKENS, CHUNK = 64, 64 * 2 * 2 * (32 + 16) * 2
#: all by the ring, as long as there is patience
SETTINGS = Settings(ring_bytes=CHUNK, slot_bytes=CHUNK, costs="free")
#: seconds that a manual clock moves in one step
STEP = 0.05


def test_a_room_whose_kv_is_there_has_the_ring_while_another_room_s_forward_runs() -> None:
    prefill = PrefillEndpoint(
        LAYOUT, 0, noise(LAYOUT, 0, 8, 1), NixlTransport(), chunk_tokens=CHUNK_TOKENS, settings=SETTINGS
    )
    decode = DecodeEndpoint(
        LAYOUT, 0, noise(LAYOUT, 0, 8, 2), NixlTransport(), chunk_tokens=CHUNK_TOKENS, settings=SETTINGS
    )
    computes, ready = Room(1), Room(2)
    pages = {computes: [0, 2, 4, 6], ready: [7, 5, 3, 1]}
    outcomes: dict[Room, Outcome] = {}

    def until(happened: Callable[[], object]) -> None:
        end = time.monotonic() + 20
        while not happened():
            assert time.monotonic() < end
            if not prefill.poll() + decode.poll():
                time.sleep(50e-6)
            outcomes.update({each.room: each for each in decode.finished()})

    def sent() -> tuple[int, int]:
        """Writes into the ring, and parts that went page to page."""
        counts = prefill.metrics()
        return counts["writes"], counts["direct"]

    try:
        decode.connect(LAYOUT, [prefill.address])
        for room in (computes, ready):
            decode.open(room, CHUNK_TOKENS, pages[room][::-1])
            prefill.open(room, CHUNK_TOKENS, pages[room])
            prefill.prefetch(room)
        until(lambda: "AWAIT_KV (waits" in str(prefill.explain(computes)))
        for count, room in enumerate((ready, computes), 1):
            prefill.produced(room, CHUNK_TOKENS)
            prefill.aux(room, b"a row")
            until(partial(outcomes.__contains__, room))
            assert outcomes[room].ok and len(outcomes) == count and sent() == (count, 0)
        for ours, theirs in zip([*prefill.pool.k, *prefill.pool.v], [*decode.pool.k, *decode.pool.v], strict=True):
            for room in (computes, ready):
                assert torch.equal(ours[pages[room]].view(torch.int16), theirs[pages[room][::-1]].view(torch.int16))
    finally:
        decode.close()
        prefill.close()


class Clocks(list[ManualClock]):
    """The endpoints' clocks: they stand still but for `advance`."""

    def __call__(self) -> ManualClock:
        self.append(ManualClock(1000.0))
        return self[-1]

    def advance(self, seconds: float) -> None:
        for each in self:
            each.advance(seconds)


@pytest.mark.parametrize("seconds", [4.0, 12.0, Timing().lease.period + 5.0])
@pytest.mark.parametrize("route", ["staged", "cost"])
@pytest.mark.parametrize(("ring", "chunks"), [(12, 17), (1, 4)])
def test_a_prefetched_room_costs_a_ready_one_no_time_however_long_its_forward_is(
    route: Route, seconds: float, ring: int, chunks: int
) -> None:
    """More chunks are computed than the ring has space for, before a forward that outlasts every patience."""
    clocks = Clocks()

    def layout(tp: int) -> Layout:
        return Layout(layers=2, heads=4, k_dim=8, v_dim=8, itemsize=2, dtype="bfloat16", page_size=4, tp=tp)

    chunk, tokens = 8 * 2 * 4 * 16 * 2, chunks * 8
    settings = Settings(ring_bytes=ring * chunk, slot_bytes=chunk, route=route)
    with Pair(layout(2), layout(1), chunk_tokens=8, pages=512, settings=settings, clock=clocks) as pair:

        def run(length: float) -> None:
            for _ in range(round(length / STEP)):
                clocks.advance(STEP)
                for _ in range(10):
                    pair.turn()

        ready, computes = pair.name(tokens), pair.name(tokens)
        for room in (ready, computes):
            pair.open_decode(room)
            for prefill in pair.prefills:
                prefill.open(room, tokens, pair.tables[room][0])
        run(0.5)
        for prefill in pair.prefills:
            prefill.prefetch(computes)
        pair.produce(ready)
        pair.pump(lambda: len(pair.outcomes) == 3)  # while no clock moves
        assert all(outcome.ok for outcome in pair.outcomes.values())
        run(seconds)
        assert not any(room == computes for _, _, room in pair.outcomes)
        pair.produce(computes)
        run(0.5)
        pair.pump(lambda: len(pair.outcomes) == 6)
        assert all(outcome.ok for outcome in pair.outcomes.values())
        assert [prefill.metrics()["pages"] + prefill.metrics()["direct"] for prefill in pair.prefills] == [0, 0]


@pytest.mark.parametrize("route", ["staged", "cost"])
@pytest.mark.parametrize(("writers", "window"), [(8, 1), (2, Settings().window)])
def test_a_room_in_unequal_layer_groups_goes_through_a_ring_for_one_cell(
    route: Route, writers: int, window: int
) -> None:
    """A group of three layers and one of two: no chunk waits for a smaller one of its own room."""

    def layout(tp: int) -> Layout:
        return Layout(layers=5, heads=16, k_dim=8, v_dim=8, itemsize=2, dtype="bfloat16", page_size=4, tp=tp)

    tokens, cell = 5 * 8 - 3, 8 * 5 * 16 * 16 * 2
    settings = Settings(ring_bytes=cell, slots=2, window=window, route=route, layer_groups=2)
    with Pair(layout(writers), layout(1), chunk_tokens=8, settings=settings, clock=Clocks()) as pair:
        rooms = [pair.name(tokens) for _ in range(3)]
        for room in rooms:
            pair.decodes[0].open(room, tokens, pair.tables[room][1], group=PREFILL_GROUP, layer_groups=2)
            pair.open_prefill(room)
            for _ in range(20):
                pair.turn()
            pair.finish(room)
            assert pair.causes(room) == {Cause.NONE}
        pair.check(*rooms)


def ends_beside_a_huge_room() -> bool:
    """Whether a small room ends while a huge one fills the ring and none of its writes ends."""

    def layout(tp: int) -> Layout:
        return Layout(layers=2, heads=4, k_dim=8, v_dim=8, itemsize=2, dtype="bfloat16", page_size=4, tp=tp)

    chunk, regions = 8 * 2 * 4 * 16 * 2, 6
    ring, fabric = regions * chunk, Fabric()
    settings = Settings(ring_bytes=ring, slot_bytes=chunk, slots=2 * regions, window=2 * regions, route="staged")
    with Pair(
        layout(1), layout(1), chunk_tokens=8, pages=512, settings=settings, fabric=fabric, clock=Clocks()
    ) as pair:
        data, rank = inside(pair.prefills[0]).data, inside(pair.prefills[0]).rank
        huge = pair.open(3 * regions * 8)
        pair.produce(huge)
        pair.pump(lambda: sum(map(len, data.writes.flying.values())) >= regions - 1)
        hang = set(data.writes.flying)
        small = pair.open(8)
        pair.produce(small)

        def ended_or_waits() -> bool:
            for step in fabric.options():
                if step.handle not in hang:
                    fabric.take(step)
            sends = rank.sends.get(small.key, {}).values()
            return pair.over(small) or any(send.state in (PSend.AWAIT_TURN, PSend.AWAIT_WATERMARK) for send in sends)

        pair.pump(ended_or_waits)
        ended = pair.over(small)
        assert not pair.over(huge)
        fabric.auto = True
        pair.pump(lambda: pair.over(huge) and pair.over(small))
        assert pair.causes(huge) == pair.causes(small) == {Cause.NONE}
    return ended


def test_a_huge_room_leaves_a_region_of_the_ring_to_a_small_one(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ends_beside_a_huge_room()
    monkeypatch.setattr(DecodeRank, "share", lambda rank, *_: rank.ring.size)
    assert not ends_beside_a_huge_room(), "planted: a room may hold the whole ring"

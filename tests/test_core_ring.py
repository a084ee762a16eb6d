from __future__ import annotations

import itertools
from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvproto.protocol.ring import Ring, RingRegion, usable

SIZE = 100
moves = st.lists(st.one_of(st.integers(1, SIZE), st.integers(-8, -1)), max_size=60)


def test_a_region_is_usable_up_to_the_watermark_of_the_round_before() -> None:
    assert usable(0, 99, (0, 0)) and usable(1, 64, (0, 64)) and not usable(1, 65, (0, 64))
    assert usable(2, 99, (2, 0)) and usable(2, 64, (1, 64)) and not usable(2, 64, (1, 63)) and not usable(3, 1, (1, 64))


def test_the_ring_of_100_units_becomes_usable_again_when_it_is_empty() -> None:
    ring = Ring(SIZE)
    first = ring.reserve(60)
    assert first == RingRegion(1, 0, 0, 60)
    assert usable(first.round, first.end, ring.mark)
    assert ring.free(1) == []
    assert ring.mark == (1, 0), "an empty ring begins a new round, and says so"
    again = ring.reserve(70)
    assert again is not None and again.end - again.offset == 70
    assert usable(again.round, again.end, ring.mark), "nothing else has to be freed for it"


def test_what_wraps_waits_for_what_it_covers_and_for_nothing_more() -> None:
    ring = Ring(SIZE)
    low, high = ring.reserve(50), ring.reserve(40)
    wrapped = ring.reserve(30)
    assert low is not None and high is not None
    assert wrapped == RingRegion(3, 1, 0, 30) and not usable(1, 30, ring.mark)
    assert ring.free(high.grant) == [], "the oldest decides"
    assert ring.free(low.grant) == [wrapped.grant]
    assert ring.mark == (1, 0)


def test_promises_stop_at_the_bound_and_go_on_after_a_free() -> None:
    ring = Ring(SIZE, ahead=1)
    first = ring.reserve(80)
    assert first is not None
    assert ring.reserve(80) is not None, "one round ahead"
    assert ring.reserve(80) is None, "two rounds ahead"
    ring.free(first.grant)
    assert ring.reserve(80) is not None


@pytest.mark.parametrize("size", [0, -1, SIZE + 1])
def test_what_never_fits_is_refused_with_the_remedy(size: int) -> None:
    with pytest.raises(ValueError, match="slice route"):
        Ring(SIZE).reserve(size)


def test_a_region_is_freed_once() -> None:
    ring = Ring(SIZE)
    ring.reserve(10)
    held = ring.reserve(10)
    assert held is not None
    ring.free(held.grant)
    for grant in (held.grant, 99):
        with pytest.raises(KeyError, match="not live"):
            ring.free(grant)


class Model:
    """The ring as it is meant: which bytes are whose, told from nothing but what was granted and freed."""

    def __init__(self, ahead: int) -> None:
        self.ring = Ring(SIZE, ahead=ahead)
        self.live: deque[RingRegion] = deque()
        self.writable: set[int] = set()
        self.order: list[int] = []

    def reserve(self, size: int) -> None:
        region = self.ring.reserve(size)
        if region is None:
            assert self.live, "an empty ring has room"
            return
        assert region.offset >= 0 and region.end - region.offset == size and region.end <= SIZE
        self.live.append(region)
        self._told([region.grant] if usable(region.round, region.end, self.ring.mark) else [])

    def free(self, at: int) -> None:
        region = self.live[at % len(self.live)]
        mark = self.ring.mark
        told = self.ring.free(region.grant)
        self.live.remove(region)
        self.writable.discard(region.grant)
        assert self.ring.mark >= mark, "the watermark never falls"
        self._told([grant for grant in told if grant not in self.writable])

    def _told(self, grants: list[int]) -> None:
        for grant in grants:
            self.writable.add(grant)
            self.order.append(grant)
        self.check()

    def check(self) -> None:
        now = [r for r in self.live if usable(r.round, r.end, self.ring.mark)]
        assert {r.grant for r in now} == self.writable, "who may write is who was told, no sooner and no later"
        spans = sorted((r.offset, r.end) for r in now)
        assert all(a[1] <= b[0] for a, b in itertools.pairwise(spans)), f"two writable regions overlap: {now}"
        waiting = [r.grant for r in self.live if r.grant not in self.writable]
        assert not waiting or not self.writable or min(waiting) > max(self.writable), "regions become usable in order"
        if self.live:
            assert self.live[0].grant in self.writable, "the oldest region may always be written"
            assert self.ring.mark == (self.live[0].round, self.live[0].offset)
        assert self.ring.used == sum(r.end - r.offset for r in self.live)


@given(moves, st.integers(1, 3))
def test_writable_regions_never_overlap_and_come_in_order(steps: list[int], ahead: int) -> None:
    model = Model(ahead)
    for step in steps:
        if step > 0:
            model.reserve(step)
        elif model.live:
            model.free(-step - 1)
    assert model.order == sorted(model.order)
    while model.live:
        model.free(0)
    assert not (model.ring.live or model.ring.freed or model.ring.blocked)


@given(moves, st.integers(1, 3))
def test_a_late_watermark_only_delays(steps: list[int], ahead: int) -> None:
    """A writer that knows an older watermark never takes a region for usable that is not."""
    model, marks = Model(ahead), [(0, 0)]
    for step in steps:
        if step > 0:
            model.reserve(step)
        elif model.live:
            model.free(-step - 1)
        marks.append(model.ring.mark)
        for mark in marks[-8:]:
            assert all(r.grant in model.writable for r in model.live if usable(r.round, r.end, mark))

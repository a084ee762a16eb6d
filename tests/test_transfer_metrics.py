"""The phase `transfer` covers the transfer alone, and bytes are counted by route on both sides."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from msgspec.structs import replace
from support.stories import layout

from kvproto import Timer, Timing
from kvproto.io.clock import ManualClock
from kvproto.layout.cut import Cut
from kvproto.metrics.metrics import measure
from kvproto.verify.testing.pair import SMALL, Pair

#: tokens a chunk, and of a room: five chunks
CHUNK_TOKENS, TOKENS = 8, 40
#: links are never lost, however slow the machine
CALM = replace(SMALL, timing=Timing(heartbeat=Timer(1.0, 10_000)))


@contextmanager
def manual(route: str = "staged") -> Iterator[tuple[Pair, ManualClock]]:
    """One prefill and one decode rank on one clock that stands still unless the test moves it."""
    clock = ManualClock(10.0)
    pair = Pair(
        layout(1), layout(1), chunk_tokens=CHUNK_TOKENS, clock=lambda: clock, settings=replace(CALM, route=route)
    )
    with pair:
        yield pair, clock


def passes(pair: Pair, clock: ManualClock, seconds: int) -> None:
    """Let all happen that can, then let so many seconds pass, one at a time."""
    pair.settle()
    for _ in range(seconds):
        clock.advance(1.0)
        pair.settle(5)


def transfers(endpoint: Any) -> list[float]:
    """The number of transfers that the endpoint has timed, and their seconds."""
    found = endpoint._phases["transfer"]
    return [sum(found.counts), round(found.total, 3)]


def moved(endpoint: Any) -> dict[str, float]:
    return {each.labels[0]: each.value for each in measure(endpoint) if each.name == "kvproto_bytes"}  # type: ignore[misc]


def test_a_decode_instance_without_pages_is_no_part_of_the_transfer() -> None:
    with manual() as (pair, clock):
        room = pair.name(TOKENS)
        pair.open_prefill(room)
        pair.produce(room)
        passes(pair, clock, 30)
        pair.open_decode(room)
        pair.pump(lambda: pair.over(room))
        assert transfers(pair.prefills[0]) == [1, 0.0]


def test_an_aux_row_that_comes_late_is_no_part_of_the_transfer() -> None:
    with manual() as (pair, clock):
        room = pair.open(TOKENS)
        pair.produce(room, aux=None)
        passes(pair, clock, 20)
        pair.prefills[0].aux(room, b"row")
        pair.pump(lambda: pair.over(room))
        assert transfers(pair.prefills[0]) == [1, 0.0]


def test_the_forward_of_the_last_chunk_is_no_part_of_the_transfer() -> None:
    with manual() as (pair, clock):
        room = pair.open(TOKENS)
        pair.produce(room, TOKENS - CHUNK_TOKENS, aux=None)
        passes(pair, clock, 20)
        pair.produce(room)
        pair.pump(lambda: pair.over(room))
        assert transfers(pair.prefills[0]) == [1, 0.0]


def test_a_wire_that_takes_its_time_is_the_transfer() -> None:
    with manual() as (pair, clock):
        pair.fabric.auto = False
        room = pair.open(TOKENS)
        pair.produce(room)
        passes(pair, clock, 3)
        pair.fabric.auto = True
        pair.fabric.run()
        pair.pump(lambda: pair.over(room))
        assert transfers(pair.prefills[0]) == [1, 3.0]


@pytest.mark.parametrize(("route", "name"), [("staged", "staged"), ("pages", "pages")])
def test_bytes_are_counted_by_route_on_both_sides(route: str, name: str) -> None:
    with manual(route) as (pair, _):
        done, aborted = pair.open(TOKENS), pair.open(TOKENS)
        pair.decodes[0].abort(aborted)
        pair.finish(done)
        pair.pump(lambda: pair.over(aborted))
        share = pair.plan.writers(0)[0]
        nbytes = pair.plan.part_bytes(share, Cut(0, TOKENS))
        for endpoint in pair.endpoints:
            counts = moved(endpoint)
            assert counts.pop(name) == nbytes
            assert set(counts.values()) == {0}


def test_bytes_of_rooms_with_prefixes_and_of_two_writers_add_up() -> None:
    with Pair(layout(2), layout(1), chunk_tokens=CHUNK_TOKENS, settings=replace(SMALL, route="staged")) as pair:
        rooms = [pair.open(TOKENS), pair.open(TOKENS - 3, prefix=pair.plan.decode.page_size)]
        pair.finish(*rooms)
        whole = sum(
            pair.plan.part_bytes(share, Cut(0, tokens))
            for share in pair.plan.writers(0) for tokens in (TOKENS, TOKENS - 3 - pair.plan.decode.page_size)
        )  # fmt: skip
        assert sum(sum(moved(each).values()) for each in pair.prefills) == whole == sum(moved(pair.decodes[0]).values())

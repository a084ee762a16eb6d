"""`explain` tells since when a room waits, also when the trace has moved on to other rooms."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from msgspec.structs import replace
from support.stories import layout

from kvproto.fsm.timing import Timer
from kvproto.io.clock import ManualClock
from kvproto.protocol.timing import Timing
from kvproto.room import Room
from kvproto.verify.testing import inside
from kvproto.verify.testing.pair import SMALL, Pair

#: a short trace, and links that are never lost, however slow the machine
CALM = replace(SMALL, trace=4, timing=Timing(heartbeat=Timer(1.0, 10_000)))
#: of the wheel's slots, and of passes: how far the time that is told may be from what has passed
SLACK_S = 0.6


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(100.0)


@pytest.fixture
def pair(clock: ManualClock) -> Iterator[Pair]:
    with Pair(layout(1), layout(1), chunk_tokens=8, clock=lambda: clock, settings=CALM) as made:
        yield made


def since(pair: Pair, room: Room) -> float:
    """Seconds that the decode rank tells; the trace knows nothing of the room any more."""
    text = pair.decodes[0].explain(room)
    assert "older than the trace" in text
    found = re.search(r"since ([\d.]+) s", text)
    assert found, text
    return float(found[1])


def wait(pair: Pair, clock: ManualClock, seconds: float, step: float) -> None:
    """Time passes on the decode rank, to which nobody says anything; a timer ends up to a step late."""
    for _ in range(round(seconds / step)):
        clock.advance(step)
        for _ in range(5):
            pair.decodes[0].poll()


@pytest.mark.parametrize("seconds", [0.25, 3.0, 4.5])
def test_a_room_that_asks_again_and_again_waits_since_it_was_opened(
    pair: Pair, clock: ManualClock, seconds: float
) -> None:
    room = pair.name(20)
    inside(pair.prefills[0]).loop.hear = lambda *_: None  # type: ignore[method-assign]  # it never confirms
    pair.open_decode(room)
    pair.turn()
    wait(pair, clock, seconds, 0.05)
    inside(pair.decodes[0]).rank.trace.clear()
    assert since(pair, room) == pytest.approx(seconds, abs=SLACK_S)


def test_a_room_in_which_nothing_moves_waits_since_it_was_confirmed(pair: Pair, clock: ManualClock) -> None:
    room = pair.open(20)
    pair.pump(lambda: room in pair.decodes[0].rooms().get("OPEN", []))
    began = clock.now()
    inside(pair.decodes[0]).loop.hear = lambda *_: None  # type: ignore[method-assign]
    wait(pair, clock, 220.0, 0.25)
    assert clock.now() - began == 220.0
    inside(pair.decodes[0]).rank.trace.clear()
    assert since(pair, room) == pytest.approx(220.0, abs=2 * SLACK_S)

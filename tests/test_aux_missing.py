"""A room that lacks its aux row alone ends by its own timeout; both sides name the rank that owes it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support import passing_time as steps
from support.stories import layout

from kvproto.io.clock import ManualClock
from kvproto.protocol.states import Cause, DRoom
from kvproto.protocol.timing import Timing
from kvproto.room import Room
from kvproto.verify.testing import inside
from kvproto.verify.testing.pair import Pair

AUX_S = Timing().aux.period * (Timing().aux.tries + 1)
LAG_S = 2.0
CLOCK = ManualClock()


@pytest.fixture
def pair() -> Iterator[Pair]:
    with Pair(layout(2), layout(1), chunk_tokens=8, clock=lambda: CLOCK) as made:
        yield made


def state(pair: Pair, room: Room) -> DRoom:
    """The state of the decode rank's room."""
    value = inside(pair.decodes[0]).rank.value_of(room.key)
    assert value is not None
    return DRoom(value.state)


def open_without_row(pair: Pair, tokens: int = 30, prefix: int = 0) -> Room:
    """A room with all of its KV at the decode rank, whose aux row no engine gives."""
    room = pair.open(tokens, prefix=prefix)
    pair.produce(room, aux=None)
    pair.settle()
    return room


def test_an_aux_row_that_never_comes_ends_the_room_long_before_a_stall(pair: Pair) -> None:
    room = open_without_row(pair)
    assert state(pair, room) is DRoom.AWAIT_AUX
    steps.pass_time(pair, CLOCK, AUX_S - LAG_S)
    said = pair.decodes[0].explain(room)
    assert "every chunk in place; the aux row has not landed: prefill rank 0 owes it" in said
    assert ("D", 0, room) not in pair.outcomes
    steps.pass_time(pair, CLOCK, 2 * LAG_S)
    assert Timing().stall.period > AUX_S + LAG_S
    for side, index in (("D", 0), ("P", 0)):
        outcome = pair.outcomes[side, index, room]
        assert outcome.cause is Cause.AUX_MISSING and "prefill rank 0 owes it" in outcome.reason


def test_an_aux_row_that_comes_late_but_in_time_saves_the_room(pair: Pair) -> None:
    room = open_without_row(pair)
    steps.pass_time(pair, CLOCK, AUX_S - LAG_S)
    for endpoint in pair.prefills:
        endpoint.aux(room, b"late")
    pair.finish(room)
    assert pair.causes(room) == {Cause.NONE} and pair.outcomes["D", 0, room].aux == b"late"


def test_a_room_without_chunks_waits_for_its_forward_as_long_as_any(pair: Pair) -> None:
    room = open_without_row(pair, tokens=30, prefix=30)
    assert state(pair, room) is DRoom.OPEN
    steps.pass_time(pair, CLOCK, AUX_S + LAG_S)
    assert ("D", 0, room) not in pair.outcomes and state(pair, room) is DRoom.OPEN

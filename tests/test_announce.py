"""A decode engine without pages announces itself: the prefill engine keeps the room, and is told at
once.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.passing_time import pass_time
from support.stories import layout

from kvproto.errors import ArgumentError, NotFoundError
from kvproto.fsm.machine import Machine
from kvproto.io.clock import ManualClock
from kvproto.protocol import events as ev
from kvproto.protocol.states import Cause, DRoom
from kvproto.protocol.tables.decode_room import decode_room
from kvproto.protocol.timing import Timing
from kvproto.room import Room, Status
from kvproto.verify.testing.pair import Pair


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def pair(clock: ManualClock) -> Iterator[Pair]:
    with Pair(layout(1), layout(1), chunk_tokens=8, clock=lambda: clock) as made:
        yield made


def test_a_room_that_is_renewed_waits_and_then_goes_its_way(pair: Pair, clock: ManualClock) -> None:
    room, decode, prefill = pair.name(30), pair.decodes[0], pair.prefills[0]
    prefill.open(room, 30, within=4.0)
    prefill.prefetch(room)
    decode.announce(room, 30)
    for _ in range(5):
        pass_time(pair, clock, 3.0)
        decode.renew(room)
    assert not pair.outcomes and prefill.status(room) is Status.BOOTSTRAPPING
    assert "was announced" in decode.explain(room) and not prefill.opened_by_all(room)
    pair.open_decode(room)
    decode.renew(room)  # it is open: nothing
    pair.pump(lambda: prefill.opened_by_all(room))
    prefill.produced(room, 30, pages=pair.tables[room][0])
    prefill.aux(room, b"aux")
    pair.pump(lambda: pair.over(room))
    pair.check(room)
    assert not any(each.reports() for each in pair.endpoints)


def test_one_that_is_not_renewed_is_given_up_and_both_are_told(pair: Pair, clock: ManualClock) -> None:
    room = pair.name(30)
    pair.prefills[0].open(room, 30, within=4.0)
    pair.decodes[0].announce(room, 30)
    pass_time(pair, clock, 3.0)
    assert not pair.outcomes
    pass_time(pair, clock, 2.0)
    assert pair.outcomes["P", 0, room].cause is Cause.PEERS_MISSING
    pair.decodes[0].renew(room)
    pair.pump(lambda: pair.over(room))
    assert pair.causes(room) == {Cause.PEERS_MISSING}


def test_a_no_is_heard_before_there_are_pages(pair: Pair) -> None:
    room, decode = pair.name(30), pair.decodes[0]
    pair.prefills[0].refuse(room)
    decode.announce(room, 30)
    pair.pump(lambda: ("D", 0, room) in pair.outcomes and pair.releases["D", 0, room] == 1, seconds=5.0)
    assert pair.outcomes["D", 0, room].cause is Cause.DECLINED


def test_pages_that_come_too_late_are_the_engines_own_at_once(pair: Pair) -> None:
    room, decode = pair.name(30), pair.decodes[0]
    pair.prefills[0].refuse(room)
    decode.announce(room, 30)
    for _ in range(50):  # nothing is handed out
        for endpoint in pair.endpoints:
            endpoint.poll()
    pair.open_decode(room)
    pair.pump(lambda: ("D", 0, room) in pair.outcomes and pair.releases["D", 0, room] == 1, seconds=5.0)
    assert pair.outcomes["D", 0, room].cause is Cause.DECLINED and not decode.reports()


def test_it_is_given_up_like_any_other(pair: Pair) -> None:
    room, decode = pair.name(30), pair.decodes[0]
    decode.announce(room, 30)
    pair.prefills[0].open(room, 30)
    pair.turn()
    decode.abort(room)
    pair.pump(lambda: pair.over(room), seconds=5.0)
    assert pair.causes(room) == {Cause.DECODE_ABORTED}


def test_what_does_not_go_together_is_refused(pair: Pair) -> None:
    room, decode = pair.name(30), pair.decodes[0]
    decode.announce(room, 30)
    with pytest.raises(ArgumentError, match="was announced with 30 tokens at group 1, and is opened with 29 at 1"):
        decode.open(room, 29, pair.tables[room][1])
    with pytest.raises(ArgumentError, match="a new attempt needs a new gen"):
        decode.announce(room, 30)
    with pytest.raises(NotFoundError):
        decode.renew(Room(99))
    with pytest.raises(NotFoundError, match="prefill group 9 is not connected"):
        decode.announce(Room(98), 30, group=9)


def test_each_renewal_starts_the_time_of_the_decode_rank_s_room_anew() -> None:
    machine = Machine(decode_room, Timing())
    terms = ev.Terms(group=1, everyone=1, writes=1, aux=1, chunk_tokens=8)
    value, _ = machine.step(machine.initial, ev.RoomAnnounced(7, terms, 30), 0.0)
    again, _ = machine.step(value, ev.RoomRenewed(7), 200.0)
    assert again.state is DRoom.ANNOUNCED and again.due == value.due + 200.0


def test_a_room_that_was_announced_is_opened_once(pair: Pair) -> None:
    """The second time is refused, and the first one's pages stay."""
    room, decode = pair.name(30), pair.decodes[0]
    decode.announce(room, 30)
    pair.open_decode(room)
    ours = [page + 1 for page in pair.tables[room][1]]
    with pytest.raises(ArgumentError, match="is open"):
        decode.open(room, 30, ours)
    pair.open_prefill(room)
    pair.produce(room)
    pair.finish(room)
    pair.check(room)

"""A prefill engine refuses a room at any moment: every rank that asks for it hears so, and none waits."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from test_foreign_groups import MINE, OTHER, ROOM, TOKENS, answers, prefill, say

from kvproto.errors import ArgumentError
from kvproto.protocol import effects as do
from kvproto.protocol import events as ev
from kvproto.protocol import messages as msg
from kvproto.protocol.states import Cause
from kvproto.room import Room, Status
from kvproto.settings import Settings
from kvproto.verify.testing import inside
from kvproto.verify.testing.pair import Pair

OPEN, NO = msg.Open(TOKENS, 0), msg.Drained(Cause.DECLINED)


def refuse(pair: Pair, room: Room) -> None:
    for prefill_ in pair.prefills:
        prefill_.refuse(room)


def decode_is_told(pair: Pair, room: Room) -> None:
    pair.pump(lambda: ("D", 0, room) in pair.outcomes and pair.releases["D", 0, room] == 1, seconds=2.0)
    outcome = pair.outcomes["D", 0, room]
    assert outcome.cause is Cause.DECLINED and outcome.cause.aborted
    assert outcome.reason.endswith("said: the prefill engine said no to the room")


def test_a_refusal_is_told_in_the_words_of_the_engine(pair: Pair) -> None:
    room = pair.name(30)
    for prefill_ in pair.prefills:
        prefill_.refuse(room, why="planted")
    pair.open_decode(room)
    pair.pump(lambda: ("D", 0, room) in pair.outcomes)
    outcome = pair.outcomes["D", 0, room]
    assert outcome.cause is Cause.DECLINED and outcome.reason.endswith("said: planted")


@pytest.mark.parametrize("first", ["decode opens", "prefill refuses"])
def test_a_room_that_was_never_opened_is_over_on_the_decode_side_at_once(pair: Pair, first: str) -> None:
    room = pair.name(30)
    steps: list[Callable[[], object]] = [lambda: pair.open_decode(room), lambda: refuse(pair, room)]
    for step in steps if first == "decode opens" else reversed(steps):
        step()
        pair.settle()
    refuse(pair, room)  # again: nothing
    decode_is_told(pair, room)
    # nothing is kept but tombstones, once the last frames have come
    pair.pump(lambda: not any(inside(each).rank.rooms for each in pair.endpoints), seconds=2.0)
    assert not any(each.reports() for each in pair.endpoints)


def test_on_an_open_room_it_is_abort(pair: Pair) -> None:
    room = pair.open(30)
    pair.pump(lambda: pair.prefills[0].status(room) is Status.TRANSFERRING)
    refuse(pair, room)
    pair.pump(lambda: pair.over(room), seconds=2.0)
    assert pair.causes(room) == {Cause.DECLINED}


def test_an_engine_that_opens_it_after_all_is_told_that_it_is_over(pair: Pair) -> None:
    room = pair.name(30)
    refuse(pair, room)
    pair.open_prefill(room)
    pair.open_decode(room)
    pair.pump(lambda: pair.over(room), seconds=2.0)
    assert pair.causes(room) == {Cause.DECLINED}
    done = pair.open(30)
    pair.finish(done)
    refuse(pair, done)  # too late: it has succeeded
    pair.turn()
    assert pair.causes(done) == {Cause.NONE} and not any(each.reports() for each in pair.endpoints)


def test_it_says_why_and_not_just_anything(pair: Pair) -> None:
    room = pair.name(30)
    with pytest.raises(ArgumentError, match="refused as LINK_LOST: it is DECLINED, or PREFILL_ABORTED"):
        pair.prefills[0].refuse(room, Cause.LINK_LOST)
    for prefill_ in pair.prefills:
        prefill_.refuse(room, Cause.PREFILL_ABORTED)
    pair.open_decode(room)
    pair.pump(lambda: ("D", 0, room) in pair.outcomes, seconds=2.0)
    assert pair.causes(room) == {Cause.PREFILL_ABORTED}


def test_whoever_asks_is_told_whatever_its_group_and_its_secret() -> None:
    rank, links = prefill()
    assert rank.handle(ev.EngineRefused(ROOM, Cause.DECLINED), 0.0) == []
    for group, body in ((MINE, OPEN), (OTHER, OPEN), (OTHER, msg.Open(TOKENS, 0, b"a guess")), (MINE, OPEN)):
        assert answers(say(rank, links[group], body)) == [(links[group], NO)]
    assert answers(say(rank, links[OTHER], msg.Abort(Cause.DECODE_ABORTED))) == [(links[OTHER], NO)]
    told = rank.handle(ev.EngineOpened(ROOM, TOKENS, ev.Claim(MINE, b"word")), 0.0)
    assert [type(each) for each in told] == [do.AnnounceOutcome, do.AnnounceReleased]


def test_of_two_who_ask_the_first_hears_no_and_the_other_that_it_is_not_its_own() -> None:
    rank, links = prefill()
    say(rank, links[MINE], OPEN)
    assert answers(say(rank, links[OTHER], OPEN)) == [], "the engine has not said whose it is"
    assert answers(rank.handle(ev.EngineRefused(ROOM, Cause.DECLINED), 0.0)) == [(links[MINE], NO)]
    assert answers(say(rank, links[OTHER], OPEN)) == [(links[OTHER], msg.Drained(Cause.NOT_ENTITLED))]
    assert answers(say(rank, links[MINE], OPEN)) == [(links[MINE], NO)]


def test_what_is_remembered_is_bounded() -> None:
    rank, links = prefill(Settings(tombstones=8))
    for room in range(1, 101):
        rank.handle(ev.EngineRefused(room, Cause.DECLINED), 0.0)
    assert not rank.rooms and len(rank.tombs) == 8
    assert answers(say(rank, links[MINE], OPEN, room=100)) == [(links[MINE], NO)]
    assert answers(say(rank, links[MINE], OPEN, room=1)) == [(links[MINE], msg.Opened())], "long forgotten: a new one"

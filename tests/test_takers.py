"""Several takers of one transfer: names of a room, each with an outcome and a release of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.stories import layout

from kvproto.endpoint.endpoint_events import RoomFinished, RoomReleased
from kvproto.errors import ArgumentError, NotFoundError
from kvproto.protocol.states import Cause
from kvproto.room import Room, Status
from kvproto.verify.testing import inside
from kvproto.verify.testing.pair import Pair

TOKENS = 30
SECOND, THIRD = Room(1 << 40), Room(1 << 40, 7)


@pytest.fixture
def pair() -> Iterator[Pair]:
    """Two prefill ranks and two decode ranks."""
    with Pair(layout(2), layout(2), chunk_tokens=8) as made:
        yield made


@pytest.fixture
def shared(pair: Pair) -> Room:
    """A room of three names on every decode rank, of which nothing is computed."""
    room = pair.open(TOKENS)
    for decode in pair.decodes:
        decode.share(room, SECOND)
        decode.share(SECOND, THIRD)
    pair.pump(lambda: pair.prefills[0].opened_by_all(room))
    return room


def ends(pair: Pair, name: Room) -> list[Cause]:
    """The outcomes of this name on the decode ranks that have told."""
    return [outcome.cause for (side, _, room), outcome in pair.outcomes.items() if (side, room) == ("D", name)]


def released(pair: Pair, *names: Room) -> int:
    """Releases of these names on the decode ranks."""
    return sum(count for (side, _, room), count in pair.releases.items() if side == "D" and room in names)


def test_each_name_has_the_outcome_the_aux_row_and_the_release_once(pair: Pair, shared: Room) -> None:
    pair.produce(shared)
    pair.pump(lambda: released(pair, shared, SECOND, THIRD) == 6)
    for name in (shared, SECOND, THIRD):
        assert ends(pair, name) == [Cause.NONE] * 2
    assert {outcome.aux for (side, *_), outcome in pair.outcomes.items() if side == "D"} == {b"aux"}
    pair.pump(lambda: pair.over(shared))
    pair.check(shared)
    pair.rest()


def test_one_transfer_is_made_and_no_peer_hears_of_the_other_names(pair: Pair, shared: Room) -> None:
    pair.finish(shared)
    assert sum(endpoint.metrics()["writes"] for endpoint in pair.prefills) == pair.plan.decode.ranks * 4
    assert not [room for endpoint in pair.prefills for state in endpoint.rooms().values() for room in state]
    assert all(inside(endpoint).rank.value_of(SECOND.key) is None for endpoint in pair.endpoints)


@pytest.mark.parametrize("gone", [0, 1, 2])
def test_a_name_that_is_given_up_ends_at_once_and_is_released_with_the_room(
    pair: Pair, shared: Room, gone: int
) -> None:
    names = shared, SECOND, THIRD
    for decode in pair.decodes:
        decode.abort(names[gone])
    pair.pump(lambda: len(ends(pair, names[gone])) == 2)
    pair.settle()
    assert ends(pair, names[gone]) == [Cause.DECODE_ABORTED] * 2 and released(pair, *names) == 0
    assert {decode.status(names[gone]) for decode in pair.decodes} == {Status.FAILED}
    assert {decode.status(names[gone - 1]) for decode in pair.decodes} <= {Status.WAITING, Status.TRANSFERRING}
    pair.produce(shared)
    pair.pump(lambda: released(pair, *names) == 6)
    assert [ends(pair, name)[0] for name in names].count(Cause.NONE) == 2
    pair.pump(lambda: pair.prefills[0].status(shared) is Status.SUCCESS)


def test_the_transfer_is_given_up_with_the_last_name(pair: Pair, shared: Room) -> None:
    for name in (SECOND, shared, THIRD):
        for decode in pair.decodes:
            decode.abort(name)
    pair.pump(lambda: released(pair, shared, SECOND, THIRD) == 6)
    assert pair.causes(shared) == {Cause.DECODE_ABORTED}
    reasons = {outcome.room: outcome.reason for (side, *_), outcome in pair.outcomes.items() if side == "D"}
    assert "the transfer goes on for others" in reasons[SECOND] and "goes on" not in reasons[THIRD]


def test_a_name_ends_alone_as_long_as_any_other_wants_the_room(pair: Pair, shared: Room) -> None:
    """Also where a third has been given up before, or the room has ended."""
    for decode in pair.decodes:
        decode.abort(SECOND)
        decode.abort(THIRD)
    pair.pump(lambda: len(ends(pair, SECOND) + ends(pair, THIRD)) == 4)
    assert ends(pair, shared) == []
    pair.finish(shared)
    assert ends(pair, shared) == [Cause.NONE] * 2 and ends(pair, THIRD) == [Cause.DECODE_ABORTED] * 2


def test_a_failure_is_every_names(pair: Pair, shared: Room) -> None:
    for prefill in pair.prefills:
        prefill.abort(shared)
    pair.pump(lambda: released(pair, shared, SECOND, THIRD) == 6)
    assert {cause for name in (shared, SECOND, THIRD) for cause in ends(pair, name)} == {Cause.PREFILL_ABORTED}


@pytest.mark.parametrize("by", ["the lists", "events"])
def test_a_name_that_comes_when_the_room_has_ended_has_its_end(pair: Pair, by: str) -> None:
    room, decode = pair.open(TOKENS), pair.decodes[0]
    pair.collect_from = lambda *_: None  # type: ignore[method-assign]
    if by == "events":
        decode.events()
    pair.produce(room)
    pair.pump(lambda: decode.status(room) is Status.SUCCESS and inside(decode).entries[room.key].released)
    decode.share(room, SECOND)
    pair.settle()
    if by == "events":
        told = [each for each in decode.events() if isinstance(each, RoomFinished | RoomReleased)]
        rooms = [each.outcome.room if isinstance(each, RoomFinished) else each.room for each in told]
        assert rooms == [room, room, SECOND, SECOND]
    else:
        assert [outcome.room for outcome in decode.finished()] == [room, SECOND] == decode.released()
        with pytest.raises(NotFoundError, match="is over, and was handed out"):
            decode.share(room, THIRD)


def test_names_are_taken_once_and_of_rooms_that_are_open(pair: Pair, shared: Room) -> None:
    decode = pair.decodes[0]
    for name in (shared, SECOND):
        with pytest.raises(ArgumentError, match="is open, or was a short while ago"):
            decode.share(shared, name)
    with pytest.raises(NotFoundError, match="is not open here"):
        decode.share(Room(99), Room(100))
    with pytest.raises(ArgumentError, match="is open, or was a short while ago"):
        decode.open(SECOND, TOKENS, pair.tables[shared][1])
    assert decode.explain(SECOND) == decode.explain(shared)
    pair.finish(shared)


def test_every_name_of_an_announced_room_waits_for_its_pages(pair: Pair) -> None:
    room = pair.name(TOKENS)
    for decode in pair.decodes:
        decode.announce(room, TOKENS)
        decode.share(room, SECOND)
        decode.renew(SECOND)
    pair.open_prefill(room)
    pair.settle()
    pair.open_decode(room)
    pair.produce(room)
    pair.pump(lambda: released(pair, room, SECOND) == 4)
    assert ends(pair, SECOND) == [Cause.NONE] * 2


def test_a_pool_is_detached_when_every_name_is_released(pair: Pair, shared: Room) -> None:
    for decode in pair.decodes:
        decode.detach(rooms="end")
    pair.pump(lambda: released(pair, shared, SECOND, THIRD) == 6)
    pair.pump(lambda: all(decode.detached for decode in pair.decodes))
    assert {cause for name in (shared, SECOND, THIRD) for cause in ends(pair, name)} == {Cause.DECODE_ABORTED}


def test_another_name_stands_for_the_same_pages(pair: Pair, shared: Room) -> None:
    for decode in pair.decodes:
        entries = inside(decode).entries
        first, other = entries[shared.key], entries[THIRD.key]
        assert other.tokens == first.tokens == TOKENS and other.main is first
        assert other.table is first.table and other.pages is first.pages

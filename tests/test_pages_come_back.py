"""Pages of a decode rank with dead prefill ranks come back at once, if no writer was told of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.stories import layout

from kvproto.protocol.events import QueueOverflowed
from kvproto.protocol.states import Cause, DLink
from kvproto.room import Room
from kvproto.settings import PREFILL_GROUP, Settings
from kvproto.verify.testing import inside
from kvproto.verify.testing.pair import Pair


@pytest.fixture(params=[False, True], ids=["staged", "over pages"])
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    settings = Settings(ring_bytes=1 << 20, slot_bytes=1 << 18, route="pages" if request.param else "cost")
    with Pair(layout(2), layout(1), chunk_tokens=8, settings=settings) as made:
        yield made


def dies(pair: Pair, *ranks: int) -> None:
    """These prefill ranks fall silent: the decode rank loses their links, one after the other."""
    decode = pair.decodes[0]
    for index in ranks:
        pair.prefills[index].poll = lambda: False  # type: ignore[method-assign]
        link = inside(decode).rank.link_of[PREFILL_GROUP, index]
        inside(decode).loop.raise_event(QueueOverflowed(link))
        decode.poll()
        assert inside(decode).rank.links[link].state is DLink.AWAIT_RETURN
    pair.collect()


def back(pair: Pair, room: Room) -> bool:
    return pair.releases["D", 0, room] == 1


@pytest.mark.parametrize("ranks", [(0, 1), (1, 0)])
def test_a_group_that_dies_before_it_was_told_anything_leaves_nothing_in_doubt(
    pair: Pair, ranks: tuple[int, int]
) -> None:
    room = pair.name(30)
    pair.open_decode(room)
    pair.turn()
    dies(pair, *ranks)
    assert pair.outcomes["D", 0, room].cause is Cause.LINK_LOST and back(pair, room)


def test_one_that_lives_is_asked_and_nobody_waits_for_the_other(pair: Pair) -> None:
    room = pair.name(30)
    pair.open_decode(room)
    pair.turn()
    dies(pair, 1)
    pair.pump(lambda: back(pair, room), seconds=2.0)


def test_one_that_is_given_up_first_and_dies_then_is_not_waited_for_either(pair: Pair) -> None:
    room = pair.name(30)
    pair.open_decode(room)
    pair.decodes[0].poll()
    pair.decodes[0].abort(room)
    pair.decodes[0].poll()
    pair.collect()
    assert pair.outcomes["D", 0, room].cause is Cause.DECODE_ABORTED and not back(pair, room)
    dies(pair, 0)
    assert not back(pair, room), "the other has not said that it has stopped"
    dies(pair, 1)
    assert back(pair, room)


def test_who_was_told_where_to_write_is_waited_for(pair: Pair) -> None:
    room = pair.open(30)
    pair.fabric.auto = False  # no write ends
    pair.produce(room)
    grants = inside(pair.decodes[0]).rank.grants
    pair.pump(lambda: len(grants.get(room.key, ())) == 4 and all(g.asked == 3 for g in grants[room.key].values()))
    dies(pair, 0, 1)
    assert pair.outcomes["D", 0, room].cause is Cause.LINK_LOST
    assert not back(pair, room), "a write may be on its way"


def test_who_has_written_all_that_it_was_told_to_is_not_waited_for(pair: Pair) -> None:
    room = pair.open(8)
    pair.produce(room, aux=None)
    rank = inside(pair.decodes[0]).rank
    pair.turn()
    pair.pump(lambda: (work := rank.rooms[room.key].work) is not None and work.done == 1)
    dies(pair, 0, 1)
    assert pair.outcomes["D", 0, room].cause is Cause.LINK_LOST and back(pair, room), "the aux row was all that lacked"

"""A failed staged write whose bytes can no longer land is retried over pages, and saves its room.

If the write told of its part before it failed, the decode rank confirms that part, and nothing is written again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from msgspec.structs import replace
from support.stories import layout
from test_foreign_groups import MINE, ROOM, at_work, say

from kvproto.io.transports.base import Handle
from kvproto.io.transports.fabric import Fabric
from kvproto.protocol import events as ev
from kvproto.protocol import messages as msg
from kvproto.protocol.states import Cause, PRoom, PSend
from kvproto.protocol.tables.prefill_room import prefill_room
from kvproto.rank.prefill import PrefillRank
from kvproto.room import Room
from kvproto.settings import Route
from kvproto.verify.framework.table_patching import TablePatch
from kvproto.verify.testing import inside
from kvproto.verify.testing.pair import PATIENT, Pair

TOKENS = 20


@pytest.fixture(params=[True, False], ids=["told by the write", "told by a message"])
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    fabric = Fabric(native_notify=request.param)
    with Pair(layout(1), layout(1), chunk_tokens=32, settings=PATIENT, fabric=fabric) as made:
        yield made


def flying(pair: Pair) -> set[Handle]:
    """Writes of the prefill rank that have not ended."""
    return set(inside(pair.prefills[0]).data.writes.flying)


def begin(pair: Pair) -> Room:
    """A room whose one staged write is on its way."""
    room = pair.open(TOKENS)
    pair.produce(room)
    pair.pump(lambda: bool(flying(pair)))
    return room


def fail(pair: Pair) -> None:
    """Fail the newest write; the rank hears of it."""
    newest = max(flying(pair))
    pair.fabric.fail(inside(pair.prefills[0]).data.transport.instance, newest)
    pair.pump(lambda: newest not in flying(pair))


def land(pair: Pair) -> None:
    """Every byte of what is on its way lands, and what it carries arrives."""
    while steps := [step for step in pair.fabric.options() if step.kind != "complete"]:
        pair.fabric.take(steps[0])


def end(pair: Pair, room: Room) -> set[Cause]:
    """Let everything else go well; returns how the room ended."""
    pair.fabric.auto = True
    pair.pump(lambda: pair.over(room))
    return pair.causes(room)


def by_pages(pair: Pair) -> int:
    """Parts that the prefill rank has written over pages."""
    counts = pair.prefills[0].metrics()
    return counts["direct"] + counts["pages"]


def retried(pair: Pair) -> int:
    """Sends that have asked for pages because their staged write had failed."""
    entered = inside(pair.prefills[0]).rank.entered
    return sum(count for key, count in entered.items() if key[1:] == ("WRITING", "WriteFailed", "AWAIT_PAGES"))


def test_one_settled_failure_of_a_staged_write_does_not_fail_its_room(pair: Pair) -> None:
    room = begin(pair)
    fail(pair)
    assert end(pair, room) == {Cause.NONE}
    pair.check(room)
    assert retried(pair) == by_pages(pair) == 1


def test_a_retry_that_fails_is_not_retried(pair: Pair) -> None:
    room = begin(pair)
    fail(pair)
    pair.pump(lambda: bool(flying(pair)))
    fail(pair)
    assert end(pair, room) == {Cause.WRITE_FAILED}


@pytest.mark.parametrize("native", [True, False])
def test_a_closed_pool_has_no_way_to_retry(*, native: bool) -> None:
    closed = replace(PATIENT, route="staged")
    with Pair(layout(1), layout(1), chunk_tokens=32, settings=closed, fabric=Fabric(native_notify=native)) as pair:
        room = begin(pair)
        fail(pair)
        assert end(pair, room) == {Cause.WRITE_FAILED}
        assert "write" in pair.outcomes["D", 0, room].reason


def hears_first(pair: Pair) -> None:
    """The decode rank hears of the part before the prefill rank hears that its write has failed."""
    rank = inside(pair.prefills[0]).rank
    land(pair)
    pair.pump(lambda: any(send.acked for sends in rank.sends.values() for send in sends.values()))
    fail(pair)


def fails_first(pair: Pair) -> None:
    """Both are on their way together, and the prefill rank hears first."""
    land(pair)
    newest = max(flying(pair))
    pair.fabric.fail(inside(pair.prefills[0]).data.transport.instance, newest)
    while newest in flying(pair):
        pair.prefills[0].poll()


@pytest.mark.parametrize("order", [hears_first, fails_first])
@pytest.mark.parametrize("route", ["cost", "staged"])
def test_a_part_that_was_told_is_not_written_again(order: Callable[[Pair], None], route: Route) -> None:
    with Pair(
        layout(1), layout(1), chunk_tokens=32, settings=replace(PATIENT, route=route), fabric=Fabric()
    ) as pair:
        room = begin(pair)
        order(pair)
        asks = order is fails_first
        if asks and route == "staged":
            end(pair, room)  # the decode rank has all of the room if its aux row has come, and failed if not
            assert pair.outcomes["P", 0, room].cause is Cause.WRITE_FAILED, "there are no pages to ask for"
            return
        assert end(pair, room) == {Cause.NONE}
        pair.check(room)
        assert retried(pair) == asks and by_pages(pair) == 0


def told_and_forgotten() -> tuple[PrefillRank, int]:
    """A rank whose one staged write has failed and told of its part, which the decode rank has."""
    rank, links = at_work("granted")
    rank.handle(ev.AuxProvided(ROOM), 0.0)
    for chunk in range(2):
        rank.handle(ev.Gathered(ROOM, chunk, 0), 0.0)
        rank.handle(ev.BatchReady(ROOM, chunk, 0, last=True), 0.0)
    rank.sends[ROOM] = {at: replace(send, native_notify=True) for at, send in rank.sends[ROOM].items()}
    rank.handle(ev.BatchFailed(ROOM, 0, 0, settled=True), 0.0)
    assert [send.state for send in rank.sends[ROOM].values()][:2] == [PSend.AWAIT_PAGES, PSend.WRITING]
    return rank, links[MINE]


def test_a_part_that_was_told_and_is_forgotten_is_in_place() -> None:
    """The decode rank can only have forgotten a room that had success, so nothing fails."""
    rank, link = told_and_forgotten()
    say(rank, link, msg.Gone())
    assert rank.rooms[ROOM].state is PRoom.OPEN and 0 not in rank.sends[ROOM]


def test_a_room_whose_told_part_is_forgotten_fails_without_the_row() -> None:
    with TablePatch() as bench:
        rows = [row for row in bench.rows(prefill_room, PRoom.OPEN, ev.PeerForgot) if row.when is None]
        bench.drop(prefill_room, rows)
        rank, link = told_and_forgotten()
        say(rank, link, msg.Gone())
        assert 0 in rank.sends[ROOM], "planted: it asks for pages until nobody answers"

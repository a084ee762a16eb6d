"""A prefill engine without pages, or with some: the room is open, and pages come with the tokens."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.stories import layout

from kvproto.errors import ArgumentError
from kvproto.protocol.states import Cause, PSend
from kvproto.room import Status
from kvproto.settings import Settings
from kvproto.verify.testing import inside
from kvproto.verify.testing.pair import Pair

TOKENS, CHUNK_TOKENS, PAGE = 45, 8, 4


@pytest.fixture(params=[False, True], ids=["staged", "over pages"])
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    settings = Settings(ring_bytes=1 << 20, slot_bytes=1 << 18, route="pages" if request.param else "cost")
    with Pair(layout(2), layout(1), chunk_tokens=CHUNK_TOKENS, settings=settings) as made:
        assert made.plan.prefill.page_size == PAGE
        yield made


def test_grants_are_there_before_the_first_page(pair: Pair) -> None:
    room = pair.name(TOKENS)
    ours = pair.tables[room][0]
    for prefill in pair.prefills:
        prefill.open(room, TOKENS)
        prefill.prefetch(room)
    pair.open_decode(room)
    waits = {PSend.AWAIT_KV, PSend.AWAIT_PAGES_KV}
    ranks = [inside(prefill).rank for prefill in pair.prefills]
    pair.pump(lambda: all(r.sends and all(s.state in waits for k, s in r.sends[room.key].items() if k >= 0)
                          for r in ranks))  # fmt: skip
    for upto in (*range(7, TOKENS, 7), TOKENS):
        for prefill in pair.prefills:
            given = inside(prefill).entries[room.key].given
            prefill.produced(room, upto, pages=ours[given : -(-upto // PAGE)])
        pair.turn()
    for prefill in pair.prefills:
        prefill.aux(room, b"aux")
    pair.pump(lambda: pair.over(room))
    pair.check(room)
    assert pair.causes(room) == {Cause.NONE}


def test_the_first_pages_with_open_and_the_others_in_one_go(pair: Pair) -> None:
    room = pair.name(TOKENS)
    ours = pair.tables[room][0]
    pair.open_decode(room)
    for prefill in pair.prefills:
        prefill.open(room, TOKENS, ours[:3])
        prefill.produced(room, 12)
        with pytest.raises(ArgumentError, match=r"13 tokens need 4 pages of 4, the table has 3"):
            prefill.produced(room, 13)
        with pytest.raises(ArgumentError, match=r"13 tokens need 4 pages of 4, the table has 3"):
            prefill.produced(room, 13, pages=[])
        with pytest.raises(ArgumentError, match=r"page 99 of a pool of 64"):
            prefill.produced(room, 13, pages=[99])
        assert inside(prefill).entries[room.key].given == 3, "what was refused has left nothing"
        prefill.produced(room, TOKENS, pages=[*ours[3:], *range(5)])  # more than it needs
        prefill.aux(room, b"aux")
    pair.pump(lambda: pair.over(room))
    pair.check(room)


def test_a_room_without_pages_that_is_given_up_is_over_on_both_sides(pair: Pair) -> None:
    room = pair.name(TOKENS)
    pair.open_decode(room)
    for prefill in pair.prefills:
        prefill.open(room, TOKENS)
    pair.pump(lambda: pair.prefills[0].status(room) is Status.WAITING)
    pair.prefills[0].abort(room)
    pair.pump(lambda: pair.over(room))
    assert pair.causes(room) == {Cause.PREFILL_ABORTED}
    pair.prefills[0].produced(room, TOKENS, pages=range(12))  # too late, and no mistake

"""A room that a decode engine aborts while a link is not up ends at the prefill rank with the link.

Without that its prefill engine would hold the pages until `Timing.bootstrap` is over.  The clock stands still here, but
for the call that brings a cut link back: a message ends the room, and no timer.
"""

from __future__ import annotations

import pytest
from support.stories import layout

from kvproto.io.clock import ManualClock
from kvproto.protocol import events as ev
from kvproto.protocol.states import Cause, DLink, PLink
from kvproto.room import Room
from kvproto.verify.testing.access import inside
from kvproto.verify.testing.pair import Pair

CHUNK_TOKENS, TOKENS = 8, 20


def give_up(pair: Pair, *, announced: bool) -> Room:
    """A room that the decode engine opens, or announces, and gives up at once."""
    room, decode = pair.name(TOKENS), pair.decodes[0]
    if announced:
        decode.announce(room, TOKENS)
    else:
        pair.open_decode(room)
    decode.abort(room)
    pair.pump(lambda: ("D", 0, room) in pair.outcomes)
    return room


def ends_without_a_timer(pair: Pair, room: Room) -> None:
    """The prefill engine that opens the room later hears its end at once, and has its pages back."""
    pair.pump(pair.decodes[0].ready)
    pair.open_prefill(room)
    pair.pump(lambda: pair.over(room))
    assert pair.causes(room) == {Cause.DECODE_ABORTED}
    pair.rest()


@pytest.mark.parametrize("announced", [False, True])
def test_a_room_that_is_given_up_before_its_link_is_up_ends_at_the_prefill_rank(announced: bool) -> None:
    with Pair(layout(1), layout(1), chunk_tokens=CHUNK_TOKENS, clock=ManualClock, ready=False) as pair:
        room = give_up(pair, announced=announced)
        ends_without_a_timer(pair, room)


def test_a_room_that_is_given_up_while_its_link_is_cut_ends_when_the_link_is_back() -> None:
    clock = ManualClock()
    with Pair(layout(1), layout(1), chunk_tokens=CHUNK_TOKENS, clock=lambda: clock) as pair:
        rank, loop = inside(pair.decodes[0])[:2]
        loop.call(ev.QueueOverflowed(1))
        room = give_up(pair, announced=False)
        assert rank.links[1].state is DLink.AWAIT_RETURN
        pair.pump(lambda: inside(pair.prefills[0]).rank.links[1].state is PLink.LOST)
        clock.advance(2 * rank.settings.timing.call.period)
        ends_without_a_timer(pair, room)

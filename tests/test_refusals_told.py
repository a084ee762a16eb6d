"""A refused decode rank is told within a few calls, whatever the prefill link was doing before.

The link's old connection stands throughout: its process lives, so no silence ends the link in good time.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace
from test_foreign_groups import MINE, at_work, hello
from test_rank_links import FIRST, decode, welcome

from kvproto.fsm.vocabulary import Effect
from kvproto.protocol import effects as do
from kvproto.protocol import events as ev
from kvproto.protocol import messages as msg
from kvproto.protocol.states import DLink, PLink
from kvproto.rank.prefill import PrefillRank

#: calls in which a refusal has to come, and the seconds between two: the first may only end the link
CALLS, APART = 12, 0.5
#: another incarnation's first session
LATER = 9 << 16


def up() -> PrefillRank:
    rank, _ = at_work("writing")
    return rank


def lost() -> PrefillRank:
    """The link is lost while a write is in flight."""
    rank = up()
    rank.handle(ev.QueueOverflowed(rank.link_of[MINE, 0]), 0.0)
    assert rank.writes
    return rank


def connecting() -> PrefillRank:
    """The transport is still connecting for the last call."""
    rank, _ = at_work("asked")
    rank.handle(ev.QueueOverflowed(rank.link_of[MINE, 0]), 0.0)
    link, _ = rank.hello(hello(MINE, session=2), 0.0, bytes([MINE]))
    assert rank.links[link].state is PLink.AWAIT_WIRE_UP
    return rank


def refused() -> PrefillRank:
    """The last call was refused, for another reason."""
    rank = lost()
    rank.writes.clear()
    rank.hello(replace(hello(MINE, session=2), lease=7.0), 0.0, bytes([MINE]))
    return rank


BEFORE = {"up": up, "lost": lost, "connecting": connecting, "refused": refused}


@pytest.mark.parametrize("before", BEFORE.values(), ids=BEFORE)
@pytest.mark.parametrize("session", [3, LATER], ids=["the same incarnation", "a later one"])
def test_a_call_that_does_not_fit_is_refused_within_a_few_calls(
    before: Callable[[], PrefillRank], session: int
) -> None:
    rank = before()
    rank.stands = lambda _link: True
    told: list[Effect] = []
    for n in range(CALLS):
        now = (n + 1) * APART
        _, effects = rank.hello(replace(hello(MINE, session=session), chunk_tokens=64), now, b"its place")
        told += effects + rank.tick(now)
    # nobody answers in the old one's name: the caller has left it, or has taken its place
    why = [each.why for each in told if isinstance(each, do.SayRefusal | do.RefuseCall) and each.session == session]
    assert why and "chunks of 64 tokens" in why[0], PLink(rank.links[rank.link_of[MINE, 0]].state)


def test_a_link_that_comes_up_after_a_refusal_is_ready() -> None:
    rank, link = decode(), 1
    rank.handle(ev.QueueOverflowed(link), 0.0)
    rank.receive(link, 0, 0, msg.Refusal(rank.links[link].session, "another rank has the address now"), 0.0)
    assert rank.reached(FIRST, 0) == (False, "refused: another rank has the address now")
    rank.receive(link, 0, 0, replace(welcome(rank, link, FIRST, 0), epoch=1 << 20), 0.0)
    assert rank.links[link].state is DLink.UP
    assert rank.reached(FIRST, 0) == (True, "")

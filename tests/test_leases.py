"""Leases run from the answered request: each request says when it was made, and its answer repeats it.

That everything has then landed when a lost link counts as quiet is proved (`lost-link`, docs/prove.md); here ranks and
the send's own machine are seen to do their part.
"""

from __future__ import annotations

import pytest
from test_foreign_groups import CHUNK_TOKENS, LEASE, MINE, OURS, PREFILL, ROOM, THEIRS, TOKENS, answers, say

from kvproto.fsm.machine import Machine
from kvproto.layout.plan import Plan
from kvproto.protocol import effects as do
from kvproto.protocol import events as ev
from kvproto.protocol import messages as msg
from kvproto.protocol.digest import tables_digest
from kvproto.protocol.states import PSend
from kvproto.protocol.tables.prefill_send import PSendValue, prefill_send
from kvproto.protocol.timing import Timing
from kvproto.rank.decode import DecodeRank
from kvproto.settings import Settings

KEY = (ROOM, 0, 0)


def decode() -> tuple[DecodeRank, int]:
    """A decode rank with an open room, and its link to the writer."""
    rank = DecodeRank(
        THEIRS, 0, group=MINE, chunk_tokens=CHUNK_TOKENS, incarnation=5, settings=Settings(ring_bytes=1 << 20)
    )
    plan = Plan(OURS, THEIRS, CHUNK_TOKENS)
    link, _ = rank.call(PREFILL, 0, plan, 0.0, "tcp://p")
    said = msg.Welcome(msg.VERSION, tables_digest(), rank.links[link].session, 1, PREFILL, 0, OURS, CHUNK_TOKENS, LEASE)
    rank.receive(link, 0, 0, said, 0.0)
    rank.handle(ev.RoomOpened(ROOM, rank.terms(PREFILL, plan), TOKENS, 0), 0.0)
    return rank, link


def test_an_answer_repeats_when_its_request_was_made() -> None:
    rank, link = decode()
    (_, of_the_queue), = answers(say(rank, link, msg.StagingReq(0, 3.5)))  # fmt: skip
    (_, of_the_request), = answers(say(rank, link, msg.StagingReq(0, 4.5)))  # fmt: skip
    assert isinstance(of_the_queue, msg.StagingRsp) and of_the_queue.queued
    assert isinstance(of_the_request, msg.StagingRsp) and not of_the_request.queued and of_the_request.asked == 4.5
    effects = say(rank, link, msg.PagesReq(1, 5.5))
    assert [effect.asked for effect in effects if isinstance(effect, do.TransmitPages)] == [5.5]


def step(value: PSendValue, event: ev.SendEvent | ev.TimerFired, now: float) -> tuple[PSendValue, list[object]]:
    value, effects = Machine(prefill_send, Timing()).step(value, event, now)
    return value, [effect.body for effect in effects if isinstance(effect, do.Transmit)]


def opened(*, pages: bool) -> PSendValue:
    costs = (1.0, 0.0) if pages else (0.0, 1.0)
    event = ev.SendOpened(*KEY, ev.Target(), ready=True, staged_cost=costs[0], pages_cost=costs[1])
    return step(Machine(prefill_send, Timing()).initial, event, 1.0)[0]


def test_pages_of_an_older_answer_are_kept_for_what_is_left_of_its_own_lease() -> None:
    """It may have been sent before a link was lost, and what is asked anew since then never be answered."""
    value, said = step(opened(pages=True), ev.PagesGranted(*KEY, b"\0\0\0\0", LEASE, 1.0), 40.0)
    assert (value.state, said) == (PSend.AWAIT_PAGES, [msg.PagesReq(0, 40.0)]), "too late: it asks once more"
    value, said = step(value, ev.PagesGranted(*KEY, b"\0\0\0\0", LEASE, 1.0), 41.0)
    assert (value.state, said) == (PSend.AWAIT_PAGES, []), "the same answer, doubled: the last request is under way"
    value, _ = step(value, ev.PagesGranted(*KEY, b"\0\0\0\0", LEASE, 40.0), 42.0)
    assert (value.state, value.lease) == (PSend.AWAIT_PERMIT, 40.0 + LEASE)


def test_a_write_into_pages_begins_with_half_a_lease_left_or_asks_for_them_once_more() -> None:
    """It has many posts: one that its lease cuts off has failed, and is not begun anew."""
    half, named = LEASE / 2, ev.PagesGranted(*KEY, b"\0\0\0\0", LEASE, 1.0)
    value, said = step(opened(pages=True), named, 1.0 + half)
    assert (value.state, said) == (PSend.AWAIT_PAGES, [msg.PagesReq(0, 1.0 + half)])
    queued, _ = step(opened(pages=True), named, 2.0)
    assert (queued.state, queued.begin_by) == (PSend.AWAIT_PERMIT, 1.0 + half)
    for late, then in ((0.99, PSend.WRITING_PAGES), (1.0, PSend.AWAIT_PAGES)):
        assert step(queued, ev.PermitTaken(*KEY), late + half)[0].state is then
        waits, _ = step(queued, ev.KvWithdrawn(*KEY), 3.0)
        found, _ = step(waits, ev.KvProduced(*KEY), late + half)
        assert found.state is (PSend.AWAIT_PERMIT if late < 1 else PSend.AWAIT_PAGES)
    renewed, said = step(queued, ev.TimerFired(*KEY, tries=9), 1.0 + LEASE / 4)
    assert said == [msg.PagesReq(0, 1.0 + LEASE / 4)]
    doubled, _ = step(renewed, named, 2.0 + LEASE / 4)
    assert doubled.lease == 1.0 + LEASE, "an older answer takes nothing away"
    whole, _ = step(doubled, ev.PagesGranted(*KEY, b"\0\0\0\0", LEASE, 1.0 + LEASE / 4), 3.0 + LEASE / 4)
    assert whole.begin_by == 1.0 + LEASE * 3 / 4


def region(asked: float = 0.0, *, queued: bool = False) -> ev.StagingGranted:
    return ev.StagingGranted(*KEY, 1, 0, 0, 256, usable=True, lease=LEASE, asked=asked, queued=queued)


def test_a_region_is_kept_from_the_first_request_if_it_comes_of_the_queue() -> None:
    value, said = step(opened(pages=False), ev.CreditTaken(*KEY), 2.0)
    assert said == [msg.StagingReq(0, 2.0)]
    value, _ = step(value, ev.StagingDeferred(*KEY), 3.0)
    late, said = step(value, region(queued=True), 2.0 + LEASE / 2)
    assert (late.state, said) == (PSend.AWAIT_TURN, [msg.StagingReq(0, 2.0 + LEASE / 2)]), "it asks for a whole lease"
    again, _ = step(late, region(queued=True), 3.0 + LEASE / 2)
    assert again.state is PSend.AWAIT_TURN, "the same word of the queue gives nothing more"
    taken, _ = step(late, region(2.0 + LEASE / 2), 3.0 + LEASE / 2)
    assert (taken.state, taken.lease) == (PSend.AWAIT_SLOT, 2.0 + LEASE / 2 + LEASE)


@pytest.mark.parametrize("asked", [1e9, 2.0**47])
def test_an_answer_that_speaks_of_a_moment_to_come_gains_nothing(asked: float) -> None:
    value, _ = step(opened(pages=True), ev.PagesGranted(*KEY, b"\0\0\0\0", LEASE, asked), 5.0)
    assert value.lease == 5.0 + LEASE

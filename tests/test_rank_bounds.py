"""A rank's memory of others is bounded and its own: rooms that only decode ranks opened, and links."""

from __future__ import annotations

import pytest
from support.stories import layout

from kvproto.layout.plan import Plan
from kvproto.protocol import events as ev
from kvproto.protocol import messages as msg
from kvproto.protocol.digest import tables_digest
from kvproto.protocol.states import Cause, DLink, PLink
from kvproto.rank.decode import DecodeRank
from kvproto.rank.prefill import PrefillRank
from kvproto.settings import Settings

OURS, CHUNK_TOKENS, EARLY = layout(1), 16, 3
PLAN = Plan(OURS, OURS, CHUNK_TOKENS)


def prefill() -> PrefillRank:
    settings = Settings(unclaimed_rooms=EARLY)
    rank = PrefillRank(OURS, 0, group=1, chunk_tokens=CHUNK_TOKENS, incarnation=3, settings=settings)
    said = msg.Hello(msg.VERSION, tables_digest(), 1, 2, 0, OURS, CHUNK_TOKENS, rank.lease, b"")
    rank.hello(said, 0.0, b"there")
    rank.handle(ev.WiredUp(1, 1, "wire"), 0.0)
    assert rank.links[1].state is PLink.UP
    return rank


def heard(rank: PrefillRank, room: int, body: msg.Message) -> None:
    rank.receive(1, rank.links[1].epoch, room, body, 0.0)


@pytest.mark.parametrize("body", [msg.Open(8, 0), msg.Announce(8)])
def test_so_many_rooms_that_only_a_decode_rank_has_opened_are_kept(body: msg.Message) -> None:
    rank = prefill()
    for room in range(1, EARLY + 3):
        heard(rank, room, body)
        heard(rank, room, body)
    assert sorted(rank.rooms) == sorted(rank.unclaimed) == list(range(1, EARLY + 1))
    assert rank.counts["rooms beyond the bound"] == 4
    rank.handle(ev.EngineRefused(1, Cause.DECLINED), 0.0)
    heard(rank, 9, body)
    assert 9 in rank.rooms and sorted(rank.unclaimed) == [2, 3, 9], "what the engine knows is not counted any more"


def decode() -> DecodeRank:
    rank = DecodeRank(OURS, 0, group=2, chunk_tokens=CHUNK_TOKENS, incarnation=3)
    rank.call(1, 0, PLAN, 0.0, "somewhere")
    said = msg.Welcome(msg.VERSION, rank.build.digest, rank.links[1].session, 5, 1, 0, OURS, CHUNK_TOKENS, rank.lease)
    rank.receive(1, 0, 0, said, 0.0, b"there")
    assert rank.links[1].state is DLink.UP
    return rank


def test_where_a_rank_is_that_nobody_has_called_is_not_told_of_another() -> None:
    rank = decode()
    assert rank.reached(1, 0) == (True, "") and rank.reached(9, 0) == (False, "")


def test_a_link_that_is_called_on_other_terms_begins_anew_and_on_the_same_it_stays() -> None:
    rank, first = decode(), 3 << 16
    assert rank.links[1].session == first
    alike, longer = Plan(OURS, OURS, CHUNK_TOKENS), Plan(OURS, OURS, 2 * CHUNK_TOKENS)
    for plan, session in ((PLAN, first), (alike, first), (longer, first + 1)):
        rank.call(1, 0, plan, 0.0, "somewhere")
        assert rank.links[1].session == session


def test_a_call_for_another_rank_is_counted() -> None:
    rank = prefill()
    said = msg.Hello(msg.VERSION, tables_digest(), 1, 2, 0, OURS, CHUNK_TOKENS, rank.lease, b"", None, 9, 0)
    assert rank.hello(said, 0.0, b"there")[0] == 1 and rank.counts["calls for another rank"] == 1

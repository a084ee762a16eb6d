"""No number on the wire sizes anything: the largest one costs a rank next to nothing."""

from __future__ import annotations

import tracemalloc

import pytest
from test_foreign_groups import CHUNK_TOKENS, LEASE, MINE, OTHER, ROOM, THEIRS, TOKENS, at_work, prefill, say

from kvproto.layout.sharding import Layout
from kvproto.protocol import events as ev
from kvproto.protocol import messages as msg
from kvproto.protocol.digest import tables_digest
from kvproto.protocol.states import Cause
from kvproto.rank.prefill import PrefillRank

U32, U64, CHUNK, SIZE = 2**32 - 1, 2**64 - 1, 2**24 - 1, 2**48 - 1
LARGEST: tuple[msg.Message, ...] = (
    msg.Open(U32, 0, bytes(msg.MAX_SECRET)), msg.Open(U32, U32), msg.Abort(Cause.FORGOTTEN, bytes(msg.MAX_SECRET)),
    msg.StagingRsp(CHUNK, U64, SIZE, U64, SIZE, U64, SIZE), msg.StagingRefused(CHUNK),
    msg.StagingQueued(CHUNK, U64, SIZE), msg.PagesRsp(CHUNK, b""),
    msg.ChunkAck(CHUNK), msg.Watermark(U64, SIZE), msg.Noted(), msg.Gone(),
)  # fmt: skip
WIDE = Layout(layers=2, heads=2, k_dim=8, v_dim=8, itemsize=2, dtype="bfloat16", page_size=32, tp=2)


def say_of_rooms(rank: PrefillRank, links: dict[int, int], body: msg.Message) -> None:
    for link in (links[MINE], links[OTHER]):
        for room in (ROOM, 2**64 - 1, ev.room_key(2**64 - 1, U32)):
            say(rank, link, body, room)


@pytest.mark.parametrize("body", LARGEST, ids=lambda body: type(body).__name__)
def test_a_message_costs_what_it_weighs(body: msg.Message) -> None:
    say_of_rooms(*at_work("granted"), body)  # a row's code is made when it is first run, and stays
    rank, links = at_work("granted")
    tracemalloc.start()
    try:
        say_of_rooms(rank, links, body)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 64 * 1024


@pytest.mark.parametrize("number", [2, 63, 2**16, U32])
def test_a_call_of_a_rank_that_there_is_not_makes_no_mask(number: int) -> None:
    rank, _ = prefill()
    said = msg.Hello(msg.VERSION, tables_digest(), 1, 77, number, WIDE, CHUNK_TOKENS, LEASE, b"")
    tracemalloc.start()
    try:
        link, _ = rank.hello(said, 0.0, b"there")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert rank.links[link].state.name == "REFUSED" and "of 2" in rank.links[link].why
    assert peak < 64 * 1024


def test_a_room_of_the_longest_prompt_opens_a_window_and_no_more() -> None:
    rank, links = prefill()
    rank.handle(ev.EngineOpened(ROOM, U32), 0.0)
    say(rank, links[MINE], msg.Open(U32, 0))
    tracemalloc.start()
    try:
        rank.handle(ev.ForwardScheduled(ROOM), 0.0)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(rank.sends[ROOM]) == rank.settings.window + 1 and peak < 256 * 1024
    assert THEIRS.page_size == CHUNK_TOKENS and TOKENS < U32

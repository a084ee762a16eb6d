"""An endpoint's parts, and its reports of a room from before it is open until long after its end."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from support.stories import layout

from kvproto.endpoint.decode_endpoint import DecodeEndpoint
from kvproto.endpoint.endpoint import SILENCES
from kvproto.endpoint.prefill_endpoint import PrefillEndpoint
from kvproto.errors import ArgumentError, NotFoundError
from kvproto.fsm.driver import Driver
from kvproto.io.clock import ManualClock, SteadyClock, WakingClock
from kvproto.io.transports.fabric import Fabric
from kvproto.io.transports.memory import MemoryTransport
from kvproto.observe.failure_traces import FailureTraces
from kvproto.protocol import effects as do
from kvproto.protocol.states import Cause
from kvproto.rank.base import Rank
from kvproto.room import Room, Status
from kvproto.verify.testing import inside
from kvproto.verify.testing.pair import Pair
from kvproto.verify.testing.pools import noise

KINDS = [PrefillEndpoint, DecodeEndpoint]


def alone(kind: type[PrefillEndpoint | DecodeEndpoint], **given: Any) -> PrefillEndpoint | DecodeEndpoint:
    """A rank that knows nobody."""
    one = layout(1)
    return kind(one, 0, noise(one, 0, 8, 1), MemoryTransport(Fabric()), chunk_tokens=8, **given)


# ------------------------------------------------------------------------------------------------ how it is made
def test_code_is_written_when_a_rank_is_made_and_not_in_a_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    prepared = list[Driver]()

    def prepare(rank: Driver) -> None:
        prepared.append(rank)

    monkeypatch.setattr(Driver, "prepare", prepare)
    for kind in KINDS:
        with alone(kind) as made:
            assert prepared.pop() is inside(made).rank


@pytest.mark.parametrize("kind", KINDS)
def test_what_an_engine_gives_is_taken(kind: type[PrefillEndpoint | DecodeEndpoint]) -> None:
    clock, kernels = ManualClock(7.0), inside(alone(kind)).data.kernels
    with alone(kind, clock=clock, kernels=kernels, incarnation=5, group=9) as made:
        rank, loop, _, data = inside(made)
        assert loop.clock is clock and data.kernels is kernels
        assert (rank.incarnation, rank.group, rank.chunk_tokens) == (5, 9, 8)


@pytest.mark.parametrize("kind", KINDS)
def test_what_it_does_not_give_is_made(kind: type[PrefillEndpoint | DecodeEndpoint]) -> None:
    with alone(kind) as one, alone(kind) as other:
        assert type(inside(one).loop.clock) is (WakingClock if kind is PrefillEndpoint else SteadyClock)
        lives = {inside(one).rank.incarnation, inside(other).rank.incarnation}
        assert len(lives) == 2 and 0 not in lives


def test_the_end_of_a_block_closes_it() -> None:
    with alone(PrefillEndpoint) as made:
        assert [made.closed, inside(made).loop.closed] == [False, False]
    assert [made.closed, inside(made).loop.closed] == [True, True]


def test_rooms_are_given_up_at_the_time_of_the_close() -> None:
    clock = ManualClock(100.0)
    with alone(PrefillEndpoint, clock=clock) as made:
        made.open(Room(7), 20, range(5))
        made.poll()
        clock.advance(5.0)
    trace: list[Any] = list(inside(made).rank.trace)
    times = {type(event).__name__: at for at, _, event, *_ in trace}
    assert times["EngineOpened"] == 100.0 and times["EngineRefused"] == 105.0


# ------------------------------------------------------------------------------------------------ what it writes
def test_how_often_a_trace_may_be_written(tmp_path: Path) -> None:
    with alone(PrefillEndpoint) as made:
        ours = len(inside(made).loop.every_second)
        for every in (0.99, 3600.01, math.nan):
            with pytest.raises(ArgumentError, match="every 1 to 3600 seconds"):
                made.follow_trace(tmp_path, every)
        for every in (1.0, 3600.0):
            made.follow_trace(tmp_path, every)
        assert [look.__self__.every for look in inside(made).loop.every_second[ours:]] == [1.0, 3600.0]  # type: ignore[attr-defined]


def test_the_trace_of_a_room_that_fails_is_written_where_the_engine_says(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    saved, decode = list[tuple[Any, ...]](), pair.decodes[0]
    monkeypatch.setattr(FailureTraces, "save", lambda _, *given: saved.append(given))
    for where in (None, tmp_path):
        decode.trace_dir = where
        done, failed = pair.open(20), pair.open(20)
        for room, cause in ((done, Cause.NONE), (failed, Cause.STALLED)):
            inside(decode).loop.handlers[do.AnnounceOutcome](do.AnnounceOutcome(room.key, cause))
        assert saved == ([] if where is None else [(tmp_path, failed.key)])


# ------------------------------------------------------------------------------------------------ where a room is
def test_where_a_room_is_from_before_it_is_open_until_it_is_long_over(pair: Pair) -> None:
    for endpoint in pair.endpoints:
        with pytest.raises(NotFoundError, match="is unknown, or long over"):
            endpoint.status(Room(99))
    room, failed = pair.name(20), pair.name(20)
    for each in (room, failed):
        pair.open_decode(each)
        assert pair.decodes[0].status(each) is Status.BOOTSTRAPPING, "the loop has not heard of it"
    pair.pump(lambda: pair.prefills[0].opened_by_all(failed))
    assert pair.prefills[0].status(failed) is Status.BOOTSTRAPPING, "only the other side has opened it"
    for each in (room, failed):
        pair.open_prefill(each)
        assert pair.prefills[0].status(each) is Status.BOOTSTRAPPING
    pair.decodes[0].abort(failed)
    pair.finish(room)
    pair.pump(lambda: pair.over(failed))
    for endpoint in pair.endpoints:
        assert not inside(endpoint).entries
        assert endpoint.status(room) is Status.SUCCESS and endpoint.status(failed) is Status.FAILED


def test_what_goes_well_so_far_has_not_failed_whoever_keeps_an_entry_of_it(pair: Pair) -> None:
    room, prefill = pair.open(20), pair.prefills[0]
    pair.pump(lambda: prefill.status(room) is Status.TRANSFERRING)
    entry = inside(prefill).entries.pop(room.key)
    assert prefill.status(room) is Status.TRANSFERRING
    inside(prefill).entries[room.key] = entry


def test_a_prefill_rank_s_room_waits_for_the_forward_when_everybody_is_there(pair: Pair) -> None:
    room, prefill = pair.name(20), pair.prefills[0]
    prefill.open(room, 20, pair.tables[room][0])
    pair.open_decode(room)
    pair.pump(lambda: prefill.opened_by_all(room))
    assert prefill.status(room) is Status.WAITING
    prefill.prefetch(room)
    prefill.poll()
    assert prefill.status(room) is Status.TRANSFERRING


def test_a_room_is_over_when_its_engine_can_be_told_why(pair: Pair) -> None:
    """The rank knows sooner than the outcome is there: to the engine it is under way until then."""
    for endpoint in pair.endpoints:
        inside(endpoint).loop.handlers[do.AnnounceOutcome] = lambda _: None
    room, failed = pair.open(20), pair.open(20)
    pair.produce(room)
    pair.decodes[0].abort(failed)

    def is_over(rank: Rank, key: int) -> bool:
        value = rank.value_of(key)
        return value is not None and value.state.name in ("DONE", "FAILED", "ABORTED")

    pair.pump(lambda: all(is_over(inside(each).rank, one.key) for each in pair.endpoints for one in (room, failed)))
    for endpoint in pair.endpoints:
        assert endpoint.status(room) is Status.TRANSFERRING
        assert endpoint.status(failed) is Status.BOOTSTRAPPING


@pytest.mark.parametrize("side", [0, -1], ids=["prefill", "decode"])
def test_a_room_that_was_handed_out_takes_no_calls_and_is_not_opened_again(pair: Pair, side: int) -> None:
    room = pair.open(20)
    pair.finish(room)
    endpoint = pair.endpoints[side]
    endpoint.abort(room)
    opens = pair.open_prefill if side == 0 else pair.open_decode
    with pytest.raises(ArgumentError, match="was a short while ago: a new attempt needs a new gen"):
        opens(room)
    assert not inside(endpoint).entries
    with pytest.raises(NotFoundError, match="is not open here"):
        endpoint.abort(Room(99))


def test_how_long_a_transfer_took_is_known_of_rooms_that_were_computed(pair: Pair) -> None:
    prefill, aborted = pair.prefills[0], pair.open(20)
    prefill.abort(aborted)
    pair.pump(lambda: pair.over(aborted))
    assert [sum(prefill._phases[name].counts) for name in ("open", "transfer")] == [1, 0]
    pair.finish(pair.open(20))
    assert [sum(prefill._phases[name].counts) for name in ("open", "transfer")] == [2, 1]


# ------------------------------------------------------------------------------------------------ said twice
def test_outcome_and_release_are_told_once_however_often_the_rank_says_them(pair: Pair) -> None:
    room, decode = pair.open(20), pair.decodes[0]
    handlers, entry = inside(decode).loop.handlers, inside(decode).entries[room.key]
    for cause in (Cause.STALLED, Cause.NONE):
        handlers[do.AnnounceOutcome](do.AnnounceOutcome(room.key, cause))
        handlers[do.AnnounceReleased](do.AnnounceReleased(room.key))
    assert decode.status(room) is Status.FAILED and entry.ended >= entry.opened > 0
    assert entry.end is not None and entry.end.cause is Cause.STALLED and decode._ends == {Cause.STALLED: 1}
    (outcome,) = decode.finished()
    assert outcome.cause is Cause.STALLED and outcome.aux == b"" and decode.released() == [room]
    assert decode.finished() == [] == decode.released()


def test_what_is_said_of_a_room_that_is_not_open_here_is_told_to_nobody(pair: Pair) -> None:
    decode = pair.decodes[0]
    handlers = inside(decode).loop.handlers
    handlers[do.AnnounceOutcome](do.AnnounceOutcome(99, Cause.STALLED))
    handlers[do.AnnounceReleased](do.AnnounceReleased(99))
    inside(decode).loop.logs.blame(99, Cause.STALLED, "planted")
    assert decode.finished() == [] == decode.released()


def test_of_the_fates_of_links_silences_of_peers_that_live_are_counted(pair: Pair) -> None:
    decode = pair.decodes[0]
    for why, counted in ((do.LOST, 0), ("", 0), (do.SILENT, 1), (do.CLOSED, 1), (do.SILENT, 2)):
        inside(decode).loop.handlers[do.AnnounceLink](do.AnnounceLink(1, why))
        assert decode.metrics().get(SILENCES, 0) == counted


# ------------------------------------------------------------------------------------------------ news
def test_who_waits_for_news_sleeps_while_there_is_none_and_not_after(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    room, decode, slept = pair.open(20), pair.decodes[0], list[tuple[float | None, bool]]()
    loop = inside(decode).loop
    decode._news.alarm.set()
    monkeypatch.setattr(decode._news.alarm, "sleep", lambda limit: slept.append((limit, decode._news.alarm.is_set())))
    assert not decode.wait_news(0.5) and not decode.wait_news()
    assert slept == [(0.5, False), (None, False)]
    loop.handlers[do.AnnounceOutcome](do.AnnounceOutcome(room.key, Cause.STALLED))
    assert decode._news.alarm.is_set() and decode.wait_news() and decode.finished(), "an outcome"
    loop.handlers[do.AnnounceReleased](do.AnnounceReleased(room.key))
    assert decode._news.alarm.is_set() and decode.wait_news() and decode.released(), "a release"
    monkeypatch.setattr(loop, "broken", RuntimeError("planted"))
    assert decode.wait_news(), "the loop has broken"
    assert len(slept) == 2

"""The stream of an endpoint's events: order, bound, and what becomes of the two lists beside it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.stories import layout

import kvproto.endpoint.engine_news as news
from kvproto.endpoint.endpoint import Endpoint
from kvproto.endpoint.endpoint_events import (
    EndpointEvent,
    EventsMissed,
    PeerLeft,
    PeerLost,
    PeerSilent,
    PeerUp,
    Reported,
    RoomFinished,
    RoomMet,
    RoomOpened,
    RoomProduced,
    RoomReleased,
    peer_event,
)
from kvproto.errors import ArgumentError, EndpointError
from kvproto.protocol import effects as do
from kvproto.verify.testing import inside
from kvproto.verify.testing.pair import Pair


@pytest.fixture
def pair(monkeypatch: pytest.MonkeyPatch) -> Iterator[Pair]:
    """Both sides take events; nothing takes them but the test."""
    monkeypatch.setattr(Pair, "collect", lambda _: None)
    with Pair(layout(1), layout(1), chunk_tokens=8, ready=False) as made:
        assert all(endpoint.events() == [] for endpoint in made.endpoints)
        made.pump(made.decodes[0].ready)
        yield made


def until(pair: Pair, endpoint: Endpoint, kind: type[EndpointEvent]) -> list[EndpointEvent]:
    """Every event of the endpoint up to the call that returns one of this kind."""
    found: list[EndpointEvent] = []

    def look() -> bool:
        found.extend(endpoint.events())
        return any(isinstance(event, kind) for event in found)

    pair.pump(look)
    return found


def test_events_that_there_are_come_before_the_end_of_the_loop_is_told(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefill, room = pair.prefills[0], pair.open(30)
    assert prefill.fileno() == prefill._news.alarm.fileno()
    monkeypatch.setattr(inside(prefill).loop, "broken", RuntimeError("planted"))
    assert [event.room for event in prefill.events() if isinstance(event, RoomOpened)] == [room]
    for call in (prefill.events, prefill.finished, prefill.released):
        with pytest.raises(EndpointError, match="the loop has stopped"):
            call()


def test_a_rooms_events_come_in_the_order_of_its_life(pair: Pair) -> None:
    prefill, decode = pair.prefills[0], pair.decodes[0]
    room = pair.open(30)
    prefill.prefetch(room)
    told = until(pair, prefill, RoomMet)
    pair.produce(room)
    with pytest.raises(ArgumentError, match="is not released here"):
        prefill._need_released(room)
    told += until(pair, prefill, RoomReleased)
    prefill._need_released(room)  # its entry is kept until the next call
    (outcome,) = [event.outcome for event in told if isinstance(event, RoomFinished)]
    assert outcome.ok and outcome.room == room
    assert told == [
        PeerUp(2, 0), RoomOpened(room, 30), RoomMet(room, 0), RoomProduced(room, 30, 2), RoomFinished(outcome),
        RoomReleased(room),
    ]  # fmt: skip
    kinds = [type(event) for event in until(pair, decode, RoomReleased)]
    assert kinds == [PeerUp, RoomOpened, RoomFinished, RoomReleased]
    for endpoint in (prefill, decode):
        assert endpoint.finished() == [] == endpoint.released(), "an outcome and a release come once"


def test_a_rooms_aux_row_can_be_asked_for_until_the_call_after_its_release(pair: Pair) -> None:
    decode, room = pair.decodes[0], pair.open(30)
    pair.produce(room)
    pair.pump(lambda: sum(isinstance(event, RoomReleased) for event in decode._news.stream or ()) == 1)
    assert RoomReleased(room) in decode.events()
    assert decode.aux(room)
    assert decode.events() == [] and not inside(decode).entries
    with pytest.raises(KeyError):
        decode.aux(room)


def test_what_was_not_taken_by_the_lists_begins_the_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Pair, "collect", lambda _: None)
    with Pair(layout(1), layout(1), chunk_tokens=8) as pair:
        decode, room = pair.decodes[0], pair.open(30)
        pair.produce(room)
        pair.pump(lambda: bool(decode._news.releases))
        outcome, release = decode.events()
        assert isinstance(outcome, RoomFinished) and outcome.outcome.room == room and release == RoomReleased(room)
        assert not decode.wait_news(0)


def test_events_beyond_the_bound_are_left_out_but_no_outcome_and_no_release(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(news, "PENDING", 2)
    decode = pair.decodes[0]
    rooms = {pair.open(30) for _ in range(3)}
    for room in rooms:
        pair.produce(room)
    stream = decode._news.stream
    assert stream is not None
    pair.pump(lambda: sum(isinstance(event, RoomReleased) for event in list(stream)) == len(rooms))
    told = decode.events()
    assert told[-1] == EventsMissed() and EventsMissed() not in decode.events()
    assert {event.outcome.room for event in told if isinstance(event, RoomFinished)} == rooms
    assert {event.room for event in told if isinstance(event, RoomReleased)} == rooms
    assert sum(isinstance(event, PeerUp | RoomOpened) for event in told) == 2


def test_a_peer_that_closes_has_left_and_what_is_reported_is_an_event(pair: Pair) -> None:
    prefill, decode = pair.prefills[0], pair.decodes[0]
    inside(decode).loop.logs.fault("a planted fault", RuntimeError("planted"))
    assert Reported("a planted fault: RuntimeError: planted") in decode.events()
    decode.start()  # a goodbye that is not read before the connection ends is lost
    prefill.close()
    told: list[EndpointEvent] = []
    while not told or told[-1] != PeerLeft(1, 0):
        assert decode.wait_news(30.0), told
        told += decode.events()


@pytest.mark.parametrize(
    ("why", "event"),
    [
        ("", PeerUp(1, 2)), (do.CLOSED, PeerLeft(1, 2)), (do.SILENT, PeerSilent(1, 2)),
        (do.LOST, PeerLost(1, 2, "lost")), ("refused: another layout", PeerLost(1, 2, "refused: another layout")),
    ],
)  # fmt: skip
def test_each_fate_of_a_link_is_an_event_of_its_peer(why: str, event: EndpointEvent) -> None:
    assert peer_event(1, 2, why) == event


def test_an_engine_that_never_asks_for_events_has_none_recorded() -> None:
    with Pair(layout(1), layout(1), chunk_tokens=8) as pair:
        pair.finish(pair.open(30))
        assert all(endpoint._news.stream is None for endpoint in pair.endpoints)

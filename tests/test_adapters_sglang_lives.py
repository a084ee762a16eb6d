"""SGLang's requests with one bootstrap_room: numbers used again, rooms shared by mistake."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from support.scripted_sglang import Request, Stage

from kvproto.adapters.sglang import manager, room_lives
from kvproto.adapters.sglang.room_lives import RoomLives
from kvproto.errors import ArgumentError
from kvproto.protocol.states import Cause
from kvproto.room import Outcome, Room
from kvproto.settings import Settings


def under_way(stage: Stage, side: Any, tokens: int, at: str, **asked: bool) -> Request:
    """Return the first request of room 7 when it has come so far; the next one is then of the same room."""
    stage.ask(7, tokens, **asked)
    first: Request = side.live[0]
    stage.run(until=lambda: first.at == at)
    for rank in side.ranks:
        rank.manager.lives._known.clear()
    return first


def test_a_number_is_known_longer_than_the_endpoint_keeps_its_rooms(monkeypatch: pytest.MonkeyPatch) -> None:
    assert 8 * Settings().tombstones <= room_lives.KEPT
    monkeypatch.setattr(room_lives, "KEPT", 3)
    lives = RoomLives()
    assert [lives.next(number) for number in (5, 5, 6, 7, 5)] == [0, 1, 0, 0, 2]
    assert [lives.next(number) for number in (8, 5, 6)] == [0, 3, 0], "6 came longest ago when there were four"


def test_a_number_whose_room_is_open_is_not_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room_lives, "KEPT", 2)
    held = {Room(5): "open"}
    lives = RoomLives(held)
    assert [lives.next(number) for number in (5, 6, 7, 8, 5)] == [0, 0, 0, 0, 1]
    held.clear()
    assert [lives.next(number) for number in (8, 9, 5)] == [1, 0, 0]
    held |= {Room(number): "open" for number in range(9)} | {Room(9): "open", Room(10): "open"}
    assert [lives.next(number) for number in (10, 5)] == [0, 1], "more may be open than are kept"


def test_a_number_is_used_again_after_others() -> None:
    with Stage(1, 1) as stage:
        for number in (7, 8, 7, 9, 7):
            stage.ask(number, 37)
            stage.run()
            assert stage.prefill.ended == stage.decode.ended == {number: "well"}
            stage.prefill.ended.clear()
            stage.decode.ended.clear()
        stage.idle()


def test_a_second_request_of_an_open_room_fails_alone_at_decode() -> None:
    with Stage(1, 1) as stage:
        first = under_way(stage, stage.decode, 37, "transfer", prefill=False)
        stage.ask(7, 37, prefill=False)
        second = stage.decode.live[1]
        stage.run(until=lambda: second.at == "held")
        assert first.at == "transfer" and "is open" in second.why
        stage.ask(7, 37, decode=False)
        stage.run()
        assert (first.at, second.at, stage.prefill.ended) == ("well", "failed", {7: "well"})
        stage.idle()


def test_a_second_request_of_an_open_room_fails_alone_at_prefill() -> None:
    with Stage(1, 1) as stage:
        first = under_way(stage, stage.prefill, 100, "computing")
        stage.ask(7, 100, decode=False)
        second = stage.prefill.live[1]
        stage.run()
        assert (first.at, second.at, stage.decode.ended) == ("well", "failed", {7: "well"})
        assert "is open" in second.why
        stage.idle()


@pytest.mark.parametrize("prompt", [5, 100])
def test_a_second_request_that_is_given_up_or_is_a_stub_leaves_the_open_room_alone(prompt: int) -> None:
    """At prefill, before it has opened a room: it would refuse the room, which aborts it."""
    with Stage(1, 1) as stage:
        first = under_way(stage, stage.prefill, 100, "computing")
        stage.ask(7, prompt, decode=False)
        if prompt == 100:
            stage.prefill.live[1].parts[0].abort()
        stage.run()
        assert (first.at, stage.decode.ended) == ("well", {7: "well"})


def test_a_second_request_that_is_declined_leaves_the_open_room_alone() -> None:
    """At decode, before SGLang has pages for it."""
    with Stage(1, 1) as stage:
        first = under_way(stage, stage.decode, 37, "transfer", prefill=False)
        rows, stage.decode.rows = stage.decode.rows, []
        stage.ask(7, 37, prefill=False)
        second = stage.decode.live[1]
        second.parts[0].look_around()
        second.parts[0].abort()
        assert not second.parts[0].abort_notified and first.parts[0].abort_notified
        stage.decode.rows = rows
        stage.ask(7, 37, decode=False)
        stage.run()
        assert (first.at, second.at) == ("well", "failed")
        stage.idle()


def test_a_room_without_a_request_does_not_end_the_scheduler() -> None:
    outcomes, told = [Outcome(Room(1), Cause.NONE), Outcome(Room(2), Cause.NONE)], list[Any]()
    one = SimpleNamespace(end=told.append, hear=told.append)
    options = SimpleNamespace(keep_digests=lambda *_: None)
    made: Any = SimpleNamespace(
        endpoint=SimpleNamespace(finished=lambda: outcomes, released=lambda: [Room(1), Room(2)]),
        tasks={Room(2): one}, options=options, prefill=True, instance=SimpleNamespace(dp_rank=0, ranks=1, rank=0),
    )  # fmt: skip
    manager.Manager.advance(made)
    assert told[0] is outcomes[1] and len(told) == 2 and made.tasks == {}


def test_a_request_that_could_not_open_its_room_is_none_of_the_open_ones() -> None:
    """So the request whose room it is keeps its entry, however the other one ends."""

    def fail(*_: Any, **__: Any) -> None:
        raise ArgumentError("is open, or was a short while ago")

    with Stage(1, 1) as stage:
        stage.ask(7, 37, prefill=False)
        first: Request = stage.decode.live[0]
        stage.run(until=lambda: first.at == "reaching")
        made = stage.decode.ranks[0].manager
        made.endpoint.open = made.endpoint.announce = fail
        stage.run(until=lambda: not stage.decode.live)
        assert made.tasks == {} and first.at == "failed"

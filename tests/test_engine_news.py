"""An engine's news: those that are kept, alarms, the descriptor, and their return after an interrupt."""

from __future__ import annotations

import os
import select
import threading
import time
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import cast

import pytest
import torch
from support.waiters import wake_all

from kvproto.data.room_entry import RoomEntry
from kvproto.endpoint import engine_news
from kvproto.endpoint.endpoint_events import EndpointEvent, EventsMissed, Reported, RoomFinished, RoomReleased
from kvproto.endpoint.engine_news import EngineNews
from kvproto.endpoint.news import News
from kvproto.loop.loop_thread import LoopThread
from kvproto.protocol.states import Cause
from kvproto.room import Outcome, Room

#: outcomes kept for an engine that asks for none
KEPT = 1
A, B, C = ROOMS = Room(1), Room(2), Room(3)


class Ended:
    """Three rooms that have ended and were released, and their news."""

    def __init__(self, *, events: bool = False) -> None:
        table = torch.zeros(1, dtype=torch.int64)
        self.entries = {room.key: RoomEntry(4, table, table.numpy(), 1, room=room) for room in ROOMS}
        self.news = EngineNews(self.entries, KEPT)
        if events:
            assert self.news.take_events()[0] == []
        for room in ROOMS:
            self.news.add_outcome(Outcome(room, Cause.NONE))
            self.news.add_release(room)

    def left(self) -> list[Room]:
        """The rooms that still have an entry."""
        return [room for room in ROOMS if room.key in self.entries]


def test_an_engine_that_asks_for_outcomes_loses_none_by_taking_releases() -> None:
    ended = Ended()
    ended.news.asks_outcomes = True
    assert ended.news.take_releases()[0] == []
    assert [outcome.room for outcome in ended.news.take_outcomes()[0]] == [A, B, C]
    assert ended.news.take_releases()[0] == [A, B, C] and not ended.left()


def test_of_outcomes_that_no_engine_asks_for_the_newest_are_kept() -> None:
    ended = Ended()
    assert ended.news.take_releases()[0] == [A, B, C]
    assert [outcome.room for outcome in ended.news.outcomes] == [C]


def test_releases_and_outcomes_that_are_given_back_are_taken_again_in_order() -> None:
    ended = Ended()
    ended.news.asks_outcomes = True
    found, undo = ended.news.take_outcomes()
    undo()
    assert ended.news.take_releases()[0] == [], "no outcome was handed out"
    assert ended.news.take_outcomes()[0] == found and len(found) == len(ROOMS)
    rooms, undo = ended.news.take_releases()
    ended.news.add_release(Room(4))
    assert not ended.left()
    undo()
    assert ended.left() == [A, B, C] and list(ended.news.releases) == [*rooms, Room(4)]


def test_events_that_are_given_back_are_taken_again_in_order_and_with_their_entries() -> None:
    ended = Ended(events=True)
    first, undo = ended.news.take_events()
    undo()
    assert ended.news.take_events()[0] == first == [
        event for room in ROOMS for event in (RoomFinished(Outcome(room, Cause.NONE)), RoomReleased(room))
    ]  # fmt: skip
    assert ended.left() == [A, B, C], "an entry stays for one call more"
    ended.news.add(Reported("later"))
    second, undo = ended.news.take_events()
    assert second == [Reported("later")] and not ended.left()
    undo()
    assert ended.left() == [A, B, C]
    assert ended.news.take_events()[0] == second and not ended.left()


@pytest.mark.parametrize("again", [False, True])
def test_that_events_were_missed_is_said_after_they_were_given_back(
    monkeypatch: pytest.MonkeyPatch, *, again: bool
) -> None:
    ended, text = Ended(events=True), Reported("one")
    ended.news.take_events()
    monkeypatch.setattr(engine_news, "PENDING", 1)
    for _ in range(2):
        ended.news.add(text)
    found, undo = ended.news.take_events()
    assert found == [text, EventsMissed()]
    if again:  # while they are away
        for _ in range(2):
            ended.news.add(text)
    undo()
    expected: list[EndpointEvent] = [text, text, EventsMissed()] if again else [text, EventsMissed()]
    assert ended.news.take_events()[0] == expected
    ended.news.add(text)
    found, undo = ended.news.take_events()
    for _ in range(2):
        ended.news.add(text)
    undo()
    assert ended.news.take_events()[0] == [text, text, EventsMissed()], "missed while none was"


@pytest.mark.parametrize("events", [False, True])
def test_every_kind_of_news_wakes_both_alarms(*, events: bool) -> None:
    ended, common = Ended(events=events), News()
    news, room = ended.news, Room(4)
    adds: list[Callable[[], None]] = [
        partial(news.add_outcome, Outcome(room, Cause.NONE)), partial(news.add_release, room),
        *[partial(news.add, Reported("one"))] * events,
    ]  # fmt: skip
    for add in adds:
        news.alarm.clear()
        news.common = None
        add()
        assert news.alarm.is_set()
        news.common = common
        common.clear()
        add()
        assert common.is_set()


def readable(news: News) -> bool:
    return bool(select.select([news], [], [], 0)[0])


def test_the_descriptor_stays_the_same_neither_blocks_nor_is_inherited_and_ends_with_its_object() -> None:
    news = News()
    fd = news.fileno()
    assert news.fileno() == fd and not os.get_blocking(fd) and not os.get_inheritable(fd)
    del news
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)


@pytest.mark.parametrize("first", ["the descriptor", "the news"])
def test_the_descriptor_is_readable_from_set_to_clear(first: str) -> None:
    news = News()
    if first == "the descriptor":
        assert not readable(news)
    news.clear()
    for _ in range(2):
        for _ in range(3):
            news.set()
        assert readable(news) and news.is_set()
        news.clear()
        assert not readable(news) and not news.is_set()
        news.clear()  # nothing was written


def test_the_descriptor_may_be_the_first_of_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process without a standard input gives out number 0."""
    done, numbers = list[tuple[str, int]](), iter([0])
    monkeypatch.setattr(os, "eventfd", lambda *_: next(numbers))
    monkeypatch.setattr(os, "eventfd_write", lambda fd, _: done.append(("write", fd)))
    monkeypatch.setattr(os, "eventfd_read", lambda fd: done.append(("read", fd)))
    monkeypatch.setattr(os, "close", lambda fd: done.append(("close", fd)))
    news = News()
    assert news.fileno() == 0 == news.fileno()
    news.set()
    news.clear()
    del news
    assert done == [("write", 0), ("read", 0), ("close", 0)]


@pytest.mark.parametrize("timeout", [None, 0.5, -1.0, float("inf")])
def test_a_sleep_ends_by_news_or_by_its_time_however_long_that_is(timeout: float | None) -> None:
    news = News()
    if timeout != -1.0:
        waker = threading.Timer(0.02, news.set)
        waker.start()
    news.sleep(timeout)
    assert news.is_set() == (timeout != -1.0)


def test_who_comes_last_does_not_sleep_on_news_that_another_one_has_seen() -> None:
    news = News()
    news.set()
    for _ in range(2):
        news.sleep(None)


def test_two_threads_that_wait_first_at_once_are_both_woken(monkeypatch: pytest.MonkeyPatch) -> None:
    news, make = News(), os.eventfd

    def slow(*given: int) -> int:
        time.sleep(0.05)
        return make(*given)

    monkeypatch.setattr(os, "eventfd", slow)
    assert wake_all(3, lambda: news.sleep(30.0), news.set) < 15.0


def test_a_descriptor_that_another_thread_made_first_is_the_only_one(monkeypatch: pytest.MonkeyPatch) -> None:
    news, make, mine = News(), os.eventfd, list[int]()

    def beaten(*given: int) -> int:
        mine.append(make(*given))
        monkeypatch.setattr(os, "eventfd", make)
        news.fileno()
        return mine[0]

    monkeypatch.setattr(os, "eventfd", beaten)
    assert news.fileno() == news.fileno() != mine[0]
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(mine[0])


def test_in_the_child_of_a_fork_nothing_is_awaited_or_taken() -> None:
    news, parent = News(), cast("LoopThread", SimpleNamespace(forked=True))
    news.set()
    assert not news.wait(parent, lambda: True, None) and news.is_set()

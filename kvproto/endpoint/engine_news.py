"""Engine news: holds the outcomes, releases and events that the engine has not taken yet.

The loop's thread adds, the engine's thread takes.  An engine chooses one of two ways:

* two lists, `finished()` and `released()`;
* one stream, `events()`.  From its first call on, outcomes and releases come by it alone, and the lists stay empty.

Either way an entry is kept until its release has been handed out, so that the engine can ask for aux rows and digests.
Nothing grows without bound: outcomes and releases are at most one for each room that the engine has opened, and of
other events `PENDING` wait at most.

News reach the engine, or stay: a signal handler that raises while they are taken has them given back (`taken`).
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

from kvproto.data.room_entry import RoomEntry
from kvproto.endpoint.endpoint_events import EndpointEvent, EventsMissed, RoomFinished, RoomReleased
from kvproto.endpoint.news import News
from kvproto.loop.held_signals import HeldSignals
from kvproto.room import Outcome, Room

T = TypeVar("T")
#: what was taken, and the call that gives it back
Taken = tuple[list[T], Callable[[], None]]
#: events that wait for an engine, at most, before others than outcomes and releases are left out
PENDING = 4096


class EngineNews:
    """The news of one endpoint."""

    def __init__(self, entries: dict[int, RoomEntry], kept: int) -> None:
        """Make it empty; it ends `entries`, and keeps `kept` outcomes for an engine that asks for none."""
        self._entries, self._kept = entries, kept
        self.outcomes: deque[Outcome] = deque()
        self.releases: deque[Room] = deque()
        #: None: the engine has not asked for events
        self.stream: deque[EndpointEvent] | None = None
        self.alarm = News()
        #: wakes an engine that waits for the news of several endpoints (None: there is no such engine)
        self.common: News | None = None
        #: whether the engine takes outcomes by their list
        self.asks_outcomes = False
        self._missed = False
        #: held while news move from the lists to the stream, and while an outcome or a release is added to either
        self._switch = threading.Lock()
        #: rooms whose release the last call of `take_events` has handed out
        self._leaving: list[int] = []

    def __bool__(self) -> bool:
        return bool(self.outcomes or self.releases or self.stream)

    # ---------------------------------------------------------------------------------------------- adding
    def add_outcome(self, outcome: Outcome) -> None:
        """The room is over."""
        with self._switch:
            if self.stream is None:
                self.outcomes.append(outcome)
            else:
                self.stream.append(RoomFinished(outcome))
        self.wake()

    def add_release(self, room: Room) -> None:
        """The transfer does not touch the room's pages any more."""
        with self._switch:
            if self.stream is None:
                self.releases.append(room)
            else:
                self.stream.append(RoomReleased(room))
        self.wake()

    def add(self, event: EndpointEvent) -> None:
        """Add any other event, if the engine takes events and is not too far behind.  Any thread."""
        stream = self.stream
        if stream is None:
            return
        if len(stream) < PENDING:
            stream.append(event)
        else:
            self._missed = True
        self.wake()

    def wake(self) -> None:
        """Wake the threads that wait for news."""
        if not self.alarm.is_set():  # a waiter clears it first and then looks, so nothing is missed
            self.alarm.set()
        if self.common is not None and not self.common.is_set():
            self.common.set()

    # ---------------------------------------------------------------------------------------------- taking
    def take_outcomes(self) -> Taken[Outcome]:
        """Take the outcomes since the last call."""
        outcomes = _drain(self.outcomes)
        for outcome in outcomes:
            self._hand_out(outcome)

        def undo() -> None:
            for outcome in outcomes:
                self._hand_out(outcome, handed=False)
            self.outcomes.extendleft(reversed(outcomes))

        return outcomes, undo

    def take_releases(self) -> Taken[Room]:
        """Take the rooms released since the last call; for an engine that takes outcomes, after these."""
        rooms: list[Room] = []
        early: list[Room] = []
        ended = dict[int, RoomEntry]()
        for room in _drain(self.releases):
            # An engine that takes both must not free a room's pages before it has read how the room ended.
            if self.asks_outcomes and not self._entries[room.key].handed:
                early.append(room)
            else:
                rooms.append(room)
                ended[room.key] = self._entries.pop(room.key)
        # Back in front and in order: the next call hands them out, after their outcomes.
        self.releases.extendleft(reversed(early))
        while not self.asks_outcomes and len(self.outcomes) > self._kept:
            self._hand_out(self.outcomes.popleft())

        def undo() -> None:
            self._entries.update(ended)
            self.releases.extendleft(reversed(rooms))

        return rooms, undo

    def take_events(self) -> Taken[EndpointEvent]:
        """Take everything since the last call, in order; entries of released rooms stay one call longer."""
        stream = self.stream if self.stream is not None else self._begin_stream()
        leaving, ended = self._leaving, {key: self._entries.pop(key) for key in self._leaving if key in self._entries}
        found: list[EndpointEvent] = _drain(stream)
        self._leaving = [event.room.key for event in found if isinstance(event, RoomReleased)]
        missed, self._missed = self._missed, False

        def undo() -> None:
            self._entries.update(ended)
            self._leaving, self._missed = leaving, self._missed or missed
            stream.extendleft(reversed(found))

        return [*found, EventsMissed()] if missed else found, undo

    def _begin_stream(self) -> deque[EndpointEvent]:
        """Return the stream, which begins with the news that the engine has not taken by the lists."""
        with self._switch:
            if self.stream is None:
                told = [RoomFinished(outcome) for outcome in _drain(self.outcomes)]
                self.stream = deque([*told, *map(RoomReleased, _drain(self.releases))])
            return self.stream

    def _hand_out(self, outcome: Outcome, *, handed: bool = True) -> None:
        entry = self._entries.get(outcome.room.key)
        if entry is not None:  # else the release was taken first
            entry.handed = handed


def taken(take: Callable[[], Taken[T]]) -> list[T]:
    """Return what a method of `EngineNews` takes; a signal that is raised meanwhile gives it back."""
    undo: Callable[[], None] = lambda: None  # noqa: E731
    try:
        with HeldSignals():
            found, undo = take()
        return found  # noqa: TRY300  # up to here a handler may raise
    except BaseException:
        undo()
        raise


def _drain(queue: deque[Any]) -> list[Any]:
    return [queue.popleft() for _ in range(len(queue))]

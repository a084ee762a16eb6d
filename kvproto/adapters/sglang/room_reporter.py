"""RoomReporter: a prefill rank's reports of rooms to its bootstrap server, on a thread.

Most rooms are never reported: a decode instance computes the data-parallel rank from the room, and awaits it there.
Reported are rooms whose place cannot be computed, at once, and every `LOOK_S` those that nobody awaits here, with those
that are awaited here and that SGLang has not sent here (`RoomDirectory` says why).
"""

from __future__ import annotations

import http.client
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from http import HTTPStatus
from queue import Empty, SimpleQueue

import msgspec

from kvproto.adapters.sglang.room_directory import MOST, RoomReport
from kvproto.fsm.codec import UNREADABLE

#: seconds between two looks at what waits
LOOK_S = 0.25

#: sends a report; returns status and body; OSError or HTTPException: there is no answer
Send = Callable[[bytes], tuple[int, bytes]]


class RoomReporter(threading.Thread):
    """Reports from its start until the rank is closed."""

    def __init__(
        self, dp_rank: int, send: Send, awaited: Callable[[], Iterable[int]], refuse: Callable[[int, int], None],
        lives: Callable[[], bool] = lambda: True,
    ) -> None:  # fmt: skip
        """Not started.

        Args:
            dp_rank: this rank's number
            send: carries a report to the bootstrap server, and may block
            awaited: the rooms that decode ranks await here, and that are not open here
            refuse: told of a room that is awaited here, and of the dp rank that has it; on this thread
            lives: whether the rank still does

        """
        super().__init__(name="kvproto-rooms", daemon=True)
        self._dp_rank, self._send, self._awaited, self._refuse, self._lives = dp_rank, send, awaited, refuse, lives
        self._lock = threading.Lock()
        #: an entry ends the sleep; a condition's lock would stay held by an interrupt of the engine's thread
        self._wakes = SimpleQueue[None]()
        self._here, self._over = set[int](), False
        #: rooms to be reported once, though they are over here by then: a decode instance may wait for one elsewhere
        self._once: dict[int, None] = {}
        self._refused = set[int]()
        self._elsewhere: dict[int, int] = {}

    def add(self, room: int, *, at_once: bool) -> None:
        """Know a room that SGLang has sent here, until `forget`; any thread."""
        with self._lock:
            self._here.add(room)
            if at_once:
                self._once[room] = None
                if len(self._once) > MOST:  # the server does not answer
                    del self._once[next(iter(self._once))]
                if self._wakes.empty():
                    self._wakes.put(None)

    def forget(self, room: int) -> None:
        """Report it no more, but once at once: somebody awaits it here, or it is over; any thread."""
        with self._lock:
            self._here.discard(room)
            self._elsewhere.pop(room, None)

    def elsewhere(self, room: int) -> int | None:
        """Return the dp rank at which this room of this rank is awaited; None: none that is known."""
        return self._elsewhere.get(room)

    def stop(self) -> None:
        """Report no more; any thread."""
        self._over = True
        self._wakes.put(None)

    def run(self) -> None:
        """Report until `stop` is called or the rank is closed."""
        while self._lives():
            with suppress(Empty):
                self._wakes.get(timeout=LOOK_S)
            if self._over:
                return
            with self._lock:
                here = self._here | self._once.keys()
            waiting = set(self._awaited())
            self._refused &= waiting
            self.report(here - waiting, waiting - here - self._refused)

    def report(self, rooms: set[int], awaited: set[int]) -> None:
        """Send these, if there are any, and settle what is answered."""
        if not rooms and not awaited:
            return
        told = RoomReport(self._dp_rank, tuple(sorted(rooms)[:MOST]), tuple(sorted(awaited)[:MOST]))
        try:
            status, body = self._send(msgspec.json.encode(told))
            found = msgspec.json.decode(body, type=dict[int, int]) if status == HTTPStatus.OK else {}
        except (OSError, http.client.HTTPException, *UNREADABLE):
            return  # the announcer logs a server that does not answer; the next look tries again
        if status == HTTPStatus.OK:
            with self._lock:
                for room in told.rooms:
                    self._once.pop(room, None)
        for room, place in found.items():
            if place == self._dp_rank:
                continue
            if room in awaited:
                self._refused.add(room)
                self._refuse(room, place)
            else:
                with self._lock:
                    if room in self._here:
                        self._elsewhere[room] = place

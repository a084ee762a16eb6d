"""RoomDirectory: at which data-parallel rank a room is, as a bootstrap server knows it.

A decode instance that cannot compute the data-parallel rank from a room asks for it (`find`: a question of SGLang's
scheduler).  A router may also send a request to one data-parallel rank, and have it awaited at another.  Then neither
side would hear of the other until a timeout.  So each data-parallel rank reports the rooms that it has and nobody
awaits, and those that are awaited and it has not (`report`); the answer says where the other half of a room is.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Annotated

import msgspec

from kvproto.adapters.card import MAX_DATA_PARALLEL
from kvproto.errors import ArgumentError
from kvproto.fsm.codec import UNREADABLE

#: seconds for which a room is known at its rank, and for which it counts as awaited (it may be sent again elsewhere)
KEPT_S, AWAITED_S = 120.0, 10.0
#: rooms in a report, and rooms that are known in all
MOST, ALL = 4096, 1 << 16

Rooms = Annotated[tuple[Annotated[int, msgspec.Meta(ge=0)], ...], msgspec.Meta(max_length=MOST)]


class RoomReport(msgspec.Struct, frozen=True):
    """The rooms that a dp rank has and nobody awaits there, and those awaited there that it has not."""

    dp_rank: Annotated[int, msgspec.Meta(ge=0, lt=MAX_DATA_PARALLEL)]
    rooms: Rooms = ()
    awaited: Rooms = ()


class RoomQuery(msgspec.Struct, frozen=True):
    """The question of SGLang's decode scheduler."""

    bootstrap_rooms: Rooms


class RoomDirectory:
    """The rooms of one prefill instance; any thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._lock = clock, threading.Lock()
        #: by room: its dp rank and when that was reported; the newest is last
        self._at: OrderedDict[int, tuple[int, float]] = OrderedDict()
        self._awaited: OrderedDict[int, tuple[int, float]] = OrderedDict()

    def report(self, body: bytes) -> dict[str, int]:
        """Take a report; return the dp rank of each of its rooms whose other half is elsewhere.

        Raises: ArgumentError: the body is no report.
        """
        try:
            told = msgspec.json.decode(body, type=RoomReport)
        except UNREADABLE as error:
            raise ArgumentError(f"this is no report of rooms: {error}") from error
        with self._lock:
            now = self._clock()
            for known, rooms, kept in ((self._at, told.rooms, KEPT_S), (self._awaited, told.awaited, AWAITED_S)):
                for room in rooms:
                    known[room] = told.dp_rank, now
                    known.move_to_end(room)
                _forget(known, now - kept)
            halves = [*((room, self._awaited) for room in told.rooms), *((room, self._at) for room in told.awaited)]
            return {str(room): known[room][0] for room, known in halves if room in known}

    def find(self, body: bytes) -> dict[str, int]:
        """Return the dp rank of each room of the query that has been reported.

        Raises: ArgumentError: the body is no query.
        """
        try:
            rooms: Sequence[int] = msgspec.json.decode(body, type=RoomQuery).bootstrap_rooms
        except UNREADABLE as error:
            raise ArgumentError(f"this is no query of rooms: {error}") from error
        with self._lock:
            return {str(room): self._at[room][0] for room in rooms if room in self._at}


def _forget(known: OrderedDict[int, tuple[int, float]], before: float) -> None:
    """Drop what was reported before that, or is too much, from the oldest on."""
    while known and (len(known) > ALL or next(iter(known.values()))[1] < before):
        known.popitem(last=False)

"""Takers: several names of a decode engine for one room, each with its own outcome and release.

The room is transferred once, and no peer hears of its other names.  A name that is given up has its outcome at once;
the transfer is given up with the last name.  Every name is released with the room, since until then bytes may land in
the pages that all of them have (docs/design/one_transfer_several_takers.md).  Thread: the loop's.
"""

from __future__ import annotations

from msgspec.structs import replace

from kvproto.data.room_entry import RoomEntry
from kvproto.endpoint.engine_news import EngineNews
from kvproto.protocol.states import Cause
from kvproto.room import Outcome

#: why a name ends whose room goes on
GIVEN_UP = "its engine gave this name up; the transfer goes on for others"


def join(entry: RoomEntry, news: EngineNews) -> None:
    """Let a new name of a room have what the room has: also its end, if that has come."""
    main = entry.main
    main.takers = (*main.takers, entry)
    if main.end is not None:
        _tell(entry, main.end, news)
    if main.released:
        _release(entry, news)


def end(entry: RoomEntry, outcome: Outcome, news: EngineNews) -> None:
    """Hand out the outcome of this entry's room to each of its names, except those that were given up."""
    entry.end = outcome
    for each in (entry, *entry.takers):
        _tell(each, outcome, news)


def release(entry: RoomEntry, news: EngineNews) -> None:
    """Hand out the release of each name of this entry's room."""
    for each in (entry, *entry.takers):
        _release(each, news)


def give_up(entry: RoomEntry, cause: Cause, news: EngineNews) -> bool:
    """Give up this name alone; false: no other name wants the room, or it has ended."""
    main = entry.main
    if main.end is not None or not any(each.cause is None for each in main.names if each is not entry):
        return False
    assert entry.room is not None
    _tell(entry, Outcome(entry.room, cause, reason=GIVEN_UP), news)
    return True


def _tell(entry: RoomEntry, outcome: Outcome, news: EngineNews) -> None:
    if entry.cause is None:
        assert entry.room is not None
        entry.cause = outcome.cause
        news.add_outcome(outcome if outcome.room == entry.room else replace(outcome, room=entry.room))


def _release(entry: RoomEntry, news: EngineNews) -> None:
    if not entry.released:
        assert entry.room is not None
        entry.released = True
        news.add_release(entry.room)

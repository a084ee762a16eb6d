"""Gathers and scatters that are made ready before they are due, as writes are (`prepared_writes`).

What a launch needs is known long before it: a region is granted, a slot can be guessed, the room has its pages.  Where
there is a device, a loop that has nothing else to do works all of it out (which bytes of staging, which share, which
compiled kernel, its arguments), so that a notification or the end of a forward is followed by the launch alone.  That
matters more than the few microseconds that it takes when it is done again and again: code that ran a millisecond ago
is no longer in the processor's caches, and takes three times as long.

What was made ready decides nothing.  It is kept by the effect that would launch it, and taken by that very effect, of
the same room as the engine knows it and by the same plan; all else is made anew, and tells its fault then.  With its
room it goes: a launch holds the room's table and its entry.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from kvproto.data.room_entry import RoomEntry
from kvproto.io.kernels.base import Launch

#: launches that are kept; the oldest give way
KEPT = 256


class OfRoom(Hashable, Protocol):
    """`LaunchGather` or `LaunchScatter`."""

    @property
    def room(self) -> int:
        """The room's key."""


E = TypeVar("E", bound=OfRoom)
#: whose heads and layers go where, as a side says it
By = TypeVar("By")


class ReadyLaunch(msgspec.Struct, frozen=True):
    """A launch, and what it was made from."""

    entry: RoomEntry
    by: object
    launch: Launch
    #: the bytes of staging, [first, end)
    first: int
    end: int
    #: layers of the rank's, counted from its first, that have to be there
    layers: int


class PreparedLaunches(Generic[E, By]):
    """The launches of one rank that are ready."""

    def __init__(
        self, make: Callable[[E, RoomEntry, By], ReadyLaunch], kept: dict[Any, ReadyLaunch] | None = None
    ) -> None:
        """`kept`: where others keep theirs, too, to be forgotten together."""
        self._make = make
        #: empty or not is looked at as each room is released, without a call
        self.kept: dict[E, ReadyLaunch] = {} if kept is None else kept

    def __len__(self) -> int:
        return len(self.kept)

    def __contains__(self, effect: E) -> bool:
        return effect in self.kept

    def ready(self, effect: E, entry: RoomEntry | None, by: By | None) -> None:
        """This will be asked for, it seems."""
        if entry is None or entry.cause is not None or by is None or effect in self.kept:
            return
        try:
            self.kept[effect] = self._make(effect, entry, by)
        except Exception:  # noqa: BLE001  # whatever it is, the launch meets it again and tells it
            return
        while len(self.kept) > KEPT:
            del self.kept[next(iter(self.kept))]

    def take(self, effect: E, entry: RoomEntry, by: By) -> ReadyLaunch:
        """What this effect launches; made now if it is not ready.  Raises what stands in its way."""
        kept = self.kept.pop(effect, None)
        if kept is not None and kept.entry is entry and kept.by == by:
            return kept
        return self._make(effect, entry, by)

    def forget(self, room: int) -> None:
        """This room is over."""
        for effect in [effect for effect in self.kept if effect.room == room]:
            del self.kept[effect]

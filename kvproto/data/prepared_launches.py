"""Prepared launches: gathers and scatters that are made before they are due, as `staged_writes` are.

The inputs of a launch are known early: a region is granted, a slot can be guessed, the room has its pages.  On a device
an idle loop prepares everything (bytes of staging, share, compiled kernel, arguments), so that only the launch itself
follows a notification or the end of a forward.  This saves more than the few microseconds of a repeated preparation:
code that last ran a millisecond ago is no longer in the processor's caches, and takes three times as long.

A prepared launch decides nothing.  It is stored under the effect that would launch it, and used only by that effect,
for the same entry of the room and by the same plan.  Otherwise the launch is made again, and raises its fault then.  It
is dropped with its room, because it holds the room's table and its entry. """

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
#: the side's description of the moved heads and layers
By = TypeVar("By")


class ReadyLaunch(msgspec.Struct, frozen=True):
    """A launch, and what it was made from."""

    entry: RoomEntry
    by: object
    launch: Launch
    #: the bytes of staging, [first, end)
    first: int
    end: int
    #: of KV that it moves
    nbytes: int
    #: layers of the rank's, counted from its first, that have to be there
    layers: int = 0


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
        except Exception:  # noqa: BLE001  # whatever it is, the launch raises it again and reports it
            return
        while len(self.kept) > KEPT:
            del self.kept[next(iter(self.kept))]

    def take(self, effect: E, entry: RoomEntry, by: By) -> ReadyLaunch:
        """Return the launch of this effect, prepared or made now.  Raises the error of making it."""
        kept = self.kept.pop(effect, None)
        if kept is not None and kept.entry is entry and kept.by == by:
            return kept
        return self._make(effect, entry, by)

    def forget(self, room: int) -> None:
        for effect in [effect for effect in self.kept if effect.room == room]:
            del self.kept[effect]

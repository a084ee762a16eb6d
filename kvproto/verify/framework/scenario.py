"""Scenario: the surroundings of a protocol's parties in a simulated world, for searches and for
stages.

A party's *surroundings* are a value: its stable storage, what its application has done and was told.  A scenario says
how the parties start, what becomes of effects that are no messages, what applications may do, and what has to hold.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from kvproto.fsm.party import Member
from kvproto.fsm.vocabulary import Effect, Event, Report
from kvproto.verify.framework.network import Net
from kvproto.verify.framework.symmetry import Alike, Renaming, renamed

#: a party's surroundings: whatever can be compared and hashed
Around = Any


class Chances(msgspec.Struct, frozen=True):
    """How the network behaves, how much may go wrong in one behaviour, and what is asked of a search."""

    net: Net = "unordered"
    #: how often each may happen: a message is lost, comes twice; a timer ends although messages are under way for its
    #: party or from it; a party crashes, also in the middle of what it does
    drop: int = 0
    duplicate: int = 0
    early: int = 0
    crash: int = 0
    #: what has crashed comes back
    restart: bool = True
    #: ask whether every way can come to rest
    live: bool = True
    limit: int = 2_000_000
    #: sights that have to be seen, and that must not be
    must: tuple[str, ...] = ()
    never: tuple[str, ...] = ()
    about: str = ""


class ApplicationCall(NamedTuple):
    """Something that an application may do: in a word, with its surroundings afterwards."""

    word: str
    around: Around
    event: Event


class View(NamedTuple):
    """One party for the properties; `values`: each machine's value by store and key; None: it is dead."""

    name: str
    around: Around
    values: Mapping[str, Mapping[Any, Any]] | None

    def machines(self, store: str) -> list[Any]:
        """Return the value of each machine of a store; of a dead party none."""
        return list((self.values or {}).get(store, {}).values())


class Scenario:
    """Parties and their surroundings; numbers count from zero, in the order of `names`."""

    #: every party's surroundings at first
    first: Around = None

    def __init__(self, names: tuple[str, ...], chances: Chances, alike: Alike | None = None) -> None:
        """`alike`: names that may be exchanged everywhere, which changes nothing."""
        self.names, self.chances, self.alike = names, chances, alike or {}

    def around(self, number: int) -> Around:
        """A party's surroundings before its first start: as a rule `first`."""
        return self.first

    def start(self, number: int, around: Around, life: int, now: float) -> tuple[Member, list[Effect]]:
        """The party as it starts, for the first time (life 0) or again, and what it does at once."""
        return self.party(number), []

    def party(self, number: int) -> Member:
        """Make the party of this number, as it is before anything has happened."""
        raise NotImplementedError

    def act(self, number: int, around: Around, effect: Effect) -> tuple[Around, Event | None]:
        """Carry out an effect that is no message: return the surroundings, and the event that answers at once."""
        raise NotImplementedError

    def calls(self, number: int, around: Around) -> Iterable[ApplicationCall]:
        """Yield the next possible calls of the party's application."""
        return ()

    def crashed(self, number: int, around: Around) -> Around:
        """Return the surroundings that survive a crash: stable storage."""
        return around

    def broken(self, views: list[View]) -> tuple[str, str] | None:
        """A property that does not hold, and how; asked of every state."""
        raise NotImplementedError

    def unrest(self, views: list[View]) -> tuple[str, str] | None:
        """The property that fails if the world stays so for ever, and how; asked when no message is under way."""
        raise NotImplementedError

    def sights(self, views: list[View]) -> Iterable[str]:
        """Yield the sights of these views."""
        return ()

    def renamed(self, around: Around, by: Renaming) -> Around:
        """Exchange the names of `alike` parties in the surroundings; sort again what is sorted by name."""
        return renamed(around, by)

    def carry_out(self, number: int, around: Around, effect: Effect) -> tuple[Around, Event | None]:
        """As `act`; that something is odd changes nothing."""
        return (around, None) if isinstance(effect, Report) else self.act(number, around, effect)

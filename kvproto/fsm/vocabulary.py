"""Vocabulary: the base types of states, events and effects of every machine.

*States* are members of an `IntEnum`; their numbers are indices into the compiled tables, so they count from zero in
each machine.  *Events* are facts that have happened.  *Effects* are orders: the machines' owner carries an `Internal`
one out itself, in the same pass and without any I/O; all others leave it.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Annotated, Any, ClassVar

import msgspec

from kvproto.fsm.kinds import Mask


class State(IntEnum):
    """Base of every machine's states."""


class Event(msgspec.Struct, frozen=True, gc=False):
    """Base of every event."""

    #: which machine it is for; "": any
    machine: ClassVar[str] = ""


class TimerFired(Event, frozen=True):
    """The timer of the machine's state ended.

    A protocol has an event of its own below this one: with the fields that name the machine, and after them `tries`,
    how often the timer may be started in all.
    """


class Effect(msgspec.Struct, frozen=True, gc=False):
    """Base of every effect."""


class Internal(Effect, frozen=True):
    """Base of the effects that the rank carries out itself."""


class Transmit(Effect, frozen=True):
    """Send this to a peer, by the number that this party gives it.  (A protocol may define its own.)"""

    peer: int
    body: Any


class Broadcast(Internal, frozen=True):
    """Say this to these peers: a mask, with the bit of each one's number."""

    peers: Annotated[int, Mask()]
    body: Any


class Report(Effect, frozen=True):
    """Report to the log: an event was refused, or something is odd."""

    what: str
    why: str

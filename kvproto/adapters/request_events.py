"""Request events and effects, at the scheduler and at a rank.

The engine passes events to its scheduler's machines (`Arrived` ... `Finished`); ranks add their reports.  A rank's
machines get the scheduler's orders, each as an event of its own, and the endpoint's outcomes.
"""

from __future__ import annotations

from kvproto.adapters.request_words import GiveUp, Order, Ranks, Ticket
from kvproto.fsm import vocabulary
from kvproto.fsm.timing import Timer, Timers
from kvproto.fsm.vocabulary import Effect, Event


# ------------------------------------------------------------------------------------- what the engine says
class Arrived(Event, frozen=True):
    """The engine has accepted a request that sends or receives KV; `ranks`: mask of those that report."""

    request: str
    ticket: Ticket
    ranks: Ranks


class Scheduled(Event, frozen=True):
    """The next step computes the prompt up to `upto` tokens; `blocks`: all blocks of the request.

    `slots`: of its recurrent state; none: the model has no such state.  `windows`: as orders have them.
    """

    request: str
    blocks: tuple[int, ...]
    upto: int
    slots: tuple[int, ...] = ()
    windows: tuple[tuple[int, ...], ...] = ()


class Preempted(Event, frozen=True):
    """Its blocks were taken away; it will be scheduled again, from the beginning."""

    request: str


class Allocated(Event, frozen=True):
    """It has blocks for its whole prompt; the KV of the first `prefix` tokens is in them already.

    `slots`: for its recurrent state; `windows`: as orders have them.
    """

    request: str
    blocks: tuple[int, ...]
    prefix: int
    slots: tuple[int, ...] = ()
    windows: tuple[tuple[int, ...], ...] = ()


class Finished(Event, frozen=True):
    """The engine has ended it; `well`: it was not aborted."""

    request: str
    well: bool


class RankReported(Event, frozen=True):
    """A rank has reported it; `failed`: the load is incomplete."""

    request: str
    rank: int
    failed: bool


# ------------------------------------------------------------------------------ what a rank hears
class Ordered(Event, frozen=True):
    """The scheduler has said what is to be done."""

    request: str
    order: Order


class OpenOrdered(Ordered, frozen=True):
    """The room is to be opened."""


class BlocksOrdered(Ordered, frozen=True):
    """More of the prompt is computed."""


class WithdrawOrdered(Ordered, frozen=True):
    """The blocks belong to another request."""


class PromiseOrdered(Ordered, frozen=True):
    """The scheduler waits for the release."""


class AnnounceOrdered(Ordered, frozen=True):
    """The prefill instance is to be notified."""


class LoadOrdered(Ordered, frozen=True):
    """There are blocks for it."""


class SkipOrdered(Ordered, frozen=True):
    """There is nothing to load."""


class GiveUpOrdered(Ordered, frozen=True):
    """It is given up."""

    order: GiveUp


class RoomEnded(Event, frozen=True):
    """Its room has an outcome."""

    request: str
    well: bool


class RoomReleased(Event, frozen=True):
    """The transfer touches its blocks no more."""

    request: str


class TimerFired(vocabulary.TimerFired, frozen=True):
    """Its room was announced, and there are no blocks for it yet."""

    request: str
    tries: int


# --------------------------------------------------------------------------------------------- effects
class FreeBlocks(Effect, frozen=True):
    """Free the blocks of a request that has ended."""

    request: str


class HandOver(Effect, frozen=True):
    """Answer the request with what the decode instance needs."""

    request: str
    ticket: Ticket


class Resume(Effect, frozen=True):
    """A load is over: run the request; `recompute`: its KV is not all there."""

    request: str
    recompute: bool


class CarryOut(Effect, frozen=True):
    """Have the endpoint do what the order says."""

    request: str
    order: Order


class Renew(Effect, frozen=True):
    """Have the endpoint announce its room once more."""

    request: str


class Forget(Effect, frozen=True):
    """The request is over at this rank; `told`: the scheduler was told."""

    request: str
    told: bool


class Timing(Timers, frozen=True):
    """Seconds; whatever else there is to wait for, the rooms have timers for, and the engine its own."""

    #: an announced room that has no blocks yet is announced once more: often, beside what either side waits for it
    renew: Timer = Timer(10.0)

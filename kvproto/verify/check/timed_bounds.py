"""Timed bounds: how long things may take in a timed world, as sums of timers, by its faults.

They rest on `release_times`; what is added is how long it takes to say something again, how long one side of a room
waits for the other, and how long a peer that is gone is remembered.
"""

from __future__ import annotations

from typing import NamedTuple

from kvproto.fsm.timer_wheel import QUANTUM
from kvproto.protocol.timing import Timing
from kvproto.verify.check.config import Config
from kvproto.verify.claims import release_times as times


class Bounds(NamedTuple):
    """Bounds in seconds from the last fault.

    Until every room is over, until every link is up or forgotten; and for how long a rank that comes back is away at
    most.
    """

    rooms: float
    links: float
    away: float


def said_again(t: Timing) -> float:
    """Bound the retransmission of a message that was lost or late."""
    return max(t.call.period, t.resend.period, t.grant_retry.period, t.heartbeat.period) + QUANTUM


def turn_asked(t: Timing) -> float:
    """Bound the wait for a region whose grant came out of the ring's queue, and was lost."""
    return t.queue_retry.period + QUANTUM


def alone(t: Timing) -> float:
    """A room that one side has opened, and the other side does not, or no more."""
    return max(t.engine.period, t.bootstrap.period) + QUANTUM


def without_aux(t: Timing) -> float:
    """A room that has every chunk, and whose aux row never comes."""
    return (t.aux.period + QUANTUM) * (t.aux.tries + 1)


def remembered(t: Timing) -> float:
    """A peer that does not answer, from the moment on at which nothing of it is to be feared any more."""
    calls = sum(t.welcome_.after(times_) + QUANTUM for times_ in range(t.welcome_.tries + 1))
    return max(calls, t.forget.period + QUANTUM)


def silent(t: Timing) -> float:
    """A peer of which nothing is heard, while the connection to it stands."""
    return (t.heartbeat.period + QUANTUM) * (t.silent_beats + 1)


def bounds(config: Config) -> Bounds:
    t, budget = config.settings.timing, config.budget
    again, noticed = said_again(t), silent(t) if config.stands else times.noticed(t)
    rooms, links = max(again, turn_asked(t)), again
    if config.misfit == "name" and budget.drop:  # whose question is lost is asked again with the next call
        links = max(links, again + t.welcome_.after(1) + QUANTUM)
    if budget.link or budget.crash:
        rooms = max(rooms, alone(t) + again)
        links = max(links, noticed + again)
    if budget.crash:
        rooms = max(rooms, noticed - times.noticed(t) + times.bereft(t) + again)
        links = max(links, noticed + times.harmless(t) + remembered(t))
    if not config.engine or config.misfit == "name":  # who is refused never opens its room at the prefill rank
        rooms = max(rooms, alone(t) + again)
    elif not any("aux" in word for word in config.engine):
        rooms = max(rooms, without_aux(t) if "finish" in config.engine[-1] else t.stall.period + QUANTUM)
    held = config.silence * (t.heartbeat.period + QUANTUM)
    return Bounds(rooms + config.pace + held, links + held, noticed)

"""The timers: how long a state may last, and how often its timer may end before the protocol gives up.

Tables name timers; here they get numbers.  All are in seconds.  They are the same kind of thing as the ring's
size: an engine chooses them, both sides should choose them alike, and the lease is agreed in the handshake.

What must hold between them: a lease is long against a round trip and against the time from the scheduling of a
forward to its KV; `return` lasts at least the lease and the longest write; `stall` is longer than the longest
queue before a forward (it is not short: each of the rooms that wait asks twice within it).
"""

from __future__ import annotations

import math

import msgspec

from kvproto.errors import ArgumentError
from kvproto.fsm.timing import Timer

#: names of timers that follow from others
DERIVED = ("return", "welcome", "answer", "flight", "renew", "idle")


class Timing(msgspec.Struct, frozen=True, gc=False):
    """Every timer of the protocol."""

    #: resend a message that the peer answers at once
    resend: Timer = Timer(0.25, 8, 2.0)
    #: resend the request for a region or its watermark; then the part goes page to page
    grant_retry: Timer = Timer(0.25, 3, 1.0)
    #: poll whether the ring moves, while the decode rank has the request in its queue; then the part goes page to page
    queue_retry: Timer = Timer(2.0, 2)
    #: poll whether the chunk's other writers, whose KV is computed later, have requested it; then it goes page to page
    fan_in_retry: Timer = Timer(2.0, 15)
    #: call a prefill rank, open a room at it
    call: Timer = Timer(0.5, 10, 8.0)
    #: a room that the prefill engine has not opened
    engine: Timer = Timer(60.0)
    #: a room that some decode rank has not opened
    bootstrap: Timer = Timer(60.0)
    #: a room in which nothing moves
    stall: Timer = Timer(300.0)
    #: ask after a room of which the aux row alone is missing; the prefill engine gives it once the forward has sampled
    aux: Timer = Timer(20.0, 2)
    #: what a grant is good for without a write
    lease: Timer = Timer(30.0)
    #: the longest write; the same on both sides
    write: Timer = Timer(30.0)
    #: the longest gather or scatter
    kernel: Timer = Timer(30.0)
    #: the longest wire-up of two transports
    connect_timeout: Timer = Timer(30.0)
    #: beats, and how many may be missed
    heartbeat: Timer = Timer(1.0, 5)
    #: a peer that misses beats while its connection stands: its process compiles, imports, or holds Python's lock
    silence: Timer = Timer(60.0)
    #: a link that is down is forgotten; by a decode rank: one that nobody answers, and that no room needs
    forget: Timer = Timer(600.0)

    def __post_init__(self) -> None:
        """ArgumentError names two timers that cannot be as they are beside each other, and why."""
        for name in self.__struct_fields__:
            if not isinstance(timer := getattr(self, name), Timer):
                raise ArgumentError(f"Timing.{name} is {timer!r}: it is a Timer")
        lease = self.lease.period
        asked = "nothing could be asked for twice before it ends"
        if self.heartbeat.tries < 2:  # noqa: PLR2004  # one is no patience at all
            raise ArgumentError(f"Timing: heartbeat.tries is {self.heartbeat.tries}: one late beat would end a link")
        for name in ("resend", "grant_retry"):
            if getattr(self, name).period >= lease:
                raise ArgumentError(f"Timing: {name} is not shorter than the lease of {lease} s: {asked}")
        if self.call.period > lease + self.write.period:
            longest = lease + self.write.period
            why = f"longer than lease and write, {longest} s: pages would wait for a call"
            raise ArgumentError(f"Timing: call is {why}")

    @property
    def silent_beats(self) -> int:
        """Beats that a peer may miss while its connection stands."""
        return math.ceil(self.silence.period / self.heartbeat.period)

    @property
    def return_(self) -> Timer:
        """Calls after a loss: as many as make up the lease and the longest write.

        They do not back off: regions and pages wait for the answer, or for the last call's end.
        """
        return Timer(self.call.period, math.ceil((self.lease.period + self.write.period) / self.call.period))

    @property
    def welcome_(self) -> Timer:
        """Calls of a rank that does not answer: as many as make up `forget`."""
        return _lasting(self.call, self.forget.period)

    @property
    def answer_(self) -> Timer:
        """Resend what a peer answers at once, for as long as it may be silent: its link ends first."""
        lasting = _lasting(self.resend, self.silence.period)
        return lasting if lasting.tries > self.resend.tries else self.resend

    @property
    def flight_(self) -> Timer:
        """A write in flight: the longest write, after as long as its peer may be silent."""
        # A process that is stopped takes in nothing, and keeps its link for `silence`; then the write goes on.
        return Timer(self.silence.period + self.write.period)

    @property
    def renew_(self) -> Timer:
        """Pages of a send that waits to be let write are named anew before half of their lease is over."""
        return Timer(self.lease.period / 4)

    @property
    def idle_(self) -> Timer:
        """A stalled decode room: it asks twice, and ends when `stall` is over."""
        return Timer(self.stall.period / 3, 2)

    def named(self, name: str) -> Timer:
        timer = getattr(self, f"{name}_" if name in DERIVED else name)
        assert isinstance(timer, Timer)
        return timer


def _lasting(timer: Timer, seconds: float) -> Timer:
    """Return the timer with as many tries as make up so many seconds."""
    tries, passed = 0, 0.0
    while passed < seconds:
        passed, tries = passed + timer.after(tries), tries + 1
    return Timer(timer.period, max(1, tries), timer.longest)

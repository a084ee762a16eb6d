"""The clock: seconds as a float, never set back, passed to the protocol as an argument.

Nothing of the protocol reads a clock: the loop reads one once a pass, and a test hands in whatever time it
likes.

Three readings of the same seconds, because one word, "timeout", hides three questions:

- *May I give it back? May I call the other dead?* asks who waits: for a heartbeat, or for a lease to run out
  before a region is used again. A clock that runs slow is safe here, it only waits longer; a clock that
  counts the asker's own absence is wrong. A process that was stopped for a minute (SIGSTOP, swap, a debugger,
  a long collection) has heard nobody for a minute, and it was not the others who were away. So a
  `SteadyClock` counts at most `cap_s` from one reading to the next: what a pass took beyond that was our own
  stall, and ages nobody.
- *May I still?* asks who holds a lease, before each write. Here a slow clock is the dangerous one: on the
  other side the lease went on running while we were stopped, and a reading from the beginning of a long pass
  is slow, too. This question must be put to real time, at the moment it is asked: `MonotonicClock.again()`.
- *Has my own work failed?* asks a prefill rank of its gathers and writes. Its process was stopped with the threads
  that do them, and they need a moment of the time in which it goes on: a `WakingClock` ends no timer before.

Limits. A wait that the loop means to take is no stall: it says so beforehand, with `allow(seconds)`. A stop
between the question and the write is seen by no clock; the margin of lease and quarantine is for that.
`time.monotonic` does not count a machine's sleep, so who holds leases reads `REAL_TIME`, which does (on Linux). Who
waits for others reads the former: a sleep of its own is a stall, too. A virtual machine that its host pauses may see
neither.
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

#: what own threads need, once a stopped process goes on, to bring to an end what they were at
GRACE_S = 0.25


#: real seconds, the machine's sleep included where the system counts it
REAL_TIME: Callable[[], float] = (
    partial(time.clock_gettime, time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic
)


class Clock(Protocol):
    """Anything with a monotone `now()` in seconds; the origin means nothing."""

    def now(self) -> float:
        """Seconds, never less than the reading before: once a pass."""
        ...

    def again(self) -> float:
        """Seconds in the middle of a pass."""
        ...

    def allow(self, seconds: float) -> None:
        """Hear that a wait of up to so many seconds is meant."""
        ...

    def real(self) -> float:
        """Seconds that leave nothing out: how long a pass has taken."""
        ...

    def awake(self) -> float:
        """Seconds from the last reading until timers may end; 0 unless the process was just stopped."""
        ...


class MonotonicClock:
    """The system's monotonic clock as it is; `source` is real time, and every reading is one call of it."""

    def __init__(self, source: Callable[[], float] = time.monotonic) -> None:
        self.now = self.again = self.real = source

    def allow(self, seconds: float) -> None:
        """Nothing: it counts all."""

    def awake(self) -> float:
        """Timers end when they are due."""
        return 0.0


class WakingClock:
    """Real time; timers wait for `GRACE_S` when the process goes on after a stop beyond `cap_s` seconds.

    An owner who polls seldom comes late each time: of two late readings in a row the second ends timers.
    """

    def __init__(self, cap_s: float, source: Callable[[], float] = REAL_TIME) -> None:
        self.again = self.real = source
        self._cap_s = cap_s
        self._last = source()
        #: timers end from here on; and whether they have waited since they last might
        self._up, self._waited = self._last, False

    def now(self) -> float:
        """Real seconds; a stop is seen here."""
        now = self.real()
        if now - self._last > self._cap_s and not self._waited:
            self._up, self._waited = now + GRACE_S, True
        elif now >= self._up:
            self._waited = False
        self._last = now
        return now

    def allow(self, seconds: float) -> None:
        """Nothing: no wait that is meant is as long as a stop that counts."""

    def awake(self) -> float:
        """Seconds until timers may end."""
        return max(0.0, self._up - self._last)


class SteadyClock:
    """Real time less our own stalls: at most `cap_s`, and what was allowed, from one reading to the next.

    `cap_s` is the longest pass that still counts as running, in seconds. `source` is real time.
    """

    def __init__(self, cap_s: float, source: Callable[[], float] = time.monotonic) -> None:
        if not cap_s > 0:
            msg = f"cap_s={cap_s}: this clock would never end a wait; give the longest usual pass, in seconds"
            raise ValueError(msg)
        self._cap_s = cap_s
        #: seconds of the source, stalls included: for "may I still?", and for what a pass takes
        self.real = source
        self._last = source()
        self._allowed = 0.0
        self._withheld = 0.0

    def now(self) -> float:
        """Steady seconds. One reading is one pass: the stall, if there was one, is taken out here."""
        real = self.real()
        excess = real - self._last - self._cap_s - self._allowed
        self._last = real
        self._allowed = 0.0
        if excess > 0:
            self._withheld += excess
        return real - self._withheld

    def again(self) -> float:
        """The pass's own reading: what else a pass takes is no wait for others."""
        return self._last - self._withheld

    def allow(self, seconds: float) -> None:
        """Say before a wait that it is meant: up to `seconds` more count at the next reading."""
        self._allowed = max(self._allowed, seconds)

    def awake(self) -> float:
        """Timers end when they are due: a stop ages nobody."""
        return 0.0

    @property
    def withheld(self) -> float:
        """Seconds of stall taken out so far."""
        return self._withheld


class ManualClock:
    """A clock for tests and simulations: it stands until somebody moves it."""

    def __init__(self, start: float = 0.0) -> None:
        self._now = start

    def now(self) -> float:
        """Seconds set so far."""
        return self._now

    again = real = now

    def allow(self, seconds: float) -> None:
        """Nothing: it stands."""

    def awake(self) -> float:
        """Timers end when they are due."""
        return 0.0

    def advance(self, seconds: float) -> float:
        """Move on by `seconds` (>= 0) and return the new reading."""
        if seconds < 0:
            msg = f"cannot advance by {seconds} s: time does not run back"
            raise ValueError(msg)
        self._now += seconds
        return self._now

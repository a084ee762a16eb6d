"""How long an engine can be kept from its pages once a room has failed, as formulas of the timers.

Nothing here decides anything: what releases pages are rows.  These are the sums that follow from them, for whoever
has to size a pool or to choose timers, and a test holds them against ranks whose peers die at the worst moment.

They rest on what transports and devices promise: a kernel ends within `kernel`, and a write has ended, or can do no
harm any more, within `write` of being posted.  One that takes longer keeps its pages for as long.  Messages take no
time here; each one that is lost costs a `resend` (its longest at most) more.  A timer ends up to `QUANTUM` late, and so
does each of many in a row.  All results are in seconds.
"""

from __future__ import annotations

from kvproto.fsm.timer_wheel import QUANTUM
from kvproto.protocol.timing import Timing


def drains(t: Timing) -> float:
    """A prefill rank, from its outcome on: its gathers and its writes end, and nothing else is waited for."""
    return max(t.kernel.period, t.write.period)


def noticed(t: Timing) -> float:
    """A dead process, from its last message on: the heartbeats that may be missed, and one more."""
    return (t.heartbeat.period + QUANTUM) * (t.heartbeat.tries + 1)


def harmless(t: Timing) -> float:
    """A decode rank's wait for a lost prefill rank: calls for as long as lease and write."""
    return sum(t.return_.after(times) + QUANTUM for times in range(t.return_.tries + 1))


def answered(t: Timing) -> float:
    """A decode rank's wait after its outcome while prefill ranks live: they drain, scatters end."""
    return drains(t)


def bereft(t: Timing) -> float:
    """A decode rank one of whose prefill ranks dies and does not return, from its last sign of life on."""
    return noticed(t) + max(harmless(t), t.kernel.period)


def longest(t: Timing) -> float:
    """A decode rank's wait after its outcome at worst: a prefill rank drains long and dies unheard."""
    return drains(t) + bereft(t)

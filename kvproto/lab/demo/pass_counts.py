"""Pass counts: the protocol's own steps in one pass, counted from each rank's trace.

Times are `time.monotonic` of one machine, the same clock for all of its processes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from kvproto.fsm.driver import steps
from kvproto.io.kernels.differing import Place
from kvproto.protocol.events import SpaceReserved, StagingDeferred, StagingDenied, StagingGranted, TimerFired
from kvproto.protocol.states import DGrant, PSend

SUMS = (
    "writes", "pieces", "bytes", "pages", "direct", "deferrals", "refused", "impatient", "lapsed", "wraps", "scatters",
)  # fmt: skip


@dataclass
class PassCounts:
    """One rank in one pass. `leaks`: remains after all releases; `reports`: its complaints.

    `marks`: when what happened to which room (see `times`); `digests`: of what it moved, if they are wanted.
    """

    counts: dict[str, int]
    linked_s: float
    began: float
    ended: float
    computed_s: float = 0.0
    leaks: list[str] = field(default_factory=list)
    reports: list[str] = field(default_factory=list)
    intruded: list[str] = field(default_factory=list)
    marks: dict[str, dict[int, float]] = field(default_factory=dict)
    warmed_s: float = 0.0
    digests: dict[int, dict[Place, int]] = field(default_factory=dict)


def prefill_counts(trace: Iterable[Any]) -> Counter[str]:
    """Count deferrals (a send queues for a region or watermark) and sends that left the ring, by reason."""
    counts: Counter[str] = Counter()
    for _, _, event, old, new in steps(list(trace)):
        state, before = getattr(new, "state", None), getattr(old, "state", None)
        queued = state is PSend.AWAIT_TURN and isinstance(event, StagingDeferred)
        ahead = state is PSend.AWAIT_WATERMARK and isinstance(event, StagingGranted)
        if (queued or ahead) and before is not state:
            counts["deferrals"] += 1
        elif state is PSend.AWAIT_PAGES and before not in (PSend.NEW, state):
            denied, late = isinstance(event, StagingDenied), isinstance(event, TimerFired)
            counts["refused" if denied else "impatient" if late else "lapsed"] += 1
    return counts


def decode_counts(trace: Iterable[Any], ring: int) -> Counter[str]:
    """How often a region did not fit before the ring's end and began the next round."""
    counts: Counter[str] = Counter()
    round_ = end = 0
    for _, _, event, _, new in steps(list(trace)):
        if isinstance(event, SpaceReserved) and getattr(new, "state", None) is not DGrant.NEW:
            counts["wraps"] += event.round > round_ and end + event.end - event.offset > ring
            round_, end = event.round, event.end
    return counts


def total(tallies: Iterable[PassCounts]) -> dict[str, int]:
    """All ranks together, every counter of `SUMS`."""
    counts: Counter[str] = Counter()
    for tally in tallies:
        counts.update(tally.counts)
    return {name: counts[name] for name in SUMS}

"""Whether ranks conform: what they did, judged by the tables and by what is claimed of them.

`breaches` judges what a rank's trace holds now; a `monitor` judges ranks that run, behind them.
"""

from __future__ import annotations

from collections.abc import Callable

from kvproto.protocol.timing import Timing
from kvproto.rank.base import Rank
from kvproto.verify.framework.trace.conformance import TraceJudge
from kvproto.verify.framework.trace.conformance_monitor import ConformanceMonitor
from kvproto.verify.trace.rank_stories import TELLING


def breaches(rank: Rank) -> list[str]:
    """Return what is wrong with the steps in the rank's trace; slow, so call it when there is time."""
    judge = TraceJudge(TELLING, TELLING.machines(rank.settings.timing))
    judge.take(list(rank.trace))
    return judge.found


def monitor(heard: Callable[[str], None] = lambda _found: None) -> ConformanceMonitor:
    """Follows the ranks that are made while it is `installed`; `heard` is told what they break."""
    return ConformanceMonitor(TELLING, Timing(), heard)

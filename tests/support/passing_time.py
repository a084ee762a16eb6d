"""Passing time: a clock by hand beside real sockets, which goes on only when messages have arrived."""

from __future__ import annotations

import time

from kvproto.io.clock import ManualClock
from kvproto.verify.testing import inside
from kvproto.verify.testing.pair import Pair

STEP_S, LONGEST_S = 0.5, 5.0
#: looks at which all is still, after which everything has arrived
QUIET = 6


def pass_time(pair: Pair, clock: ManualClock, seconds: float) -> None:
    """Let seconds of the pair's clock pass; wait for sockets' threads, so nothing is late by real time."""
    settle(pair)
    for _ in range(round(seconds / STEP_S)):
        clock.advance(STEP_S)
        settle(pair)


def settle(pair: Pair) -> None:
    """Turn until nothing happens, and every link that is up has heard something of late."""
    limit = time.monotonic() + LONGEST_S
    pair.settle(QUIET)
    while not _heard(pair) and time.monotonic() < limit:
        pair.settle(QUIET)


def _heard(pair: Pair) -> bool:
    """Whether every link that is up has heard something of late."""
    ranks = [inside(endpoint).rank for endpoint in pair.endpoints]
    return all(
        value.silent < 2 or link in rank.heard_by
        for rank in ranks
        for link, value in rank.links.items()
        if value.state is rank.UP
    )

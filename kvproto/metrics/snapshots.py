"""Snapshots of an endpoint's numbers, for any thread.

The caller hands a call to the loop and waits.  The loop takes all numbers in that call, so they are consistent without
a lock.  If the loop does not run in time (its engine polls, and does something else), the caller gets the last snapshot
and its age.  Concurrent callers share one call.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, NamedTuple

from kvproto.errors import EndpointError
from kvproto.loop.answer import Answer
from kvproto.metrics.metrics import Measured, measure

if TYPE_CHECKING:
    from kvproto.endpoint.endpoint import Endpoint


class Snapshot(NamedTuple):
    """Numbers that belong together; `taken`: when, by `time.monotonic`."""

    taken: float
    measured: tuple[Measured, ...]


class Snapshots:
    """Takes them of one endpoint."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        rank = endpoint._rank  # noqa: SLF001  # an endpoint's own
        #: side, group and rank: what tells it from others
        self.labels = rank.side, str(rank.group), str(rank.index)
        self._lock = threading.Lock()
        self._asked: Answer | None = None
        self._last: Snapshot | None = None

    def take(self, timeout: float) -> tuple[bool, Snapshot | None]:
        """Return whether the loop runs, and the newest snapshot; wait `timeout` seconds at most."""
        loop = self.endpoint._loop  # noqa: SLF001
        try:
            loop.check()
            if loop.mine:
                self._measure()
            else:
                self._ask().wait(timeout)
        except EndpointError:
            return False, self._last
        return True, self._last

    def _ask(self) -> Answer:
        with self._lock:
            if self._asked is None or self._asked.over:
                loop = self.endpoint._loop  # noqa: SLF001
                asked = Answer(lambda: loop.attempt("its numbers", self._measure))
                loop.call(asked.act)
                self._asked = asked
            return self._asked

    def _measure(self) -> None:
        self._last = Snapshot(time.monotonic(), tuple(measure(self.endpoint)))

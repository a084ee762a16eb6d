"""The endpoint of an engine's rank, judged while it runs, if that is wanted: for tests and for the first days of a
deployment.  What the rank breaks is logged as an error, once each.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

from kvproto.verify.trace.judged import monitor

LOG = logging.getLogger("kvproto.adapters")
E = TypeVar("E")


def judged(make: Callable[[], E]) -> E:
    """Make an endpoint whose rank is followed until the process ends."""
    judge = monitor(lambda found: LOG.error("the rank does not conform: %s", found))
    with judge.installed():
        endpoint = make()
    judge.start()
    return endpoint

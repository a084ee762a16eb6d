"""Conformance: judge the endpoint of an engine's rank while it runs, for tests and a deployment's
start. Each breach of the rank is logged as an error, once.
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

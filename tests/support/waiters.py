"""Waiters: threads that wait for one thing, and are woken together."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

#: seconds until all of them wait
ASLEEP_S = 0.3


def wake_all(count: int, wait: Callable[[], object], wake: Callable[[], object]) -> float:
    """Have so many threads `wait`, and `wake` them; return the seconds until all have gone on."""
    waiters = [threading.Thread(target=wait) for _ in range(count)]
    for each in waiters:
        each.start()
    time.sleep(ASLEEP_S)
    begun = time.monotonic()
    wake()
    for each in waiters:
        each.join()
    return time.monotonic() - begun

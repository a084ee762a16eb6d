"""The sleep under the control plane: descriptors of any number, and calls that nobody misses."""

from __future__ import annotations

import fcntl
import os
import resource

from kvproto.io.control.poller import Waiter, Waker

PATIENCE = 20.0


def test_descriptors_beyond_1024() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft <= 2000:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard), hard))
    low, writer = os.pipe()
    high = fcntl.fcntl(low, fcntl.F_DUPFD, 1500)
    try:
        waiter = Waiter()
        assert waiter.ready([high], 0.001) == []
        os.write(writer, b"x")
        assert waiter.ready([high], PATIENCE) == [high]
        assert waiter.ready([], 0.0) == []
    finally:
        for fd in (low, high, writer):
            os.close(fd)


def test_a_waker_forgets_nothing_and_survives_its_end() -> None:
    waker, waiter = Waker(), Waiter()
    for _ in range(100_000):
        waker.wake()
    assert waiter.ready([waker.fileno()], PATIENCE) == [waker.fileno()]
    waker.clear()
    assert waiter.ready([waker.fileno()], 0.0) == []
    waker.close()
    waker.wake()

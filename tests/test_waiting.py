"""The sleep under the control plane: descriptors of any number, and calls that nobody misses."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import itertools
import os
import resource
import select
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kvproto.io.control import poller, watched
from kvproto.io.control.poller import Waiter, Waker
from kvproto.io.control.watched import WatchedDescriptors

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


@pytest.mark.parametrize("ppoll", [True, False])
def test_what_is_readable_hung_up_or_not_open_is_told(monkeypatch: pytest.MonkeyPatch, *, ppoll: bool) -> None:
    monkeypatch.setattr(poller, "_HAS_PPOLL", ppoll and poller._HAS_PPOLL)
    (reader, writer), (other, hung) = os.pipe(), os.pipe()
    waiter = Waiter()
    for span in (0.0, 1e-5, 0.002):
        begun = time.monotonic()
        assert waiter.ready([reader, other], span) == []
        assert time.monotonic() - begun >= span
    os.write(writer, b"x")
    assert waiter.ready([reader, other], PATIENCE) == [reader]
    os.close(hung)
    assert waiter.ready((reader, other), PATIENCE) == [reader, other]
    assert waiter.ready((other,), PATIENCE) == [other]
    os.close(other)
    with pytest.raises(ValueError, match=f"descriptor {other} is not open"):
        waiter.ready((other,), 0.0)
    for fd in (reader, writer):
        os.close(fd)


def test_a_sleep_is_as_long_as_asked_within_bounds_and_a_signal_may_end_it(monkeypatch: pytest.MonkeyPatch) -> None:
    spans, code = list[tuple[int, int]](), errno.EINTR

    def ppoll(_table: Any, count: int, span: Any, mask: None) -> int:
        assert (count, mask) == (1, None)
        spans.append((span._obj.seconds, span._obj.nanoseconds))
        ctypes.set_errno(code)
        return -1

    monkeypatch.setattr(poller, "_LIBC", SimpleNamespace(ppoll=ppoll))
    monkeypatch.setattr(poller, "_HAS_PPOLL", True)
    for span in (-1.0, 0.25, 2.5, 1e9):
        assert Waiter().ready([0], span) == []
    assert spans == [(0, 0), (0, 250_000_000), (2, 500_000_000), (int(poller.LONGEST_S), 0)]
    code = errno.ENOMEM
    with pytest.raises(OSError, match=os.strerror(errno.ENOMEM)) as raised:
        Waiter().ready([0], 0.0)
    assert raised.value.errno == errno.ENOMEM


def test_where_the_system_counts_in_milliseconds_a_sleep_is_no_shorter_than_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = list[int]()

    def poll(milliseconds: int) -> list[tuple[int, int]]:
        asked.append(milliseconds)
        return []

    fake = SimpleNamespace(register=lambda *_: None, poll=poll)
    monkeypatch.setattr(poller, "_HAS_PPOLL", False)
    monkeypatch.setattr(poller, "select", SimpleNamespace(poll=lambda: fake, POLLIN=select.POLLIN))
    for span in (0.0, 0.0021, 2.0):
        assert Waiter().ready([0], span) == []
    assert asked == [0, 3, 2000]


def test_a_call_reaches_the_system_once_until_it_is_cleared() -> None:
    waker, waiter = Waker(), Waiter()
    for _ in range(3):
        waker.wake()
        waker.wake()
        assert waiter.ready([waker.fileno()], PATIENCE) and len(os.read(waker.fileno(), 16)) == 1
        waker.clear()
    waker.clear()
    assert waiter.ready([waker.fileno()], 0.0) == []
    waker.close()


def test_a_waker_forgets_nothing_and_survives_its_end() -> None:
    waker, waiter = Waker(), Waiter()
    for _ in range(100_000):
        waker.wake()
    assert waiter.ready([waker.fileno()], PATIENCE) == [waker.fileno()]
    waker.clear()
    assert waiter.ready([waker.fileno()], 0.0) == []
    waker.close()
    waker.wake()


@pytest.mark.parametrize("epoll", [True, False])
def test_of_a_set_those_that_have_something_are_told(monkeypatch: pytest.MonkeyPatch, *, epoll: bool) -> None:
    if not epoll:
        monkeypatch.setattr(watched, "select", SimpleNamespace())  # as where the system has none
    elif not hasattr(select, "epoll"):
        pytest.skip("the system has none")
    pipes, watch, waiter = [os.pipe() for _ in range(3)], WatchedDescriptors(), Waiter()
    try:
        for reader, _ in pipes:
            watch.add(reader)
        assert watch.ready() == [] and waiter.ready(watch.sleepers(), 0.0) == []
        assert (len(watch.sleepers()) == 1) is epoll
        for _, writer in pipes[1:]:
            os.write(writer, b"x")
        assert waiter.ready(watch.sleepers(), PATIENCE)
        assert sorted(watch.ready()) == [pipes[1][0], pipes[2][0]]
        watch.remove(pipes[2][0])
        assert watch.ready() == [pipes[1][0]]
        os.read(pipes[1][0], 1)
        assert watch.ready() == [] and waiter.ready(watch.sleepers(), 0.0) == []
    finally:
        watch.close()
        for fd in itertools.chain(*pipes):
            os.close(fd)


def test_a_set_that_is_closed_leaves_nothing_open() -> None:
    own = Path("/proc/self/fd")
    before = len(list(own.iterdir()))
    watch = WatchedDescriptors()
    watch.close()
    assert len(list(own.iterdir())) == before


def test_a_call_in_the_middle_of_clear_does_not_silence_those_that_follow() -> None:
    """Cleared before the bytes are read, the mark of that call would stay, and later calls write no byte."""
    waker, waiter = Waker(), Waiter()
    reader = waker._reader

    class Interrupted:
        """Another thread calls just before the bytes are read."""

        def recv(self, count: int) -> bytes:
            waker.wake()
            return reader.recv(count)

        def __getattr__(self, name: str) -> Any:
            return getattr(reader, name)

    waker.wake()
    waker._reader = cast("Any", Interrupted())
    waker.clear()
    waker.wake()
    assert waiter.ready([waker.fileno()], PATIENCE) == [waker.fileno()]
    waker._reader = reader
    waker.close()

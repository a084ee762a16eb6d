"""Poller: one sleep until a descriptor is readable, another thread calls, or a time is over.

Why not what the standard library has: `poll` and `epoll` count in milliseconds, and a loop that watches a
transport which can only be polled must sleep for tens of microseconds; `select` counts in microseconds and
fails for descriptors of 1024 and more, which an inference engine reaches. So the kernel's `ppoll` is called
directly: nanoseconds, any descriptor, the interpreter lock released meanwhile. Where there is none, `poll`
serves, and a short sleep becomes one millisecond.

The kernel adds its timer slack, 50 us for an ordinary thread, to a sleep that runs out; traffic and calls do
not wait for it. A thread that is the loop's own asks for less (`serve_a_loop`).
"""

from __future__ import annotations

import ctypes
import errno
import math
import os
import select
import socket
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

LONGEST_S = 3600.0  # one sleep; who asks for more sleeps again
#: Linux's number of the call that sets a thread's timer slack, and nanoseconds of it: the kernel takes no 0
PR_SET_TIMERSLACK, SLACK_NS = 29, 1


class _PollFd(ctypes.Structure):
    _fields_ = (("fd", ctypes.c_int), ("events", ctypes.c_short), ("revents", ctypes.c_short))


class _TimeSpec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


_LIBC = ctypes.CDLL(None, use_errno=True)
#: the same, of which a call does not give the interpreter's lock away: for those that never wait
_HELD = ctypes.PyDLL(None)
_HAS_PPOLL = hasattr(_LIBC, "ppoll")
if _HAS_PPOLL:
    _TABLE, _SPAN = ctypes.POINTER(_PollFd), ctypes.POINTER(_TimeSpec)
    _LIBC.ppoll.argtypes = (_TABLE, ctypes.c_ulong, _SPAN, ctypes.c_void_p)
    _LIBC.ppoll.restype = ctypes.c_int


_THREAD = threading.local()


def serve_a_loop() -> None:
    """Make the calling thread a loop's own: its sleeps end in time (Linux), its glances keep the lock."""
    _THREAD.sleeps = True
    if hasattr(_LIBC, "prctl"):
        _LIBC.prctl(PR_SET_TIMERSLACK, ctypes.c_ulong(SLACK_NS))


def keeps_lock() -> bool:
    """Whether the calling thread is a loop's own: its short calls keep the interpreter's lock.

    An engine that polls without end gives the lock away in them, so that helper threads have a turn.
    """
    return hasattr(_THREAD, "sleeps")


class Glance:
    """Looks whether a descriptor is readable, and keeps the interpreter's lock.

    A call that gives the lock away loses it for a switch interval if another thread never sleeps, and this one is made
    in each pass of a loop.
    """

    def __init__(self, fd: int) -> None:
        self._entry = _PollFd(fd, select.POLLIN, 0)
        self._at = ctypes.byref(self._entry)

    def sees(self) -> bool:
        """Whether it is readable, or something is wrong with it."""
        return bool(_HELD.poll(self._at, 1, 0))


class Waiter:
    """Sleeps on descriptors. It keeps the last set it was given: to pass the same again is cheap."""

    def __init__(self) -> None:
        self._fds: tuple[int, ...] | None = None
        self._table: ctypes.Array[_PollFd] = (_PollFd * 0)()

    def ready(self, fds: Sequence[int], timeout_s: float) -> list[int]:
        """Return those of `fds` that are readable, in error or hung up, after `timeout_s` seconds at most.

        A signal may end the sleep early, with an empty answer. ValueError: one of `fds` is not open.
        """
        asked = tuple(fds)
        if asked != self._fds:
            self._fds = asked
            self._table = (_PollFd * len(asked))(*[_PollFd(fd, select.POLLIN, 0) for fd in asked])
        timeout_s = min(max(timeout_s, 0.0), LONGEST_S)
        if not _HAS_PPOLL:
            return self._by_poll(asked, timeout_s)
        fraction, whole = math.modf(timeout_s)
        span = _TimeSpec(int(whole), int(fraction * 1e9))
        count = _LIBC.ppoll(self._table, len(asked), ctypes.byref(span), None)
        if count == 0:
            return []
        if count < 0:
            code = ctypes.get_errno()
            if code == errno.EINTR:
                return []
            raise OSError(code, os.strerror(code))
        return _answered([(entry.fd, entry.revents) for entry in self._table])

    def _by_poll(self, fds: tuple[int, ...], timeout_s: float) -> list[int]:
        poll = select.poll()
        for fd in fds:
            poll.register(fd, select.POLLIN)
        return _answered(poll.poll(math.ceil(timeout_s * 1e3)))


def _answered(entries: list[tuple[int, int]]) -> list[int]:
    """Return the descriptors with an answer. A closed one would end every later sleep, so it is an error."""
    for fd, answer in entries:
        if answer & select.POLLNVAL:
            msg = f"descriptor {fd} is not open: stop watching it before it is closed"
            raise ValueError(msg)
    return [fd for fd, answer in entries if answer]


class Waker:
    """A descriptor that becomes readable when any thread calls `wake`, and stays so until `clear`.

    Of many calls before a `clear` one reaches the system.  Who calls has done before what is to be seen, and who clears
    looks afterwards: a call that comes in between the two halves of `clear` is seen although it leaves no byte.
    """

    def __init__(self) -> None:
        self._reader, self._writer = socket.socketpair()
        self._reader.settimeout(0.0)
        self._writer.settimeout(0.0)
        self._called = False

    def fileno(self) -> int:
        return self._reader.fileno()

    def wake(self) -> None:
        """Wake the sleeper; any thread, any number of times. After `close` it does nothing."""
        if self._called:
            return
        self._called = True
        try:
            self._writer.send(b"\0")
        except OSError:
            return  # full: the sleeper is called already; closed: nobody sleeps here any more

    @property
    def called(self) -> bool:
        """Whether `wake` was called since the last `clear`."""
        return self._called

    def clear(self) -> None:
        try:
            while self._reader.recv(4096):
                continue
        except BlockingIOError:
            pass
        self._called = False

    def close(self) -> None:
        """Give both descriptors back."""
        self._reader.close()
        self._writer.close()

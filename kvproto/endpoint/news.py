"""News: wakes an engine that waits for outcomes and releases, by a call or a file descriptor."""

from __future__ import annotations

import os
import select
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kvproto.loop.loop_thread import LoopThread

#: seconds of a sleep, at most: `poll` takes no more
LONGEST_SLEEP_S = 2e6


class News:
    """An event that makes a file descriptor readable, once somebody waits for it.  Any thread.

    Not `threading.Event`: a signal handler that raises in an engine's wait would leave its lock held, and the loop,
    which sets it, would wait for ever.
    """

    #: of an object that has no descriptor yet: most engines poll, and need none
    _fd = -1

    def __init__(self) -> None:
        """Nothing is new."""
        self._set = False

    def fileno(self) -> int:
        """Return a descriptor that is readable from `set` to `clear`; it lives as long as this object."""
        if self._fd < 0:
            made = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
            if self.__dict__.setdefault("_fd", made) != made:  # one step, and another thread was first
                os.close(made)
            elif self._set:  # in this order: another thread that sets it meanwhile writes by itself
                os.eventfd_write(made, 1)
        return self._fd

    def is_set(self) -> bool:
        """Whether there are news."""
        return self._set

    def set(self) -> None:
        """Wake every waiter."""
        self._set = True
        if self._fd >= 0:
            os.eventfd_write(self._fd, 1)

    def clear(self) -> None:
        """Forget the news so far; a caller that looks for them after this call misses none."""
        if self._fd >= 0:
            with suppress(BlockingIOError):  # nothing was written
                os.eventfd_read(self._fd)
        # Last: news that are set between the two steps would else be read away, and count as told for ever.
        self._set = False

    def wait(self, loop: LoopThread, there: Callable[[], bool], timeout: float | None) -> bool:
        """Sleep unless news are `there` or the loop is over; whether there are some, or the loop has broken."""
        if loop.forked:
            return False
        # Before the look at what is there: news that come after the look set it again and end the wait.
        self.clear()
        if not (there() or loop.broken or loop.closed):
            self.sleep(timeout)
        return bool(there() or loop.broken)

    def sleep(self, timeout: float | None) -> None:
        """Block until the next `set`, `timeout` seconds at most."""
        waits = select.poll()
        waits.register(self.fileno(), select.POLLIN)
        waits.poll(None if timeout is None else min(max(0.0, timeout), LONGEST_SLEEP_S) * 1e3)

    def __del__(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)

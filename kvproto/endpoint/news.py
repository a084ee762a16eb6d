"""News: wakes an engine that waits for outcomes and releases, by a call or a file descriptor."""

from __future__ import annotations

import os
import threading
from contextlib import suppress


class News(threading.Event):
    """An event that also makes a file descriptor readable, once the descriptor was asked for.  Any thread."""

    def __init__(self) -> None:
        """Without a descriptor: most engines poll, and need none."""
        super().__init__()
        self._fd = -1

    def fileno(self) -> int:
        """Return a descriptor that is readable from `set` to `clear`; it lives as long as this object."""
        if self._fd < 0:
            self._fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
            if self.is_set():  # in this order: another thread that sets it meanwhile writes by itself
                os.eventfd_write(self._fd, 1)
        return self._fd

    def set(self) -> None:
        """Wake every waiter."""
        super().set()
        if self._fd >= 0:
            os.eventfd_write(self._fd, 1)

    def clear(self) -> None:
        """Forget the news so far; a caller that looks for them after this call misses none."""
        if self._fd >= 0:
            with suppress(BlockingIOError):  # nothing was written
                os.eventfd_read(self._fd)
        # Last: news that are set between the two steps would else be read away, and count as told for ever.
        super().clear()

    def sleep(self, timeout: float | None) -> None:
        """Block until the next `set`, `timeout` seconds at most."""
        self.wait(None if timeout is None else min(max(0.0, timeout), threading.TIMEOUT_MAX))

    def __del__(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)

"""Watched descriptors: one set for all sockets, at the cost of the ready ones, not of all.

`epoll` keeps the set in the kernel, and its own descriptor is readable while one of the set is; so a loop sleeps on
that one (`poller`).  Where there is no `epoll`, the set is handed over at every sleep.
"""

from __future__ import annotations

import select

from kvproto.io.control.poller import Glance, Waiter, keeps_lock

#: descriptors that one question is answered with; the others are next
MOST = 1024


class WatchedDescriptors:
    """A set of descriptors; take each out before it is closed."""

    def __init__(self) -> None:
        self._fds: dict[int, None] = {}
        self._epoll = select.epoll() if hasattr(select, "epoll") else None
        self._glance = Glance(-1 if self._epoll is None else self._epoll.fileno())
        self._waiter = Waiter()

    def add(self, fd: int) -> None:
        self._fds[fd] = None
        if self._epoll is not None:
            self._epoll.register(fd, select.EPOLLIN)

    def remove(self, fd: int) -> None:
        del self._fds[fd]
        if self._epoll is not None:
            self._epoll.unregister(fd)

    def sleepers(self) -> tuple[int, ...]:
        """Return the descriptor that is readable when one of the set is."""
        return tuple(self._fds) if self._epoll is None else (self._epoll.fileno(),)

    def ready(self) -> list[int]:
        """Those that have something now, some at a time."""
        if self._epoll is None:
            return self._waiter.ready(tuple(self._fds), 0.0)
        if keeps_lock() and not self._glance.sees():
            return []
        return [*dict(self._epoll.poll(0, MOST))]

    def close(self) -> None:
        """Let go of the set; the descriptors are their owners'."""
        self._fds.clear()
        if self._epoll is not None:
            self._epoll.close()

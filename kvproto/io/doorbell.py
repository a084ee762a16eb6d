"""Doorbell: one process of a host wakes the loop of another, and says nothing by it.

A loop that rests has to be woken by whoever writes into its memory, for the write itself wakes nobody.  A frame of the
control plane does it by way of three threads, each of which has to wake first: 0.3 ms, and 0.1 ms of the writer's, on
hosts whose idle cores sleep.  A datagram to a local socket wakes the sleeper itself.

The socket has a name in Linux's abstract namespace, so nothing is left in a file system, and a name ends with its
socket.  Every process of the network namespace may ring: that costs the sleeper one look.  Where there is no such
socket (another host, another container, another system, an older build) ringing fails at once, and whoever rings sends
a frame.
"""

from __future__ import annotations

import socket
from contextlib import suppress

#: of every name: abstract, and ours
BEFORE = b"\0kvproto/"
#: rings that are taken off at once: Linux queues some ten or some hundred, by its settings
MOST = 1024


class Doorbell:
    """One end: others ring it by its name, and it rings others; of one thread."""

    def __init__(self, name: str = "") -> None:
        """`name`: unique to one life of one process; empty, or not to be had: nobody can ring here."""
        #: the socket, and the same if it has the name
        self._line: socket.socket | None = None
        self._hung: socket.socket | None = None
        with suppress(OSError, AttributeError):  # no descriptor is left, or another system
            self._line = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            self._line.setblocking(False)
            if name:
                self._line.bind(_address(name))
                self._hung = self._line

    @property
    def descriptors(self) -> list[int]:
        """Return what is readable once somebody has rung; empty: nobody can."""
        return [] if self._hung is None else [self._hung.fileno()]

    def ring(self, name: str) -> bool:
        """Wake the process of this name, and return at once; false: there is none here."""
        if self._line is None:
            return False
        try:
            self._line.sendto(b"", _address(name))
        except BlockingIOError:  # it was rung often, and has not looked since
            return True
        except OSError:
            return False
        return True

    def rung(self) -> bool:
        """Whether somebody has rung since the last call."""
        found = False
        if self._hung is not None:
            with suppress(OSError):  # nothing more is there
                for _ in range(MOST):
                    self._hung.recv(1)
                    found = True
        return found

    def close(self) -> None:
        """Let the name go."""
        if self._line is not None:
            self._line.close()
            self._line = self._hung = None


def _address(name: str) -> bytes:
    return BEFORE + name.encode()

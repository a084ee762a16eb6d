"""Doorbell: one process of a host wakes the loop of another, and may leave it a note.

A loop that rests has to be woken by whoever writes into its memory, for the write itself wakes nobody.  A frame of the
control plane does it by way of three threads, each of which has to wake first: 0.3 ms, and 0.1 ms of the writer's, on
hosts whose idle cores sleep.  A datagram to a local socket wakes the sleeper itself.  It may carry a note, as a
transport's notification does, which takes the sender 0.1 ms where its caches are cold.

The socket has a name in Linux's abstract namespace, so nothing is left in a file system, and a name ends with its
socket.  Every process of the network namespace may ring.  Where there is no such socket (another host, another
container, another system, an older build) ringing fails at once, and whoever rings goes another way.

Linux counts a datagram against its sender's buffer until it is read.  So stalled receivers may fill that buffer, and
the sender then reaches no receiver at all.  `ring` says so: a full queue at the other end needs no ring, a full buffer
at this end needs another way.
"""

from __future__ import annotations

import select
import socket
from contextlib import suppress

#: of every name: abstract, and ours
BEFORE = b"\0kvproto/"
#: rings that are taken off at once: Linux queues some ten or some hundred, by its settings
MOST = 1024
#: bytes of a note at most; what is longer is cut, and no note any more
LONGEST = 1 << 16


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

    def ring(self, name: str) -> bool | None:
        """Wake the process of this name, and return at once.

        False: there is none here.  None: datagrams that others have not read fill this end's buffer, and nothing was
        sent.
        """
        try:
            return self._leave(name, b"")
        except BlockingIOError:
            return True if self._writable() else None

    def tell(self, name: str, note: bytes) -> bool:
        """Leave a note there, and return at once; false: nobody is here, or too much waits at one of the ends."""
        try:
            return self._leave(name, note)
        except BlockingIOError:
            return False

    def _leave(self, name: str, note: bytes) -> bool:
        """Return whether it is there.  BlockingIOError: the other's queue is full, or this end's buffer."""
        if self._line is None:
            return False
        try:
            self._line.sendto(note, _address(name))
        except BlockingIOError:
            raise
        except OSError:
            return False
        return True

    def _writable(self) -> bool:
        """Whether this end's buffer has room; Linux says so while it is a quarter full at most."""
        assert self._line is not None
        look = select.poll()
        look.register(self._line, select.POLLOUT)
        return bool(look.poll(0))

    def rung(self) -> list[bytes]:
        """Return what was left since the last call: an empty note of whoever only rang."""
        found = list[bytes]()
        if self._hung is not None:
            with suppress(OSError):  # nothing more is there
                while len(found) < MOST:
                    found.append(self._hung.recv(LONGEST))
        return found

    def close(self) -> None:
        """Let the name go."""
        if self._line is not None:
            self._line.close()
            self._line = self._hung = None


def _address(name: str) -> bytes:
    return BEFORE + name.encode()

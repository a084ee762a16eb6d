"""Unread messages: closes connections whose message never ends, which libzmq would buffer for ever.

MAXMSGSIZE bounds a part, RCVHWM counts whole messages; the parts of one message have no bound, and each of them is
memory: some 0.6 GB a second on loopback, 64 bytes for a part of none.  But the system counts what has come over each
connection (TCP_INFO), and libzmq says over which a message has come (SRCFD).  A message of ours has `most` bytes at
most, with all that frames and keys add.  So who has sent more than that since his last whole message is suspected; from
then on it is noted which connections speak; and who has sent as much again, and has not spoken although the socket has
been emptied in between, is in the middle of a message that no peer of ours sends.  His connection is shut, and libzmq
forgets what it had of the message.

Between two looks at a connection lie `LOOK_S`, or the time for which the loop is not polled: what may come in that time
is the bound.  What it costs: a look (15 us) at each connection four times a second, for which a loop that sleeps wakes;
a message is asked where it came from only while somebody is suspected.

A peer that we connect to is not watched: libzmq names its connection with the first message alone, and it is one that
we have chosen.

A descriptor may be another connection's by now: each is known by the system's cookie, too, and is held while it is
looked at.  Linux and TCP only; elsewhere nothing is watched.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import socket
import struct
import sys
import termios
from collections import Counter, OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass

LOOK_S, SOON_S = 0.25, 0.01
#: connections that one look takes, and bytes that frames, keys and a batch of reads may add to a message
LOOKS, ADDED = 8, 1 << 16
#: whole messages that may wait in libzmq, with one that is being read and one that has no room
WAITING = 66
#: this process, or the machine, has no descriptor left for a moment: nothing is wrong with the connection
OUT_OF_DESCRIPTORS = (errno.EMFILE, errno.ENFILE)
#: why a connection was ended, in words
ENDLESS = "connections ended in a message without end"
_COOKIE = 57
_RECEIVED = struct.Struct("<128xQ")  # of tcp_info: tcpi_bytes_received


@dataclass(slots=True)
class _Connection:
    cookie: bytes
    #: bytes that it had sent when it was last assumed that no message of it was unfinished; and by the last look
    mark: int
    sent: int
    looked: float = 0.0


class Unread:
    """The connections to one socket, by descriptor."""

    def __init__(self, max_message: int, away: Counter[str]) -> None:
        """`max_message`: bytes of the frames of a message; `away` counts those that were ended."""
        self.most, self._away = max_message + ADDED, away
        self._connections, self._suspects = OrderedDict[int, _Connection](), dict[int, _Connection]()
        #: connections that could not be held when they came, for want of a descriptor
        self._late = set[int]()
        #: descriptors over which messages have come, while somebody is suspected; None: nobody is
        self.spoken: set[int] | None = None
        #: when to look again
        self.due = 0.0

    def __len__(self) -> int:
        return len(self._connections) + len(self._late)

    def add(self, fd: int) -> None:
        # The count of received bytes and the sockets' cookies are Linux's; elsewhere nothing is watched.
        if sys.platform != "linux":
            return
        self._late.discard(fd)
        try:
            with held(fd) as there:
                sent = _sent(there)
                self._connections[fd] = _Connection(cookie(there), sent, sent)
        except OSError as error:
            if error.errno in OUT_OF_DESCRIPTORS:
                self._late.add(fd)

    def remove(self, fd: int) -> None:
        self._late.discard(fd)
        self._connections.pop(fd, None)
        self._suspects.pop(fd, None)

    def look(self, now: float) -> None:
        """Record the bytes of suspects, and of some others: those that were not checked for longest."""
        for fd in tuple(self._late):
            self.add(fd)
        for fd in tuple(self._suspects):
            self._note(fd, now)
        for _ in range(min(LOOKS, len(self._connections))):
            fd = next(iter(self._connections))
            if now - self._connections[fd].looked < LOOK_S:
                break
            self._connections.move_to_end(fd)
            self._note(fd, now)
        if self._suspects and self.spoken is None:
            self.spoken = set()
        self.due = now + (SOON_S if self._suspects else LOOK_S / LOOKS)

    def _note(self, fd: int, now: float) -> None:
        connection = self._connections[fd]
        try:
            with held(fd) as there:
                # A descriptor's number is soon used again: the cookie tells whether it is still this connection.
                same, sent = cookie(there) == connection.cookie, _sent(there)
        except OSError as error:
            if error.errno in OUT_OF_DESCRIPTORS:
                connection.looked = now  # it is still there, and is looked at again when others are
                return
            same, sent = False, 0
        if not same:
            self.remove(fd)
            return
        connection.looked, connection.sent = now, sent
        if fd not in self._suspects and sent - connection.mark > self.most:
            self._suspects[fd], connection.mark = connection, sent

    def judge(self, *, emptied: bool) -> None:
        """Clear connections that have finished a message, and close those that cannot have finished one.

        `emptied`: all messages from before the last look have been taken since.
        """
        for fd, connection in tuple(self._suspects.items()):
            if fd in (self.spoken or ()):
                # It has finished a message, so it may be in the middle of the next one: counted from here.
                connection.mark = connection.sent
                del self._suspects[fd]
            elif connection.sent - connection.mark > self.most * (1 if emptied else WAITING):
                self._end(fd, connection)
        self.spoken = set() if self._suspects else None

    def _end(self, fd: int, connection: _Connection) -> None:
        try:
            with held(fd) as there:
                if cookie(there) == connection.cookie:
                    there.shutdown(socket.SHUT_RDWR)
                    self._away[ENDLESS] += 1
        except OSError as error:
            if error.errno in OUT_OF_DESCRIPTORS:
                return  # it stays a suspect until it can be held
        self.remove(fd)


@contextlib.contextmanager
def held(fd: int) -> Iterator[socket.socket]:
    """The connection, which stays what it is meanwhile.  OSError: it is none."""
    copy = os.dup(fd)
    try:
        held = socket.socket(fileno=copy)
    except OSError:  # the number is by now that of a file, a pipe or the like
        os.close(copy)
        raise
    try:
        yield held
    finally:
        held.close()


def _sent(connection: socket.socket) -> int:
    """Bytes of it that libzmq has read.  OSError: no TCP, or no such figure."""
    told = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _RECEIVED.size)
    waits = fcntl.ioctl(connection.fileno(), termios.FIONREAD, bytes(4))
    if len(told) < _RECEIVED.size:
        raise OSError
    return int(_RECEIVED.unpack(told)[0] - int.from_bytes(waits, sys.byteorder))


def cookie(connection: socket.socket) -> bytes:
    """Return the number that the system gives to this connection alone."""
    return connection.getsockopt(socket.SOL_SOCKET, _COOKIE, 8)

"""Unanswered connections: ends those whose other host acknowledges nothing, as after a power cut.

The system has a bound of its own for that (TCP_USER_TIMEOUT, libzmq's TCP_MAXRT), but it also counts the time in which
the other kernel has no room.  A peer whose loop does not run, and that is sent more than its kernel holds, would lose
its connection although it lives.  TCP_INFO tells the two apart: how often this kernel has repeated what it sent, or has
asked for room, since the last acknowledgement, and when that came.

A kernel without room answers, but at most twice a second (Linux's `tcp_invalid_ratelimit`); a kernel asks 0.2 s after
it was told so, then after 0.4, 0.8 and so on, so two questions in a row may have no answer.  A connection is shut when
three have none, and nothing was acknowledged for `answer_s`; libzmq then forgets it, or dials again.

Linux and TCP only: elsewhere a host that is gone is noticed when its peer has been silent for as long as it may be.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import sys
from collections import OrderedDict

from kvproto.io.control.unread import OUT_OF_DESCRIPTORS, cookie, held

#: questions without an answer
ASKED = 3
#: looks at each connection in `answer_s`, and connections that one look takes
TIMES, LOOKS = 4, 8
#: of tcp_info: tcpi_retransmits, tcpi_probes, tcpi_last_ack_recv (milliseconds)
_INFO = struct.Struct("<2xBB52xI")


class Unanswered:
    """The connections of one control plane, by monitor and descriptor.

    Monitors report independently of each other.  So one may report the new owner of a descriptor before another one
    reports that it has lost the connection that had the descriptor.
    """

    def __init__(self, answer_s: float) -> None:
        self.answer_s = answer_s
        self._cookies = OrderedDict[tuple[int, int], bytes]()
        #: when to look again
        self.due = 0.0

    def __len__(self) -> int:
        return len(self._cookies)

    def add(self, by: int, fd: int) -> None:
        """Watch a connection that the monitor of this number has reported."""
        # TCP_INFO's form is Linux's. For want of a descriptor it is not watched: then its host may be gone for longer.
        if sys.platform == "linux":
            with contextlib.suppress(OSError), held(fd) as there:
                self._cookies[by, fd] = cookie(there)

    def remove(self, by: int, fd: int) -> None:
        self._cookies.pop((by, fd), None)

    def look(self, now: float) -> None:
        """Look at some connections: those that were not looked at for longest."""
        for _ in range(min(LOOKS, len(self._cookies))):
            by, fd = key = next(iter(self._cookies))
            self._cookies.move_to_end(key)
            try:
                over = self._over(fd, self._cookies[key])
            except OSError as error:
                over = error.errno not in OUT_OF_DESCRIPTORS
            if over:
                self.remove(by, fd)
        self.due = now + self.answer_s / TIMES * min(1.0, LOOKS / max(1, len(self._cookies)))

    def _over(self, fd: int, known: bytes) -> bool:
        """Shut a connection that is unanswered: True; so is a descriptor that is another connection's by now."""
        with held(fd) as there:
            if cookie(there) != known:
                return True
            told = there.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO.size)
            repeated, probes, ago_ms = _INFO.unpack(told)
            if max(repeated, probes) < ASKED or ago_ms < 1000 * self.answer_s:
                return False
            there.shutdown(socket.SHUT_RDWR)
            return True

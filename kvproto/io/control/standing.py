"""Standing of a dialled connection, as libzmq's monitor of the socket reports it.

The kernel at its other end acknowledges what is sent whatever the process does, or that it has no room for it, and
closes the connection when that process ends.  So a connection stands while the process is there, busy or not, and falls
at once when it is killed; when its host is gone, as soon as it is found `unanswered`.
"""

from __future__ import annotations

import os

import zmq

from kvproto.io.control.gate import MONITORED, Monitor
from kvproto.io.control.unanswered import Unanswered


class Standing(Monitor):
    """Follows the one connection of a socket that dials; `stands`: it is there, and its handshake is over."""

    def __init__(
        self, context: zmq.Context[zmq.Socket[bytes]], dialled: zmq.Socket[bytes], number: int, unanswered: Unanswered
    ) -> None:  # fmt: skip
        """`number` of the socket that dials; this one has another, below those of the gate."""
        place = f"inproc://kvproto.dialled.{os.urandom(8).hex()}"  # a failed dial of this number may hold its own yet
        events = zmq.EVENT_CONNECTED | zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED
        super().__init__(context, dialled, place, events, -2 - number)
        self._unanswered = unanswered
        self.stands = False

    def _serve(self, parts: list[bytes]) -> None:
        event, value = MONITORED.unpack(parts[0])
        self.stands = event == zmq.EVENT_HANDSHAKE_SUCCEEDED
        if event == zmq.EVENT_CONNECTED:
            self._unanswered.add(self.number, value)
        elif event == zmq.EVENT_DISCONNECTED:
            self._unanswered.remove(self.number, value)

"""A polled socket: the interface of every socket that the control plane's poller watches."""

from __future__ import annotations

import zmq

#: the library's flags as plain numbers: its own enumerations cost 2 us each time that one is tested
POLLIN, POLLOUT, NOBLOCK = int(zmq.POLLIN), int(zmq.POLLOUT), int(zmq.NOBLOCK)


class PolledSocket:
    """A socket that the control plane's poller watches."""

    __slots__ = ("_socket", "fd", "number")

    def __init__(self, number: int, socket: zmq.Socket[bytes]) -> None:
        self.number = number
        self.fd = int(socket.get(zmq.FD))  #: edge-triggered: see `control`
        self._socket = socket

    def events(self) -> int:
        """Return POLLIN for input, POLLOUT for room; the descriptor tells about everything else."""
        return int(self._socket.get(zmq.EVENTS))

"""What every socket has that the control plane's poller watches, whether it carries frames or questions."""

from __future__ import annotations

import zmq


class PolledSocket:
    """A socket that the control plane's poller watches."""

    __slots__ = ("_socket", "fd", "number")

    def __init__(self, number: int, socket: zmq.Socket[bytes]) -> None:
        self.number = number
        self.fd = int(socket.get(zmq.FD))  #: edge-triggered: see `control`
        self._socket = socket

    def events(self) -> int:
        """Whether something is here (POLLIN), or would be taken (POLLOUT); of what is not, the descriptor tells."""
        return int(self._socket.get(zmq.EVENTS))

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

    def readable(self) -> bool:
        """Whether something is here; after False the descriptor tells of the next."""
        return bool(int(self._socket.get(zmq.EVENTS)) & zmq.POLLIN)

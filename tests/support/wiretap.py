"""Wiretap: frames of the control plane are recorded, repeated, and joined by strangers' by hand."""

from __future__ import annotations

from kvproto.endpoint.endpoint import Endpoint
from kvproto.io.control.control import Control, Peer, Sent
from kvproto.protocol.codec import MAX_FRAME, encode
from kvproto.protocol.messages import Heartbeat
from kvproto.verify.testing import inside
from kvproto.verify.testing.pair import Pair

Frame = tuple[int, Peer, bytes]


class Tap:
    """Notes every frame that a pair's endpoints send: (index of the endpoint, its peer, bytes)."""

    def __init__(self, pair: Pair) -> None:
        self.pair, self.frames, self.open = pair, list[Frame](), True
        for index, endpoint in enumerate(pair.endpoints):
            self._listen(index, endpoint)

    def _listen(self, index: int, endpoint: Endpoint) -> None:
        send = inside(endpoint).loop.control.send

        def noted(peer: Peer, data: bytes, *, urgent: bool = False, later: bool = False) -> Sent:
            if self.open:
                self.frames.append((index, peer, data))
            return send(peer, data, urgent=urgent, later=later)

        inside(endpoint).loop.control.send = noted  # type: ignore[method-assign]

    def say(self, index: int, peer: Peer, data: bytes) -> None:
        """Have this endpoint send these bytes, whatever they are, without a note."""
        self.open = False
        inside(self.pair.endpoints[index]).loop.control.send(peer, data)
        self.open = True

    def repeat(self, at: int) -> None:
        """Send a frame that was noted once more."""
        if self.frames:
            self.say(*self.frames[at % len(self.frames)])


class Stranger:
    """A connection to a prefill rank from somebody who is not of any group."""

    def __init__(self, address: str) -> None:
        self.control = Control(None, max_frame=MAX_FRAME, max_bytes=4 * MAX_FRAME)
        self.peer = self.control.connect(address)

    def say(self, data: bytes) -> None:
        self.control.send(self.peer, data)
        self.flush()

    def flush(self) -> None:
        """Send queued frames as soon as the socket takes them; nothing else polls it."""
        self.control.receive(16)

    def heard(self) -> bool:
        """Whether the rank has answered: the connection stands."""
        self.control.send(self.peer, encode(0, 0, Heartbeat()))
        return bool(self.control.receive(16))

    def close(self) -> None:
        self.control.close(0.0)

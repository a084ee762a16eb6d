"""What waits for a peer that has no room just now: bounded in frames and in bytes, and never dropped unsaid.

libzmq's own queue counts messages only, and cannot be asked what it holds; so it is kept short and the rest
waits here, where both are counted. An outbox exists only while something waits, so peers that come and go
leave nothing behind.

It has two lanes, each in order: what is urgent goes before all that is not, so that signs of life and watermarks never
queue behind bulk.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kvproto.io.control.sockets import Peer, Sent

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(slots=True)
class Counts:
    """What became of the frames since the start, and of those who would not be heard."""

    sent: int = 0  #: left for a socket
    received: int = 0
    refused: int = 0  #: answered FULL
    gone: int = 0  #: answered GONE
    lost: int = 0  #: in an outbox when their peer went or was forgotten
    away: Counter[str] = field(default_factory=Counter)  #: connections that were turned away, by why


class _Outbox:
    __slots__ = ("frames", "nbytes", "urgent")

    def __init__(self) -> None:
        self.urgent: deque[bytes] = deque()
        self.frames: deque[bytes] = deque()
        self.nbytes = 0

    def __len__(self) -> int:
        return len(self.urgent) + len(self.frames)


class Outboxes:
    """One queue for each peer in front of `post`, which takes a frame or answers FULL or GONE at once."""

    def __init__(self, post: Callable[[Peer, bytes], Sent], counts: Counts, max_queue: int, max_bytes: int) -> None:
        self._post = post
        self._counts = counts
        self._max_queue, self._max_bytes = max_queue, max_bytes
        self._boxes: dict[Peer, _Outbox] = {}

    def __bool__(self) -> bool:
        return bool(self._boxes)

    def offer(self, peer: Peer, data: bytes, *, urgent: bool = False) -> Sent:
        """Post a frame, or keep it in order behind those of its lane that wait."""
        box = self._boxes.get(peer)
        if box is None:
            sent = self._post(peer, data)
            if sent is not Sent.FULL:
                self._counts.sent += sent is Sent.TAKEN
                self._counts.gone += sent is Sent.GONE
                return sent
            box = self._boxes[peer] = _Outbox()
        if len(box) >= self._max_queue or box.nbytes + len(data) > self._max_bytes:
            self._counts.refused += 1
            return Sent.FULL
        (box.urgent if urgent else box.frames).append(data)
        box.nbytes += len(data)
        return Sent.TAKEN

    def flush(self) -> None:
        """Move every outbox on as far as its peer takes it."""
        for peer, box in tuple(self._boxes.items()):
            sent = Sent.TAKEN
            while (lane := box.urgent or box.frames) and (sent := self._post(peer, lane[0])) is Sent.TAKEN:
                box.nbytes -= len(lane.popleft())
                self._counts.sent += 1
            if sent is not Sent.FULL:
                self.forget(peer)

    def forget(self, peer: Peer) -> None:
        """Give up what waits for `peer`."""
        box = self._boxes.pop(peer, None)
        if box is not None:
            self._counts.lost += len(box)

    def waiting(self) -> tuple[int, int]:
        """Return frames and bytes that wait for all peers together."""
        boxes = self._boxes.values()
        return sum(len(box) for box in boxes), sum(box.nbytes for box in boxes)

    def depth(self, peer: Peer) -> tuple[int, int]:
        """Return frames and bytes that wait for `peer`."""
        box = self._boxes.get(peer)
        return (0, 0) if box is None else (len(box), box.nbytes)

"""The outbox of a peer that takes no more frames: bounded in frames and bytes, never dropped silently.

libzmq's own queue counts messages only, and cannot be asked what it holds; so it is kept short and the rest
waits here, where both are counted. An outbox exists only while something waits, so peers that come and go
leave nothing behind.

It has two queues, each in order. Urgent frames go first, so heartbeats and watermarks never queue behind bulk:
no head-of-line blocking.

What is offered to leave *later* is held until `flush`, and leaves with all that was held for its peer, several frames a
message: one call of libzmq, and one wake-up of its thread and of the peer, for many.

An outbox that waits is asleep, and nobody visits it. A socket with one peer, which we connected to, says when there is
room (`control` then calls `move`), for years if need be. One socket serves all peers that connected to us, and does not
say which of them has room; so such an outbox is tried again at its time (`flush`): in the next pass if something went,
else after a time that doubles, up to SLOWEST_S. So peers that have stopped cost four tries a second each.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import chain, count
from typing import TYPE_CHECKING

from kvproto.io.control.bundle import BUNDLE
from kvproto.io.control.sockets import Peer, Sent

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

#: seconds until a try that nothing came of is repeated: the first time, and at most
SOONEST_S, SLOWEST_S = 1e-3, 0.25


@dataclass(slots=True)
class Counts:
    """Counts of frames since the start, by their fate, and of refused connections."""

    sent: int = 0  #: left for a socket
    received: int = 0
    refused: int = 0  #: answered FULL
    gone: int = 0  #: answered GONE
    lost: int = 0  #: in an outbox when their peer went or was forgotten
    away: Counter[str] = field(default_factory=Counter)  #: connections that were turned away, by why


class _Outbox:
    __slots__ = ("delay", "frames", "nbytes", "urgent")

    def __init__(self) -> None:
        self.urgent: deque[bytes] = deque()
        self.frames: deque[bytes] = deque()
        self.nbytes = 0
        self.delay = 0.0  #: seconds until the next try

    def __len__(self) -> int:
        return len(self.urgent) + len(self.frames)

    def bundle(self, max_bytes: int) -> list[bytes]:
        """The frames of the next message: as many as one may have, the first in any case."""
        # By far the most frequent case, without a list to build and bytes to count.
        if len(self.urgent) + len(self.frames) == 1:
            return [(self.urgent or self.frames)[0]]
        found, nbytes = list[bytes](), 0
        for frame in chain(self.urgent, self.frames):
            nbytes += len(frame)
            if found and (nbytes > max_bytes or len(found) == BUNDLE):
                break
            found.append(frame)
        return found

    def drop(self, frames: int) -> None:
        """So many of the first have gone."""
        for _ in range(frames):
            self.nbytes -= len((self.urgent or self.frames).popleft())


class Outboxes:
    """One queue for each peer in front of `post`, which sends a message or answers FULL or GONE at once."""

    def __init__(
        self, post: Callable[[Peer, Sequence[bytes]], Sent], counts: Counts, max_queue: int, max_bytes: int,
        max_message: int, clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        """`max_message`: bytes of the frames of one message, unless it has only one."""
        self._post = post
        self._counts = counts
        self._max_queue, self._max_bytes, self._max_message = max_queue, max_bytes, max_message
        #: those that wait; whether there are some is looked at without a call
        self.by_peer: dict[Peer, _Outbox] = {}
        #: those that `flush` lets go
        self.held: list[tuple[Peer, _Outbox]] = []
        self._clock = clock
        #: of peers that connected to us: when to try again; an entry whose outbox is no more is passed over
        self.tries: list[tuple[float, int, Peer, _Outbox]] = []
        self._numbers = count()
        #: told of a peer when all that waited for it has gone
        self.emptied: Callable[[Peer], None] = lambda _: None

    def __bool__(self) -> bool:
        return bool(self.by_peer)

    def __contains__(self, peer: Peer | None) -> bool:
        return peer in self.by_peer

    def offer(self, peer: Peer, data: bytes, *, urgent: bool = False, later: bool = False) -> Sent:
        """Post a frame, or queue it in order behind its kind; `later`: hold it until `flush`."""
        # Held frames leave before this one: frames of a kind keep their order.
        if self.held and not later:
            self.let_go()
        box = self.by_peer.get(peer)
        if box is None and later:
            box = self.by_peer[peer] = _Outbox()
            self.held.append((peer, box))
        elif box is None:
            sent = self._post(peer, (data,))
            if sent is not Sent.FULL:
                self._counts.sent += sent is Sent.TAKEN
                self._counts.gone += sent is Sent.GONE
                return sent
            box = self.by_peer[peer] = _Outbox()
            self._sleep(peer, box)
        if len(box.urgent) + len(box.frames) >= self._max_queue or box.nbytes + len(data) > self._max_bytes:
            self._counts.refused += 1
            return Sent.FULL
        (box.urgent if urgent else box.frames).append(data)
        box.nbytes += len(data)
        return Sent.TAKEN

    @property
    def due_in(self) -> float:
        """Seconds until the next try; infinity: none is due, or a socket will say when."""
        if self.held:
            return 0.0
        return max(0.0, self.tries[0][0] - self._clock()) if self.tries else float("inf")

    def let_go(self) -> None:
        """Send the held frames, as far as their peers take them."""
        # Replaced before the walk: whoever is told that an outbox is empty may hold new frames at once.
        held, self.held = self.held, []
        for peer, box in held:
            if self.by_peer.get(peer) is box:
                self.move(peer)
                if self.by_peer.get(peer) is box:
                    self._sleep(peer, box)

    def flush(self) -> None:
        """Let go what was held, and try those that are due, once each."""
        if self.held:
            self.let_go()
        if not self.tries:
            return
        # Collected before any is tried: one whose next try is due at once must wait for the next flush.
        now, again = self._clock(), []
        while self.tries and self.tries[0][0] <= now:
            _, _, peer, box = heappop(self.tries)
            if self.by_peer.get(peer) is box:
                again.append((peer, box))
        for peer, box in again:
            went = self.move(peer)
            box.delay = 0.0 if went else min(max(2 * box.delay, SOONEST_S), SLOWEST_S)
            if self.by_peer.get(peer) is box:
                self._sleep(peer, box)

    def _sleep(self, peer: Peer, box: _Outbox) -> None:
        # A socket that we dialled says when it has room; a listener's does not say for which of its peers.
        if not peer.link:
            heappush(self.tries, (self._clock() + box.delay, next(self._numbers), peer, box))

    def move(self, peer: Peer) -> bool:
        """Move its outbox on as far as the peer takes it; whether something went."""
        box, sent, before = self.by_peer[peer], Sent.TAKEN, self._counts.sent
        while box.urgent or box.frames:
            bundle = box.bundle(self._max_message)
            sent = self._post(peer, bundle)
            if sent is not Sent.TAKEN:
                break
            box.drop(len(bundle))
            self._counts.sent += len(bundle)
        if sent is Sent.TAKEN:
            del self.by_peer[peer]
            self.emptied(peer)
        elif sent is Sent.GONE:
            self.forget(peer)
        return self._counts.sent > before

    def forget(self, peer: Peer) -> None:
        """Give up what waits for `peer`."""
        box = self.by_peer.pop(peer, None)
        if box is not None:
            self._counts.lost += len(box)

    def waiting(self) -> tuple[int, int]:
        """Return frames and bytes that wait for all peers together."""
        boxes = self.by_peer.values()
        return sum(len(box) for box in boxes), sum(box.nbytes for box in boxes)

    def depth(self, peer: Peer) -> tuple[int, int]:
        """Return frames and bytes that wait for `peer`."""
        box = self.by_peer.get(peer)
        return (0, 0) if box is None else (len(box), box.nbytes)

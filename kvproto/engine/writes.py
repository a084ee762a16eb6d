"""Writes under way: posted as the transport has room, watched to their end, reported once a send.

A send is one write, or, over pages, many; they are one flight.  A write that the transport has no room for waits in
order behind the others to its peer.  A flight ends in one event: completed, or failed; a failed one whose bytes may
still move is reported as such first, and once more when they cannot.

A flight of many writes takes its time, and so may the pass of the loop in which it is posted: before each write the
rank is asked, at the time that it is then, whether the send may still post; if not, what is left is given up.  At most
`BUDGET` pieces are posted in one pass, so that a loop with much to slice still beats, hears and fires its timers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from kvproto.engine.gathers import Key
from kvproto.engine.loop import Loop
from kvproto.io.transports.base import Busy, Completed, Draft, Failed, Handle, Part, PeerId, Transport
from kvproto.protocol import events as ev

#: pieces that one pass posts: some 50 ms
BUDGET = 16384
#: (room, chunk, link) of a notification that a write carries
Note = tuple[int, int, int]


@dataclass(slots=True)
class Flight:
    """One send's writes: what is not yet posted, what has not ended, and whether something went wrong."""

    key: Key
    peer: PeerId
    parts: deque[Draft | list[Part]]
    live: set[Handle] = field(default_factory=set)
    failed: bool = False
    doubt: bool = False
    noted: Note | None = None


class Flights:
    """The flights of one rank."""

    def __init__(
        self, loop: Loop, transport: Transport, told: Callable[[Note], None], may: Callable[[Key], bool]
    ) -> None:
        """`told` hears of each note that was carried, when its write is over; `may` says if a send may still post."""
        self.loop, self.transport, self.told, self.may = loop, transport, told, may
        #: by write, until the write is quiescent
        self.live: dict[Handle, Flight] = {}
        self.pieces = self.nbytes = 0
        self._turn = self._left = 0
        self._waiting: deque[Flight] = deque()
        #: failed writes whose bytes may still move
        self.doubtful: list[tuple[Flight, Handle]] = []

    def __bool__(self) -> bool:
        """Whether a write is in flight, or waits for room."""
        return bool(self.live or self._waiting)

    def post(self, flight: Flight) -> None:
        """Post what the transport has room for; what it has none for waits for the next pass."""
        while flight.parts and not flight.failed:
            work = flight.parts[0]
            if self._spent():
                self._waiting.append(flight)
                return
            if not self.may(flight.key):
                self._fail(flight, "the send was stopped, or its lease has ended", doubt=False)
                break
            try:
                if isinstance(work, Draft):
                    parts, handle = work.parts, self.transport.post(work)
                else:
                    parts, handle = work, self.transport.write_many(flight.peer, work, b"")
            except Busy:
                self._waiting.append(flight)
                return
            except Exception as error:  # noqa: BLE001  # by the contract nothing was posted
                self._fail(flight, f"{type(error).__name__}: {error}", doubt=False)
                break
            flight.parts.popleft()
            flight.live.add(handle)
            self.live[handle] = flight
            for part in parts:
                self._left -= len(part.descs)
                self.pieces += len(part.descs)
                self.nbytes += int(part.descs[0, 2] if len(part.descs) == 1 else part.descs[:, 2].sum())
        self._settle(flight)

    def poll(self) -> bool:
        """Post what waits, in order (a peer that has no room yet is asked once), and look at what is in doubt.

        Whether something was posted.
        """
        before = self.pieces
        if self._waiting and not self._spent():
            self._post_waiting()
        if self.doubtful:
            self.doubtful = [(flight, handle) for flight, handle in self.doubtful if not self._over(flight, handle)]
        return self.pieces > before

    def _spent(self) -> bool:
        """Whether this pass has posted enough."""
        if self._turn != self.loop.turns:
            self._turn, self._left = self.loop.turns, BUDGET
        return self._left <= 0

    def _post_waiting(self) -> None:
        full: set[PeerId] = set()
        waiting, self._waiting = self._waiting, deque()
        for flight in waiting:
            if flight.peer in full:
                self._waiting.append(flight)
                continue
            if flight.failed:
                continue  # it ends with the last of its writes
            before = len(self._waiting)
            self.post(flight)
            if len(self._waiting) > before:
                full.add(flight.peer)

    def hear(self, event: Completed | Failed) -> None:
        """The transport says that a write is over."""
        flight = self.live.get(event.handle)
        if flight is None:
            return
        if isinstance(event, Failed):
            self._fail(flight, str(event.error), doubt=not event.quiescent)
            if not event.quiescent:
                self.doubtful.append((flight, event.handle))
                return
        del self.live[event.handle]
        flight.live.discard(event.handle)
        self._settle(flight)

    def _fail(self, flight: Flight, why: str, *, doubt: bool) -> None:
        flight.failed = True
        for work in flight.parts:
            if isinstance(work, Draft):
                self.transport.drop(work)
        flight.parts.clear()
        self.loop.reports.append(f"write of {flight.key}: {why}")
        if doubt and not flight.doubt:
            flight.doubt = True
            self.loop.raise_event(ev.WriteFailed(*flight.key, settled=False))

    def _over(self, flight: Flight, handle: Handle) -> bool:
        """Whether a write in doubt can no longer move a byte."""
        if not self.transport.quiescent(handle):
            return False
        del self.live[handle]
        flight.live.discard(handle)
        self._settle(flight)
        return True

    def _settle(self, flight: Flight) -> None:
        if flight.live or flight.parts:
            return
        if flight.noted is not None:
            self.told(flight.noted)
        done = not flight.failed
        self.loop.raise_event(ev.WriteCompleted(*flight.key) if done else ev.WriteFailed(*flight.key, settled=True))

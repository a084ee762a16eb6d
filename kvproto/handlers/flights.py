"""Writes under way: posted as the transport has room, watched to their end, reported once a send.

A send is one write, or, over pages, many; they are one flight.  A write that the transport has no room for waits in
order behind the others to its peer.  A flight ends in one event: completed, or failed; a failed one whose bytes may
still move is reported as such first, and once more when they cannot.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from kvproto import events as ev
from kvproto.handlers.gathers import Key
from kvproto.handlers.transports.base import Busy, Completed, Draft, Failed, Handle, Part, PeerId, Transport
from kvproto.loop import Loop

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

    def __init__(self, loop: Loop, transport: Transport, told: Callable[[Note], None]) -> None:
        """`told` hears of each note that was carried, when its write is over."""
        self.loop, self.transport, self.told = loop, transport, told
        #: by write, until the write is quiescent
        self.live: dict[Handle, Flight] = {}
        self.pieces = self.nbytes = 0
        self._waiting: deque[Flight] = deque()
        self._doubtful: list[tuple[Flight, Handle]] = []

    def __bool__(self) -> bool:
        """Whether a write is in flight, or waits for room."""
        return bool(self.live or self._waiting)

    def post(self, flight: Flight) -> None:
        """Post what the transport has room for; what it has none for waits for the next pass."""
        while flight.parts and not flight.failed:
            work = flight.parts[0]
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
                self.pieces += len(part.descs)
                self.nbytes += int(part.descs[0, 2] if len(part.descs) == 1 else part.descs[:, 2].sum())
        self._settle(flight)

    def poll(self) -> None:
        """Post what waits, in order (a peer that has no room yet is asked once), and look at what is in doubt."""
        if self._waiting:
            self._post_waiting()
        if self._doubtful:
            self._doubtful = [(flight, handle) for flight, handle in self._doubtful if not self._over(flight, handle)]

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
                self._doubtful.append((flight, event.handle))
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

"""The worker of a rank: carries out the scheduler's orders with one endpoint, on a thread of its own.

The engine calls three hooks in each step: `before` its forward with the step's orders, `after` it with the same ones
(and with the event after which the KV is computed), and `results` for the requests that are over.  None of them blocks
(except a withdrawal, once for each preemption): calls are handed to the endpoint's thread, which leaves outcomes and
releases to be picked up.  The table decides about orders and reports (`adapters.room_tables`); this file only maps them
to calls of the endpoint.

If the endpoint raises for a room (a layout that does not fit, a room of that number that is open), only that request
fails: the error is logged, and the request is reported as failed.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, TypeVar

import msgspec

from kvproto.adapters.geometry import Geometry
from kvproto.adapters.request_events import CarryOut, Forget, Renew, RoomEnded, RoomReleased
from kvproto.adapters.request_parties import Side, rank
from kvproto.adapters.request_words import SCHEDULER, GiveBlocks, Order, Received, Ticket
from kvproto.endpoint.endpoint import Endpoint
from kvproto.errors import KvprotoError
from kvproto.fsm.vocabulary import Effect, Report, Transmit
from kvproto.room import Outcome, Room

LOG = logging.getLogger("kvproto.adapters")
E = TypeVar("E", bound=Endpoint)


class Results(msgspec.Struct):
    """Requests that ended at this rank since the last call; a load that `failed` is in `received`, too."""

    sent: set[str] = msgspec.field(default_factory=set)
    received: set[str] = msgspec.field(default_factory=set)
    failed: set[str] = msgspec.field(default_factory=set)


class Worker(Generic[E]):
    """The common part of both sides' workers."""

    side: Side

    def __init__(self, endpoint: E, geometry: Geometry) -> None:
        """`endpoint`: the rank's own, not started, on the pool of this `geometry`."""
        self.endpoint, self.geometry = endpoint, geometry
        self.rank = rank(self.side)
        self._tickets: dict[str, Ticket] = {}
        self._requests: dict[Room, str] = {}
        self._results = Results()
        #: rooms that have ended before the endpoint had them
        self._stillborn: deque[str] = deque()
        self._after: Any = None
        self.carry: Mapping[type[Order], Callable[[Any], None]] = {}
        #: told of each outcome, while the room's digests can still be asked for; of each release, before it is reported
        self.on_outcome: Callable[[str, Outcome], None] = lambda _request, _outcome: None
        self.on_release: Callable[[str], None] = lambda _request: None

    def start(self) -> None:
        """Have the endpoint run on its own thread."""
        self.endpoint.start()

    def close(self) -> None:
        """Let go of everything."""
        self.endpoint.close()

    # ------------------------------------------------------------------------------------------- the hooks
    def before(self, orders: Iterable[Order]) -> None:
        """Before the step's forward: rooms are opened, given up, withdrawn."""
        now = time.monotonic()
        for order in orders:
            if not isinstance(order, GiveBlocks):
                self._settle(self.rank.receive(SCHEDULER, order, now))

    def after(self, orders: Iterable[Order], event: Any = None) -> None:
        """Carry out orders after the forward was queued; its KV is there once `event` has passed (None: now)."""
        self._after, now = event, time.monotonic()
        for order in orders:
            if isinstance(order, GiveBlocks):
                self._settle(self.rank.receive(SCHEDULER, order, now))

    def results(self) -> Results:
        """Return the requests that ended since the last call.  EndpointError: the thread has broken."""
        now = time.monotonic()
        while self._stillborn:
            request = self._stillborn.popleft()
            self._settle(self.rank.handle(RoomEnded(request, well=False), now))
            self._settle(self.rank.handle(RoomReleased(request), now))
        for outcome in self.endpoint.finished():
            if outcome.room in self._requests:
                request = self._requests[outcome.room]
                self.on_outcome(request, outcome)
                self._settle(self.rank.handle(RoomEnded(request, outcome.ok), now))
        for room in self.endpoint.released():
            if room in self._requests:
                request = self._requests.pop(room)
                self.on_release(request)
                self._settle(self.rank.handle(RoomReleased(request), now))
        if now >= self.rank.next_deadline:
            self._settle(self.rank.tick(now))
        found, self._results = self._results, Results()
        return found

    # ------------------------------------------------------------------------------------------ what follows
    def _settle(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            match effect:
                case CarryOut(request=request, order=order):
                    self._carry_out(request, order)
                case Renew(request=request):
                    self.renew(request)
                case Transmit(body=body):
                    self._report(body)
                case Forget(request=request):
                    self._tickets.pop(request, None)
                case Report(what=what, why=why):
                    LOG.warning("%s: %s", what, why)

    def renew(self, request: str) -> None:
        """Announce its room once more: a decode rank's matter."""

    def _report(self, body: Any) -> None:
        if isinstance(body, Received):
            self._results.received.add(body.request)
            if body.failed:
                self._results.failed.add(body.request)
        else:
            self._results.sent.add(body.request)

    def _carry_out(self, request: str, order: Order) -> None:
        try:
            self.carry[type(order)](order)
        except KvprotoError as error:
            LOG.warning("request %s: %s: %s", request, type(order).__name__, error)
            if self._holds(request):
                self.endpoint.abort(self._room(request))
            else:
                self._stillborn.append(request)

    def _room(self, request: str) -> Room:
        return room_of(self._tickets[request])

    def _holds(self, request: str) -> bool:
        """Whether its room is open at the endpoint, and not that of another request with the same number."""
        return request in self._tickets and self._requests.get(self._room(request)) == request

    def _units(self, tokens: int, of: int) -> int:
        """So many of a prompt's tokens, as the endpoint counts them."""
        return self.geometry.units(tokens, whole=tokens >= of)

    def _enter(self, request: str) -> None:
        """Its room is open at the endpoint."""
        self._requests[self._room(request)] = request


def room_of(ticket: Ticket) -> Room:
    """The room of a request."""
    return Room(ticket.room, ticket.gen)

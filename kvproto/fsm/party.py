"""A party: one side of a protocol, a driver with an edge where messages become events.

A subclass passes each received message to `hear` in an object with all that it knows about it; `hear` itself reads only
the message (`heard.body`).  `facts` returns the combination of the routes' facts; the route decides the rest.

The trace numbers the copies of each message, sent and received (`kvproto.fsm.copies`).

A `Member` is the simplest kind: one of a few that know each other by numbers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import msgspec

from kvproto.fsm.copies import CopyNumbers
from kvproto.fsm.driver import Driver
from kvproto.fsm.routing import Routes
from kvproto.fsm.timing import NamedTimers
from kvproto.fsm.vocabulary import Broadcast, Effect, Transmit


class Party(Driver):
    """Machines, and the routes that lead to them; `counts` has what was dropped, by reason."""

    def __init__(self, timing: NamedTimers, routes: Routes, trace: int = 512) -> None:
        super().__init__(timing, trace)
        self.counts: Counter[str] = Counter()
        #: of what leaves, by way
        self.sent = CopyNumbers()
        self.routes, self._routes = routes, routes.compiled()

    def hear(self, heard: Any, now: float, number: int = 0) -> list[Effect]:
        """Take one message and return the effects that the caller has to carry out.

        `number`: which copy of the message it is, for the trace (0: unknown).
        """
        route = self._routes[type(heard.body)][self.facts(heard)]
        if route.end == "route":
            to = route.to
            self._out = []
            event = to[0](heard)
            self.log((now, self.noted(heard), route, number))
            if event is None:  # beyond a bound, and counted as such; its sender may be told
                return self._out
            return self.handle(event, now) if len(to) == 1 else self.handle(event, now, to[1](heard))
        self.log((now, self.noted(heard), route, number))
        self.counts[route.why] += 1
        self._out = []
        for answer in route.to:
            self.answer(heard, answer(heard))
        return self._out

    def facts(self, heard: Any) -> int:
        """The place of the message's facts among all their combinations (`Routes.place`)."""
        del heard
        return 0

    def noted(self, heard: Any) -> tuple[Any, ...]:
        """Return the trace's fields of the message: its origin, and the message last."""
        raise NotImplementedError

    def answer(self, heard: Any, body: Any) -> None:
        """Send this to the sender of the received message."""
        raise NotImplementedError


class MemberMessage(msgspec.Struct):
    """A message and its sender."""

    party: Any
    peer: int
    body: Any


class Member(Party):
    """One of a few parties that know each other by numbers; what it has to say leaves as `Transmit`.

    What it keeps beside its machines, and a search has to keep with them, it names in `KEPT`: attributes with values
    that can be compared and hashed.
    """

    KEPT: tuple[str, ...] = ()

    def __init__(
        self, number: int, names: Mapping[int, str], timing: NamedTimers, routes: Routes, trace: int = 512
    ) -> None:  # fmt: skip
        """`names` of all parties, this one's included, by number."""
        super().__init__(timing, routes, trace)
        self.number, self.name = number, names[number]
        self.peers = {other: name for other, name in names.items() if other != number}
        self.inner |= {Transmit: self._leave, Broadcast: self._broadcast}

    def receive(self, peer: int, body: Any, now: float, number: int = 0) -> list[Effect]:
        """Take one message from this peer; `number`: which copy of it, if known."""
        return self.hear(MemberMessage(self, peer, body), now, number)

    def noted(self, heard: MemberMessage) -> tuple[int, Any]:
        """Return the sender and the message."""
        return heard.peer, heard.body

    def answer(self, heard: MemberMessage, body: Any) -> None:
        """Send this to the sender of the received message."""
        self._leave(Transmit(heard.peer, body))

    def _leave(self, effect: Transmit) -> None:
        self._out.append(effect)
        self.log((effect, self.sent.count(effect.peer)))

    def _broadcast(self, effect: Broadcast) -> None:
        for peer in self.peers:
            if effect.peers >> peer & 1:
                self._leave(Transmit(peer, effect.body))

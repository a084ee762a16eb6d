"""A party: one side of a protocol.  A driver behind an edge, where messages become events.

A message is heard with what is known of it: an object that a subclass fills in, of which this file asks nothing but the
message (`heard.body`).  `facts` says which combination of the routes' facts it is; the route decides the rest.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from kvproto.fsm.driver import Driver
from kvproto.fsm.routing import Routes
from kvproto.fsm.timing import NamedTimers
from kvproto.fsm.vocabulary import Effect


class Party(Driver):
    """Machines, and the routes that lead to them; `counts` has what was dropped, by reason."""

    def __init__(self, timing: NamedTimers, routes: Routes, trace: int = 512) -> None:
        super().__init__(timing, trace)
        self.counts: Counter[str] = Counter()
        self.routes, self._routes = routes, routes.compiled()

    def hear(self, heard: Any, now: float) -> list[Effect]:
        """Take one message; returns the effects that others have to carry out."""
        route = self._routes[type(heard.body)][self.facts(heard)]
        if route.end == "route":
            event = route.to[0](heard)
            self.log((now, self.noted(heard), route))
            if event is None:  # beyond a bound, and counted as such
                return []
            return self.handle(event, now, *[then(heard) for then in route.to[1:]])
        self.log((now, self.noted(heard), route))
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
        """What the trace keeps of the message: where it came from, and the message at the end."""
        raise NotImplementedError

    def answer(self, heard: Any, body: Any) -> None:
        """Have this said to whoever sent what was heard."""
        raise NotImplementedError

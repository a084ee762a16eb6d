"""Sources: where a protocol's events come from, so that the lint can say which rows nobody can fire.

An event comes from outside (a message by its route, the engine, a handler's answer to an effect, a timer) or from
within (a row or an internal effect of the same machines raises it).  What comes from outside may come in any state that
its source leaves open, so each such pair has to be decided.  What comes from within comes where its row sends it, and
is decided where it can come: a search or a test that fires every row shows where that is.

What a route makes and what a row's `do` raises is read from the return annotation of the function, which the type
checker holds it to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from kvproto.fsm.routing import Carried, Fact, Routes
from kvproto.fsm.table import Table
from kvproto.fsm.vocabulary import Effect, Event, State, TimerFired


class Sources:
    """The origins of one protocol's events."""

    def __init__(
        self, tables: Iterable[Table[Any]], routes: Iterable[Routes], *, engine: Iterable[type[Event]] = (),
        answers: Mapping[type[Effect], tuple[type[Event], ...]] | None = None,
        raised: Mapping[type[Effect], tuple[type[Event], ...]] | None = None,
        states: Iterable[tuple[Fact, tuple[State, ...]]] = (), elsewhere: Iterable[type[Event]] = (),
        never: Mapping[type[Event], tuple[State, ...]] | None = None,
    ) -> None:  # fmt: skip
        """Take the sources of events.

        `engine`: events of engine calls; `answers`: of handlers, by the effect that they answer; `raised`: of internal
        effects; `states`: in which states a machine is whose message comes with a fact; `elsewhere`: events of machines
        that their message's facts do not speak of; `never`: states in which no message can bring an event about,
        whatever its facts.
        """
        self.tables, self.routes = tuple(tables), tuple(routes)
        self.engine, self.answers, self.raised = tuple(engine), dict(answers or {}), dict(raised or {})
        #: by kind of fact and member: members of different kinds are equal as numbers
        self.states = {(type(fact), fact): named for fact, named in states}
        self.elsewhere, self.never = tuple(elsewhere), dict(never or {})

    def outside(self, table: Table[Any]) -> dict[type[Event], set[State]]:
        """The events that come to the table's machines from outside, and the states in which they may."""
        every = set(table.states)
        found: dict[type[Event], set[State]] = {event: set(every) for event in self.engine if event in table.events}
        for events in self.answers.values():
            found |= {event: set(every) for event in events if event in table.events}
        found |= {event: set(table.timers) for event in table.events if issubclass(event, TimerFired)}
        for _, facts, route in (case for routes in self.routes for case in routes.cases()):
            for event in {each for to in route.to for each in made_by(to)} if route and route.end == "route" else ():
                if event in table.events:
                    found.setdefault(event, set()).update(
                        every if event in self.elsewhere else self._left(table, facts)
                    )
        for event in found.keys() & self.never.keys():
            found[event] -= set(self.never[event])
        return found

    def _left(self, table: Table[Any], facts: tuple[Fact, ...]) -> set[State]:
        left = set(table.states)
        for fact in facts:
            named = {state for state in self.states.get((type(fact), fact), ()) if isinstance(state, table.states)}
            left = left & named if named else left
        return left

    def within(self, table: Table[Any]) -> set[type[Event]]:
        """The events that machines of the same rank raise for the table's."""
        found = {event for events in self.raised.values() for event in events}
        for each in self.tables:
            for row in each.rows:
                found |= {event for build in row.do for event in made_by(build)}
        return found & set(table.events)

    def homeless(self) -> list[type[Event]]:
        """Events that a route, a handler, the engine or a row raises and no table takes."""
        taken = {event for table in self.tables for event in table.events}
        raised = {*self.engine, *_all(self.answers), *_all(self.raised)}
        for table in self.tables:
            raised |= {event for row in table.rows for build in row.do for event in made_by(build)}
        for routes in self.routes:
            raised |= {
                event for route in routes.routes if route.end == "route" for to in route.to for event in made_by(to)
            }
        return sorted(raised - taken, key=lambda event: event.__name__)


def made_by(function: Callable[..., Any]) -> tuple[type[Event], ...]:
    """The events that the function returns, by its annotation."""
    if isinstance(function, Carried):
        return (function.event,)
    said = get_type_hints(function).get("return")
    kinds = get_args(said) if get_origin(said) in (Union, UnionType) else (said,)
    return tuple(kind for kind in kinds if isinstance(kind, type) and issubclass(kind, Event) and kind is not Event)


def _all(by_effect: Mapping[type[Effect], tuple[type[Event], ...]]) -> Iterator[type[Event]]:
    return (event for events in by_effect.values() for event in events)

"""Routing: turns a received message into an event, by facts about its sender; as data.

A rank receives messages, a machine handles events.  Between them is a list of *routes*, read from the top: the first
one that takes the message decides.  A route asks for *facts*, each with a few values (is the sender's link up? is the
sender a party to the room?), and has one of three ends:

* `route`: the message becomes an event (or two) of the machine that it concerns; where the event has the message's
  fields, and perhaps its sender as `peer`, its class is named instead of a function (`Carried`);
* `answer`: it is answered here, and no machine sees it;
* `drop`: it is dropped and counted under its reason.

The rank finds out the facts and nothing else; all consequences are in the list.  The list is compiled once into a table
by facts, so finding a route costs two look-ups, however long the list is.  A message that no route takes, in any
combination of facts, is an error (`gaps`), and so is a route that can never take one (`hidden`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from enum import IntEnum
from itertools import product
from typing import Any, Literal

import msgspec

from kvproto.fsm.vocabulary import Event

End = Literal["route", "answer", "drop"]
#: one kind of message, or several
Messages = type[Any] | tuple[type[Any], ...]
#: makes an event of what was heard; a class of events is made of fields of the same names
Maker = Callable[[Any], Any] | type[Event]


class Fact(IntEnum):
    """Base of what may be known; members count from zero."""


class Carried(msgspec.Struct, frozen=True):
    """Makes an event of the received message's fields of the same names; a field `peer` is the sender."""

    event: type[Event]

    def __call__(self, heard: Any) -> Event:
        """Return the event."""
        if type(heard.body) is self.event:
            return heard.body
        names = self.event.__struct_fields__
        return self.event(*[heard.peer if name == "peer" else getattr(heard.body, name) for name in names])


class Route(msgspec.Struct, frozen=True):
    """One line: messages, the facts that it asks for (empty: any), and its end."""

    end: End
    messages: tuple[type[Any], ...]
    #: by fact: the members that it takes
    asks: tuple[tuple[Fact, ...], ...]
    #: what the message becomes: functions of what was heard
    to: tuple[Callable[[Any], Any], ...]
    why: str
    file: str
    line: int
    #: its place in the list
    index: int

    @property
    def where(self) -> str:
        """`file:line`, for complaints."""
        return f"{self.file}:{self.line}"


class Routes:
    """The routes of one kind of rank."""

    def __init__(self, name: str, messages: Iterable[type[Any]], facts: tuple[type[Fact], ...] = ()) -> None:
        """`messages`: all that this kind of rank may be sent; `facts`: what it finds out of each."""
        self.name, self.messages, self.facts = name, tuple(messages), facts
        self.routes: list[Route] = []

    def route(self, message: Messages, *asks: Fact, to: Maker | None = None, then: Maker | None = None) -> None:
        """The message becomes the event `to` makes of it, and then the one that `then` makes.

        A class of events makes one of the message's fields of the same names, and of its sender (`peer`).  Without
        `to` the message is the event itself (`kvproto.fsm.codec.Message`).

        Raises:
            TypeError: the message has no field of that name, or is no event.

        """
        messages = message if isinstance(message, tuple) else (message,)
        if to is None:
            for each in messages:
                self._add("route", each, asks, _makers((each, then), (each,)), "")
        else:
            self._add("route", message, asks, _makers((to, then), messages), "")

    def answer(self, message: Messages, *asks: Fact, to: Callable[[Any], Any], why: str) -> None:
        """The message is answered with the one that `to` makes; `why` is for the reader."""
        self._add("answer", message, asks, (to,), why)

    def drop(self, message: Messages, *asks: Fact, why: str) -> None:
        """The message is counted under `why`."""
        self._add("drop", message, asks, (), why)

    def _add(
        self, end: End, message: Messages, asks: tuple[Fact, ...], to: tuple[Callable[[Any], Any], ...], why: str
    ) -> None:  # fmt: skip
        frame = sys._getframe(2)  # noqa: SLF001  # the line that the route stands on
        messages = message if isinstance(message, tuple) else (message,)
        by_fact = tuple(tuple(ask for ask in asks if type(ask) is fact) for fact in self.facts)
        file, line = frame.f_code.co_filename, frame.f_lineno
        self.routes.append(Route(end, messages, by_fact, to, why, file, line, len(self.routes)))

    def cases(self) -> Iterator[tuple[type[Any], tuple[Fact, ...], Route | None]]:
        """Every message in every combination of facts, and the route that takes it (None: there is none)."""
        for message in self.messages:
            for facts in product(*self.facts):
                yield message, facts, self.find(message, facts)

    def find(self, message: type[Any], facts: tuple[Fact, ...]) -> Route | None:
        """The first route that takes this message with these facts."""
        for route in self.routes:
            asked = zip(route.asks, facts, strict=True)
            if message in route.messages and all(not asks or fact in asks for asks, fact in asked):
                return route
        return None

    def compiled(self) -> dict[type[Any], tuple[Route, ...]]:
        """By message: the routes by the number `place` gives to the facts.  LookupError: a message has none."""
        found: dict[type[Any], list[Route]] = {message: [] for message in self.messages}
        for message, facts, route in self.cases():
            if route is None:
                raise LookupError(f"{self.name}: no route takes {message.__name__} with {_names(facts)}")
            found[message].append(route)
        return {message: tuple(routes) for message, routes in found.items()}

    @staticmethod
    def place(*facts: Fact) -> int:
        """The place of this combination of facts among all of them."""
        at = 0
        for fact in facts:
            at = at * len(type(fact)) + fact
        return at

    def gaps(self) -> list[str]:
        """Describe the messages that no route takes."""
        return [f"{message.__name__} with {_names(facts)}" for message, facts, route in self.cases() if route is None]

    def hidden(self) -> list[Route]:
        """Return the routes that never take a message, because an earlier one always does."""
        taken = {id(route) for _, _, route in self.cases() if route is not None}
        return [route for route in self.routes if id(route) not in taken]


def _makers(to: tuple[Maker | None, ...], messages: tuple[type[Any], ...]) -> tuple[Callable[[Any], Any], ...]:
    return tuple(_maker(each, messages) for each in to if each is not None)


def _maker(to: Maker, messages: tuple[type[Any], ...]) -> Callable[[Any], Any]:
    if not isinstance(to, type):
        return to
    if not issubclass(to, Event):
        raise TypeError(f"{to.__name__} is no event: name one, or a function that makes one (to=)")
    for message in messages:
        for name in sorted({*to.__struct_fields__} - {"peer", *message.__struct_fields__}):
            raise TypeError(f"{message.__name__} has no {name!r}, {to.__name__} has: name a function that makes one")
    return Carried(to)


def _names(facts: tuple[Fact, ...]) -> str:
    return ", ".join(fact.name for fact in facts)

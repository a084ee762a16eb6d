"""Rows: how a machine is written down.

A machine is a `Table`, and a table is a list of rows.  A row says: in *source*, when *event* has happened and
*when* holds, go to *target*, let the value be what *let* says, and have *do* done.  The first row whose guard
passes wins, so for each pair of state and event the rows read from the most particular to the general, and the
last one has no guard (the lint demands it: nothing is left undecided).

Four verbs write a row:

* `opens` makes the machine: the event is its first.  Before that there is nothing but the initial state, which every
  event meets for which no machine is there, so what is late or of nobody is a row of the initial state, too;
* `row` moves (or stays, with work to do);
* `ignore` stays, on purpose: the event is expected here and means nothing any more;
* `refuse` stays, and reports: the event should not come here, whoever sent it broke the protocol or is late
  beyond what the protocol allows.  Nothing else happens, so no message can stop anything.

`when`, `let` and `do` are plain functions of the frozen value and the event (`when` and `let` also see the
time), typed by the table's value and by the row's event: a guard that looks at a field that the event does not
have is a type error, not a surprise.  A `do` function returns exactly one effect and decides nothing.

Every state has at most one timer, named in `timers`: it runs from the moment that the state is entered, a row
that stays leaves it running unless the row says `again`, and its end is the event `TimerFired`, for which the
table has rows like for any other.  A row written on its timer's event always starts it anew.

What a `do` function returns is an effect, or an event: something that another machine of the same rank hears next.

Because a row knows the file and line that it stands on, every complaint about it can say where to look.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any, Generic, Literal, TypeVar

import msgspec

from kvproto.fsm.vocabulary import Effect, Event, State, TimerFired

Verb = Literal["row", "ignore", "refuse"]


class Value(msgspec.Struct, frozen=True, gc=False):
    """What a machine remembers; `due` is when its timer ends (seconds, infinity: no timer runs)."""

    state: State
    due: float = float("inf")


V = TypeVar("V", bound=Value)
#: what a step leaves behind: something to be done, or a fact for another machine of the same rank
Output = Effect | Event
E = TypeVar("E", bound=Event)


class Row(msgspec.Struct, frozen=True):
    """One line of a table."""

    index: int
    verb: Verb
    source: State
    event: type[Event]
    target: State
    when: Callable[..., bool] | None
    let: Callable[..., Any] | None
    do: tuple[Callable[..., Output], ...]
    again: bool
    why: str
    file: str
    line: int
    #: it makes the machine
    opens: bool = False

    @property
    def where(self) -> str:
        """`file:line`, for complaints."""
        return f"{self.file}:{self.line}"

    def __str__(self) -> str:
        guard = f" [{self.when.__name__}]" if self.when else ""
        effects = ", ".join(f.__name__ for f in self.do)
        return f"{self.source.name} --{self.event.__name__}{guard}--> {self.target.name}: {effects or self.verb}"


class Table(Generic[V]):
    """A machine: its value type, its states, the events it may see, its timers and its rows."""

    def __init__(
        self, name: str, value: type[V], states: type[State], *, initial: State,
        events: Iterable[type[Event]], timers: dict[State, str], final: tuple[State, ...] = (),
        tombstones: bool = False, well: tuple[State, ...] = (), apart: tuple[State, ...] = (),
        counted: tuple[State, ...] = (), tries: Callable[[V], int] | None = None,
        periods: dict[State, Callable[[V], float]] | None = None,
    ) -> None:  # fmt: skip
        """`final`: the states that end the machine; `tombstones`: final values are kept for a while and still answer;
        else they are deleted at once.  For pictures, since rows do not say which way is the usual one: `well`, the
        states that a life which goes well passes through, in their order; `apart`, those in which it does not.  For
        whoever watches: `counted`, the states of which every entry is counted, by where it came from and on what.
        `tries`: of a value, how often its timer has ended so far; timers with a longest period back off by it.
        `periods`: of a value, by state: the period (seconds) that this one's timer has instead of the named one's;
        0: it has none of its own.
        """
        self.name = name
        self.value = value
        self.states = states
        self.initial = initial
        self.events = tuple(events)
        self.timers = timers
        self.final = final
        self.tombstones = tombstones
        self.well, self.apart, self.counted = well, apart, counted
        self.tries, self.periods = tries, periods or {}
        self.rows: list[Row] = []

    def pairs(self) -> dict[tuple[State, type[Event]], list[Row]]:
        """By state and event: the rows that decide, in their order."""
        found: dict[tuple[State, type[Event]], list[Row]] = defaultdict(list)
        for row in self.rows:
            found[row.source, row.event].append(row)
        return dict(found)

    def opens(
        self, source: State, event: type[E], target: State, *,
        when: Callable[[V, E, float], bool] | None = None,
        let: Callable[[V, E, float], V] | None = None,
        do: tuple[Callable[[V, E], Output], ...] = (),
    ) -> None:  # fmt: skip
        """`event` makes the machine, if `when`: from the initial state to `target`."""
        self._add("row", source, event, target, when, let, do, again=False, why="", opens=True)

    def row(
        self, source: State | tuple[State, ...], event: type[E], target: State | None = None, *,
        when: Callable[[V, E, float], bool] | None = None,
        let: Callable[[V, E, float], V] | None = None,
        do: tuple[Callable[[V, E], Output], ...] = (), again: bool = False,
    ) -> None:  # fmt: skip
        """In `source` (each of them), on `event`, if `when`: go to `target` (None: stay)."""
        again = again or issubclass(event, TimerFired)
        self._add("row", source, event, target, when, let, do, again=again, why="")

    def ignore(
        self, source: State | tuple[State, ...], event: type[E] | tuple[type[Event], ...], why: str, *,
        when: Callable[[V, E, float], bool] | None = None,
    ) -> None:  # fmt: skip
        """In `source`, `event` is expected and means nothing; `why` is for the reader."""
        self._add("ignore", source, event, None, when, None, (), again=False, why=why)

    def refuse(
        self, source: State | tuple[State, ...], event: type[E] | tuple[type[Event], ...], why: str, *,
        when: Callable[[V, E, float], bool] | None = None,
    ) -> None:  # fmt: skip
        """In `source`, `event` breaks the protocol: nothing moves, and `why` is reported."""
        self._add("refuse", source, event, None, when, None, (), again=False, why=why)

    def _add(
        self, verb: Verb, source: State | tuple[State, ...], event: type[Event] | tuple[type[Event], ...],
        target: State | None, when: Callable[..., bool] | None, let: Callable[..., Any] | None,
        do: tuple[Callable[..., Output], ...], *, again: bool, why: str,
        opens: bool = False,
    ) -> None:  # fmt: skip
        frame = sys._getframe(2)  # noqa: SLF001  # the line that the row stands on
        file, line = frame.f_code.co_filename, frame.f_lineno
        for state in source if isinstance(source, tuple) else (source,):
            for kind in event if isinstance(event, tuple) else (event,):
                self.rows.append(
                    Row(len(self.rows), verb, state, kind, state if target is None else target,
                        when, let, do, again, why, file, line, opens)
                )  # fmt: skip

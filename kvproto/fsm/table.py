"""Table: the rows of a machine.

A machine is a `Table`, and a table is a list of rows.  A row says: in state *source*, on *event*, if *when* holds, go
to *target*, set the value to *let*, and emit the effects of *do*.  The first row whose guard holds wins.  So the rows
of a pair of state and event read from the particular to the general, and the last one has no guard (the lint demands
it: every pair is decided).

Four verbs write a row:

* `opens` creates the machine with its first event.  An event without a machine meets the initial state, so late and
  stray events are rows of the initial state, too;
* `row` moves to another state, or stays and has work to do;
* `ignore` stays on purpose: the event is expected here and no longer matters;
* `refuse` stays and reports: the sender broke the protocol, or is later than the protocol allows.  Nothing else
  happens, so no message can stop a rank.

`when`, `let` and `do` are plain functions of the frozen value and the event (`when` and `let` also see the time).  They
are typed by the table's value and by the row's event: a guard that reads a missing field is a type error.  A `do`
function returns exactly one effect and decides nothing.  Instead of an effect it may return an event, which another
machine of the same rank handles next.

Every state has at most one timer, named in `timers`.  It starts when the state is entered.  A row that stays leaves it
running unless the row says `again`.  Its end is the event `TimerFired`, with rows like any other event; a row on that
event always restarts the timer.

A row knows its file and line, so every error about it says where to look.
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
    """The value of a machine; `due` is when its timer ends (seconds, infinity: no timer runs)."""

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
        events: Iterable[type[Event]] | None = None, timers: dict[State, str] | None = None,
        final: tuple[State, ...] = (),
        tombstones: bool = False, success_path: tuple[State, ...] = (), failure_states: tuple[State, ...] = (),
        counted_states: tuple[State, ...] = (), tries: Callable[[V], int] | None = None,
        periods: dict[State, Callable[[V], float]] | None = None,
    ) -> None:  # fmt: skip
        """Make an empty table; `row` and the other verbs add its rows.

        `events`: all that it may see (None: those of its rows); `timers`: by state, the name of its timer.
        `final`: states that end the machine; `tombstones`: final values are kept for a while and still answer, else
        they are deleted at once.  `well` and `apart` are for diagrams: the states of a successful life, in order, and
        those of a failed one.  `counted` is for metrics: states whose entries are counted, by previous state and event.
        `tries` returns how often the timer of a value has ended so far; timers with a longest period back off by it.
        `periods` returns for a value, by state, a period in seconds that replaces the named one; 0: none does.
        """
        self.name = name
        self.value = value
        self.states = states
        self.initial = initial
        self._events = None if events is None else tuple(events)
        self.timers = timers or {}
        self.final = final
        self.tombstones = tombstones
        self.success_path, self.failure_states, self.counted_states = success_path, failure_states, counted_states
        self.tries, self.periods = tries, periods or {}
        self.rows: list[Row] = []

    @property
    def events(self) -> tuple[type[Event], ...]:
        """Every event that it may see."""
        return self._events or tuple(dict.fromkeys(row.event for row in self.rows))

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

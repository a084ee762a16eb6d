"""The driver: the machines of one party, of several kinds, by key.  It is pure.

The driver handles an event from outside at once, with everything that follows from it inside.  A step may raise events
for other machines, and internal effects raise further ones.  They queue first in, first out, until none is left.  One
kind goes first: an event that *gives* a machine something (a slot, a region) is handled before all others (`give`), so
every resource that is given out has an owner.  All other effects go to the caller.  Time is an argument; an event loop
and a search drive the same object.

An event without a machine meets the table's initial state, like the first event of all.

If several kinds have the same event (one timer event may serve all), `handle` asks `kind_of` for the kind.  A timer
that ends by `tick` or `expire` knows its machine.

The trace keeps the last steps without their effects: a step is pure, so a reader repeats it to see them.  A caller that
needs *every* entry makes drivers with another kind of trace (`make_trace`).
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from kvproto.fsm.machine import Machine
from kvproto.fsm.machine_store import KeyOf, MachineStore, On
from kvproto.fsm.routing import Route
from kvproto.fsm.table import Output, Row, Table
from kvproto.fsm.timer_wheel import INFINITY
from kvproto.fsm.timing import NamedTimers
from kvproto.fsm.vocabulary import Effect, Event, TimerFired

#: (when, row, event, value before, value after)
Step = tuple[float, Row | None, Event, Any, Any]
STEP = 5
#: in the place of a state: the machine has ended
OVER = "over"
#: a message that came: (when, what the party was told of it, the route that took it, which copy it is)
Heard = tuple[float, tuple[Any, ...], Route, int]
#: a message that left, and which copy it is
Sent = tuple[Effect, int]
SENT = 2
#: steps, messages that came, and messages that left
Trace = deque[Step | Heard | Sent]


class Driver:
    """Machines, their timers and their trace."""

    def __init__(self, timing: NamedTimers, trace: int = 512) -> None:
        """`trace`: entries that are kept."""
        self.timing = timing
        self.trace = self.make_trace(trace)
        self.log = self.trace.append
        #: handlers of events and internal effects, by type; all others go to the caller
        self.inner: dict[type[Output], Callable[[Any], None]] = {}
        self.stores: dict[str, MachineStore] = {}
        self._timed: list[MachineStore] = []
        #: how often a timer of this store has ended in this state, and what came of it (`OVER`: the machine's end)
        self.timer_ends: Counter[tuple[str, str, str]] = Counter()
        #: how often a machine of this store has come from this state, on this event, into one that its table counts
        self.entered: Counter[tuple[str, str, str, str]] = Counter()
        self._route: dict[type[Event], On] = {}
        self._queue: deque[Event] = deque()
        self._out: list[Any] = []  # effects alone: events are queued

    @staticmethod
    def make_trace(entries: int) -> Trace:
        """A trace that keeps so many entries."""
        return deque(maxlen=entries)

    def add(
        self, store: str, table: Table[Any], key: KeyOf, *, within: KeyOf | None = None,
        timer: Callable[..., TimerFired] | None = None, bound: int = 0, tombs: str = "tombs",
        restless: bool = False, ended: Callable[[Any], None] | None = None,
    ) -> Machine[Any]:  # fmt: skip
        """Add machines of this table, with their values in the attribute `store`; see `MachineStore`."""
        made = MachineStore(
            self, store, table, key, within=within, timer=timer, bound=bound, tombs=tombs, restless=restless,
            ended=ended,
        )  # fmt: skip
        self.stores[store] = made
        if table.timers:
            self._timed.append(made)
        for event, take in made.take.items():
            self._route[event] = self._shared if event in self._route else take
            self.inner.setdefault(event, self._queue.append)
        return made.machine

    def take(self, event: type[Event], on: On) -> None:
        """Route events of this type to `on`, which may pass them to `stores[...].take`."""
        self._route[event] = on

    def give(self, *events: Event) -> None:
        """Queue these events, in this order, before all others: machines were just given something."""
        self._queue.extendleft(reversed(events))

    def handle(self, event: Event, now: float, *then: Event) -> list[Effect]:
        """Take one event (and those that come with it); returns the effects that others have to carry out."""
        out: list[Any] = []
        self._out = out
        route, queue = self._route, self._queue
        if then:
            queue.extend(then)
        route[type(event)](event, now)
        while queue:
            event = queue.popleft()
            route[type(event)](event, now)
        return out

    def expire(self, store: MachineStore, key: Any, now: float, tries: int | None = None) -> list[Effect]:
        """End the timer of this machine (a part's key is `(whole, key)`); `tries`: as its state has it."""
        before = store.get(key).state
        if tries is None:
            tries = store.machine.timers[before].tries
        event: Event = store.timer_of(key, tries)
        out: list[Any] = []
        self._out = out
        store.take[type(event)](event, now)
        after = store.get(key)
        self.timer_ends[store.store, before.name, OVER if after is None else after.state.name] += 1
        while self._queue:
            event = self._queue.popleft()
            self._route[type(event)](event, now)
        return out

    def kind_of(self, event: Event) -> str:
        """The store that an event of several kinds is for."""
        raise LookupError(f"{type(event).__name__} is an event of several kinds: `kind_of` has to say of which")

    def carry_out(self, effect: Output) -> None:
        """Carry out an internal effect; leave all others to the caller."""
        act = self.inner.get(type(effect))
        if act is None:
            self._out.append(effect)
        else:
            act(effect)

    def prepare(self) -> None:
        """Generate the code of all steps now, for a caller that cannot spare the milliseconds later."""
        for store in self.stores.values():
            store.prepare()

    def _shared(self, event: Event, now: float) -> None:
        self.stores[self.kind_of(event)].take[type(event)](event, now)

    # --------------------------------------------------------------------------------------------- timers
    def tick(self, now: float, limit: int = 256) -> list[Effect]:
        """Fire at most `limit` timers that are due."""
        out: list[Any] = []
        for _ in range(limit):
            soonest, first = now, None
            for store in self._timed:
                order = store.wheel.order
                if order and (order[0] < soonest or (first is None and order[0] == soonest)):
                    soonest, first = order[0], store
            if first is None:
                break
            out += first.wake(now)
        return out

    @property
    def next_deadline(self) -> float:
        """When `tick` should be called at the latest (it may find nothing to do); infinity: no timer runs."""
        soonest = INFINITY
        for store in self._timed:
            order = store.wheel.order
            if order and order[0] < soonest:
                soonest = order[0]
        return soonest

    def clear_pending(self) -> None:
        """Drop timers and unhandled events, for a caller that restores values from elsewhere."""
        self._queue.clear()
        for store in self._timed:
            store.wheel.clear()
            store.wakes.clear()


def steps(trace: Iterable[Any]) -> Iterator[Step]:
    """The steps among the entries of a trace."""
    return (entry for entry in trace if len(entry) == STEP)

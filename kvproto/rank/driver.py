"""The driver: takes an event to its machine, keeps the new value, carries out what is internal.  Pure.

What comes from outside is handled at once, and so is all that follows from it inside the rank: what a step leaves
behind may be an event of another machine, internal effects raise further ones, and all queue first in, first out, until
nothing is left.  One kind goes first: what a machine is *given* (a slot, a region) it hears before anything else
happens (`_give`), so that nothing that is given out ever belongs to nobody.  What remains goes to the caller.  Time
comes in as an argument, effects go out; the loop and the checker drive the same object.

An event for which no machine is there meets the table's initial state, like the first event of all; a machine is kept
once its value has left that state.

Each type of event has a function of its own, made once, with the steps of its table bound to it (`_on_room`,
`_on_link`; in the ranks `_on_send`, `_on_grant`, `_on_write`).

Each armed value has a key in the timers' wheel that comes up no later than its `due` (the parts of a room share one); a
key that comes up early is put back, one whose value is gone is dropped, so that moving a timer costs nothing.

The trace keeps the last steps, without their effects: a step is pure, so who wants to see them fires it again.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar

from kvproto.fsm.machine import Fire, Machine
from kvproto.fsm.table import Output, Row, Table
from kvproto.fsm.timer_wheel import INFINITY, Wheel
from kvproto.fsm.vocabulary import Effect, Event, TimerFired
from kvproto.protocol.messages import Message
from kvproto.rank.settings import Settings

#: what a timer belongs to, in the wheel: a room's key; minus a link's number; or, from here up, the parts of a room
PARTS = 1 << 96
#: the `chunk` of a timer that is a room's or a link's
ROOM_CHUNK = -2
#: (when, row, event, value before, value after): a step is pure, so who wants its effects fires it again
Step = tuple[float, Row | None, Event, Any, Any]
STEP = 5
#: (when, (link, epoch, room, body))
Heard = tuple[float, tuple[int, int, int, Message]]
#: steps, messages that came and messages that left
Trace = deque[Step | Heard | Effect]
#: takes an event
On = Callable[[Any, float], None]


class Driver:
    """The rooms' and the links' machines of one rank, their timers and their trace."""

    ROOM: ClassVar[Table[Any]]
    LINK: ClassVar[Table[Any]]

    def __init__(self, settings: Settings) -> None:
        timing = settings.timing
        self.settings = settings
        self.room_machine: Machine[Any] = Machine(self.ROOM, timing)
        self.link_machine: Machine[Any] = Machine(self.LINK, timing)
        self.rooms: dict[int, Any] = {}
        self.tombs: dict[int, Any] = OrderedDict()
        self.links: dict[int, Any] = {}
        self.wheel: Wheel[int] = Wheel()
        self._beats: dict[int, float] = {}
        self.trace: Trace = deque(maxlen=settings.trace)
        self._log = self.trace.append
        self._queue: deque[Event] = deque()
        self._out: list[Any] = []
        #: what takes events and internal effects, by type; all others go to the caller
        self._inner: dict[type[Output], Callable[[Any], None]] = {}
        self._inner |= dict.fromkeys(_events(Event), self._queue.append)
        self._rooms_on = {event: self._on_room(steps) for event, steps in self.room_machine.steps.items()}
        self._links_on = {event: self._on_link(steps) for event, steps in self.link_machine.steps.items()}
        self._route: dict[type[Event], On] = {**self._rooms_on, **self._links_on, TimerFired: self._timed}

    def _give(self, event: Event) -> None:
        """Have a machine hear of what it was just given before anything else happens."""
        self._queue.appendleft(event)

    def handle(self, event: Event, now: float, *then: Event) -> list[Effect]:
        """Take one event (and those that come with it); returns the effects that others have to carry out."""
        out: list[Any] = []  # effects alone: events are queued
        self._out = out
        route, queue = self._route, self._queue
        queue.extend(then)
        route[type(event)](event, now)
        while queue:
            event = queue.popleft()
            route[type(event)](event, now)
        return out

    def tick(self, now: float, limit: int = 256) -> list[Effect]:
        """Fire at most `limit` timers that are due."""
        out: list[Effect] = []
        wheel = self.wheel
        while limit and wheel.next <= now:
            limit -= 1
            due, key = wheel.next, wheel.take()
            if key < 0:
                self._wake_link(-key, due, now, out)
            elif key < PARTS:
                self._wake_room(key, now, out)
            else:
                self._wake_parts(key - PARTS, due, now, out)
        return out

    def _wake_room(self, room: int, now: float, out: list[Effect]) -> None:
        value = self.rooms.get(room)
        if value is not None and value.due <= now:
            tries = self.room_machine.timers[value.state].tries
            out += self.handle(TimerFired(room, ROOM_CHUNK, 0, tries), now)
            value = self.rooms.get(room)
        if value is not None and value.due < INFINITY:
            self.wheel.put(value.due, room)

    def _wake_link(self, link: int, due: float, now: float, out: list[Effect]) -> None:
        value = self.links.get(link)
        if value is None or value.due == INFINITY or self._beats.get(link, due) != due:
            return
        if value.due <= now:
            tries = self.link_machine.timers[value.state].tries
            out += self.handle(TimerFired(0, ROOM_CHUNK, link, tries, busy=self._writes_to(link)), now)
            value = self.links.get(link)
        if value is not None and value.due < INFINITY:
            self._start_link(value.due, link)

    def _start_link(self, due: float, link: int) -> None:
        """Links live long and start their timers anew all the time: of each, only the last key counts."""
        self.wheel.put(due, -link)
        self._beats[link] = due

    def _wake_parts(self, room: int, due: float, now: float, out: list[Effect]) -> None:
        """The timers of a room's parts, where a rank has parts with timers."""

    @property
    def next_deadline(self) -> float:
        """When `tick` should be called at the latest (it may find nothing to do); infinity: no timer runs."""
        return self.wheel.next

    def _timed(self, event: TimerFired, now: float) -> None:
        (self._links_on if event.peer else self._rooms_on)[TimerFired](event, now)

    # --------------------------------------------------------------------------------- finding and keeping
    def _on_room(self, steps: list[Fire]) -> On:
        """What takes an event of rooms, given its steps by state; one for each type saves a step its look-ups."""
        ends, initial, inner, log = self.room_machine.ends, self.room_machine.initial, self._inner, self._log

        def on(event: Any, now: float) -> None:
            key = event.room
            old = self.rooms.get(key)
            if old is None:
                old = self.tombs.get(key) or initial
            row, new, effects = steps[old.state](old, event, now)
            log((now, row, event, old, new))
            if new is not old:
                if ends[new.state]:
                    self._entomb(key, new)
                    self.rooms.pop(key, None)
                elif new.state:
                    self.rooms[key] = new
                    if new.due < old.due:
                        self.wheel.put(new.due, key)
            for effect in effects:
                act = inner.get(type(effect))
                if act is None:
                    self._out.append(effect)
                else:
                    act(effect)

        return on

    def _entomb(self, key: int, value: Any) -> None:
        self.tombs[key] = value
        if len(self.tombs) > self.settings.tombstones:
            del self.tombs[next(iter(self.tombs))]

    def _on_link(self, steps: list[Fire]) -> On:
        """As `_on_room`, of links."""
        ends, initial, log = self.link_machine.ends, self.link_machine.initial, self._log

        def on(event: Any, now: float) -> None:
            link = event.peer
            old = self.links.get(link, initial)
            row, new, effects = steps[old.state](old, event, now)
            log((now, row, event, old, new))
            if new is not old:
                if ends[new.state]:
                    self._forget(link)
                elif new.state:
                    self.links[link] = new
                    if new.due < old.due:
                        self._start_link(new.due, link)
            self._carry_out(effects)

        return on

    def _forget(self, link: int) -> None:
        """A link has come to its end."""
        self.links.pop(link, None)
        self._beats.pop(link, None)

    def _writes_to(self, link: int) -> bool:
        """Whether bytes of a posted write may still land at the link's other end."""
        raise NotImplementedError

    def _carry_out(self, effects: tuple[Output, ...]) -> None:
        """Internal ones here, the rest goes out.  For rooms and sends it stands in place: a call would cost 4 %."""
        inner, out = self._inner, self._out
        for effect in effects:
            act = inner.get(type(effect))
            if act is None:
                out.append(effect)
            else:
                act(effect)

    def value_of(self, room: int) -> Any:
        """The room's value, also of one that has ended; None if it is not known."""
        return self.rooms.get(room) or self.tombs.get(room)


def _events(base: type[Event]) -> Iterator[type[Event]]:
    """Every kind of event below this one."""
    for kind in base.__subclasses__():
        yield kind
        yield from _events(kind)


def steps(trace: Iterable[Any]) -> Iterator[Step]:
    """The steps among the entries of a trace."""
    return (entry for entry in trace if type(entry) is tuple and len(entry) == STEP)


"""The rank: the machines of one process, put together.  Pure: time comes in as an argument, effects go out.

A rank finds the machine that an event concerns, fires it, keeps the new value, and carries out the internal
effects at once (they raise further events for its other machines, first in, first out); what remains goes to
the caller.  It holds what several machines share: the tables of rooms, links, sends or grants, the timers' wheel,
the tombstones.  It decides nothing: what depends on a state is a row, what is put into an event is a fact.

The loop and the checker drive this same object.  `handle` takes an event, `receive` a message, `tick` fires the
timers that are due; each returns the effects to be carried out, in order.

Cost: every operation is O(events that it causes).  Only the loss or the return of a link looks at every room of
the rank.  Each armed value has a key in the wheel that comes up no later than its `due` (the parts of a room share
one); a key that comes up early is put back, one whose value is gone is dropped, so that moving a timer costs nothing.

Bounds: tombstones, rooms that only the other side has opened, links and the trace are all bounded; a message that
would go beyond is dropped and counted, and its sender repeats it.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from types import FunctionType
from typing import Any, ClassVar, TypeVar

import msgspec

from kvproto import effects as do
from kvproto import events as ev
from kvproto.digest import tables_digest
from kvproto.effects import Effect
from kvproto.events import Event, Terms
from kvproto.layout import Layout, LayoutError, Plan
from kvproto.machine import Fire, Machine
from kvproto.messages import VERSION, Hello, Message, Welcome
from kvproto.rows import Row, Table, Value
from kvproto.settings import Settings
from kvproto.states import State
from kvproto.wheel import INFINITY, Wheel

X = TypeVar("X", bound=Value)
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


class Peer(msgspec.Struct):
    """What a rank knows of the other end of a link."""

    group: int
    rank: int
    plan: Plan | None = None
    terms: Terms | None = None
    #: prefill: the transport's description of the decode rank
    endpoint: bytes = b""


class Rank:
    """Base of both kinds of rank; `group` and `index` say which one it is."""

    ROOM: ClassVar[Table[Any]]
    LINK: ClassVar[Table[Any]]
    UP: ClassVar[State]

    def __init__(
        self, layout: Layout, index: int, *, group: int, grid: int, incarnation: int, settings: Settings | None = None
    ) -> None:  # fmt: skip
        """`grid`: tokens a chunk; `incarnation`: a number that no earlier life of this rank has used (u48)."""
        self.layout, self.index, self.group, self.grid = layout, index, group, grid
        self.incarnation = incarnation
        self.settings = settings or Settings()
        timing = self.settings.timing
        self.room_machine: Machine[Any] = Machine(self.ROOM, timing)
        self._standing = self.UP
        self.link_machine: Machine[Any] = Machine(self.LINK, timing)
        self.rooms: dict[int, Any] = {}
        self.tombs: dict[int, Any] = OrderedDict()
        self.links: dict[int, Any] = {}
        self.peers: dict[int, Peer] = {}
        self.link_of: dict[tuple[int | None, int], int] = {}
        self.next_link = 1
        #: the other group of each room that is at work: few, where rooms are many and far apart in memory
        self._groups: dict[int, int] = {}
        self.wheel: Wheel[int] = Wheel()
        #: (room, send) of every posted write of which bytes may still land; decode ranks post none
        self.posted: set[tuple[int, int]] = set()
        self._beats: dict[int, float] = {}
        self.trace: Trace = deque(maxlen=self.settings.trace)
        self._log = self.trace.append
        self.counts: Counter[str] = Counter()
        self._queue: deque[Event] = deque()
        self._out: list[Effect] = []
        self._from = 0
        self._bound = self.settings.tombstones
        self._inner: dict[type[Effect], Callable[[Any], None]] = {
            do.Send: self._send, do.Reply: self._reply, do.FailRoom: self._fail_room,
            do.RaiseLinkUp: self._raise_up, do.RaiseLinkDown: self._raise_down,
        }  # fmt: skip
        self._rooms_on = {event: self._on_room(steps) for event, steps in self.room_machine.steps.items()}
        self._links_on = {event: self._on_link(steps) for event, steps in self.link_machine.steps.items()}
        self._route: dict[type[Event], On] = {**self._rooms_on, **self._links_on, ev.TimerFired: self._timed}

    # ------------------------------------------------------------------------------------ what drives it
    def handle(self, event: Event, now: float) -> list[Effect]:
        """Take one event; returns the effects that others have to carry out."""
        out: list[Effect] = []
        self._out = out
        route, queue = self._route, self._queue
        if queue:
            queue.append(event)
        else:
            route[type(event)](event, now)
        while queue:
            event = queue.popleft()
            route[type(event)](event, now)
        return out

    def receive(self, link: int, epoch: int, room: int, body: Message, now: float) -> list[Effect]:
        """Take one message of this link; a stale or foreign one is counted and dropped."""
        self._log((now, (link, epoch, room, body)))
        event = self._hear(link, epoch, room, body)
        if event is None:
            self.counts["stale messages"] += 1
            return []
        self._from = link
        return self.handle(event, now)

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
            out += self.handle(ev.TimerFired(room, ROOM_CHUNK, 0, tries), now)
            value = self.rooms.get(room)
        if value is not None and value.due < INFINITY:
            self.wheel.put(value.due, room)

    def _wake_link(self, link: int, due: float, now: float, out: list[Effect]) -> None:
        value = self.links.get(link)
        if value is None or value.due == INFINITY or self._beats.get(link, due) != due:
            return
        if value.due <= now:
            tries = self.link_machine.timers[value.state].tries
            out += self.handle(ev.TimerFired(0, ROOM_CHUNK, link, tries, busy=self._writes_to(link)), now)
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

    def _timed(self, event: ev.TimerFired, now: float) -> None:
        (self._links_on if event.peer else self._rooms_on)[ev.TimerFired](event, now)

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
                    self.rooms.pop(key, None)
                    self._entomb(key, new)
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

        return own(on)

    def _entomb(self, key: int, value: Any) -> None:
        self.tombs[key] = value
        if len(self.tombs) > self._bound:
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

        return own(on)

    def _forget(self, link: int) -> None:
        self.links.pop(link, None)
        self._beats.pop(link, None)
        peer = self.peers.pop(link, None)
        if peer is not None:
            del self.link_of[peer.group, peer.rank]

    def _carry_out(self, effects: tuple[Effect, ...]) -> None:
        inner, out = self._inner, self._out
        for effect in effects:
            act = inner.get(type(effect))
            if act is None:
                out.append(effect)
            else:
                act(effect)

    # -------------------------------------------------------------------------------- what both kinds share
    def _hear(self, link: int, epoch: int, room: int, body: Message) -> Event | None:
        raise NotImplementedError

    def value_of(self, room: int) -> Any:
        """The room's value, also of one that has ended; None if it is not known."""
        return self.rooms.get(room) or self.tombs.get(room)

    def link_to(self, room: int, peer: int) -> int | None:
        """The link to this rank of the room's other group."""
        return self.link_of.get((self._group_of(room), peer))

    def _group_of(self, room: int) -> int | None:
        """The room's other group; None if nobody knows."""
        group = self._groups.get(room)
        if group is None:
            value = self.rooms.get(room) or self.tombs.get(room)
            group = value.terms.group if value is not None and value.terms is not None else None
        return group

    def _writes_to(self, link: int) -> bool:
        """Whether bytes of a posted write may still land at the link's other end."""
        peer = self.peers[link]
        return any(key & 0xFFFF == peer.rank and self._group_of(room) == peer.group for room, key in self.posted)

    def _up(self, link: int | None) -> Any:
        value = self.links.get(link) if link is not None else None
        return value if value is not None and value.state is self.UP else None

    def _to(self, link: int | None, room: int, body: Message) -> None:
        value = self._up(link)
        if value is not None and link is not None:
            self._leave(do.Transmit(link, value.epoch, room, body))

    def _leave(self, message: Effect) -> None:
        self._out.append(message)
        self.trace.append(message)

    def _send(self, effect: do.Send) -> None:
        room, up, log = effect.room, self._standing, self._log
        group = self._groups.get(room) or self._group_of(room)
        for peer in bits(effect.peers):
            link = self.link_of.get((group, peer), 0)
            at = self.links.get(link)
            if at is not None and at.state is up:
                message = do.Transmit(link, at.epoch, room, effect.body)
                self._out.append(message)
                log(message)

    def _reply(self, effect: do.Reply) -> None:
        self._to(self._from, effect.room, effect.body)

    def _fail_room(self, effect: do.FailRoom) -> None:
        self._queue.append(ev.RoomFailed(effect.room, effect.cause))

    def _rooms_of(self, link: int) -> list[int]:
        group = self.peers[link].group
        return [key for key, value in self.rooms.items() if value.terms is not None and value.terms.group == group]

    def _raise_up(self, effect: do.RaiseLinkUp) -> None:
        peer = self.peers[effect.link].rank
        self._queue += [ev.LinkCameUp(room, peer) for room in self._rooms_of(effect.link)]

    def _raise_down(self, effect: do.RaiseLinkDown) -> None:
        peer = self.peers[effect.link].rank
        self._queue += [ev.LinkWentDown(room, peer, effect.cause) for room in self._rooms_of(effect.link)]

    def misfit(self, said: Hello | Welcome) -> tuple[str, Plan | None]:
        """Why this rank cannot work with one that says this (empty: it can), and the plan."""
        if said.version != VERSION:
            return f"wire version {said.version} against {VERSION}", None
        if said.digest != tables_digest():
            return f"tables {said.digest} against {tables_digest()}", None
        if said.grid != self.grid:
            return f"grid of {said.grid} tokens against {self.grid}", None
        if said.lease != self.settings.timing.lease.period:
            return f"lease of {said.lease} s against {self.settings.timing.lease.period} s", None
        if not 0 <= said.rank < said.layout.ranks:
            return f"rank {said.rank} of {said.layout.ranks}", None
        try:
            return "", self._plan(said.layout)
        except LayoutError as error:
            return str(error), None

    def _plan(self, other: Layout) -> Plan:
        raise NotImplementedError


def steps(trace: Iterable[Any]) -> Iterator[Step]:
    """The steps among the entries of a trace."""
    return (entry for entry in trace if type(entry) is tuple and len(entry) == STEP)


def own(function: On) -> On:
    """The function with byte code of its own: the interpreter then adapts it to the one type of event that it takes."""
    code = function.__code__.replace()
    return FunctionType(code, function.__globals__, function.__name__, function.__defaults__, function.__closure__)


@lru_cache(maxsize=4096)
def bits(mask: int) -> tuple[int, ...]:
    """The rank indices that are in this mask."""
    return tuple(i for i in range(mask.bit_length()) if mask >> i & 1)


def mask(ranks: tuple[int, ...]) -> int:
    """The bits of these rank indices."""
    return sum(1 << rank for rank in ranks)

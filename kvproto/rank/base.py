"""The rank: puts the machines of one process together.  Pure: time is an argument, effects go out.

On top of the driver, which takes events to machines, a rank knows its peers: which link leads to which rank of which
group, which of them a message is for, what has to fit for a link to come about.  It holds what several machines share
and decides nothing: what depends on a state is a row, whom it hears is a route, what is put into an event is a fact.

A message leaves only on a link that is up, under the epoch that it has then; what is said while there is none is not
kept: whoever needs an answer asks again, and a link that comes up tells its rooms.

`handle` takes an event, `receive` a message, `tick` fires the timers that are due; each returns the effects to be
carried out, in order.

Cost: every operation is O(events that it causes).  Only the loss or the return of a link looks at every room of
the rank.

Bounds: tombstones, rooms that only the other side has opened, links and the trace are all bounded; a message that
would go beyond is dropped and counted, and its sender repeats it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, ClassVar

import msgspec
from msgspec.structs import replace

from kvproto.fsm.copies import CopyNumbers
from kvproto.fsm.party import Party
from kvproto.fsm.routing import Routes
from kvproto.fsm.table import Table
from kvproto.fsm.vocabulary import Effect, Event, State
from kvproto.layout.costs import Costs, Estimate, PageForm
from kvproto.layout.cut import Cut, cut_at
from kvproto.layout.placement import Placement
from kvproto.layout.plan import Plan, Share
from kvproto.layout.sharding import Layout, LayoutError
from kvproto.protocol import effects as do
from kvproto.protocol import events as ev
from kvproto.protocol.events import ROOM_CHUNK, PeerBuild, Terms, TimerFired
from kvproto.protocol.messages import Hello, Message, Welcome
from kvproto.protocol.routes import HeardMessage, LinkIs, SenderIs
from kvproto.protocol.versions import Build, build_of, common, fault
from kvproto.rank.value import RankValue
from kvproto.settings import Settings

#: facts as they count in `facts`, looked up once
STRANGER, STALE, CURRENT, BESIDE = (fact * len(SenderIs) for fact in LinkIs)
UNCLAIMED, PARTY, OUTSIDER = int(SenderIs.UNCLAIMED), int(SenderIs.PARTY), int(SenderIs.OUTSIDER)
#: what keeps its order of all that goes by a link, calls, what is said of the link, of rooms: whether it has no epoch,
#: and no room
WAYS = (True, True), (False, True), (False, False)
#: how many terms of rooms that cut their cells are kept for sharing
CUTS = 1024


class LinkPeer(msgspec.Struct):
    """Holds a rank's knowledge of the peer at the other end of a link."""

    group: int
    rank: int
    plan: Plan | None = None
    terms: Terms | None = None
    #: prefill: the transport's description of the decode rank, and where the rows of its pool lie
    endpoint: bytes = b""
    placement: Placement | None = None
    #: prefill: a kernel of this rank stores into the decode rank's pages; what the link costs, where that is not what
    #: links of this rank do
    mapped: bool = False
    costs: Costs | None = None
    #: prefill: what rooms of so many tokens, runs of pages and layer groups would cost by each route; below none of
    #: these: what is at the end
    estimates: dict[tuple[int, int, int], Estimate] = msgspec.field(default_factory=dict)
    #: prefill, by layer groups: what it is owed in all and in the first group, and its pages (None: closed to writes)
    owed: dict[int, tuple[Share, Share, PageForm | None]] = msgspec.field(default_factory=dict)


class Rank(Party):
    """Base of both kinds of rank; `group` and `index` say which one it is."""

    UP: ClassVar[State]
    ROOM: ClassVar[Table[Any]]
    LINK: ClassVar[Table[Any]]
    ROUTES: ClassVar[Routes]
    #: messages that show the room's secret to a side that compares it
    SHOW_SECRET: ClassVar[frozenset[type[Message]]] = frozenset()

    rooms: dict[int, Any]
    tombs: dict[int, Any]
    links: dict[int, Any]

    def __init__(
        self, layout: Layout, index: int, *, group: int, chunk_tokens: int, incarnation: int,
        settings: Settings | None = None
    ) -> None:  # fmt: skip
        """Make a rank without links and rooms.

        Args:
            layout: how this rank's side cuts the model
            index: this rank's number in its group
            group: the number of its group
            chunk_tokens: tokens a chunk (of a decode rank: unless a prefill group has another size)
            incarnation: a number that no earlier life of this rank has used (u48)
            settings: sizes and times; defaults without

        """
        self.settings = settings or Settings()
        super().__init__(self.settings.timing, self.ROUTES, self.settings.trace)
        self.room_machine = self.add("rooms", self.ROOM, by_room, timer=_room_timer, bound=self.settings.tombstones)
        self.link_machine = self.add(
            "links", self.LINK, by_link, timer=self._link_timer, restless=True, ended=self._forget
        )  # fmt: skip
        self.layout, self.index, self.group, self.chunk_tokens = layout, index, group, chunk_tokens
        self.incarnation = incarnation
        #: the versions, agreements and capabilities that this rank tells its peers
        self.build = Build()
        #: where the rows of this rank's pool lie; None: as the layout says
        self.placement: Placement | None = None
        self.peers: dict[int, LinkPeer] = {}
        self.link_of: dict[tuple[int | None, int], int] = {}
        self.next_link = 1
        #: the other group of each room that is at work: few, where rooms are many and far apart in memory
        self._groups: dict[int, int] = {}
        #: links by which something of their epoch came since their last beat
        self.heard_by: set[int] = set()
        #: whether the connection to a link's other end stands, which the loop knows
        self.stands: Callable[[int], bool] = lambda _link: False
        #: by (room, send): the writes that are not over; decode ranks have none
        self.writes: dict[tuple[int, int], Any] = {}
        self.lease = self.settings.timing.lease.period
        self._heard = HeardMessage(self)
        #: terms of rooms that cut their cells, shared by all that cut them alike
        self._cuts: dict[tuple[Terms, int], Terms] = {}
        #: of what comes, by way
        self.came = CopyNumbers()
        #: of the class, but quicker to get at in each message that leaves
        self._up_state = self.UP
        self.inner |= {
            do.Send: self._send, do.Reply: self._reply,
            do.RaiseLinkDown: self._raise_down, do.Transmit: self._leave, do.SayHello: self._leave,
            do.SayWelcome: self._leave, do.SayRefusal: self._leave,
        }  # fmt: skip

    def restore(self, value: RankValue, *, timers: bool = True) -> None:
        """Go on from this value, of a rank that was made alike; nothing is pending, and the trace is empty.

        `timers`: start them; a caller that ends them itself has no need of it.
        """
        for name in value.__struct_fields__:
            setattr(self, name, getattr(value, name))
        self.link_of = {(peer.group, peer.rank): link for link, peer in self.peers.items()}
        # Steps fill it again; a stale entry would send to a group that a room no longer has.
        self._groups = {}
        self.clear_pending()
        self.trace.clear()
        if timers:
            self.start_timers()

    def start_timers(self) -> None:
        """Start the timer of every value, after values were put back."""
        for store in self.stores.values():
            if store.table.timers:
                store.rearm()

    def kind_of(self, event: Event) -> str:
        """Timers of rooms and of links are one event; a link's has its number for a peer."""
        assert isinstance(event, TimerFired)
        return "links" if event.peer else "rooms"

    def cut(self, terms: Terms, groups: int) -> Terms:
        """The terms of a room whose cells are cut into so many layer groups: one object for all such rooms."""
        if groups == terms.layer_groups:
            return terms
        if len(self._cuts) >= CUTS:
            self._cuts.clear()
        return self._cuts.setdefault((terms, groups), replace(terms, layer_groups=groups, joint_tokens=0))

    def same_terms(self, terms: Terms) -> Terms:
        """One object for all links whose rooms have these."""
        return next((peer.terms for peer in self.peers.values() if peer.terms == terms), terms)

    def value_of(self, room: int) -> Any:
        """The room's value, also of one that has ended; None if it is not known."""
        return self.rooms.get(room) or self.tombs.get(room)

    def _link_timer(self, link: int, tries: int) -> TimerFired:
        busy, heard = self._needed(link, tries), self._was_heard(link)
        longest = 0 if heard or not self.stands(link) else self.settings.timing.silent_beats
        return TimerFired(0, ROOM_CHUNK, link, tries, busy=busy, heard=heard, longest=longest)

    def _needed(self, link: int, tries: int) -> bool:
        raise NotImplementedError

    def _was_heard(self, link: int) -> bool:
        """Whether something of its epoch came by the link since it was last asked."""
        heard = link in self.heard_by
        self.heard_by.discard(link)
        return heard

    def take_leave(self, now: float) -> list[Effect]:
        """Close every link in good order."""
        effects: list[Effect] = []
        for link, value in tuple(self.links.items()):
            effects += self.handle(ev.CloseAsked(link, value.epoch, not self._writes_to(link), value.session), now)
        return effects

    # ---------------------------------------------------------------------------------------- messages
    def receive(
        self, link: int, epoch: int, room: int, body: Message, now: float, place: bytes = b"", number: int | None = None
    ) -> list[Effect]:  # fmt: skip
        """Take one message that came by this link, or (0) from a place that no link is bound to.

        Of less than 0: by the connection to an address that is tried beside the link of that number.

        `number`: which copy it is, for the trace; None: it came by a connection, in its order, and is counted here.
        """
        if number is None:
            # A connection keeps the order of frames, so counting what came names the same copy that the sender counted.
            number = self.came.count((link, not epoch, not room), epoch) if link > 0 and epoch else 0
        heard = self._heard
        # One object, refilled: messages are the most frequent input, and none of them outlives its step.
        heard.link, heard.epoch, heard.room, heard.place, heard.body = link, epoch, room, place, body
        return self.hear(heard, now, number)

    def noted(self, heard: HeardMessage) -> tuple[int, int, int, Message]:
        """Return link, epoch, room and message; a call without its large description of memory."""
        body = replace(heard.body, endpoint=b"", placement=None) if type(heard.body) is Hello else heard.body
        return heard.link, heard.epoch, heard.room, body

    def answer(self, heard: HeardMessage, body: Message) -> None:
        self._transmit_to(heard.link, heard.room, body)

    def facts(self, heard: HeardMessage) -> int:
        """Fill in and return the facts about the message's sender."""
        beside, heard.link = heard.link < 0, abs(heard.link)
        value = heard.value = self.links.get(heard.link)
        if value is None:
            heard.link = 0
            return STRANGER
        peer = self.peers[heard.link]
        heard.peer, heard.terms = peer.rank, peer.terms
        if beside:
            return BESIDE
        # What comes from another epoch is stale even if the link is up again: routes let almost none of it through.
        if value.state is not self._up_state or heard.epoch != value.epoch:
            return STALE + self._sender_fact(heard, peer)
        # Only a message of this epoch is a sign of life; a stale one may have been under way for long.
        self.heard_by.add(heard.link)
        return CURRENT + self._sender_fact(heard, peer)

    def _sender_fact(self, heard: HeardMessage, peer: LinkPeer) -> int:
        room, body = heard.room, heard.body
        if room:
            group = self._groups.get(room) or self._group_of(room)
            # The link says who speaks: a frame's own fields could name any group.
            fact = UNCLAIMED if group is None else PARTY if group == peer.group else OUTSIDER
            return self._shown_fact(heard, fact) if type(body) in self.SHOW_SECRET else fact
        if type(body) is Hello:
            return PARTY if (body.group, body.rank) == (peer.group, peer.rank) else OUTSIDER
        return UNCLAIMED

    def _shown_fact(self, heard: HeardMessage, fact: int) -> int:  # noqa: ARG002
        """The fact about the sender of a message that shows the room's secret; `fact`: by its group alone."""
        return fact

    def _forget(self, link: int) -> None:
        peer = self.peers.pop(link)
        del self.link_of[peer.group, peer.rank]
        self.heard_by.discard(link)
        for numbers in (self.sent, self.came):
            numbers.forget(*((link, *way) for way in WAYS))

    def link_to(self, room: int, peer: int) -> int:
        """The link to this rank of the room's other group; 0: there is none."""
        return self.link_of.get((self._groups.get(room) or self._group_of(room), peer), 0)

    @property
    def side(self) -> str:
        """`prefill` or `decode`."""
        return self.ROOM.name.partition("_")[0]

    @property
    def other_side(self) -> str:
        """`decode` or `prefill`."""
        return "decode" if self.side == "prefill" else "prefill"

    def _group_of(self, room: int) -> int | None:
        """The room's other group; None if nobody knows."""
        value = self.rooms.get(room) or self.tombs.get(room)
        return value.terms.group if value is not None else None

    def _writes_to(self, link: int) -> bool:
        """Whether bytes of a write may still land at the link's other end, or be posted to it."""
        peer = self.peers[link]
        return any(key & 0xFFFF == peer.rank and self._group_of(room) == peer.group for room, key in self.writes)

    def _link_up(self, link: int) -> Any:
        value = self.links.get(link)
        return value if value is not None and value.state is self._up_state else None

    def _transmit_to(self, link: int, room: int, body: Message) -> None:
        value = self._link_up(link)
        if value is not None:
            message, epoch = do.Transmit(link, value.epoch, room, body), value.epoch
            self._out.append(message)
            self.log((message, self.sent.count((link, not epoch, not room), epoch)))

    def _leave(self, message: Any) -> None:
        link, epoch, room = message.link, getattr(message, "epoch", 0), getattr(message, "room", 0)
        self._out.append(message)
        self.log((message, self.sent.count((link, not epoch, not room), epoch)))

    def _send(self, effect: do.Send) -> None:
        room = effect.room
        group = self._groups.get(room) or self._group_of(room)
        for peer in bits(effect.peers):
            link = self.link_of.get((group, peer), 0)
            at = self.links.get(link)
            if at is not None and at.state is self._up_state:
                message = do.Transmit(link, at.epoch, room, effect.body)
                self._out.append(message)
                self.log((message, self.sent.count((link, not at.epoch, not room), at.epoch)))

    def _reply(self, effect: do.Reply) -> None:
        self._transmit_to(self._heard.link, effect.room, effect.body)

    def _rooms_of(self, link: int, rooms: dict[int, Any]) -> list[int]:
        group = self.peers[link].group
        return [key for key, value in rooms.items() if value.terms is not None and value.terms.group == group]

    def _raise_down(self, effect: do.RaiseLinkDown) -> None:
        peer = self.peers[effect.link].rank
        self._queue += [
            ev.LinkWentDown(room, peer, effect.cause, effect.replaced)
            for room in self._rooms_of(effect.link, self.rooms)
        ]

    def unlike(self, theirs: Build) -> str:
        """Why this rank cannot work with that build of the other side; empty: it can."""
        return fault(self.build, theirs, self.side, self.other_side)

    def spoken_with(self, said: Hello | Welcome) -> PeerBuild:
        """The peer's build: the wire version at which the two work, and what is known of it."""
        theirs = build_of(said)
        return PeerBuild(common(self.build, theirs), theirs.digest, theirs.capabilities)

    def misfit(self, said: Hello | Welcome, chunk_tokens: int) -> tuple[str, Plan | None]:
        """Return why this rank cannot work with that peer (empty: it can) at this chunk size, and the plan."""
        other = self.unlike(build_of(said))
        if other:
            return other, None
        if said.chunk_tokens != chunk_tokens:
            return f"chunks of {said.chunk_tokens} tokens against {chunk_tokens}", None
        if said.lease != self.settings.timing.lease.period:
            return f"lease of {said.lease} s against {self.settings.timing.lease.period} s", None
        if not 0 <= said.rank < said.layout.ranks:
            return f"rank {said.rank} of {said.layout.ranks}", None
        try:
            return "", self._plan(said.layout, chunk_tokens)
        except LayoutError as error:
            return str(error), None

    def _plan(self, other: Layout, chunk_tokens: int) -> Plan:
        raise NotImplementedError


def by_room(event: Any) -> Any:
    """The room that an event is about: its key, and of its parts the whole."""
    return event.room


def cut_of(value: Any, chunk: int) -> Cut:
    """Return the cut of a chunk of this room.  Raises LayoutError: it has no such chunk."""
    terms = value.terms
    return cut_at(
        chunk, value.tokens, value.prefix, terms.chunk_tokens, terms.layer_groups, terms.state_groups,
        terms.joint_tokens,
    )  # fmt: skip


def by_link(event: Any) -> Any:
    return event.peer


def _room_timer(room: int, tries: int) -> TimerFired:
    return TimerFired(room, ROOM_CHUNK, 0, tries)


@lru_cache(maxsize=4096)
def bits(mask: int) -> tuple[int, ...]:
    return tuple(i for i in range(mask.bit_length()) if mask >> i & 1)


def mask(ranks: tuple[int, ...]) -> int:
    return sum(1 << rank for rank in ranks)

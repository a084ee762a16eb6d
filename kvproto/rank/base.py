"""The rank: the machines of one process, put together.  Pure: time comes in as an argument, effects go out.

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

from collections import Counter
from functools import cached_property, lru_cache
from typing import Any, ClassVar

import msgspec
from msgspec.structs import replace

from kvproto.fsm.digest_text import differing
from kvproto.fsm.routing import Route, Routes
from kvproto.fsm.vocabulary import Effect, State
from kvproto.layout.plan import Plan
from kvproto.layout.sharding import Layout, LayoutError
from kvproto.protocol import effects as do
from kvproto.protocol import events as ev
from kvproto.protocol.digest import tables_digest
from kvproto.protocol.events import Terms
from kvproto.protocol.messages import VERSION, Hello, LinkBody, Message, Welcome
from kvproto.protocol.routes import Heard, LinkIs, SenderIs
from kvproto.rank.driver import Driver
from kvproto.rank.settings import Settings


class Peer(msgspec.Struct):
    """What a rank knows of the other end of a link."""

    group: int
    rank: int
    plan: Plan | None = None
    terms: Terms | None = None
    #: prefill: the transport's description of the decode rank
    endpoint: bytes = b""


class Rank(Driver):
    """Base of both kinds of rank; `group` and `index` say which one it is."""

    UP: ClassVar[State]
    ROUTES: ClassVar[Routes]

    def __init__(
        self, layout: Layout, index: int, *, group: int, grid: int, incarnation: int, settings: Settings | None = None
    ) -> None:  # fmt: skip
        """`grid`: tokens a chunk; `incarnation`: a number that no earlier life of this rank has used (u48)."""
        super().__init__(settings or Settings())
        self.layout, self.index, self.group, self.grid = layout, index, group, grid
        self.incarnation = incarnation
        self.peers: dict[int, Peer] = {}
        self.link_of: dict[tuple[int | None, int], int] = {}
        self.next_link = 1
        #: the other group of each room that is at work: few, where rooms are many and far apart in memory
        self._groups: dict[int, int] = {}
        #: by (room, send): the writes that are not over; decode ranks have none
        self.writes: dict[tuple[int, int], Any] = {}
        self.counts: Counter[str] = Counter()
        self.lease = self.settings.timing.lease.period
        self._heard = Heard(self)
        self._routes = self.ROUTES.compiled()
        #: of the class, but quicker to get at in each message that leaves
        self._up_state = self.UP
        self._inner |= {
            do.Send: self._send, do.Reply: self._reply,
            do.RaiseLinkUp: self._raise_up, do.RaiseLinkDown: self._raise_down,
        }  # fmt: skip

    def receive(
        self, link: int, epoch: int, room: int, body: Message, now: float, place: bytes = b""
    ) -> list[Effect]:  # fmt: skip
        """Take one message that came by this link, or (0) from a place that no link is bound to."""
        heard = self._heard
        heard.link, heard.epoch, heard.room, heard.place, heard.body = link, epoch, room, place, body
        route = self._routes[type(body)][self._facts(heard)]
        if route.end != "route":
            return self._unheard(route, heard, now)
        event = route.to[0](heard)
        self._log((now, (heard.link, epoch, room, _short(body))))
        if event is None:  # beyond a bound, and counted as such
            return []
        return self.handle(event, now, *[then(heard) for then in route.to[1:]])

    def _unheard(self, route: Route, heard: Heard, now: float) -> list[Effect]:
        """No machine hears of it: it is counted, and answered if the route says so."""
        self._log((now, (heard.link, heard.epoch, heard.room, heard.body)))
        self.counts[route.why] += 1
        self._out = []
        for answer in route.to:
            self._to(heard.link, heard.room, answer(heard))
        return self._out

    def _facts(self, heard: Heard) -> int:
        """What is known of the message's sender, as the place of a route; fills in the sender."""
        return self._link_fact(heard) * len(SenderIs) + self._sender_fact(heard)

    def _link_fact(self, heard: Heard) -> int:
        value, peer = self.links.get(heard.link), self.peers.get(heard.link)
        heard.value = value
        if value is None or peer is None:
            heard.link = 0
            return LinkIs.STRANGER
        heard.peer, heard.terms = peer.rank, peer.terms
        return LinkIs.CURRENT if value.state is self._up_state and heard.epoch == value.epoch else LinkIs.STALE

    def _sender_fact(self, heard: Heard) -> int:
        room, body = heard.room, heard.body
        if not heard.link:
            return SenderIs.UNCLAIMED
        if isinstance(body, Hello):
            peer = self.peers[heard.link]
            return SenderIs.PARTY if (body.group, body.rank) == (peer.group, peer.rank) else SenderIs.OUTSIDER
        if isinstance(body, LinkBody):
            return SenderIs.UNCLAIMED
        group = self._groups.get(room) or self._group_of(room)
        if group is None:
            return SenderIs.UNCLAIMED
        return SenderIs.PARTY if group == self.peers[heard.link].group else SenderIs.OUTSIDER

    def _forget(self, link: int) -> None:
        super()._forget(link)
        peer = self.peers.pop(link, None)
        if peer is not None:
            del self.link_of[peer.group, peer.rank]

    def link_to(self, room: int, peer: int) -> int | None:
        """The link to this rank of the room's other group."""
        return self.link_of.get((self._group_of(room), peer))

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
        group = self._groups.get(room)
        if group is None:
            value = self.value_of(room)
            group = value.terms.group if value is not None and value.terms is not None else None
        return group

    def _writes_to(self, link: int) -> bool:
        """Whether bytes of a write may still land at the link's other end, or be posted to it."""
        peer = self.peers[link]
        return any(key & 0xFFFF == peer.rank and self._group_of(room) == peer.group for room, key in self.writes)

    def _up(self, link: int | None) -> Any:
        value = self.links.get(link) if link is not None else None
        return value if value is not None and value.state is self._up_state else None

    def _to(self, link: int | None, room: int, body: Message) -> None:
        value = self._up(link)
        if value is not None and link is not None:
            self._leave(do.Transmit(link, value.epoch, room, body))

    def _leave(self, message: Effect) -> None:
        self._out.append(message)
        self._log(message)

    def _send(self, effect: do.Send) -> None:
        room, up, log = effect.room, self._up_state, self._log
        group = self._groups.get(room) or self._group_of(room)
        for peer in bits(effect.peers):
            link = self.link_of.get((group, peer), 0)
            at = self.links.get(link)
            if at is not None and at.state is up:
                message = do.Transmit(link, at.epoch, room, effect.body)
                self._out.append(message)
                log(message)

    def _reply(self, effect: do.Reply) -> None:
        self._to(self._heard.link, effect.room, effect.body)

    def _rooms_of(self, link: int) -> list[int]:
        group = self.peers[link].group
        return [key for key, value in self.rooms.items() if value.terms is not None and value.terms.group == group]

    def _raise_up(self, effect: do.RaiseLinkUp) -> None:
        peer = self.peers[effect.link].rank
        self._queue += [ev.LinkCameUp(room, peer) for room in self._rooms_of(effect.link)]

    def _raise_down(self, effect: do.RaiseLinkDown) -> None:
        peer = self.peers[effect.link].rank
        self._queue += [ev.LinkWentDown(room, peer, effect.cause) for room in self._rooms_of(effect.link)]

    @cached_property
    def digest(self) -> str:
        """The digest of this rank's build.  Raises DigestError."""
        return tables_digest()

    def other_build(self, version: int, digest: str) -> str:
        """In what a build that says this differs from this rank's; empty: in nothing."""
        return f"wire version {version} against {VERSION}" if version != VERSION else differing(digest, self.digest)

    def misfit(self, said: Hello | Welcome) -> tuple[str, Plan | None]:
        """Why this rank cannot work with one that says this (empty: it can), and the plan."""
        other = self.other_build(said.version, said.digest)
        if other:
            return other, None
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


def _short(body: Message) -> Message:
    """For the trace: a call without the transport's description of its rank, which may be large."""
    return replace(body, endpoint=b"") if type(body) is Hello else body


@lru_cache(maxsize=4096)
def bits(mask: int) -> tuple[int, ...]:
    """The rank indices that are in this mask."""
    return tuple(i for i in range(mask.bit_length()) if mask >> i & 1)


def mask(ranks: tuple[int, ...]) -> int:
    """The bits of these rank indices."""
    return sum(1 << rank for rank in ranks)

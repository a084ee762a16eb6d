"""The rank: the machines of one process, put together.  Pure: time comes in as an argument, effects go out.

On top of the driver, which takes events to machines, a rank knows its peers: which link leads to which rank of which
group, which of them a message is for, what has to fit for a link to come about.  It holds what several machines share
and decides nothing: what depends on a state is a row, what is put into an event is a fact.

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

from kvproto.fsm.digest_text import differing
from kvproto.fsm.vocabulary import Effect, Event, State
from kvproto.layout.plan import Plan
from kvproto.layout.sharding import Layout, LayoutError
from kvproto.protocol import effects as do
from kvproto.protocol import events as ev
from kvproto.protocol.digest import tables_digest
from kvproto.protocol.events import Terms
from kvproto.protocol.messages import VERSION, Hello, Message, Welcome
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
        #: (room, send) of every posted write of which bytes may still land; decode ranks post none
        self.posted: set[tuple[int, int]] = set()
        self.counts: Counter[str] = Counter()
        self._from = 0
        #: of the class, but quicker to get at in each message that leaves
        self._up_state = self.UP
        self._inner |= {
            do.Send: self._send, do.Reply: self._reply, do.FailRoom: self._fail_room,
            do.RaiseLinkUp: self._raise_up, do.RaiseLinkDown: self._raise_down,
        }  # fmt: skip

    def receive(self, link: int, epoch: int, room: int, body: Message, now: float) -> list[Effect]:
        """Take one message of this link; a stale or foreign one is counted and dropped."""
        self._log((now, (link, epoch, room, body)))
        event = self._hear(link, epoch, room, body)
        if event is None:
            self.counts["stale messages"] += 1
            return []
        self._from = link
        return self.handle(event, now)

    def _forget(self, link: int) -> None:
        super()._forget(link)
        peer = self.peers.pop(link, None)
        if peer is not None:
            del self.link_of[peer.group, peer.rank]

    def _hear(self, link: int, epoch: int, room: int, body: Message) -> Event | None:
        raise NotImplementedError

    def link_to(self, room: int, peer: int) -> int | None:
        """The link to this rank of the room's other group."""
        return self.link_of.get((self._group_of(room), peer))

    def _group_of(self, room: int) -> int | None:
        """The room's other group; None if nobody knows."""
        group = self._groups.get(room)
        if group is None:
            value = self.value_of(room)
            group = value.terms.group if value is not None and value.terms is not None else None
        return group

    def _writes_to(self, link: int) -> bool:
        """Whether bytes of a posted write may still land at the link's other end."""
        peer = self.peers[link]
        return any(key & 0xFFFF == peer.rank and self._group_of(room) == peer.group for room, key in self.posted)

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


@lru_cache(maxsize=4096)
def bits(mask: int) -> tuple[int, ...]:
    """The rank indices that are in this mask."""
    return tuple(i for i in range(mask.bit_length()) if mask >> i & 1)


def mask(ranks: tuple[int, ...]) -> int:
    """The bits of these rank indices."""
    return sum(1 << rank for rank in ranks)

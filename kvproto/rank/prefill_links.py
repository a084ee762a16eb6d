"""The prefill rank's side of its links: who calls, what they say, what it means.

A decode rank calls with a HELLO, and the first one of a rank makes its link; from its layout come the plan (who writes
what to whom) and the terms of every room of its group.  A message is heard only on a link that is up and under the
epoch of that link; what it says is put into an event of the room or the send that it is about.

A room that a decode rank opens before this rank's engine does is kept, but of those at most `Settings.early`: more are
dropped and counted, and the decode rank repeats its OPEN.
"""

from __future__ import annotations

from msgspec.structs import replace

from kvproto.fsm.vocabulary import Effect, Event
from kvproto.layout.plan import Plan, plan_between
from kvproto.layout.sharding import Layout
from kvproto.protocol import effects as do
from kvproto.protocol import events as ev
from kvproto.protocol import messages as msg
from kvproto.protocol.events import Terms
from kvproto.protocol.messages import AUX_CHUNK, Message
from kvproto.protocol.ring import usable
from kvproto.protocol.states import PLink, PRoom
from kvproto.protocol.tables.links import prefill_link
from kvproto.protocol.tables.prefill_room import prefill_room
from kvproto.rank.base import Peer, Rank, mask
from kvproto.rank.settings import Settings

EARLY = PRoom.AWAIT_ENGINE
#: how many lengths are kept for sharing
LENGTHS = 16384


class PrefillLinks(Rank):
    """A prefill rank without its sends."""

    ROOM, LINK, UP = prefill_room, prefill_link, PLink.UP

    def __init__(
        self, layout: Layout, index: int, *, group: int, grid: int, incarnation: int, settings: Settings | None = None
    ) -> None:  # fmt: skip
        super().__init__(layout, index, group=group, grid=grid, incarnation=incarnation, settings=settings)
        self.early: set[int] = set()
        #: many rooms, few lengths: those with equal ones share the number, which is a sixth of a room that waits
        self._lengths: dict[int, int] = {}
        self.calls: dict[int, tuple[msg.Hello, Plan | None]] = {}
        self.next_epoch = self.incarnation << 16
        self._route[ev.PeerOpened] = self._peer_opened
        self._inner[do.Connect] = self._connect

    def hello(self, said: msg.Hello, now: float) -> tuple[int, list[Effect]]:
        """A decode rank calls; returns the link's number (0: there are too many links) and the effects."""
        link = self.link_of.get((said.group, said.rank))
        if link is None:
            if len(self.links) >= self.settings.links:
                self.counts["calls beyond the bound"] += 1
                return 0, []
            link, self.next_link = self.next_link, self.next_link + 1
            self.link_of[said.group, said.rank] = link
            self.peers[link] = Peer(said.group, said.rank)
        fault, plan = self.misfit(said)
        self.next_epoch += 1
        self.calls[link] = said, plan
        quiet = not self._writes_to(link)
        self._log((now, (link, 0, 0, replace(said, endpoint=b""))))
        return link, self.handle(ev.HelloReceived(link, said.session, self.next_epoch, fault, quiet), now)

    def _plan(self, other: Layout) -> Plan:
        return plan_between(self.layout, other, self.grid)

    def welcome(self, session: int, epoch: int) -> msg.Welcome:
        """What a `SayWelcome` says."""
        lease = self.settings.timing.lease.period
        return msg.Welcome(
            msg.VERSION, self.digest, session, epoch, self.group, self.index, self.layout, self.grid, lease
        )

    def _hear(self, link: int, epoch: int, room: int, body: Message) -> Event | None:
        value, peer = self.links.get(link), self.peers.get(link)
        if value is None or peer is None:
            return None
        if isinstance(body, msg.Heartbeat):
            return ev.HeartbeatReceived(link, epoch)
        if isinstance(body, msg.Reset):
            return ev.ResetReceived(link, epoch)
        if epoch != value.epoch or value.state is not PLink.UP or peer.terms is None:
            return None
        if isinstance(body, msg.Watermark):
            return ev.WatermarkSeen(link, body.round, body.tail)
        return self._hear_room(peer, peer.terms, link, room, body)

    def _hear_room(self, peer: Peer, terms: Terms, link: int, room: int, body: Message) -> Event | None:
        at, lease = peer.rank, self.settings.timing.lease.period
        match body:
            case msg.StagingRsp():
                self._queue.append(ev.WatermarkSeen(link, body.mark_round, body.mark_tail))
                mark = max((body.mark_round, body.mark_tail), (self.links[link].mark_round, self.links[link].mark_tail))
                ready = usable(body.round, body.end, mark)
                return ev.StagingGranted(
                    room, body.chunk, at, body.grant, body.offset, body.round, body.end, ready, lease
                )
            case msg.ChunkAck():
                return ev.ChunkAcked(room, body.chunk, at)
            case msg.AuxAck():
                return ev.ChunkAcked(room, AUX_CHUNK, at)
            case msg.StagingRefused():
                return ev.StagingDenied(room, body.chunk, at)
            case msg.PagesRsp():
                return ev.PagesGranted(room, body.chunk, at, body.pages, lease)
            case msg.Open():
                return self._hear_open(peer, terms, room, body)
            case msg.Abort():
                return ev.AbortAsked(room, at, terms, body.cause)
            case msg.Noted():
                return ev.PeerNoted(room, at)
            case msg.Gone():
                return ev.PeerForgot(room, at)
        return None

    def _hear_open(self, peer: Peer, terms: Terms, room: int, body: msg.Open) -> Event | None:
        if len(self.early) >= self.settings.early:
            initial = self.room_machine.initial
            self.early = {key for key in self.early if self.rooms.get(key, initial).state is EARLY}
        if len(self.early) >= self.settings.early and room not in self.rooms and room not in self.tombs:
            self.counts["rooms beyond the bound"] += 1
            return None
        share = self._lengths.setdefault
        if len(self._lengths) >= LENGTHS:
            self._lengths.clear()
        tokens, prefix = share(body.tokens, body.tokens), share(body.prefix, body.prefix)
        return ev.PeerOpened(room, peer.rank, terms, tokens, prefix)

    def _peer_opened(self, event: ev.PeerOpened, now: float) -> None:
        self._rooms_on[ev.PeerOpened](event, now)
        if event.room not in self.early and self.rooms.get(event.room, self.room_machine.initial).state is EARLY:
            self.early.add(event.room)

    def _connect(self, effect: do.Connect) -> None:
        link = effect.link
        said, plan = self.calls[link]
        assert plan is not None
        duties = mask(tuple(share.reader for share in plan.duties(self.index)))
        leads = mask(tuple(r for r in plan.linked(self.index) if plan.lead(r) == self.index))
        terms = Terms(said.group, mask(plan.linked(self.index)), duties, leads, self.grid, self.settings.window)
        peer = self.peers[link]
        shared = next((p.terms for p in self.peers.values() if p.terms == terms), terms)
        peer.plan, peer.terms, peer.endpoint = plan, shared, said.endpoint
        self._out.append(effect)

    def _forget(self, link: int) -> None:
        super()._forget(link)
        self.calls.pop(link, None)

"""Prefill wires: the transport's connections of a prefill rank's links.

A connection may serve several links, and outlives its link while something is in flight on it.  The link's machine
decides which connection its writes use; an unused connection is closed when it is idle.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from kvproto.data.mapped_pages import MappedPages
from kvproto.data.page_writes import PageWrites
from kvproto.data.staged_writes import PreparedWrites
from kvproto.data.write_times import WriteTimes
from kvproto.io.doorbell import Doorbell
from kvproto.io.transports.base import Busy, PeerId, Transport
from kvproto.layout.costs import PROFILES, Costs
from kvproto.loop.rank_loop import Loop
from kvproto.protocol import effects as do
from kvproto.protocol import events as ev
from kvproto.protocol.messages import Heartbeat
from kvproto.rank.prefill import PrefillRank

#: seconds between two nudges of one peer: less than a loop waits before it rests (`event_loop.STILL_S`)
NUDGE_S = 1e-3


class PrefillWires:
    """The connections of one rank, and what is known by them; a part of `PrefillData`."""

    prepared_writes: PreparedWrites
    page_writes: PageWrites
    mapped: MappedPages

    def __init__(self, loop: Loop, rank: PrefillRank, transport: Transport) -> None:
        self.loop, self.rank, self.transport = loop, rank, transport
        #: by link: the transport's name of the peer
        self.link_peer: dict[int, PeerId] = {}
        self.leaving: set[PeerId] = set()
        #: whether some peer is being wired up
        self.wiring: Callable[[], bool] = lambda: False
        #: by peer: when it was last nudged (`Clock.real`)
        self._nudged: dict[PeerId, float] = {}
        #: what wakes peers of this host, and peers that it does not
        self.bell, self._deaf = Doorbell(), set[PeerId]()
        self.times = WriteTimes(loop.clock.real, self._learned)

    def learn(self, link: int) -> None:
        """This decode rank has called anew: its rows may lie elsewhere."""
        self.page_writes.forget(link)

    def adopt_wire(self, effect: do.AdoptWire) -> None:
        """Take the transport's connection as the one of this link."""
        link, peer = effect.link, PeerId(effect.wire)
        if self.link_peer.get(link, peer) != peer:
            self._part(link)
        self.link_peer[link] = peer
        self.leaving.discard(peer)
        self._reach(link, peer)

    def reach_anew(self, link: int) -> None:
        """Estimate the routes of a link from the pool that there is now."""
        to, peer = self.rank.peers[link], self.link_peer.get(link)
        to.estimates, to.owed = {}, {}
        if peer is not None:
            self._reach(link, peer)

    def _reach(self, link: int, peer: PeerId) -> None:
        """Tell the rank by what this link's parts go, and what that costs for all that is known."""
        mapped, own = self._stores(link, peer), self.rank.costs
        if self.rank.settings.costs:
            costs = own
        elif mapped:
            costs = PROFILES["mapped"]
        else:
            elsewhere = own is PROFILES["cuda_ipc"] and self.transport.elsewhere(peer)
            costs = self.times.begin(peer, PROFILES["rdma"] if elsewhere else own)
        self.rank.reach(link, costs, mapped=mapped)

    def _learned(self, peer: PeerId, costs: Costs) -> None:
        """The writes to this peer have shown that its links cost something else."""
        for link, wire in self.link_peer.items():
            if wire == peer and not self.rank.peers[link].mapped:
                self.rank.reach(link, costs, mapped=False)

    def _stores(self, link: int, peer: PeerId) -> bool:
        """Whether a kernel stores this link's parts; if none does although one could, log why."""
        to = self.rank.peers[link]
        assert to.plan is not None
        owed = [share for share in to.plan.duties(self.rank.index) if share.reader == to.rank]
        stores = bool(owed) and self.mapped.get(peer, owed[0]) is not None
        if not owed and to.plan.state is not None:  # a stage without any layer of which all tokens travel
            state = [share for share in to.plan.state.duties(self.rank.index) if share.reader == to.rank]
            owed = [share for shares in to.plan.state_cuts(state) for share in shares]
            stores = bool(owed) and self.mapped.get(peer, owed[0], state=True) is not None
        if owed and not stores and (why := self.transport.unmapped(peer)):
            self.loop.logs.unmapped(f"decode rank {to.rank}", why)
        return stores

    def drop_wire(self, effect: do.DropWire) -> None:
        """Let the transport's connection go, unless a link has it."""
        self.leave_unless_wanted(PeerId(effect.wire))

    def disconnect(self, effect: do.Disconnect) -> None:
        """Let the link's connection go."""
        self._part(effect.link)

    def forget_link(self, effect: do.ForgetLink) -> None:
        self.loop.connections.forget(effect.link)
        self.page_writes.forget(effect.link)

    def _lost(self, lost: PeerId) -> None:
        for link, peer in list(self.link_peer.items()):
            if peer == lost:
                self.loop.raise_event(ev.TransportLost(link))

    def _part(self, link: int) -> None:
        peer = self.link_peer.pop(link, None)
        if peer is not None:
            self.page_writes.forget(link)  # its lists are of this connection, and so are the writes prepared from them
            self.leave_unless_wanted(peer)

    def leave_unless_wanted(self, peer: PeerId) -> None:
        """Let this connection go, unless a link has it; not while it is busy, or a peer is wired up."""
        if peer not in self.link_peer.values():
            self.prepared_writes.leave(peer)
            self.leaving.add(peer)
            self._leave(peer)

    def _leave(self, peer: PeerId) -> None:
        if self.wiring():  # perhaps this one, for a call that has come since: it would be up, and not connected
            return
        try:
            self.transport.disconnect(peer)
        except Busy:
            return
        self.leaving.discard(peer)
        self._nudged.pop(peer, None)
        self._deaf.discard(peer)
        self.mapped.forget(peer)
        self.times.forget(peer)

    def tell(self, peer: PeerId, tag: bytes) -> bool:
        """Leave the peer's loop this note; false: it has no bell here, or too much waits."""
        return peer not in self._deaf and self.bell.tell(peer, tag)

    def nudge(self, peer: PeerId) -> None:
        """Wake the peer's loop, if it rests: by its bell, or by a heartbeat that is not due."""
        now = self.loop.clock.real()
        if now - self._nudged.get(peer, 0.0) < NUDGE_S:
            return
        self._nudged[peer] = now
        # A failure costs the peer some milliseconds, and the write that has been posted nothing.
        self.loop.attempt("a nudge", partial(self._wake, peer))

    def _wake(self, peer: PeerId) -> None:
        if peer not in self._deaf:
            rung = self.bell.ring(peer)
            if rung:
                return
            if rung is False:  # None: only for now, since other peers have not read
                self._deaf.add(peer)
        for link, wire in self.link_peer.items():
            at = self.rank.links.get(link)
            if wire == peer and at is not None:
                self.loop.connections.send(link, at.epoch, 0, Heartbeat())

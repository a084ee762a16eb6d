"""Link calls: the connections of a decode rank's links, and those to addresses that are tried.

The decode rank's table decides which address a link leads to and which is tried beside it (`decode_link`); here are the
connections.  There is one beside a link at most, under the link's number with a minus sign: the loop hands over what
comes by it with that number, and the rank hears nothing of it but the answer to the call.  It ends when its address is
given up or taken, when another address is tried, and when its link is lost or forgotten.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kvproto.io.control.control import ControlError, Peer
from kvproto.layout.plan import Plan
from kvproto.loop.call_preparation import is_name
from kvproto.loop.rank_loop import Loop
from kvproto.protocol import effects as do
from kvproto.protocol import events as ev
from kvproto.protocol.states import DLink
from kvproto.rank.decode import DecodeRank


@dataclass(slots=True)
class LinkCall:
    """One link: the prefill rank that it calls, and its connections."""

    group: int
    rank: int
    #: addresses of its connection and of the one beside it (empty: there is none)
    dialled: str = ""
    tried: str = ""
    #: why the last dial failed (empty: it did not)
    undialled: str = ""
    #: session of the newest HELLO (0: the next one has to be encoded), and whether its name is being looked up
    session: int = 0
    looking: bool = False
    #: the plan by which it was up last (None: it never was)
    agreed: Plan | None = None


class LinkCalls:
    """The handlers of calls.  Thread: the loop's."""

    def __init__(
        self, loop: Loop, rank: DecodeRank, calling: set[int], name: Callable[[int], str],
        unanswered: Callable[[LinkCall], None],
    ) -> None:  # fmt: skip
        """`name` words a link for the log.

        `calling` gets the links whose call has left and is not answered; `unanswered` is told of each call.
        """
        self._loop, self._rank, self._calling, self._name, self._unanswered = loop, rank, calling, name, unanswered
        self.links: dict[int, LinkCall] = {}
        connections = loop.connections
        loop.control.outboxes.emptied = lambda peer: self._call_left(connections.link_at.get(peer, 0))

    def add(self, link: int, group: int, rank: int) -> None:
        """Call this prefill rank by this link, with a new HELLO."""
        self.links.setdefault(link, LinkCall(group, rank)).session = 0

    def settle(self, link: int, *, up: bool = False) -> None:
        """The call was answered, or the link is lost: poll no more for it, and try no other address."""
        self._calling.discard(link)
        self._end_trial(link)
        if up:
            self.links[link].agreed = self._rank.peers[link].plan

    def forget(self, link: int) -> LinkCall:
        """Close the connections of the link."""
        self.settle(link)
        self._loop.connections.forget(link)
        return self.links.pop(link)

    # ------------------------------------------------------------------------------------- the link's own
    def dial(self, effect: do.Dial) -> None:
        """Connect to the link's address, unless its connection leads there."""
        at, connections = self.links[effect.link], self._loop.connections
        if at.dialled == effect.address and effect.link in connections.peer_of:
            return
        try:
            peer = self._connect(effect.address)
        except ControlError as error:
            if str(error) != at.undialled:
                at.undialled = str(error)
                self._loop.raise_event(ev.DialFailed(effect.link, at.undialled))
            return
        at.dialled, at.undialled = effect.address, ""
        connections.bind(effect.link, peer)

    def _connect(self, address: str) -> Peer:
        if is_name(address):
            raise ControlError(f"nobody knows the name in {address!r}, which is looked up at every call")
        return self._loop.control.connect(address)

    def say_hello(self, effect: do.SayHello) -> None:
        """Queue a HELLO on this link; for an absent peer only the newest is kept, and it is encoded once."""
        connections, link, at = self._loop.connections, effect.link, self.links[effect.link]
        value = self._rank.links.get(link)
        if at.undialled and value is not None:  # there may be a descriptor now, or a name that somebody knows
            self.dial(do.Dial(link, value.address))
        if not connections.waits(link) or at.session != effect.session:
            # The peer is away: calls that piled up for it would all be answered, one after the other, when it comes.
            connections.clear(link)
            connections.send(link, 0, 0, self._rank.hello(effect.session, link))
            at.session = effect.session
        if not connections.waits(link):
            self._call_left(link)
        self._unanswered(at)

    def _call_left(self, link: int) -> None:
        """Poll the transport while a sent call is unanswered: the peer's wire-up needs it."""
        value = self._rank.links.get(link)
        if value is not None and value.state is DLink.AWAIT_WELCOME:
            self._calling.add(link)

    # ------------------------------------------------------------------------------------- beside the link
    def try_address(self, effect: do.TryAddress) -> None:
        """Call there, by the connection that there is or a new one."""
        link, at, connections = effect.link, self.links[effect.link], self._loop.connections
        if at.tried != effect.address:
            self._end_trial(link)
            try:
                # The negative number keeps frames of the tried address apart from the link's own (`Rank.receive`).
                connections.bind(-link, self._connect(effect.address))
            except ControlError as error:
                self._loop.raise_event(ev.AddressAnswered(link, effect.session, str(error)))
                return
            at.tried = effect.address
        if not connections.waits(-link):
            connections.send(-link, 0, 0, self._rank.hello(effect.session, link))

    def take_address(self, effect: do.TakeAddress) -> None:
        """Make the connection beside the link the link's own."""
        at = self.links[effect.link]
        self._loop.connections.take(-effect.link, effect.link)
        at.dialled, at.tried = effect.address, ""

    def leave_address(self, effect: do.LeaveAddress) -> None:
        """Close the connection beside the link, and log why."""
        address = self.links[effect.link].tried or "its new address"
        self._end_trial(effect.link)
        self._loop.counts["addresses that were tried in vain"] += 1
        self._loop.logs.untaken(self._name(effect.link), address, effect.why)

    def _end_trial(self, link: int) -> None:
        self.links[link].tried = ""
        self._loop.connections.forget(-link)

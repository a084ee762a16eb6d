"""The rank loop: decodes frames for a rank, and carries out the effects that both sides share.

An endpoint installs one handler for each effect of its side; the control plane is the same for both and is here.  How a
pass goes is `event_loop`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial

from kvproto.fsm.codec import WireError
from kvproto.fsm.vocabulary import Effect, Report
from kvproto.io.clock import Clock
from kvproto.io.control.control import Control, Peer
from kvproto.loop.blames import BLAMING, Blames
from kvproto.loop.connections import Connections
from kvproto.loop.event_loop import EventLoop
from kvproto.observe.logs import Logs, named
from kvproto.protocol import effects as do
from kvproto.protocol import events as ev
from kvproto.protocol.codec import ForeignCallError, RawHello, UnknownMessageError, decode, encode
from kvproto.protocol.messages import Hello, Message, Refusal, Reset
from kvproto.protocol.states import Cause
from kvproto.protocol.versions import Build
from kvproto.rank.base import Rank

#: calls accepted from one connection in a second: a rank retransmits its call twice a second at most
CALLS = 8


class Loop(EventLoop):
    """A rank, its control plane and its handlers."""

    def __init__(self, rank: Rank, control: Control, clock: Clock) -> None:
        super().__init__(rank, control, clock)
        self.rank = rank
        self.blames = Blames(rank)
        self.connections = Connections(self, self.counts, self._overflown, self.blames)
        rank.stands = self._stands
        self.logs = Logs(f"{rank.side} rank {rank.index}", rank.counts)
        self.reports = self.logs.reports
        self.logs.write.lost = self._line_lost
        #: messages that came, by kind; and what is done once a second
        self.heard: Counter[type[Message]] = Counter()
        self.every_second: list[Callable[[float], None]] = [self.logs.sum_up, self._tell_away, self._forget_calls]
        #: of each connection: its calls in this second
        self._calls: Counter[Peer] = Counter()

    # ------------------------------------------------------------------------------------ the control plane
    def _stands(self, link: int) -> bool:
        """Whether the connection to this link's peer is up; a control plane that cannot say so ends no pass."""
        return bool(self.attempt("whether a connection stands", partial(self.connections.stands, link)))

    def hear(self, peer: Peer, frame: bytes) -> None:
        """Take one frame; what is no message of this build is counted, and told.

        Where it came from is said with what is about a link alone: a room's message comes by one.
        """
        try:
            epoch, room, body = decode(frame)
        except WireError as error:
            newer = isinstance(error, UnknownMessageError)
            self.counts["messages of newer builds" if newer else "malformed frames"] += 1
            self.logs.frame(f"frame from {peer}", str(error))
            if isinstance(error, ForeignCallError) and self.rank.side == "prefill":
                self._refuse(peer, error.call)
            return
        kind = type(body)
        self.heard[kind] += 1
        if kind is Hello and self._hasty(peer):
            return
        link = self.connections.link_at.get(peer, 0)
        self.now = self.clock.again()
        unheard = 0 if link else self.rank.counts.total()
        place = b"" if room else peer.place
        if kind in BLAMING:
            body = self.blames.take(link, room, body)
        self.submit(self.rank.receive(link, epoch, room, body, self.now, place))
        if not link and self.rank.counts.total() > unheard:
            self.logs.stranger(str(peer))

    def _overflown(self, link: int) -> None:
        if link > 0:  # a call at a tried address is retransmitted
            self.raise_event(ev.QueueOverflowed(link))

    def _refuse(self, peer: Peer, call: RawHello) -> None:
        """Answer a call of another build, which is no message of this one: no table sees it."""
        why = self.rank.unlike(Build(call.version, call.version))
        if why:
            self.counts["calls of other builds"] += 1
            self.logs.frame(f"call from {peer} refused", why)
            self.control.send(peer, encode(0, 0, Refusal(call.session, why[:1024])))

    def _hasty(self, peer: Peer) -> bool:
        """Whether a call exceeds the rate limit; each may cost a plan and a wire-up, and is retransmitted."""
        self._calls[peer] += 1
        if self._calls[peer] > CALLS:
            self.counts["calls put off, too many a second"] += 1
            return True
        return False

    def _forget_calls(self, _now: float) -> None:
        self._calls.clear()

    # ---------------------------------------------------------------------------------------- effects
    def bind_link(self, effect: do.BindLink) -> None:
        """Take the place that a message came from as the link's peer."""
        self.connections.bind(effect.link, Peer.at(effect.place))

    def send_reset(self, effect: do.SayReset) -> None:
        self.control.send(Peer.at(effect.place), encode(effect.epoch, 0, Reset()))

    def report(self, effect: Report) -> None:
        self.counts["refused events"] += 1
        self.logs.frame(effect.what, effect.why)

    def fault(self, what: str, error: BaseException) -> None:
        self.logs.fault(what, error)

    def failed(self, effect: Effect, error: BaseException) -> None:
        """A handler's fault ends its room."""
        room = getattr(effect, "room", None)
        if room is not None and not isinstance(effect, do.Transmit):
            self.room_failed(room, type(effect).__name__, error)

    def room_failed(self, room: int, what: str, error: BaseException) -> None:
        """End the room of this key: this was done for it, and raised."""
        self.hold(error)
        self.logs.blame(room, Cause.KERNEL_FAILED, f"{what}: {named(error)}")
        self.raise_event(ev.RoomFailed(room, Cause.KERNEL_FAILED))

    def broke(self, error: BaseException) -> None:
        """Log it: nobody else may look at a thread that has ended."""
        self.logs.fault(f"the loop's own thread has ended with {len(self.rank.rooms)} rooms", error)

    def _tell_away(self, _now: float) -> None:
        self.logs.away(self.control.counts.away, self.control.last_away)

    def passed(self) -> None:
        """The log sums up, and so do others."""
        for each in self.every_second:
            self.attempt(getattr(each, "__qualname__", "what is done once a second"), partial(each, self.now))

    def _line_lost(self, error: BaseException) -> None:
        self.hold(error)
        self.counts["log lines lost"] += 1

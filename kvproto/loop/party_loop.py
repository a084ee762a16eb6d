"""The party loop: a member of any protocol over sockets, with the addresses of the others, and frames.

A frame's header is the sender's number.  Each party listens, and connects to another one when it first sends it a
message; a connection is re-established when the other side returns.  Frames that a peer does not accept are dropped
and counted: a party that needs an answer retransmits its request.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from kvproto.fsm.codec import U32, WireError, pack, reader, unpack
from kvproto.fsm.party import Member
from kvproto.fsm.vocabulary import Effect, Report, Transmit
from kvproto.io.clock import Clock, MonotonicClock
from kvproto.io.control.control import Control, Peer, Sent
from kvproto.io.control.keys import MARK, Keys
from kvproto.loop.event_loop import EventLoop

#: the longest frame, in bytes, and the latest reports that are kept
MAX_FRAME, REPORTS = 64 * 1024, 256


class PartyLoop(EventLoop):
    """One member; `handlers` carry out the effects that are no messages."""

    def __init__(
        self, member: Member, addresses: Mapping[int, str], bodies: Any,
        handlers: Mapping[type[Effect], Callable[[Any], None]], clock: Clock | None = None,
        *, keys: Keys | None = None, insecure: bool = False,
    ) -> None:  # fmt: skip
        """`addresses` of all by number, this one's included; `bodies`: the union of all messages.

        Beyond loopback it needs `keys`, or `insecure`.
        """
        own = addresses[member.number]
        control = Control(own.partition(MARK)[0], max_frame=MAX_FRAME, keys=keys, insecure=insecure)
        super().__init__(member, control, clock or MonotonicClock())
        self.member, self.addresses = member, addresses
        self.reports: deque[str] = deque(maxlen=REPORTS)
        self._frames = reader((U32,), bodies)
        self._dialled: dict[int, Peer] = {}
        self.handlers |= handlers
        self.handlers |= {Transmit: self._transmit, Report: self._report}

    def hear(self, peer: Peer, frame: bytes) -> None:
        """Take one frame; what is no message of this protocol is counted, and told."""
        try:
            sender, body = unpack(frame, self._frames, MAX_FRAME)
        except WireError as error:
            self.counts["malformed frames"] += 1
            self.reports.append(f"frame from {peer}: {error}")
            return
        self.now = self.clock.again()
        self.submit(self.member.receive(sender, body, self.now))

    def fault(self, what: str, error: BaseException) -> None:
        """Keep it among the reports."""
        self.reports.append(f"{what}: {type(error).__name__}: {error}")

    def _transmit(self, effect: Transmit) -> None:
        peer = self._dialled.get(effect.peer)
        if peer is None:
            peer = self._dialled[effect.peer] = self.control.connect(self.addresses[effect.peer])
        if self.control.send(peer, pack(self.member.number, effect.body)) is Sent.FULL:
            self.counts["queue full"] += 1

    def _report(self, effect: Report) -> None:
        self.counts["refused events"] += 1
        self.reports.append(f"{effect.what}: {effect.why}")

"""The gate: who may connect to a rank that listens, decided in the rank's own loop.

libzmq asks at an address of its own, `inproc://zeromq.zap.01`, before it lets a connection through its handshake (the
protocol is ZAP, ZeroMQ's RFC 27).  Whoever binds there answers.  Here it is one more socket that the control plane's
poller watches and `receive` serves: no thread, and no call that waits.  A loop that does not poll lets nobody in, and a
connection whose question is not answered ends with its handshake, after `HANDSHAKE_S`.

*The key* (with `Keys` only).  200 if it is on the list; 400 if not, which tells a well-behaved peer not to come again.
A peer that shows no key, or means another server, never gets as far as a question: libzmq ends the connection, and the
socket's monitor says so (what is no ZeroMQ at all is hung up on without a word).  Either way nothing of what it sent is
handed to anybody.

*The pace* (always).  Of new connections `BURST` are let in at once, then `PACE` a second; those beyond are told 300,
"later", which a peer of ours takes as reason to come again when its handshake is over.  Each costs a descriptor, and
what it says first may cost a plan.  Of one key (without keys: from one address) it is half of both, so whoever is in
too much of a hurry puts off himself and not all others.  How many connections there are in all is bounded by the
process's descriptors.

Who has been let in, and sends a message without end, is hung up on (`unread`).

A question is answered whoever sent it, for only libzmq can: the address is within the process.
"""

from __future__ import annotations

import struct
import time
from collections import Counter, OrderedDict
from typing import TYPE_CHECKING

import zmq

from kvproto.io.control.keys import KEY_BYTES, Keys
from kvproto.io.control.polled_socket import PolledSocket
from kvproto.io.control.unanswered import Unanswered
from kvproto.io.control.unread import Unread

if TYPE_CHECKING:
    from collections.abc import Callable

    from kvproto.io.control.sockets import Peer

ZAP = "inproc://zeromq.zap.01"
BURST = 256
PACE = 64
HANDSHAKE_S = 5.0
#: questions and events that one turn takes, so that a flood of them does not keep frames waiting
TURN = 8
#: why a connection was turned away, in words
UNLISTED = "connections with a key that is not listed"
STRANGE = "connections that failed their handshake"
HASTY = "connections put off, too many a second"
CROWDING = "connections put off, too many a second from one key or address"
#: keys or addresses of which it is known how many came lately; the one that was quiet for longest is forgotten
SOURCES = 1024
_ENDED = zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
#: what a socket's monitor says: an event, and its value
MONITORED = struct.Struct("=Hi")


class Served(PolledSocket):
    """A socket that is polled beside those that carry frames; it yields none."""

    def take(self, limit: int, frames: list[tuple[Peer, bytes]]) -> bool:
        """Serve what is here, up to a bound: True, there may be more."""
        del limit, frames
        try:
            for _ in range(TURN):
                self._serve(self._socket.recv_multipart(zmq.NOBLOCK))
        except zmq.Again:
            return False
        return True

    def close(self, drain_s: float = 0.0) -> None:
        del drain_s
        self._socket.close(linger=0)

    def _serve(self, parts: list[bytes]) -> None:
        raise NotImplementedError


class Pace:
    """So many at once, then so many a second."""

    __slots__ = ("burst", "pace", "room", "since")

    def __init__(self, burst: float, pace: float, now: float) -> None:
        self.burst, self.pace, self.room, self.since = burst, pace, burst, now

    def has_room(self, now: float) -> bool:
        self.room, self.since = min(self.burst, self.room + (now - self.since) * self.pace), now
        return self.room >= 1.0

    def take(self) -> None:
        self.room -= 1.0


class Gate(Served):
    """Answers libzmq's questions about connections; `away` counts those that are turned away, by why."""

    def __init__(
        self, context: zmq.Context[zmq.Socket[bytes]], keys: Keys | None, away: Counter[str],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        socket = context.socket(zmq.ROUTER)
        socket.bind(ZAP)
        super().__init__(-1, socket)
        self._keys, self._away, self._clock = keys, away, clock
        self._all, self._sources = Pace(BURST, PACE, clock()), OrderedDict[bytes, Pace]()
        #: the last key that was turned away, in hex, and where it came from
        self.last = ""

    def _serve(self, parts: list[bytes]) -> None:
        sender, _, version, request, _, place, _, mechanism, *credentials = parts
        status = self._judge(mechanism, credentials, place)
        self._socket.send_multipart([sender, b"", version, request, status, b"", b"", b""], zmq.NOBLOCK)

    def _judge(self, mechanism: bytes, credentials: list[bytes], place: bytes) -> bytes:
        if self._keys is not None and (mechanism != b"CURVE" or credentials[0] not in self._keys.allowed):
            self.last = f"{credentials[0][:KEY_BYTES].hex() if credentials else 'no key'} from {place.decode()}"
            self._away[UNLISTED] += 1
            return b"400"
        now = self._clock()
        # 300 is ZAP's temporary failure: libzmq tries again by itself; after 400 it does not.
        own = self._pace_of(credentials[0] if mechanism == b"CURVE" else place, now)
        if not own.has_room(now):
            self._away[CROWDING] += 1
            return b"300"
        if not self._all.has_room(now):
            self._away[HASTY] += 1
            return b"300"
        # Both have room: a call that one of the two refuses must not use up the other.
        own.take()
        self._all.take()
        return b"200"

    def _pace_of(self, source: bytes, now: float) -> Pace:
        own = self._sources.pop(source, None) or Pace(BURST / 2, PACE / 2, now)
        # Taken out and put in again, so the source that was quiet for longest is the first.
        self._sources[source] = own
        if len(self._sources) > SOURCES:
            self._sources.popitem(last=False)
        return own


class Monitor(Served):
    """Receives the events of libzmq about the connections of one socket.

    libzmq's own thread puts each event in, and waits while nobody can take it: with all connections of the context
    waiting behind it.  So there is always room here, and the socket stops telling before this end closes.
    """

    def __init__(
        self, context: zmq.Context[zmq.Socket[bytes]], told_of: zmq.Socket[bytes], place: str, events: int, number: int
    ) -> None:
        told_of.monitor(place, events)
        socket = context.socket(zmq.PAIR)
        socket.set(zmq.RCVHWM, 0)
        socket.connect(place)
        super().__init__(number, socket)
        self._told_of = told_of

    def close(self, drain_s: float = 0.0) -> None:
        """Close before the monitored socket, which may live on for as long as it has frames to send."""
        if not self._told_of.closed:
            self._told_of.disable_monitor()
        super().close(drain_s)


class Handshakes(Monitor):
    """Counts connections that ended in their handshake, without a key or with a wrong server key.

    It also reports all connections that open and close to `unread` and `unanswered`.
    """

    def __init__(
        self, context: zmq.Context[zmq.Socket[bytes]], listener: zmq.Socket[bytes], away: Counter[str], unread: Unread,
        unanswered: Unanswered,
    ) -> None:  # fmt: skip
        events = _ENDED | zmq.EVENT_ACCEPTED | zmq.EVENT_DISCONNECTED
        super().__init__(context, listener, "inproc://kvproto.handshakes", events, -2)
        self._away, self._unread, self._unanswered = away, unread, unanswered

    def _serve(self, parts: list[bytes]) -> None:
        event, value = MONITORED.unpack(parts[0])
        if event == zmq.EVENT_ACCEPTED:
            self._unread.add(value)
            self._unanswered.add(self.number, value)
        elif event == zmq.EVENT_DISCONNECTED:
            self._unread.remove(value)
            self._unanswered.remove(self.number, value)
        else:
            self._away[STRANGE] += 1

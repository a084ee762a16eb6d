"""Sockets of the control plane (ZeroMQ), set up so that none can block, lie or be flooded.

What libzmq does by default would break the promises of `control`; each option here answers one of those
defaults.

ROUTER_MANDATORY   A ROUTER throws away, without a word, what it cannot send. With it a full pipe and an
                   unknown peer are told apart, and both are told: FULL and GONE.
ROUTER_HANDOVER    When a connection broke and its owner comes again under its own id before we noticed, the
                   second connection is refused and that peer is deaf for ever. With it the newest connection
                   counts.
IMMEDIATE          A DEALER has a pipe before it has a connection, and keeps it afterwards: frames for a dead
                   peer pile up unseen and are served to whoever binds its address next. With it a frame
                   enters a pipe only when there is a connection, and the pipe dies with the connection.
ROUTING_ID         Fresh and random for each connection that is opened, so that a restarted peer is another
                   peer: a handle of its former self is answered GONE and never reaches the new one.
MAXMSGSIZE         There is no limit by default. With it who announces a larger frame loses the connection
                   before the frame is in memory. The parts of one message have no limit in libzmq, and none is
                   seen here before the last is in memory. So who may connect is asked first (`gate`, `keys`),
                   who sends more than a message can have is hung up on (`unread`), and what comes all the same
                   comes up as `BUNDLE` frames, the last of them all that is left.
HANDSHAKE_IVL      A connection that does not come to the point, and one that the gate has put off.
ZAP_DOMAIN         Without it libzmq asks the gate only about peers with keys.
SNDHWM, RCVHWM     Count messages, not bytes. Kept short; `control` has the queue that counts both.
LINGER 0           Closing a socket never waits for a peer.
CONNECT_TIMEOUT    A call to a host that is gone is repeated for two minutes by default, at longer and longer times.
                   What is sent to such a host is `unanswered`. TCP_MAXRT would not do, and libzmq's own pings
                   would not either: who has many messages to read, and does not read them, looks dead to both.
TCP_KEEPALIVE      The kernel clears half-open connections away that nothing is sent by.
"""

from __future__ import annotations

import os
from collections import Counter
from enum import Enum
from itertools import repeat
from typing import TYPE_CHECKING, NamedTuple, Self

import zmq

from kvproto.errors import KvprotoError
from kvproto.io.control.bundle import BUNDLE, READS, frames_in, packed
from kvproto.io.control.gate import HANDSHAKE_S, Handshakes
from kvproto.io.control.keys import MARK, Keys, beyond_loopback, split_key, with_key
from kvproto.io.control.polled_socket import NOBLOCK, POLLIN, PolledSocket
from kvproto.io.control.poller import keeps_lock
from kvproto.io.control.standing import Standing
from kvproto.io.control.unanswered import Unanswered
from kvproto.io.control.unread import Unread

if TYPE_CHECKING:
    from collections.abc import Sequence

LOOPBACK = "tcp://127.0.0.1:*"
LISTENER = 0  # the number of the socket that listens; those that connect count on
WINDOW = 64  # messages in the pipe of one peer, each way
SEAL = 33  # bytes that a key adds to a part: ZMTP's MESSAGE, a number, a sum and a flag
MAX_INT = (1 << 31) - 1  # an option of libzmq is a C int
_MORE = int(zmq.NOBLOCK | zmq.SNDMORE)
Options = dict[zmq.SocketOption, int | bytes]
_EVERY_SOCKET: Options = {
    zmq.LINGER: 0,
    zmq.SNDHWM: WINDOW,
    zmq.RCVHWM: WINDOW,
    zmq.TCP_KEEPALIVE: 1,
    zmq.TCP_KEEPALIVE_IDLE: 60,
    zmq.TCP_KEEPALIVE_INTVL: 10,
    zmq.TCP_KEEPALIVE_CNT: 6,
    zmq.HANDSHAKE_IVL: round(HANDSHAKE_S * 1000),
}
_ROUTER: Options = {zmq.ROUTER_MANDATORY: 1, zmq.ROUTER_HANDOVER: 1, zmq.ZAP_DOMAIN: b"kvproto"}
_DEALER: Options = {zmq.IMMEDIATE: 1, zmq.RECONNECT_IVL: 20, zmq.RECONNECT_IVL_MAX: 1000}  # milliseconds


class ControlError(KvprotoError, RuntimeError):
    """A mistake on this side: a bad address, a frame too large, use after close."""


class Sent(Enum):
    """The fate of a frame. True unless a retry would help: `if not send(...): keep it for later`."""

    TAKEN = "taken"  #: queued in order; it goes when the peer has room
    FULL = "full"  #: no room for the peer: not queued, try again later
    GONE = "gone"  #: no such peer any more: not queued, and never will be

    def __bool__(self) -> bool:
        return self is not Sent.FULL


class Peer(NamedTuple):
    """The address of a sender or receiver. Hashable; holds nothing open."""

    link: int  #: 0: it connected to us; n: our n-th connection
    name: bytes  #: routing id, unique to one connection opened by one process

    @property
    def place(self) -> bytes:
        """The same as bytes, for whoever only compares and keeps it."""
        return self.link.to_bytes(8, "big") + self.name

    @classmethod
    def at(cls, place: bytes) -> Self:
        """The peer whose `place` this is."""
        return cls(int.from_bytes(place[:8], "big"), place[8:])


class ControlSocket(PolledSocket):
    """A socket and the calls the control plane makes on it. None of them waits."""

    __slots__ = ("peer", "unread")

    def __init__(self, number: int, socket: zmq.Socket[bytes], peer: Peer | None, unread: Unread | None = None) -> None:
        super().__init__(number, socket)
        self.peer = peer  # None: a ROUTER, where each message names its sender
        self.unread = unread  # asks, at times, over which connections messages come

    def post(self, name: bytes, frames: Sequence[bytes]) -> Sent:
        """Send these frames as one message, to `name` where the socket has several peers: all of them or none."""
        if len(frames) > 1 and self.peer is None and name.startswith(READS):
            frames = (packed(frames),)
        *first, last = frames
        try:
            if self.peer is None:
                self._socket.send(name, _MORE)
            for frame in first:
                self._socket.send(frame, _MORE)
            self._socket.send(last, NOBLOCK)
        except zmq.Again:
            return Sent.FULL
        except zmq.ZMQError as error:
            if error.errno == zmq.EHOSTUNREACH:
                return Sent.GONE
            raise
        return Sent.TAKEN

    def take(self, limit: int, frames: list[tuple[Peer, bytes]]) -> bool:
        """Append what is here until `frames` has `limit`, and the rest of a message: True, there may be more."""
        spoken = None if self.unread is None else self.unread.spoken
        try:
            while len(frames) < limit:
                # Every hundredth `recv` learns what has become of the connection. With IMMEDIATE a lost one takes its
                # pipe away, which must not be between two parts of an earlier build (`bundle`): learn it first.
                # And `recv` gives the interpreter's lock away even if nothing is here; this does not.
                if (self.peer is not None or keeps_lock()) and not self.events() & POLLIN:
                    return False
                part = self._socket.recv(NOBLOCK, copy=False)
                if spoken is not None:
                    # Only a frame that was not copied knows the descriptor of its connection.
                    spoken.add(int(part.get(zmq.SRCFD)))
                parts = [part.bytes]
                while part.more:
                    part = self._socket.recv(NOBLOCK, copy=False)
                    parts.append(part.bytes)
                peer = self.peer or Peer(0, parts.pop(0))
                if peer.link:
                    parts = [frame for part in parts for frame in frames_in(part)]
                # Our senders bundle no more; what a stranger adds becomes one frame, which does not decode.
                if len(parts) > BUNDLE:
                    parts[BUNDLE - 1 :] = [b"".join(parts[BUNDLE - 1 :])]
                frames += zip(repeat(peer), parts)
        except zmq.Again:
            return False
        return True

    def close(self, drain_s: float = 0.0) -> None:
        """Close; what libzmq holds of it may leave for `drain_s` seconds more while the context lives."""
        self._socket.close(linger=round(drain_s * 1000))


def listen(
    context: zmq.Context[zmq.Socket[bytes]], address: str, max_frame: int, keys: Keys | None, away: Counter[str],
    unread: Unread, unanswered: Unanswered,
) -> tuple[ControlSocket, Handshakes, str]:  # fmt: skip
    """Bind a ROUTER behind the gate; return it with its monitor and its public address."""
    own: Options = {} if keys is None else {zmq.CURVE_SERVER: 1, zmq.CURVE_SECRETKEY: keys.secret}
    socket = _open(context, zmq.ROUTER, _ROUTER | own, max_frame + SEAL * (keys is not None))
    handshakes = Handshakes(context, socket, away, unread, unanswered)
    try:
        socket.bind(address)
        bound = bytes(socket.get(zmq.LAST_ENDPOINT)).rstrip(b"\0").decode()
        return ControlSocket(LISTENER, socket, None, unread), handshakes, with_key(bound, keys)
    except (zmq.ZMQError, TypeError, UnicodeError) as error:
        handshakes.close()
        socket.close()
        msg = f"cannot listen on {address!r}: {error}; {LOOPBACK} takes any free port"
        raise ControlError(msg) from error


def dial(
    context: zmq.Context[zmq.Socket[bytes]], number: int, address: str, max_frame: int, keys: Keys | None,
    unanswered: Unanswered,
) -> tuple[ControlSocket, Peer, Standing]:  # fmt: skip
    """Connect a DEALER under a name of its own; returns at once, the connection comes when it comes."""
    place, options = _agree(address, keys)
    options |= {zmq.CONNECT_TIMEOUT: min(max(1, round(unanswered.answer_s * 1000)), MAX_INT)}
    socket = _open(context, zmq.DEALER, _DEALER | options, max_frame + SEAL * (keys is not None))
    name = READS + os.urandom(15)
    try:
        standing = Standing(context, socket, number, unanswered)
    except zmq.ZMQError as error:
        socket.close()
        raise _no_socket(error) from error
    try:
        socket.set(zmq.ROUTING_ID, name)
        socket.connect(place)
    except (zmq.ZMQError, TypeError, UnicodeError) as error:
        standing.close()
        socket.close()
        msg = f"cannot connect to {address!r}: {error}; an address is like tcp://127.0.0.1:4000"
        raise ControlError(msg) from error
    peer = Peer(number, name)
    return ControlSocket(number, socket, peer), peer, standing


def check_keys(address: str, keys: Keys | None, *, insecure: bool) -> None:
    """ControlError: the address is beyond loopback, there are no keys, and nobody said that this is meant."""
    if keys is None and not insecure and beyond_loopback(address.partition(MARK)[0]):
        msg = (
            f"{address!r} is beyond loopback: whoever reaches it could read and write KV caches. Give keys "
            "(kvproto keys makes them), or insecure=True where a firewall alone decides who reaches it"
        )
        raise ControlError(msg)


def _agree(address: str, keys: Keys | None) -> tuple[str, Options]:
    """Return place and options for both sides' keys; ControlError: one side has keys, the other none."""
    try:
        place, key = split_key(address)
    except ValueError as error:
        msg = f"cannot connect to {address!r}: {error}; an address is like tcp://127.0.0.1:4000"
        raise ControlError(msg) from error
    if keys is None and key is None:
        return place, {}
    if keys is None:
        why = "asks for keys, and this process has none"
    elif key is None:
        why = "has no key, and this process talks to none without one"
    elif key not in keys.allowed:
        why = f"has the key {key.hex()}, which is not on this process's list"
    else:
        mine: Options = {zmq.CURVE_PUBLICKEY: keys.public, zmq.CURVE_SECRETKEY: keys.secret, zmq.CURVE_SERVERKEY: key}
        return place, mine
    msg = f"cannot connect to {place!r}: it {why}"
    raise ControlError(msg)


def _open(context: zmq.Context[zmq.Socket[bytes]], kind: int, options: Options, max_part: int) -> zmq.Socket[bytes]:
    try:
        socket = context.socket(kind)
    except zmq.ZMQError as error:
        raise _no_socket(error) from error
    for option, value in (_EVERY_SOCKET | options | {zmq.MAXMSGSIZE: max_part}).items():
        socket.set(option, value)
    return socket


def _no_socket(error: zmq.ZMQError) -> ControlError:
    return ControlError(f"no socket to be had: {error}; disconnect peers that are done, or allow more descriptors")

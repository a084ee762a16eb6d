"""The control plane: short messages between ranks, and the one place where a rank's loop sleeps.

A prefill rank listens; a decode rank connects to each of its prefill ranks. What is carried is bytes: nothing
here knows a message, and nothing that arrives is judged here. The promises (`sockets` says what they rest
on):

*Never blocks.* A peer that is gone, stopped or slow costs its own queue, not the loop.

*Never drops in silence.* libzmq counts messages, not bytes, so its window is kept short, and behind it each
peer has an outbox bounded in both. When that is full `send` says FULL, and the caller comes again. A peer
that is not there any more is GONE: a value, and true, because coming again would not help. What was under way
or in the outbox when a peer went is lost, as on any network; `counts.lost` has the outbox's share, and the
protocol above re-sends. A peer that we connect to is never GONE: while it is away its outbox fills, and says
FULL.

*Many at once.* Frames that are to leave `later` leave when the loop says `flush`, in one message for each peer. What is
bounded and counted is frames, however they travel, and of what came in one message each is a frame by itself.

*One thread.* Sockets are not shared: the thread that polls the loop calls everything here (the loop sees to
that). Any thread may call `wake`, and that is all.

*Sleeps, and wakes at once.* A ZeroMQ descriptor is edge-triggered: any call into the socket may swallow the
edge. So a socket that was called since it last said that nothing is here is *hot*, and the loop sleeps only
when all are cold. A socket whose one peer has an outbox is cold when it says that there is no room either: the
connection that comes, or room in it, has an edge. Room in one pipe of a ROUTER has none that would say whose,
so an outbox there has a time at which it is tried again, and a sleep ends by then; otherwise nothing ticks.

*Costs what is there.* A pass looks at hot sockets, at those whose descriptors have something (`watched`), and
at outboxes whose time has come. Peers that are gone have none of the three, however many they are.
"""

from __future__ import annotations

import time
import weakref
from typing import TYPE_CHECKING

import zmq

from kvproto.errors import Step, failures, raise_exit, run_all
from kvproto.io.control.bundle import ADDED
from kvproto.io.control.gate import Gate, Handshakes
from kvproto.io.control.keys import Keys
from kvproto.io.control.outbox import Counts, Outboxes
from kvproto.io.control.polled_socket import POLLIN, POLLOUT, PolledSocket
from kvproto.io.control.poller import Waiter, Waker
from kvproto.io.control.sockets import (
    LISTENER,
    LOOPBACK,
    ControlError,
    ControlSocket,
    Peer,
    Sent,
    check_keys,
    dial,
    listen,
)
from kvproto.io.control.standing import Standing
from kvproto.io.control.unanswered import Unanswered
from kvproto.io.control.unread import LOOK_S, SOON_S, Unread
from kvproto.io.control.watched import WatchedDescriptors

if TYPE_CHECKING:
    from collections.abc import Sequence

Polled = ControlSocket | Gate | Handshakes | Standing
__all__ = ["LOOPBACK", "Control", "ControlError", "Counts", "Peer", "Sent"]

MAX_QUEUE = 65536  # frames in the outbox of one peer
MAX_BYTES = 64 << 20  # bytes in the outbox of one peer
MAX_FRAME = 256 << 10  # bytes of one frame, either way
NOBODY = Peer(-1, b"")  # has no outbox
SOCKETS = 1 << 14  # a dialled link takes three with its monitor, and libzmq's own bound is 1023: 341 links
ANSWER_S = 5.0  # a host that acknowledges nothing for so long is gone
GONE_KEPT = 1024  # peers of which it is known that they are gone; the next frame to another one tells again
LAST_WORD_S = 0.1  # what was said to a peer before it is forgotten may leave for so long; nobody waits


class Control:
    """A rank's end of the control plane.

    `bind`: where to listen, such as LOOPBACK; None: it only connects. `max_queue` frames and `max_bytes` bytes bound
    the outbox of each peer, `max_frame` bytes a frame, sent or received. `keys`: only whose key is listed connects, and
    is connected to; without them nothing goes beyond loopback, unless `insecure`. `answer_s`: seconds after which a
    connection ends whose host acknowledges nothing. ControlError: the address cannot be had, it is beyond loopback and
    there are no keys, or an outbox could not hold one frame. """

    def __init__(
        self,
        bind: str | None = None,
        *,
        max_queue: int = MAX_QUEUE,
        max_bytes: int = MAX_BYTES,
        max_frame: int = MAX_FRAME,
        keys: Keys | None = None,
        insecure: bool = False,
        answer_s: float = ANSWER_S,
    ) -> None:
        if max_queue < 1 or not 0 < max_frame <= max_bytes:
            msg = f"an outbox of {max_queue} frames and {max_bytes} bytes must hold one of {max_frame} bytes"
            raise ControlError(msg)
        self.max_frame = max_frame
        self.counts = Counts()
        self.address: str | None = None  #: where peers connect to
        self._keys, self._insecure, self._unanswered = keys, insecure, Unanswered(answer_s)
        self._closed = False
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._context.set(zmq.MAX_SOCKETS, SOCKETS)
        self._watched, self._sleeper, self._waker = WatchedDescriptors(), Waiter(), Waker()
        self._dialled = 0
        self._gate: Gate | None = None
        self._unread: Unread | None = None
        self._sockets: dict[int, Polled] = {}
        #: by link, of those that we connect to; and those that connected to us, and are gone
        self._standing: dict[int, Standing] = {}
        self._gone: dict[Peer, None] = {}
        self._by_fd: dict[int, Polled] = {}
        self._hot: dict[int, Polled] = {}
        self._end = weakref.finalize(self, _end, self._context, self._sockets)
        # At the interpreter's exit the loop's thread is gone, and ending a context could wait for it for ever.
        self._end.atexit = False
        #: what waits for a peer's room, or to leave with others
        self.outboxes = Outboxes(self._post, self.counts, max_queue, max_bytes, max_frame - ADDED)
        if bind is not None:
            self._listen(bind)

    def connect(self, address: str) -> Peer:
        """Begin to connect, and return at once; frames wait in the outbox until the connection stands."""
        self._check_open()
        check_keys(address, self._keys, insecure=self._insecure)
        number = self._dialled + 1
        socket, peer, standing = dial(self._context, number, address, self.max_frame, self._keys, self._unanswered)
        # Only after the dial: an address that cannot be had leaves nothing behind.
        self._dialled, self._standing[number] = number, standing
        self._add(standing)
        self._add(socket)
        return peer

    def stands(self, peer: Peer) -> bool:
        """Whether the connection to the peer is up: its process is there, and its host acknowledges."""
        if not peer.link:
            return peer not in self._gone
        standing = self._standing.get(peer.link)
        return standing is not None and standing.stands

    @property
    def last_away(self) -> str:
        """The last key that the gate turned away, and from where; empty: none."""
        return "" if self._gate is None else self._gate.last

    def disconnect(self, peer: Peer) -> None:
        """Forget the peer and what waits in its outbox; the connection of one that connected to us is its own."""
        self._check_open()
        self.outboxes.let_go()
        # Frames that were held to leave together go first: the last of them may be a goodbye.
        self.outboxes.forget(peer)
        self._gone.pop(peer, None)
        if peer.link and peer.link in self._sockets:
            self._remove(self._standing.pop(peer.link))
            self._remove(self._sockets[peer.link])

    def send(self, peer: Peer, data: bytes, *, urgent: bool = False, later: bool = False) -> Sent:
        """Queue one frame to this peer, in order; urgent frames have an order of their own.

        `later`: it may leave with others, at the next `flush`, `receive` or `wait`; that the peer is gone shows then.
        ControlError: longer than `max_frame`.
        """
        if self._closed:
            self._check_open()
        if len(data) > self.max_frame:
            msg = f"a frame of {len(data)} bytes, over max_frame={self.max_frame}: its receiver would hang up"
            raise ControlError(msg)
        return self.outboxes.offer(peer, data, urgent=urgent, later=later)

    def flush(self) -> None:
        """Send the frames that were held for later."""
        if self.outboxes.held:
            self.outboxes.let_go()

    def receive(self, limit: int) -> list[tuple[Peer, bytes]]:
        """Return up to `limit` frames, in order for each peer, and the rest of the last message.

        Never wait. Outboxes that have room move on, too.
        """
        if self._closed:
            self._check_open()
        if self.outboxes.held or self.outboxes.tries:
            self.outboxes.flush()
        unread, now = self._unread, time.monotonic()
        if unread is not None and unread.due <= now:
            unread.look(now)
        if self._unanswered.due <= now:
            self._unanswered.look(now)
        for fd in self._watched.ready():
            self._heat(self._by_fd[fd])
        outboxes = self.outboxes.by_peer
        frames: list[tuple[Peer, bytes]] = []
        turns = limit  # a socket that yields no frames takes its turns, too
        while self._hot and len(frames) < limit and turns:
            turns -= 1
            socket = self._hot.pop(next(iter(self._hot)))
            if socket.take(limit, frames) or (outboxes and self._stirs(socket)):
                self._heat(socket)  # there may be more: last in turn
        if unread is not None and unread.spoken is not None:
            unread.judge(emptied=LISTENER not in self._hot)
        self.counts.received += len(frames)
        return frames

    def wait(self, timeout_s: float, more_fds: Sequence[int] = ()) -> bool:
        """Sleep until a frame is here, one of `more_fds` is readable or `wake` is called: True.

        False after `timeout_s` seconds, be they microseconds; after `LOOK_S` where connections are watched. A `wake`
        from before the call counts.
        """
        self._check_open()
        if self._unread:
            timeout_s = min(timeout_s, LOOK_S if self._unread.spoken is None else SOON_S)
        deadline = time.monotonic() + timeout_s
        fds = (self._waker.fileno(), *self._watched.sleepers(), *more_fds)
        while not self._has_input():
            left = deadline - time.monotonic()
            ready = self._sleeper.ready(fds, min(left, self.outboxes.due_in))
            if self._sort(ready):
                return True
            if not ready and time.monotonic() >= deadline:
                return False
        return True

    def descriptors(self) -> tuple[int, ...]:
        """Return what ends a sleep elsewhere as it ends `wait`; nothing: there is something now."""
        self._check_open()
        if self._waker.called:
            self._waker.clear()
            return ()
        return () if self._has_input() else (self._waker.fileno(), *self._watched.sleepers())

    def wake(self) -> None:
        """End the loop's wait, or its next one. The only call for any thread."""
        self._waker.wake()

    def close(self, drain_s: float = 0.0) -> None:
        """Close every socket; libzmq has up to `drain_s` seconds for what it holds. Again: nothing."""
        if self._closed:
            return
        steps: list[Step] = [("what was to leave", self.flush)]
        failed = run_all(steps)
        self._closed = True
        self._end.detach()
        failed |= run_all([
            ("descriptors", self._watched.close), ("sockets", lambda: _end(self._context, self._sockets, drain_s)),
            ("the waker", self._waker.close),
        ])  # fmt: skip
        for table in (self._sockets, self._by_fd, self._hot, self._standing, self._gone):
            table.clear()
        raise_exit(failed)
        if failed:
            raise ControlError(f"the control plane is closed, but not all went well: {failures(failed)}")

    def _check_open(self) -> None:
        if self._closed:
            msg = "this Control is closed: make a new one"
            raise ControlError(msg)

    def _listen(self, bind: str) -> None:
        try:
            check_keys(bind, self._keys, insecure=self._insecure)
            self._gate = Gate(self._context, self._keys, self.counts.away)
            self._add(self._gate)
            unread = Unread(self.max_frame, self.counts.away)
            socket, handshakes, self.address = listen(
                self._context, bind, self.max_frame, self._keys, self.counts.away, unread, self._unanswered
            )  # fmt: skip
        except ControlError:
            self.close()
            raise
        self._unread = unread
        self._add(handshakes)
        self._add(socket)

    def _add(self, socket: Polled) -> None:
        self._sockets[socket.number] = self._by_fd[socket.fd] = socket
        self._watched.add(socket.fd)
        self._heat(socket)

    def _remove(self, socket: Polled) -> None:
        del self._sockets[socket.number], self._by_fd[socket.fd]
        self._watched.remove(socket.fd)
        self._hot.pop(socket.number, None)
        socket.close(LAST_WORD_S)

    def _heat(self, socket: Polled) -> None:
        self._hot[socket.number] = socket

    def _post(self, peer: Peer, frames: Sequence[bytes]) -> Sent:
        """One message into libzmq's window."""
        socket = self._sockets.get(peer.link)
        if not isinstance(socket, ControlSocket):
            return Sent.GONE
        self._hot[socket.number] = socket
        # The socket is hot from here on: libzmq signals each change once, and a send may consume an arrival's signal.
        sent = socket.post(peer.name, frames)
        if sent is Sent.GONE:
            self._gone[peer] = None
            # Bounded, the oldest first: names of peers that connect to us come from outside.
            if len(self._gone) > GONE_KEPT:
                del self._gone[next(iter(self._gone))]
        elif self._gone:
            self._gone.pop(peer, None)
        return sent

    def _stirs(self, socket: PolledSocket) -> bool:
        """Whether a socket without frames has to be looked at again: what waits for room in it is moved on."""
        peer = _peer_of(socket)
        if peer not in self.outboxes:
            return False
        self.outboxes.move(peer)
        return self._news(socket) != 0

    def _news(self, socket: PolledSocket) -> int:
        """Return POLLIN if the socket has frames, POLLOUT if it takes waiting ones; 0: it is cold."""
        wanted = POLLIN | POLLOUT if _peer_of(socket) in self.outboxes else POLLIN
        news = socket.events() & wanted
        if not news:
            self._hot.pop(socket.number, None)
        return news

    def _has_input(self) -> bool:
        """Whether a hot socket has a frame; sockets without frames and room become cold."""
        self.outboxes.flush()
        for socket in tuple(self._hot.values()):
            while news := self._news(socket):
                if news & POLLIN:
                    return True
                self.outboxes.move(_peer_of(socket))
        return False

    def _sort(self, ready: list[int]) -> bool:
        """Whether anything but a socket is ready, which ends the sleep; heat the sockets that are ready."""
        other, watched = False, self._watched.sleepers()
        for fd in ready:
            if fd in watched:
                continue
            other = True
            if fd == self._waker.fileno():
                self._waker.clear()
        if not other:
            for fd in self._watched.ready():
                self._heat(self._by_fd[fd])
        return other


def _peer_of(socket: PolledSocket) -> Peer:
    """The one at the other end; for a socket that has several, or none, nobody."""
    return (socket.peer if isinstance(socket, ControlSocket) else None) or NOBODY


def _end(context: zmq.Context[zmq.Socket[bytes]], sockets: dict[int, Polled], drain_s: float = 0.0) -> None:
    """Close all sockets, also of a dropped Control, whose context would else wait for them for ever."""
    for socket in sockets.values():
        socket.close(drain_s)
    context.term()

"""Simulated control plane: frames under way, whose order and fate is somebody's choice.

What is on a connection's way arrives in order, unless the schedule has it otherwise: a way can be held, and a frame on
it lost, repeated, or moved to the front. Two kinds of control plane put their frames here:

* a real one (`tap`): frames travel through its ZeroMQ sockets, and are kept here between the socket and the loop.
  `settle` waits until every frame that was sent has come out of a socket, so that the schedule, and not the network's
  timing, decides what a loop sees: the same choices give the same run.
* `SimulatedControl`: no socket at all, only the same contract; for simulations of thousands of rooms.  Its frames are
  numbered as their senders number their messages, so that traces know each copy whatever the schedule does to it.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Hashable
from contextlib import suppress

from kvproto.fsm.codec import WireError
from kvproto.fsm.copies import CopyNumbers
from kvproto.io.control.control import Control, Peer, Sent
from kvproto.protocol.codec import decode

TICK_S, PATIENCE_S = 20e-6, 10.0
Frame = bytes


class NumberedFrame(bytes):
    """A frame with its number among all that its sender sent this way (0: a call, or no rank's)."""

    number = 0


class HandedNumbers(CopyNumbers):
    """The numbers of what one rank hears: those of the frames that it is handed."""

    __slots__ = ("handed",)

    def __init__(self) -> None:
        super().__init__()
        self.handed = 0

    def count(self, way: Hashable, era: int = 0) -> int:
        return self.handed


#: (who receives, the sender as the receiver knows it)
Way = tuple[int, Peer]


class SimulatedNetwork:
    """All frames between the control planes that have joined."""

    def __init__(self) -> None:
        self.queues: dict[Way, deque[Frame]] = {}
        self.held: set[Way] = set()
        self.nodes: dict[int, SimulatedControl] = {}
        self.joined = 0
        #: who is told of each frame that a loop takes: (receiver, sender, frame)
        self.witness: Callable[[int, Peer, Frame], None] | None = None
        self._numbers = CopyNumbers()
        self._real: dict[int, tuple[Control, Callable[[int], list[tuple[Peer, bytes]]]]] = {}

    def join(self) -> int:
        """A number for one more control plane; never used again."""
        self.joined += 1
        return self.joined

    def tap(self, control: Control, known: list[Peer]) -> None:
        """Keep what this control plane receives from now on; `known`: the peers it has, in an order that is no
        accident, which is the order in which frames are handed out."""
        number = self.join()
        self._real[number] = control, control.receive
        for peer in known:
            self.queues[number, peer] = deque()
        control.receive = lambda limit: self.take(number, limit)  # type: ignore[method-assign]

    def settle(self) -> None:
        """Wait until all that was sent through sockets is here; AssertionError if it does not come."""
        deadline = time.monotonic() + PATIENCE_S
        while self._real:
            for number, (_, receive) in self._real.items():
                for peer, frame in receive(256):
                    self.put((number, peer), frame)
            counts = [control.counts for control, _ in self._real.values()]
            waiting = any(control.outboxes for control, _ in self._real.values())
            if not waiting and sum(count.sent for count in counts) == sum(count.received for count in counts):
                return
            assert time.monotonic() < deadline, "frames that were sent did not arrive"
            time.sleep(TICK_S)

    # ------------------------------------------------------------------------------------------ frames
    def put(self, way: Way, frame: Frame) -> None:
        self.queues.setdefault(way, deque()).append(frame)

    def number(self, way: Way, frame: Frame) -> NumberedFrame:
        made = NumberedFrame(frame)
        with suppress(WireError):
            epoch, room, _ = decode(frame)
            made.number = self._numbers.count((way, bool(room)), epoch) if epoch else 0
        return made

    def take(self, number: int, limit: int) -> list[tuple[Peer, bytes]]:
        """Return this control plane's next frames, up to `limit`, way by way."""
        frames: list[tuple[Peer, bytes]] = []
        for way in [way for way in self.queues if way[0] == number and way not in self.held]:
            queue = self.queues[way]
            while queue and len(frames) < limit:
                frames.append((way[1], queue.popleft()))
                if self.witness is not None:
                    self.witness(number, *frames[-1])
        return frames

    def busy(self) -> list[Way]:
        return [way for way, queue in self.queues.items() if queue]

    def lose(self, way: Way, at: int) -> None:
        del self.queues[way][at % len(self.queues[way])]

    def repeat(self, way: Way, at: int) -> None:
        """A frame comes once more, after the others."""
        self.queues[way].append(self.queues[way][at % len(self.queues[way])])

    def hurry(self, way: Way, at: int) -> None:
        """A frame overtakes the others."""
        queue = self.queues[way]
        frame = queue[at % len(queue)]
        del queue[at % len(queue)]
        queue.appendleft(frame)

    def hold(self, way: Way) -> None:
        """Nothing on this way arrives until it is let go; or let it go."""
        self.held ^= {way}

    def leave(self, control: SimulatedControl) -> None:
        """A control plane without sockets is gone, with all its connections."""
        self.nodes.pop(control.number, None)
        names = {(control.number, peer) for peer in control.routes} | set(control.routes.values())
        for way in [way for way in self.queues if way[0] == control.number or way in names]:
            del self.queues[way]
            self.held.discard(way)


class SimulatedControl(Control):
    """The contract of `Control`, carried by a post."""

    def __init__(self, post: SimulatedNetwork, bind: str | None) -> None:
        super().__init__(None)
        self.post, self.number = post, post.join()
        self.address = f"post:{self.number}" if bind is not None else None
        #: where frames to a peer go
        self.routes: dict[Peer, Way] = {}
        post.nodes[self.number] = self

    def connect(self, address: str) -> Peer:
        """Connect to the control plane of this address, if it lives; else what is sent stays unread."""
        peer = Peer(len(self.routes) + 1, b"")
        name = Peer(0, f"{self.number}.{peer.link}".encode())
        target = int(address.removeprefix("post:"))
        self.routes[peer] = target, name
        if target in self.post.nodes:
            self.post.nodes[target].routes[name] = self.number, peer
        return peer

    def send(self, peer: Peer, data: bytes, *, urgent: bool = False, later: bool = False) -> Sent:
        """Put a frame on its way; it may overtake others anyway, as the schedule says."""
        way = self.routes.get(peer)
        if way is None or (way[0] not in self.post.nodes and not peer.link):
            return Sent.GONE
        if way[0] in self.post.nodes:
            self.post.put(way, self.post.number(way, data))
        return Sent.TAKEN

    def receive(self, limit: int) -> list[tuple[Peer, bytes]]:
        return self.post.take(self.number, limit)

    def stands(self, peer: Peer) -> bool:
        """A schedule has no connections: whoever misses beats in it is gone."""
        return False

    def wait(self, timeout_s: float, more_fds: object = ()) -> bool:
        """There is nothing to wait for: a schedule drives the loop."""
        return True

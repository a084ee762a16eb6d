"""Bare rooms: a room's messages and its write by hand, and their processor time.

It is the floor of what an endpoint's room takes: nothing of a protocol is around them.  A side is one thread with the
control plane and the transport that endpoints have.  The decode side says that a room is open; the prefill side answers
and asks for a region; it is given one, and posts a write that was made ready before; the decode side hears of it, and
says so.  Nothing is decided, kept, gathered or scattered, and no engine's thread is woken.  Between events a side
sleeps as a loop does.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from kvproto.io.control.control import LOOPBACK, Control, Peer
from kvproto.io.transports.base import Arrived, Completed, WritePart
from kvproto.io.transports.nixl import NixlTransport
from kvproto.io.transports.regions import bulk
from kvproto.lab.bench.control_side import AT_WORK, LONGEST_S
from kvproto.loop.event_loop import FAST, LIMIT, SLOW

#: bytes of a write: those of a room of `kvproto bench control`
NBYTES = 2048
#: frames as long as a room's: that it is open; the answer, the request and an aux row; the grant; the last word
OPEN, ASKED, GRANT, OVER = b"o" * 28, (b"a" * 21, b"q" * 36, b"x" * 27), b"g" * 49, b"e" * 25


class BareRooms:
    """One side."""

    def __init__(self, side: str, cuda: bool) -> None:
        self.prefill = side == "p"
        device = f"cuda:{0 if self.prefill else torch.cuda.device_count() - 1}" if cuda else "cpu"
        self.buffer = torch.zeros(AT_WORK * NBYTES, dtype=torch.uint8, device=device)
        self.control, self.transport = Control(LOOPBACK) if self.prefill else Control(), NixlTransport(maps=False)
        self.region = self.transport.register(
            self.buffer.data_ptr(), len(self.buffer), "VRAM" if cuda else "DRAM", max(self.buffer.get_device(), 0)
        )
        self.peer: Peer | None = None

    def idle(self) -> None:
        self.transport.poll()
        self.control.wait(1e-3)

    def end(self) -> None:
        self.transport.close()
        self.control.close()

    def address(self) -> tuple[str | None, bytes]:
        return self.control.address, self.transport.endpoint()

    def meet(self, address: str | None, endpoint: bytes) -> None:
        if self.prefill:
            self.target = self.transport.connect(endpoint)
            self.transport.warm(self.target)
        else:
            assert address is not None
            self.peer = self.control.connect(address)

    def spend(self, rooms: int, rate: float, begin: float) -> float:
        """Carry so many rooms, `rate` a second (0: as fast as they go), from `begin` on.

        Returns processor seconds a room.
        """
        time.sleep(max(0.0, begin - time.perf_counter()))
        spent = time.process_time()
        (self._write if self.prefill else partial(self._read, rate=rate))(rooms)
        return (time.process_time() - spent) / rooms

    def _write(self, rooms: int) -> None:
        over, live = 0, set[Any]()
        part = WritePart(self.region, self.transport.remote(self.target, 0), bulk(0, 0, NBYTES))
        ready = [self.transport.prepare(self.target, [part], b"room") for _ in range(rooms)]

        def hear(frame: bytes) -> None:
            nonlocal over
            if frame == OPEN:
                for each in ASKED:
                    self._say(each)
            elif frame == GRANT:
                live.add(self.transport.post(ready.pop()))
            else:
                over += 1

        while over < rooms:
            self._pass(hear, LONGEST_S, flies=bool(live))
            live -= self.ended

    def _read(self, rooms: int, rate: float) -> None:
        opened = expected = over = 0
        begin = time.perf_counter()

        def hear(frame: bytes) -> None:
            nonlocal expected
            if frame == ASKED[1]:
                expected += 1
                self._say(GRANT)

        while over < rooms:
            due = rate * (time.perf_counter() - begin) if rate else rooms
            while opened < min(rooms, due) and opened - over < AT_WORK:
                opened += 1
                self._say(OPEN)
            left = (opened + 1) / rate - (time.perf_counter() - begin) if rate and opened < rooms else LONGEST_S
            self._pass(hear, max(0.0, left), flies=expected > over)
            for _ in range(self.arrived):
                over += 1
                self._say(OVER)
            self.control.flush()

    def _say(self, frame: bytes) -> None:
        assert self.peer is not None
        self.control.send(self.peer, frame, later=True)

    def _pass(self, hear: Callable[[bytes], None], longest: float, *, flies: bool) -> None:
        """Poll both until something comes, or for so many seconds."""
        self.control.flush()
        limit, pace = time.perf_counter() + longest, FAST
        while True:
            events, frames = self.transport.poll(), self.control.receive(LIMIT)
            self.ended = {event.handle for event in events if isinstance(event, Completed)}
            self.arrived = sum(isinstance(event, Arrived) for event in events)
            for self.peer, frame in frames:
                hear(frame)
            left = limit - time.perf_counter()
            if events or frames or left <= 0:
                self.control.flush()
                return
            self.control.wait(min(pace, left) if flies else left)
            pace = min(pace * 1.5, SLOW)

"""Transport ends: a rank with buffers here, and another one in this or another process.

Ranks poll by themselves in their process; an in-process one polls when it is asked something.  Their buffers are memory
that other processes can map.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from kvproto.io.transports.base import Arrived, Failed, Handle, MemoryRegion, Transport, TransportEvent
from kvproto.io.transports.host_memory import SharedMemory

T = TypeVar("T")
SIZE = 1 << 20
_IDLE_S = 0.00005
_spawn = multiprocessing.get_context("spawn")


class Rank:
    """A transport, its buffers, and its arrivals: each tag with the first buffer's sum at that moment."""

    def __init__(self, transport: Transport, size: int = SIZE) -> None:
        self.transport = transport
        self.buffers: list[npt.NDArray[np.uint8]] = []
        self.shared: list[SharedMemory] = []
        self.regions: list[MemoryRegion] = []
        self.log: list[tuple[str, bytes, int]] = []
        self.add(size)

    def add(self, size: int) -> int:
        """Register one more buffer; its region's index."""
        self.shared.append(SharedMemory(size))
        self.buffers.append(np.frombuffer(self.shared[-1].view, dtype=np.uint8))
        self.regions.append(self.transport.register(self.buffers[-1].ctypes.data, size))
        return self.regions[-1].index

    def drop(self, at: int) -> None:
        self.transport.deregister(self.regions[at])

    def forget(self, at: int) -> None:
        del self.buffers[at], self.regions[at], self.shared[at]

    def poll(self) -> list[TransportEvent]:
        """One poll of the transport; what has arrived is kept."""
        events = self.transport.poll()
        for event in events:
            if isinstance(event, Arrived):
                self.log.append((event.peer, event.tag, int(self.buffers[0].sum(dtype=np.uint64))))
        return events

    def endpoint(self) -> bytes:
        return self.transport.endpoint()

    def read(self, at: int, offset: int, nbytes: int) -> bytes:
        return self.buffers[at][offset : offset + nbytes].tobytes()

    def clear(self) -> None:
        for buffer in self.buffers:
            buffer[:] = 0
        self.log.clear()

    def arrived(self) -> list[tuple[str, bytes, int]]:
        """Return the arrivals since the last call: (peer, tag, sum of the first buffer)."""
        out, self.log = self.log, []
        return out

    def close(self) -> None:
        self.transport.close()


class LocalPeer:
    """A rank in this process, which polls when it is asked something."""

    def __init__(self, transport: Transport) -> None:
        self.rank = Rank(transport)

    def ask(self, name: str, *args: object) -> Any:
        self.rank.poll()
        return getattr(self.rank, name)(*args)

    def end(self) -> int:
        self.rank.close()
        return 0


def _serve(connection: Connection, make: Callable[[], Transport], size: int) -> None:
    rank = Rank(make(), size)
    connection.send("ready")
    while True:
        rank.poll()
        if not connection.poll(0):
            time.sleep(_IDLE_S)
            continue
        try:
            name, args = connection.recv()
        except EOFError:
            return
        connection.send(getattr(rank, name)(*args))
        if name == "close":
            return


class ProcessPeer:
    """A rank in a process of its own; `make`, a function of some module, makes its transport there.

    It can be stopped, continued and killed.
    """

    def __init__(self, make: Callable[[], Transport], size: int = SIZE) -> None:
        self._pipe, theirs = _spawn.Pipe()
        self.process = _spawn.Process(target=_serve, args=(theirs, make, size), daemon=True)
        self.process.start()
        theirs.close()

    def ready(self) -> ProcessPeer:
        assert self._pipe.poll(30), "the peer did not start"
        assert self._pipe.recv() == "ready"
        return self

    def ask(self, name: str, *args: object) -> Any:
        self._pipe.send((name, args))
        assert self._pipe.poll(20), f"the peer did not answer {name}"
        return self._pipe.recv()

    def signal(self, number: signal.Signals) -> None:
        assert self.process.pid is not None
        os.kill(self.process.pid, number)

    def stop(self) -> None:
        self.signal(signal.SIGSTOP)
        wait(lambda: _state(self.process.pid) == "T", "the peer to stop")

    def resume(self) -> None:
        self.signal(signal.SIGCONT)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        self.process.join(10)

    def end(self) -> int | None:
        """Close the rank, let the process end by itself, return its exit code."""
        if self.process.is_alive():
            self.ask("close")
        self.process.join(20)
        return self.process.exitcode


def _state(pid: int | None) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]


def wait(done: Callable[[], T], what: str, timeout_s: float = 15.0) -> T:
    """The first true answer of `done`, which is asked again and again."""
    deadline = time.monotonic() + timeout_s
    while not (answer := done()):
        assert time.monotonic() < deadline, f"waited {timeout_s} s for {what}"
        time.sleep(_IDLE_S)
    return answer


def drain(rank: Rank) -> list[TransportEvent]:
    """Poll until no write is under way: everything that was said meanwhile."""
    events: list[TransportEvent] = []

    def done() -> bool:
        events.extend(rank.poll())
        return not rank.transport.busy()

    wait(done, "all writes to end")
    return events


def failed(events: list[TransportEvent]) -> list[tuple[Handle, str, bool]]:
    """Each write that failed: the kind of its fault, and whether nothing of it moves any more."""
    return [(e.handle, e.error.kind, e.quiescent) for e in events if isinstance(e, Failed)]

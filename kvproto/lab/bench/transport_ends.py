"""The two ends of the transport benchmark: NIXL by itself, and the transport that endpoints use.

`NixlAgent` is a bare agent and nothing else: no table of regions, no outcomes, no checks. With `thread` NIXL's own
progress thread runs on both sides; without it whoever waits polls. `KvprotoTransport` is `NixlTransport`, which never
has the thread.

The target is a process of its own. It polls, as a decode rank does, notes when a tag arrives, and compares its memory
when it is asked to.
"""

from __future__ import annotations

import os
import pickle
import time
import uuid
from typing import Any, Literal, Protocol

import numpy as np
import torch

from kvproto.io.transports import Completed
from kvproto.io.transports.base import Arrived
from kvproto.io.transports.nixl import NixlTransport
from kvproto.io.transports.nixl_load import load
from kvproto.lab.bench.pools import MARKER, seeded_bytes

SEED = 1
How = Literal["ours", "polled", "thread"]
Rows = np.ndarray[Any, Any]


def order(nbytes: int, pieces: int) -> Rows:
    """Descriptors that put piece i of the source to a random place."""
    size = nbytes // pieces
    starts = np.arange(pieces, dtype=np.uint64) * np.uint64(size)
    places = np.random.default_rng(pieces).permutation(pieces).astype(np.uint64) * np.uint64(size)
    return np.stack([starts, places, np.full(pieces, size, np.uint64)], 1)


class End(Protocol):
    """A registered memory, and what moves it."""

    memory: torch.Tensor

    def endpoint(self) -> bytes: ...
    def connect(self, endpoint: bytes) -> None: ...
    def write(self, rows: Rows, tag: bytes) -> None:
        """Post, and poll to the end."""

    def arrived(self) -> list[bytes]:
        """Tags that came since the last call; this also makes progress."""

    def close(self) -> None: ...


class KvprotoTransport:
    """The transport that endpoints use."""

    def __init__(self, memory: torch.Tensor) -> None:
        self.memory, self.transport = memory, NixlTransport()
        kind: Literal["DRAM", "VRAM"] = "VRAM" if memory.is_cuda else "DRAM"
        place = max(memory.get_device(), 0)
        self.source = self.transport.register(memory.data_ptr(), memory.numel(), kind, place)
        self.peer: Any = None

    def endpoint(self) -> bytes:
        return self.transport.endpoint()

    def connect(self, endpoint: bytes) -> None:
        self.peer = self.transport.connect(endpoint)
        self.transport.warm(self.peer, 5.0)

    def write(self, rows: Rows, tag: bytes) -> None:
        handle = self.transport.write(self.peer, self.source, self.transport.remote(self.peer, 0), rows, tag)
        while Completed(handle) not in self.transport.poll():
            os.sched_yield()

    def arrived(self) -> list[bytes]:
        return [event.tag for event in self.transport.poll() if isinstance(event, Arrived)]

    def close(self) -> None:
        self.transport.close()


class NixlAgent:
    """A bare agent."""

    def __init__(self, memory: torch.Tensor, *, thread: bool) -> None:
        self.memory, self.dev = memory, max(memory.get_device(), 0)
        api, self.nixl = load()
        strict = api.nixl_thread_sync_t.NIXL_THREAD_SYNC_STRICT
        config = api.nixl_agent_config(enable_prog_thread=thread, backends=[], sync_mode=strict)
        self.agent = api.nixl_agent(uuid.uuid4().hex, config)
        self.agent.create_backend("UCX", {})
        self.kind = self.nixl.VRAM_SEG if memory.is_cuda else self.nixl.DRAM_SEG
        row = [(memory.data_ptr(), memory.numel(), self.dev, "")]
        self.agent.register_memory(row, "VRAM" if memory.is_cuda else "DRAM")
        self.peer, self.theirs = "", (0, 0)

    def endpoint(self) -> bytes:
        return pickle.dumps((self.agent.get_agent_metadata(), self.memory.data_ptr(), self.dev))

    def connect(self, endpoint: bytes) -> None:
        blob, *theirs = pickle.loads(endpoint)  # noqa: S301  # of a process that this one has started
        name = self.agent.add_remote_agent(blob)
        self.peer = name.decode() if isinstance(name, bytes) else name
        self.theirs = theirs[0], theirs[1]

    def write(self, rows: Rows, tag: bytes) -> None:
        raw, nixl = self.agent.agent, self.nixl
        both = []
        for column, (addr, dev) in enumerate(((self.memory.data_ptr(), self.dev), self.theirs)):
            descs = np.empty((len(rows), 3), np.uint64)
            descs[:, 0], descs[:, 1], descs[:, 2] = rows[:, column] + np.uint64(addr), rows[:, 2], dev
            both.append(nixl.nixlXferDList(self.kind, descs))
        request = raw.createXferReq(nixl.NIXL_WRITE, *both, self.peer, tag, [])
        raw.postXferReq(request, b"")
        while raw.getXferStatus(request) != nixl.NIXL_SUCCESS:
            os.sched_yield()
        raw.releaseXferReq(request)

    def arrived(self) -> list[bytes]:
        return [tag for tags in self.agent.agent.getNotifs({}, []).values() for tag in tags]

    def close(self) -> None:
        """The agent goes with the process."""


def opened(nbytes: int, where: str, how: How) -> End:
    device = torch.device(where)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    memory = seeded_bytes((nbytes,), SEED, device)
    return KvprotoTransport(memory) if how == "ours" else NixlAgent(memory, thread=how == "thread")


def settle(memory: torch.Tensor) -> None:
    if memory.is_cuda:
        torch.cuda.synchronize(memory.device)


class Target:
    """The process that is written to, as a `BenchMember`."""

    def __init__(self, nbytes: int, where: str, how: How) -> None:
        self.nbytes, self.reached = nbytes, opened(nbytes, where, how)
        self.came: dict[bytes, float] = {}

    def idle(self) -> None:
        """Note when tags arrive."""
        for tag in self.reached.arrived():
            self.came[tag] = time.perf_counter()
        os.sched_yield()

    def endpoint(self) -> bytes:
        return self.reached.endpoint()

    def mark(self) -> None:
        self.reached.memory.fill_(MARKER)
        settle(self.reached.memory)

    def when(self, tag: bytes) -> float:
        """When the tag arrived; it may still be on its way."""
        limit = time.perf_counter() + 10.0
        while tag not in self.came:
            self.idle()
            if time.perf_counter() > limit:
                raise TimeoutError(f"no tag {tag!r} within 10 s")
        return self.came.pop(tag)

    def right(self, size: int, pieces: int) -> bool:
        """Whether the pieces are where they belong, and the marker everywhere else."""
        memory, rows = self.reached.memory, order(size, pieces)
        wanted, step = seeded_bytes((self.nbytes,), SEED, memory.device), int(rows[0, 2])
        places = torch.from_numpy((rows[:, 1] // rows[:, 2]).astype(np.int64)).to(memory.device)
        got = memory[: pieces * step]
        same = torch.equal(got.view(pieces, step)[places], wanted[: got.numel()].view(pieces, step))
        return same and bool(memory[got.numel() :].eq(MARKER).all())

    def end(self) -> None:
        self.reached.close()

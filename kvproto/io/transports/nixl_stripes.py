"""Large writes from host memory to host memory, in stripes that several threads copy.

Between two processes of one host NIXL's UCX copies inside the call that posts (cross-memory attach), with the one core
that makes the call: 4.5 GB/s on the host of two H200s, and no more with NIXL's own threads.  Two agents on two threads
carried 10 GB/s there, four 16, and eight 21, of eight cores.  So a write of that kind is cut: all of it but the last
page goes in stripes to workers, each a thread with an agent of its own, and when all of these are over the last page
goes by the transport's own agent, with the tag.  The loop that posts copies nothing, and goes on.

Memory that the peer shares (`host_memory`) is mapped here, and a worker copies its stripe there by itself.  What lies
on a device is a copy engine's, whether there are workers or none (`copy_engine`): it carries all but the end into
mapped memory, and that into the buffer here, from where it goes with the tag; where nothing is mapped it brings all of
it here, and then it is a write as others are.

A worker's agent writes and is never written to.  Who it is need not be told to anybody: it has our regions, and knows
peers by what they say of themselves.
"""

from __future__ import annotations

import contextlib
import ctypes
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from threading import Event
from typing import Any

import msgspec
import numpy as np

from kvproto.errors import Step, run_all

from .base import MemoryRegion, PeerId
from .copy_engine import CopyEngine, EngineCopy
from .endpoint import InstanceDescription
from .host_memory import Bytes, HostMaps
from .regions import Request

#: as many as carried most on a host of eight cores
WORKERS = 8
#: bytes of a stripe, at least
GRAIN = 1 << 20
#: what stripes begin at multiples of, and the bytes of the end, which go with the tag
PAGE = 4096
#: pieces of a write whose bytes are cut: as many as are posted together
PIECES = 64
#: seconds between two looks at a stripe that was not copied by posting it
TICK_S = 50e-6
#: how often, and at which intervals, a worker looks after it has let go of a peer
LOOKS, LOOK_S = 20, 2e-4


class StripedWrite:
    """A write with stripes in flight, and its rest: by an agent, or in stripes once more (`then`)."""

    __slots__ = ("_stripes", "tag", "tail", "then")

    def __init__(
        self, stripes: Sequence[Future[None] | EngineCopy], tail: Request, tag: bytes,
        then: Callable[[], StripedWrite] | None = None,
    ) -> None:  # fmt: skip
        self._stripes, self.tail, self.tag, self.then = stripes, tail, tag, then

    def over(self) -> bool:
        """Whether no stripe moves a byte any more."""
        return all(stripe.done() for stripe in self._stripes)

    def error(self) -> BaseException | None:
        """Return the first error of the stripes; None: there is none."""
        return next(filter(None, (stripe.exception() for stripe in self._stripes)), None)


class Stripes:
    """The workers of a transport.  What is not said to belong to them is called by the transport's owner."""

    def __init__(self, agents: list[Any], bindings: Any) -> None:
        """`agents`: NIXL's, each of a name that nobody else has, with a backend; `bindings`: NIXL's."""
        self._engine = CopyEngine()
        self._maps = HostMaps(self._engine.lock)
        self._agents, self._nixl, self._closed = agents, bindings, Event()
        self._workers = [ThreadPoolExecutor(1, thread_name_prefix="kvproto-stripes") for _ in agents]
        self._regs: dict[int, list[Any]] = {}

    def attach(self, region: MemoryRegion) -> None:
        """As the transport's own agent does it; raises NIXL's error."""
        if region.kind == "DRAM":
            row = [(region.addr, region.nbytes, region.dev, "")]
            done = self._regs[region.index] = []
            for agent in self._agents:  # one by one: what was done before one refuses is undone by `detach`
                done.append(agent.register_memory(row, region.kind))  # noqa: PERF401
        self._engine.attach(region)

    def detach(self, region: MemoryRegion) -> None:
        """The same."""
        regs = zip(self._agents, self._regs.pop(region.index, ()), strict=False)
        steps: list[Step] = [("the copy engine", partial(self._engine.detach, region))]
        steps += [(f"worker {at}", partial(agent.deregister_memory, reg)) for at, (agent, reg) in enumerate(regs)]
        left = run_all(steps)
        for error in left.values():  # the first; the others were tried
            raise error

    def link(self, new: InstanceDescription, *, maps: bool) -> None:
        """Link a peer that the transport's own agent has accepted; any thread.  Raises NIXL's error."""
        for agent in self._agents:
            agent.add_remote_agent(new.blob)
        if maps and (self._agents or self._engine):
            self._maps.open(PeerId(new.instance), new.regions)

    def unlink(self, peer: PeerId, errors: tuple[type[Exception], ...]) -> None:
        """Nothing is in flight to this peer, and nothing will be."""
        for worker, agent in zip(self._workers, self._agents, strict=True):
            with contextlib.suppress(*errors):
                agent.remove_remote_agent(peer)
            worker.submit(self._look, agent, errors)
        self._maps.close(peer)

    def lifts(self, region: MemoryRegion) -> bool:
        """Whether what is written from this region is taken from the device."""
        return self._engine.lifts((region.index,))

    def takes(self, request: Request) -> bool:
        """Whether it does not go by the transport's own agent as it is."""
        return self._engine.lifts(request.sources) or self._large(request)

    def start(self, peer: PeerId, request: Request, tag: bytes) -> StripedWrite | None:
        """Have the copy engine begin, or the workers; None: it lies on a device, and cannot be had from there."""
        if not self._engine.lifts(request.sources):
            return self._cut(peer, request, tag)
        near, tail, then = request.local.tolist(), request, None
        lifted = [(addr, nbytes) for addr, nbytes, _ in near if self._engine.twin(addr, nbytes) is not None]
        there = [self._maps.find(peer, addr, nbytes) for addr, nbytes, _ in request.remote.tolist()]
        into = [part.here.ctypes.data for part in there if part is not None and part.lock is not None]
        if len(lifted) == len(into) == len(near):
            rows = [(addr, to, nbytes) for (addr, nbytes), to in zip(lifted, into, strict=True)]
            addr, to, nbytes = rows.pop()
            most = (nbytes - 1) // PAGE * PAGE  # so that something is left for the end
            rows += [(addr, to, most), (addr + most, addr + most, nbytes - most)]
            tail = _part(request, -1, most, nbytes)
        else:
            rows = [(addr, addr, nbytes) for addr, nbytes in lifted]
            then = partial(self._cut, peer, request, tag) if self._large(request) else None
        copy = self._engine.start([row for row in rows if row[2]], there)
        return StripedWrite([copy], tail, tag, then) if copy is not None else None

    def _large(self, request: Request) -> bool:
        """Whether workers are worth it."""
        on_hosts = request.local_kind == request.remote_kind == "DRAM"
        few = on_hosts and bool(self._agents) and request.count <= PIECES
        return few and int(request.local[:, 1].sum()) >= 2 * GRAIN + PAGE

    def _cut(self, peer: PeerId, request: Request, tag: bytes) -> StripedWrite:
        """Have the workers begin."""
        sizes, stripes = request.local[:, 1].tolist(), list[Future[None]]()
        most = (sizes[-1] - 1) // PAGE * PAGE
        for at, end in enumerate((*sizes[:-1], most)):
            count = max(1, min(len(self._agents), end // GRAIN))
            cuts = [end * cut // count // PAGE * PAGE for cut in range(count)]
            for first, until in pairwise((*cuts, end)):
                if first < until:
                    stripes.append(self._stripe(len(stripes), peer, _part(request, at, first, until)))
        return StripedWrite(stripes, _part(request, -1, most, sizes[-1]), tag)

    def _stripe(self, number: int, peer: PeerId, request: Request) -> Future[None]:
        """Have a worker carry this piece, whichever it is."""
        (source, nbytes, _), (target, _, _) = request.local[0].tolist(), request.remote[0].tolist()
        there, worker = self._maps.find(peer, target, nbytes), number % len(self._agents)
        if there is None:
            return self._workers[worker].submit(self._carry, self._agents[worker], peer, request)
        return self._workers[worker].submit(self._copy, there.here, source)

    def _carry(self, agent: Any, peer: PeerId, request: Request) -> None:
        """On a worker's thread: one stripe, to its end."""
        if self._closed.is_set():
            return  # what has not begun does not begin any more
        raw, nixl = agent.agent, self._nixl
        local, remote = (nixl.nixlXferDList(nixl.DRAM_SEG, rows) for rows in (request.local, request.remote))
        handle = raw.createXferReq(nixl.NIXL_WRITE, local, remote, peer, b"", [])
        raw.postXferReq(handle, b"")
        while raw.getXferStatus(handle) != nixl.NIXL_SUCCESS:
            if self._closed.is_set():
                return  # it is stopped with its agent
            time.sleep(TICK_S)
        raw.releaseXferReq(handle)

    def _look(self, agent: Any, errors: tuple[type[Exception], ...]) -> None:
        """On a worker's thread: let the agent close dropped connections.

        A worker polls its agent only while it writes; else the sockets of a dead peer would stay half open.
        """
        with contextlib.suppress(*errors):
            for _ in range(LOOKS):
                if self._closed.is_set():
                    return
                agent.agent.getNotifs({}, [])
                time.sleep(LOOK_S)

    def _copy(self, to: Bytes, source: int) -> None:
        """On a worker's thread: one stripe into memory that is mapped; without the interpreter's lock."""
        if not self._closed.is_set():
            ctypes.memmove(to.ctypes.data, source, to.size)

    def close(self) -> None:
        """Stop what is in flight, and let go of everything."""
        self._closed.set()
        self._engine.close()
        for worker in self._workers:
            worker.shutdown()
        self._maps.close_all()
        self._agents.clear()
        self._regs.clear()


def make(agents: int, one: Callable[[str], Any], bindings: Any, name: str, *, maps: bool) -> Stripes | None:
    """Make the workers of a transport, each with an agent from `one`; None: none are needed."""
    return Stripes([one(f"{name}-{at}") for at in range(agents)], bindings) if agents or maps else None


def _part(request: Request, piece: int, first: int, end: int) -> Request:
    """The bytes [first, end) of a piece of a write."""
    local, remote = (rows[[piece]] for rows in (request.local, request.remote))
    for rows in (local, remote):
        rows[0, 0] += np.uint64(first)
        rows[0, 1] = end - first
    return msgspec.structs.replace(request, local=local, remote=remote)

"""Mooncake's TransferEngine over TCP (or RDMA): one-sided writes; the control plane carries the tags.

What the library does not say, and what follows from it here:

- A notification can be lost with a good return code. So none is used: `caps.native_notify` is False, and after
  `Completed` (which implies that the bytes are visible over there) the control plane sends the tag.
- Only `transfer_submit_write` with `transfer_check_status` can be polled; the batch calls block or spin a core, and a
  piece costs them no less. So a write is submitted piece by piece: a bounded number a poll, a bounded number in flight
  a peer (the engine fails what is beyond about 2,000, after writing part of it). The rest is queued.
- An id may be asked until its first answer; afterwards it reads as pending for ever.
- A failure carries no reason. If the peer answers no probe it is lost, and what was in flight to it is over. If it
  does answer, the write is in doubt, and stays so until the peer is lost or this transport is closed: time is no
  proof. A probe may block, so it runs on a thread of its own.
- There is no cancel. Pieces not yet submitted are dropped when a write fails or is abandoned.
- Local addresses are not checked over TCP: `regions.py` does. Remote ones are checked by the target, which survives.
- Peers are addresses, `host:port`. A new process that got a dead one's port is not told apart by the library: links
  above must compare instances before they write, as they do.

One engine a process, no fork after it started. The shared libraries libibverbs, libnuma and libcurl must be there.
"""

from __future__ import annotations

import os
import re
import threading
import uuid
from collections import deque
from typing import Any

from kvproto.call_arguments import checked

from .base import (
    BackendUnavailable,
    BadEndpoint,
    Fault,
    Handle,
    Kind,
    MemoryRegion,
    PeerGone,
    PeerId,
    PreparedWrite,
    TransportCaps,
    TransportError,
    UsageError,
)
from .endpoint import InstanceDescription
from .links import InFlightWrite, TransportLink
from .regions import Request
from .write_records import WriteRecords

MAX_TAG = 8192
MAX_DESCS = 1 << 17
MAX_INFLIGHT_DESCS = 1 << 18  # queued; the engine has WINDOW at a time
WINDOW = 512  # tasks a peer in the engine
SUBMITS_A_POLL = 32  # about 1 ms
_DONE, _PENDING = 1, 0
_HOST_AND_PORT = re.compile(rb"[A-Za-z0-9._:\[\]-]{1,255}:[0-9]{1,5}")

_running = threading.Lock()  # held by the one engine of this process


class _MooncakeWrite(InFlightWrite):
    __slots__ = ("failed", "ids", "pieces", "probe")

    def __init__(self, handle: Handle, peer: PeerId, request: Request) -> None:
        super().__init__(handle, peer, request)
        sides = (request.local[:, 0], request.remote[:, 0], request.local[:, 1])
        self.pieces = deque(zip(*(side.tolist() for side in sides), strict=True))  # not yet submitted
        self.ids: list[int] = []  # submitted, not yet answered
        self.failed = ""
        self.probe: _Probe | None = None


class _Probe(threading.Thread):
    """Asks whether a peer answers. `alive` is None until it is known."""

    def __init__(self, engine: Any, address: str) -> None:
        super().__init__(daemon=True, name="kvproto-probe")
        self.alive: bool | None = None
        self._engine, self._address = engine, address
        self.start()

    def run(self) -> None:
        self.alive = self._engine.send_probe(self._address) == 0


def _load() -> Any:
    os.environ.setdefault("MC_LOG_LEVEL", "ERROR")  # read at import
    try:
        from mooncake import engine
    except ImportError as error:
        raise BackendUnavailable(
            f"Mooncake cannot be imported ({error}): pip install 'kvproto[mooncake-cpu]', or mooncake-cuda12 or "
            "mooncake-cuda13 for GPU memory; all need the system's libibverbs1, libnuma1 and libcurl4"
        ) from error
    return engine


class _Engine:
    """The one engine of this process, which ends with the last transport that it serves."""

    def __init__(self, host: str, protocol: str, device: str) -> None:
        library = _load()
        if not _running.acquire(blocking=False):
            raise BackendUnavailable("this process has a Mooncake engine already: one a process, close it first")
        try:
            self.raw: Any = library.TransferEngine()
            status = self.raw.initialize(host, "P2PHANDSHAKE", protocol, device)
            self.address = f"{host}:{self.raw.get_rpc_port()}" if status == 0 else ""
        except BaseException:
            _running.release()  # the next one may be tried
            raise
        if status != 0:
            _running.release()
            raise BackendUnavailable(f"Mooncake does not start on {host} with {protocol}: status {status}")
        self.kinds: tuple[Kind, ...] = ("DRAM", "VRAM") if getattr(library, "SUPPORT_CUDA", False) else ("DRAM",)
        self._serves = 0

    def enter(self) -> Any:
        """Serve one transport more; returns the library's engine."""
        self._serves += 1
        return self.raw

    def leave(self) -> None:
        """Serve one transport less."""
        self._serves -= 1
        if not self._serves:
            self.raw = None
            _running.release()


class MooncakeTransport(WriteRecords[_MooncakeWrite]):
    """`host`: this process's address for peers. BackendUnavailable, also for a second engine."""

    @checked
    def __init__(
        self, host: str, instance: str | None = None, protocol: str = "tcp", device: str = "", *,
        engine: _Engine | None = None,
    ) -> None:  # fmt: skip
        """`engine`: a predecessor's, which serves this one, too."""
        self._shared = engine or _Engine(host, protocol, device)
        caps = TransportCaps("mooncake", self._shared.kinds, MAX_TAG, MAX_DESCS, MAX_INFLIGHT_DESCS, False, False)
        super().__init__(caps, PeerId(instance or uuid.uuid4().hex))
        self._host, self.address = host, self._shared.address
        self._engine: Any = self._shared.enter()
        self._tasks: dict[PeerId, int] = {}

    def successor(self) -> MooncakeTransport:
        return MooncakeTransport(self._host, engine=self._shared)

    def _attach(self, region: MemoryRegion) -> None:
        status = self._engine.register_memory(region.addr, region.nbytes)
        if status != 0:
            raise UsageError(f"Mooncake cannot register {region}: status {status}")

    def _detach(self, region: MemoryRegion) -> None:
        status = self._engine.unregister_memory(region.addr)
        if status:
            raise TransportError(f"Mooncake does not let go of {region}, and peers can still write there: {status=}")

    def _blob(self) -> bytes:
        return self.address.encode()

    # -- peers

    def _link(self, new: InstanceDescription) -> None:
        if self._engine.send_probe(_address(new)) != 0:
            raise PeerGone(f"{new.instance} does not answer at {_address(new)}: ask for a new endpoint")

    def _warm(self, link: TransportLink, _timeout_s: float) -> bool:
        """A write of no bytes fetches the peer's segment, which the first write would have to wait for."""
        local = next(iter(self._table.regions()), None)
        remote = next(iter(link.regions.values()), None)
        if local is None or remote is None:
            return False
        address = _address(link.endpoint)
        return bool(self._engine.transfer_sync_write(address, local.addr, remote.addr, 0) == 0)

    def _unlink(self, link: TransportLink) -> None:
        self._tasks.pop(link.peer, None)

    # -- writes

    def _post(self, handle: Handle, prepared: PreparedWrite) -> _MooncakeWrite:
        write = _MooncakeWrite(handle, prepared.peer, prepared.request)
        self._submit(prepared.link, write, SUBMITS_A_POLL)
        return write

    def _submit(self, link: TransportLink, write: _MooncakeWrite, budget: int) -> int:
        """Returns how many pieces were submitted."""
        tasks = self._tasks.get(link.peer, 0)
        started = len(write.ids)
        # Each piece is a call into the engine: bounded in a pass for the loop's sake, and for each peer by the window.
        for _ in range(min(budget, WINDOW - tasks, len(write.pieces))):
            task = self._engine.transfer_submit_write(_address(link.endpoint), *write.pieces.popleft())
            if task == 0:
                write.failed = "the engine took no more pieces"
                break
            write.ids.append(task)
        sent = len(write.ids) - started
        self._tasks[link.peer] = tasks + sent
        return sent

    def _progress(self) -> None:
        budget = SUBMITS_A_POLL
        for write in tuple(self._flights.values()):
            link = self._links.known(write.peer)
            self._ask(write)
            if write.failed or write.silent:  # those to a lost peer are silent
                write.pieces.clear()
            elif write.pieces:
                budget -= self._submit(link, write, budget)
            if not write.ids and not write.pieces:
                self._conclude(link, write)

    def _ask(self, write: _MooncakeWrite) -> None:
        pending = []
        for task in write.ids:
            status = self._engine.transfer_check_status(task)
            if status == _PENDING:
                pending.append(task)
            elif status != _DONE:
                write.failed = f"a piece ended with status {status}"
        self._tasks[write.peer] -= len(write.ids) - len(pending)
        write.ids = pending

    def _conclude(self, link: TransportLink, write: _MooncakeWrite) -> None:
        """Nothing of this write is in the engine any more."""
        if link.lost is not None:
            self._fail(write, link.lost, quiescent=True)
        elif not write.failed:
            self._complete(write)
        # A failed piece does not tell a dead peer from one whose regions have changed, so the peer is asked.
        elif write.probe is None:
            write.probe = _Probe(self._engine, _address(link.endpoint))
        elif write.probe.alive is not None:
            self._judge(write, alive=write.probe.alive)

    def _judge(self, write: _MooncakeWrite, *, alive: bool) -> None:
        if alive:
            doubt = Fault("in_doubt", f"{write.failed}; the peer is alive: its regions may have changed")
            self._fail(write, doubt, quiescent=False)
            return
        fault = Fault("peer_lost", f"{write.failed}; the peer does not answer")
        self._fail(write, fault, quiescent=True)
        self._lose(write.peer, fault)

    def _end(self) -> None:
        self._engine = None
        self._shared.leave()


def _address(endpoint: InstanceDescription) -> str:
    if not _HOST_AND_PORT.fullmatch(endpoint.blob):
        raise BadEndpoint(f"the endpoint of {endpoint.instance} has no address: {endpoint.blob[:64]!r}")
    return endpoint.blob.decode()

"""NIXL over UCX: one-sided writes between processes; the tag is NIXL's notification.

What the library does not say, and what follows from it here:

- The notification of a write is sent by the *sender's* status check, and wire-up and flush need the *target's*
  progress. So every live handle is checked at every poll, and targets poll too (`caps.needs_target_progress`).
- There is no cancel. Releasing a handle in flight succeeds and the bytes are sent all the same, read from a source
  that the caller believes free. So a handle is released only after DONE or an error; a write that is abandoned or in
  doubt stays on record and is polled until it comes to rest; only destroying the agent stops it.
- Target memory is not protected: a stale description is honoured, and over TCP a write into unmapped memory ends the
  target. So every write is checked against the peer's current region table first (`regions.py`).
- The progress thread spins a core and costs a quarter of NVLink's bandwidth: off. The owner's polls do the work.
- Without STRICT synchronisation two threads on one agent can hang a transfer for ever; `connect` and `warm` run on
  other threads, so STRICT is always on.
- Where no InfiniBand device exists, UCX's ib module makes the process crash at interpreter exit: it is switched off
  (`UCX_MODULES=^ib`). With InfiniBand, end worker processes with `os._exit` after `close`.
- Descriptors are numpy arrays: lists of tuples cost more than small copies do.
- Device memory: plain cudaMalloc; memory of expandable segments falls off a cliff over cuda_ipc.
- Between processes of one host a post may copy *inside* the call (cross-memory attach, the GIL released) and then
  needs nothing of a target that was reached before; over TCP, RDMA and NVLink it returns at once.

A peer's endpoint carries the agent's metadata, whose agent name is the instance id. A newer table of a known peer
is added to the old one by NIXL; what the peer has deregistered is refused by our own table. Before NIXL sees metadata
it is read here (`nixl_metadata`), for a few wrong bytes of it end the process.
"""

from __future__ import annotations

import contextlib
import logging
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from kvproto.call_arguments import checked
from kvproto.errors import Step, failures, raise_exit, run_all

from . import host_memory
from .base import (
    Arrived,
    BackendUnavailable,
    BadEndpoint,
    Fault,
    FaultKind,
    Handle,
    Kind,
    MemoryRegion,
    PeerGone,
    PeerId,
    PreparedWrite,
    StaleEndpoint,
    TransportCaps,
    TransportError,
    UsageError,
)
from .device_maps import DeviceMaps, share, uuid_of
from .endpoint import InstanceDescription
from .links import InFlightWrite, TransportLink
from .nixl_load import load
from .nixl_metadata import check, readable
from .page_lists import PageLists, PagesRequest
from .regions import Request
from .twin_writes import TwinWrite, TwinWrites
from .ucx_address import FormError
from .write_records import WriteRecords

_LOG = logging.getLogger("kvproto.security")
MAX_TAG = 8192  # one eager fragment
MAX_DESCS = 1 << 20
MAX_INFLIGHT_DESCS = 1 << 17  # posting one takes some 3 us: half a second in which the loop does nothing else
MAX_INDEX = (1 << 31) - 1  # NIXL counts the entries of a prepared list with 32 bits
_WARM_TICK_S = 0.0002
_MEMORY: tuple[Kind, ...] = ("DRAM", "VRAM")

# What an exception of a posted write says. Anything else is "backend".
_KINDS: dict[str, FaultKind] = {
    "nixlRemoteDisconnectError": "peer_lost",
    "nixlCancelledError": "peer_lost",
    "nixlBackendError": "peer_lost",
    "nixlUnknownError": "peer_lost",
    "nixlNotFoundError": "stale_endpoint",
    "nixlNotAllowedError": "stale_endpoint",
    "nixlInvalidParamError": "usage",
    "nixlMismatchError": "usage",
    "nixlNotPostedError": "usage",
    "nixlRepostActiveError": "busy",
}


class _NixlWrite(InFlightWrite):
    __slots__ = ("error", "raw", "twin")

    def __init__(
        self, handle: Handle, peer: PeerId, request: Request | PagesRequest, raw: int, error: Fault | None = None
    ) -> None:  # fmt: skip
        super().__init__(handle, peer, request)
        self.raw = raw
        self.error = error  # what posting it raised
        self.twin: TwinWrite | None = None  # what of it the copy engine carries before the rest


class NixlTransport(WriteRecords[_NixlWrite]):
    """One NIXL agent.  `instance` names it and must be new with every incarnation (default: a UUID).

    `params` are NIXL's parameters of the UCX backend; `maps`: kernels may reach peers' device memory on this host, and
    peers' kernels ours (`device_maps`), and copy engines host memory that is shared (`twin_writes`). Raises
    BackendUnavailable."""

    @checked
    def __init__(
        self, instance: str | None = None, params: Mapping[str, str] | None = None, *, maps: bool = True
    ) -> None:  # fmt: skip
        api, self._nixl = load()
        named = vars(self._nixl).values()
        self._errors: tuple[type[Exception], ...] = tuple(
            e for e in named if isinstance(e, type) and issubclass(e, Exception)
        )
        refusals: tuple[type[Exception], ...] = (RuntimeError, *self._errors)
        self._params = dict(params or {})
        name = PeerId(instance or uuid.uuid4().hex)
        # Without NIXL's progress thread all progress is made in `poll`, on the loop's thread, and nothing races with
        # it.
        config = api.nixl_agent_config(
            enable_prog_thread=False, backends=[], sync_mode=api.nixl_thread_sync_t.NIXL_THREAD_SYNC_STRICT
        )
        try:
            agent = api.nixl_agent(name, config)
            agent.create_backend("UCX", dict(self._params))
        except refusals as error:
            raise BackendUnavailable(f"NIXL's UCX backend does not start here: {error!r}") from error
        mems = agent.get_backend_mem_types("UCX")
        kinds: tuple[Kind, ...] = tuple(k for k in _MEMORY if f"{k}_SEG" in mems)
        super().__init__(TransportCaps("nixl", kinds, MAX_TAG, MAX_DESCS, MAX_INFLIGHT_DESCS, True, True), name)
        self._agent: Any = agent
        self._raw: Any = agent.agent
        self._mems = {"DRAM": self._nixl.DRAM_SEG, "VRAM": self._nixl.VRAM_SEG}
        self._regs: dict[int, Any] = {}
        self._maps = DeviceMaps() if maps else None
        self._twins = TwinWrites() if maps else None
        #: whether a peer's metadata is parsed here before NIXL loads it: this NIXL writes it in the form that is known
        self.checks_metadata = readable(self._blob())
        if not self.checks_metadata:
            _LOG.warning(
                "this release of NIXL, or its UCX_ settings, write metadata in a form that cannot be checked: a peer's "
                "metadata reaches NIXL unread, and can end this process (docs/security.md)"
            )

    def successor(self) -> NixlTransport:
        return NixlTransport(params=self._params, maps=self._maps is not None)

    # -- regions

    def _attach(self, region: MemoryRegion) -> None:
        row = [(region.addr, region.nbytes, region.dev, "")]
        try:
            self._regs[region.index] = self._agent.register_memory(row, region.kind)
            if self._twins is not None:
                self._twins.attach(region)
            if self._maps is not None and (shared := share(region) or host_memory.share(region)):
                self._shares[region.index] = shared, uuid_of(region.dev) if region.kind == "VRAM" else b""
        except BaseException as error:
            left = run_all(self._back(region))
            if isinstance(error, self._errors):
                more = f"; and it stays registered: {failures(left)}" if left else ""
                raise UsageError(f"NIXL cannot register {region}: {error!r}{more}") from error
            raise

    def _detach(self, region: MemoryRegion) -> None:
        left = run_all(self._back(region))
        raise_exit(left)
        if left:
            raise TransportError(f"NIXL does not let go of {region}: {failures(left)}")

    def _back(self, region: MemoryRegion) -> Iterator[Step]:
        """Yield the steps that undo the attachment of a region."""
        self._shares.pop(region.index, None)
        if self._twins is not None:
            yield "the copy engine", partial(self._twins.detach, region)
        if region.index in self._regs:
            yield "the agent", partial(self._agent.deregister_memory, self._regs.pop(region.index))

    def _blob(self) -> bytes:
        return bytes(self._agent.get_agent_metadata())

    # -- peers

    def _link(self, new: InstanceDescription) -> None:
        if self.checks_metadata:
            try:
                check(new.blob, new.instance, new.regions, self._blob())
            except FormError as error:
                raise BadEndpoint(f"the metadata of {new.instance} is not NIXL's: {error}") from error
        try:
            name = _text(self._agent.add_remote_agent(new.blob))
        except self._errors as error:
            kind = self._fault(error).kind
            if kind == "peer_lost":
                raise PeerGone(f"{new.instance} cannot be reached ({error!r}): ask for a new endpoint") from error
            if kind == "stale_endpoint":
                raise StaleEndpoint(f"NIXL knows {new.instance} by another connection: disconnect it first") from error
            raise BadEndpoint(f"NIXL cannot read the metadata of {new.instance}: {error!r}") from error
        # A peer that presents the metadata of another agent would receive that agent's writes.
        if name != new.instance:
            if self._links.get(PeerId(name)) is None:  # else it is a peer, and stays one
                self._agent.remove_remote_agent(name)
            raise BadEndpoint(f"the metadata is of agent {name!r}, the endpoint of {new.instance!r}")
        # Behind that check: what is mapped for a peer receives its writes as well.
        if self._twins is not None:
            self._twins.link(new)
        devices = [region.dev for region in self._table.regions() if region.kind == "VRAM"]
        if self._maps is not None and devices:
            self._maps.open(PeerId(new.instance), new.regions, devices[0])

    def maps(self, peer: PeerId) -> Mapping[int, int] | None:
        return self._maps.of(peer) if self._maps is not None else None

    def apart(self, peer: PeerId) -> bool | None:
        return self._maps.apart(peer) if self._maps is not None else None

    def elsewhere(self, peer: PeerId) -> bool:
        return self._maps is not None and self._maps.elsewhere(peer)

    def unmapped(self, peer: PeerId) -> str:
        return self._maps.why_not(peer) if self._maps is not None else ""

    def _warm(self, link: TransportLink, timeout_s: float) -> bool:
        """A write of no bytes: it completes when both ends have the wire up."""
        remote = next(iter(link.regions.values()), None)
        local = next((r for r in self._table.regions() if remote is not None and r.kind == remote.kind), None)
        if remote is None or local is None:
            return False
        row = [np.array([[r.addr, 0, r.dev]], dtype=np.uint64) for r in (local, remote)]
        request = Request(row[0], row[1], local.kind, remote.kind, (local.index,))
        raw = self._raw
        try:
            made = self._make(raw, link.peer, request, b"")
            write = self._start(raw, _NixlWrite(Handle(-1), link.peer, request, made))
        except self._errors:
            return False
        deadline = time.monotonic() + timeout_s
        while write.error is None and not self.closed and time.monotonic() < deadline:
            try:
                if raw.getXferStatus(write.raw) == self._nixl.NIXL_SUCCESS:
                    raw.releaseXferReq(write.raw)
                    return True
            except self._errors as error:
                write.error = self._fault(error)
            time.sleep(_WARM_TICK_S)
        # It may complete later, so it stays on record: releasing a request in flight would free memory in use.
        self._leave(write)
        return False

    def lifts(self, region: MemoryRegion) -> bool:
        return self._twins is not None and self._twins.lifts(region)

    def tell(self, peer: PeerId, tag: bytes) -> bool:
        link = self._links.get(peer)
        if link is None or link.lost is not None or not tag or len(tag) > MAX_TAG:
            return False
        try:
            # A failure is no fault: the notification then goes over the control plane.
            self._raw.genNotif(peer, tag)
        except self._errors:
            return False
        return True

    def _unlink(self, link: TransportLink) -> None:
        if self._maps is not None:
            self._maps.close(link.peer)
        with contextlib.suppress(*self._errors):  # what it does not let go of goes with the agent
            self._agent.remove_remote_agent(link.peer)
        if self._twins is not None:
            self._twins.unlink(link.peer)

    # -- writes

    def _prepare(self, prepared: PreparedWrite) -> int | Fault | None:
        """NIXL's handle, or why there cannot be one; None: the copy engine has to begin."""
        lifted = self._twins is not None and self._twins.takes(prepared.request)
        return None if lifted else self._handle(prepared)

    def _handle(self, prepared: PreparedWrite) -> int | Fault:
        try:
            return self._make(self._raw, prepared.peer, prepared.request, prepared.tag)
        except self._errors as error:
            fault = self._fault(error)
            if fault.kind == "peer_lost":
                return fault
            raised = StaleEndpoint if fault.kind == "stale_endpoint" else UsageError
            raise raised(f"NIXL refuses the write to {prepared.peer}: {error!r}") from error

    def _unprepare(self, raw: int | Fault) -> None:
        if not isinstance(raw, Fault):
            self._free(raw)

    def _post(self, handle: Handle, prepared: PreparedWrite) -> _NixlWrite:
        made = self._prepare(prepared) if prepared.raw is None else prepared.raw
        prepared.raw = None
        if made is None:
            assert self._twins is not None
            write = _NixlWrite(handle, prepared.peer, prepared.request, 0)
            write.twin = self._twins.start(prepared.peer, prepared.request, prepared.tag)
            if write.twin is None:
                write.error = Fault("backend", "what is to be written cannot be copied from the device")
            return write
        if isinstance(made, Fault):
            return _NixlWrite(handle, prepared.peer, prepared.request, 0, made)
        return self._start(self._raw, _NixlWrite(handle, prepared.peer, prepared.request, made))

    def _prep(self, lists: PageLists) -> tuple[int, int] | None:
        """NIXL's lists of both sides; None: this release has no lists with steps, or the peer is gone."""
        if len(lists.pieces) * max(lists.near, lists.far) > MAX_INDEX:
            return None
        first, made = lists.pieces[0], list[int]()
        errors: tuple[type[Exception], ...] = (TypeError, *self._errors)
        try:
            made.append(self._raw.prepXferDlist("", self._mems[first.src.kind], lists.rows("near"), []))
            made.append(self._raw.prepXferDlist(lists.peer, self._mems[first.dst.kind], lists.rows("far"), []))
        except errors as error:
            self._unprep(made)
            kind = self._fault(error).kind
            if kind == "peer_lost" or isinstance(error, TypeError):
                return None
            raised = StaleEndpoint if kind == "stale_endpoint" else UsageError
            raise raised(f"NIXL refuses the pages of {lists.peer}: {error!r}") from error
        return made[0], made[1]

    def _unprep(self, raw: Sequence[int]) -> None:
        for each in raw:
            with contextlib.suppress(*self._errors):  # what cannot be released is freed with the agent
                self._raw.releasedDlistH(each)

    def _make(self, raw: Any, peer: PeerId, request: Request | PagesRequest, tag: bytes) -> int:
        """Raises NIXL's error."""
        made: int
        if isinstance(request, PagesRequest):
            near, far = request.lists.raw
            # `False`: NIXL joins entries that follow one another on both sides
            made = raw.makeXferReq(
                self._nixl.NIXL_WRITE, near, request.indices("near"), far, request.indices("far"), tag, [], False
            )  # fmt: skip
            return made
        descs = self._nixl.nixlXferDList
        local = descs(self._mems[request.local_kind], request.local)
        remote = descs(self._mems[request.remote_kind], request.remote)
        made = raw.createXferReq(self._nixl.NIXL_WRITE, local, remote, peer, tag, [])
        return made

    def _start(self, raw: Any, write: _NixlWrite) -> _NixlWrite:
        """Post the write; keep an error for the next poll."""
        try:
            raw.postXferReq(write.raw, b"")
        except self._errors as error:
            write.error = self._fault(error)
        return write

    def _progress(self) -> None:
        self._receive()
        lost: dict[PeerId, Fault] = {}
        for write in tuple(self._flights.values()):
            fault = self._check(write)
            if fault is not None and fault.kind == "peer_lost":
                lost.setdefault(write.peer, fault)
        # After all outcomes of this poll: what is known to be complete must not be reported in doubt.
        for peer, fault in lost.items():
            self._lose(peer, fault)

    def _receive(self) -> None:
        try:
            notes = self._raw.getNotifs({}, [])
        except self._errors as error:  # the agent itself is broken: no peer can be reached through it
            for link in self._links.all():
                self._lose(link.peer, self._fault(error))
            return
        for name, tags in notes.items():
            self._events.extend(Arrived(PeerId(name), tag) for tag in tags)

    def _check(self, write: _NixlWrite) -> Fault | None:
        """This also sends the notification of a write that is through."""
        if write.twin is not None and not self._joined(write, write.twin):
            return None
        fault = write.error if not write.raw else None
        try:
            if fault is None and self._raw.getXferStatus(write.raw) != self._nixl.NIXL_SUCCESS:
                return None
        except self._errors as error:
            fault = write.error or self._fault(error)
        if fault is not None:
            self._release(write)
            self._fail(write, fault, quiescent=True)
            return fault
        self._release(write)
        self._complete(write)
        return None

    def _joined(self, write: _NixlWrite, twin: TwinWrite) -> bool:
        """Whether its copy is over; then what is left of it is posted, or is not."""
        if not twin.copy.done():
            return False
        write.twin, error = None, twin.copy.exception()
        lost = self._links.known(write.peer).lost
        if error is not None or lost is not None:
            write.error = self._fault(error) if error is not None else lost
            return True
        try:
            write.raw = self._make(self._raw, write.peer, twin.tail, twin.tag)
            self._start(self._raw, write)
        except self._errors as refused:
            write.error = self._fault(refused)
        return True

    def _release(self, write: _NixlWrite) -> None:
        if write.raw:
            self._free(write.raw)

    def _free(self, raw: int) -> None:
        with contextlib.suppress(*self._errors):  # what cannot be released is freed with the agent
            self._raw.releaseXferReq(raw)

    def _fault(self, error: BaseException) -> Fault:
        name = type(error).__name__
        return Fault(_KINDS.get(name, "backend"), f"{name}: {error}")

    def _end(self) -> None:
        """Peers are told to forget us only if nothing is in flight; destroying the agent stops what is."""
        left = run_all(self._last_steps())
        self._regs.clear()
        self._agent = self._raw = None
        raise_exit(left)
        if left:
            raise TransportError(f"NIXL did not do all that its end asks for: {failures(left)}")

    def _last_steps(self) -> Iterator[Step]:
        if self._twins is not None:
            yield "the copy engine", self._twins.close
        if not self._flights and not self._links.held():
            for link in self._links.all():
                yield f"forgetting {link.peer}", partial(self._agent.remove_remote_agent, link.peer)
            for index, reg in self._regs.items():
                yield f"region {index}", partial(self._agent.deregister_memory, reg)
        if self._maps is not None and not self._kernels:
            yield "what is mapped", self._maps.close_all


def _text(name: bytes | str) -> str:
    return name.decode(errors="replace") if isinstance(name, bytes) else name

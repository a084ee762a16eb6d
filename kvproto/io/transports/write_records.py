"""Write records: the writes in flight, and the one outcome that each of them gets.

Regions and peers are in `peers_and_regions`. A backend adds hooks that touch its library; what is pinned, what is
reported and what is still in motion is decided here, once. A write's life in the records:

    posted ──> Completed                          out of the records
           ├─> Failed(quiescent=True)             out of the records
           └─> Failed(quiescent=False), abandon   silent: stays, polled and pinned, until it settles; nothing reported

After `close` the events that are left can still be polled, so that every write has its outcome.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from threading import get_ident
from typing import Any, Generic, TypeVar

import numpy.typing as npt

from kvproto.errors import Step, failures, raise_exit, run_all
from kvproto.io.ticket import Ticket

from .base import (
    Busy,
    Completed,
    Failed,
    Fault,
    Handle,
    MemoryRegion,
    PeerId,
    PeerLost,
    PreparedWrite,
    RemoteRegion,
    TransportCaps,
    TransportError,
    TransportEvent,
    UsageError,
    WritePart,
)
from .links import InFlightWrite, KernelWrite
from .page_lists import PageLists, PageNumbers, PagePiece, PagesRequest
from .peers_and_regions import PeersAndRegions
from .regions import as_descs, request

_DRAIN_TICK_S = 0.0005

F = TypeVar("F", bound=InFlightWrite)


class WriteRecords(PeersAndRegions, Generic[F]):
    """Implements `Transport` on top of the hooks here and in `PeersAndRegions`."""

    def __init__(self, caps: TransportCaps, instance: PeerId) -> None:
        super().__init__(caps, instance)
        self._flights: dict[Handle, F] = {}
        #: those that kernels do, in the order in which they were launched
        self._kernels: dict[Handle, KernelWrite] = {}
        self._strays: deque[F] = deque()  # writes that another thread left in flight, for the owner to take over
        self._events: list[TransportEvent] = []
        self._next = 0

    # -- writes

    def write(self, peer: PeerId, src: MemoryRegion, dst: RemoteRegion, descs: npt.ArrayLike, tag: bytes) -> Handle:
        return self.write_many(peer, (WritePart(src, dst, as_descs(descs)),), tag)

    def write_many(self, peer: PeerId, parts: Sequence[WritePart], tag: bytes) -> Handle:
        prepared = self._checked(peer, parts, tag)
        return self._launch(prepared)

    def prepare(self, peer: PeerId, parts: Sequence[WritePart], tag: bytes) -> PreparedWrite:
        return self._made_ready(self._checked(peer, parts, tag))

    def post(self, prepared: PreparedWrite) -> Handle:
        self._check_open()
        link = self._links.get(prepared.peer)
        pages = prepared.pages
        # Regions changed on either side since: the addresses that were checked may be another region's now.
        if (
            link is not prepared.link or prepared.tables != (link.regions, self._table.serial)
            or (pages is not None and pages[0].link is not link)
        ):  # fmt: skip
            self.drop(prepared)
            if pages is not None:
                return self.write_pages(*pages, prepared.tag)
            prepared = self._checked(prepared.peer, prepared.parts, prepared.tag)
        return self._launch(prepared)

    def drop(self, prepared: PreparedWrite) -> None:
        self._check_owner()
        if prepared.raw is not None and not self.closed:
            self._unprepare(prepared.raw)
        prepared.raw = None

    def page_lists(self, peer: PeerId, pieces: Sequence[PagePiece]) -> PageLists:
        self._check_open()
        lists = PageLists(peer, tuple(pieces))
        self._lay(lists)
        return lists

    def write_pages(self, lists: PageLists, near: PageNumbers, far: PageNumbers, tag: bytes) -> Handle:
        return self._launch(self._of_pages(lists, near, far, tag))

    def prepare_pages(self, lists: PageLists, near: PageNumbers, far: PageNumbers, tag: bytes) -> PreparedWrite:
        return self._made_ready(self._of_pages(lists, near, far, tag))

    def _made_ready(self, prepared: PreparedWrite) -> PreparedWrite:
        if prepared.link.lost is None:
            prepared.raw = self._prepare(prepared)
        return prepared

    def _of_pages(self, lists: PageLists, near: PageNumbers, far: PageNumbers, tag: bytes) -> PreparedWrite:
        self._check_open()
        link = self._links.known(lists.peer)
        # Regions changed on either side since: the addresses that were checked may be another region's now.
        if link.lost is None and (lists.link is not link or lists.tables != (link.regions, self._table.serial)):
            self._lay(lists)
        if len(tag) > self.caps.max_tag:
            raise UsageError(f"tag of {len(tag)} bytes; {self.caps.backend} carries at most {self.caps.max_tag}")
        pages = PagesRequest(lists, near, far, self.caps)
        request = pages.laid() if lists.raw is None else pages
        return PreparedWrite(lists.peer, (), tag, link, request, lists.tables, pages=(lists, near, far))

    def drop_lists(self, lists: PageLists) -> None:
        self._check_owner()
        if lists.raw is not None and not self.closed:
            self._unprep(lists.raw)
        lists.raw = None
        if lists.link is not None:
            lists.link.lists.remove(lists)
        lists.link = None

    def disconnect(self, peer: PeerId) -> None:
        link = self._links.get(peer)
        if link is not None and not (link.writes or link.strays):
            for lists in tuple(link.lists):
                self.drop_lists(lists)
        super().disconnect(peer)

    def _unlist(self, region: MemoryRegion) -> None:
        for link in self._links.all():
            for lists in [lists for lists in link.lists if region.index in lists.sources]:
                self.drop_lists(lists)

    def _lay(self, lists: PageLists) -> None:
        """Check the pieces against the tables of now, and have the backend prepare them."""
        link = self._links.known(lists.peer)
        lists.fit(self._table, link.regions)
        self.drop_lists(lists)
        lists.raw = self._prep(lists)
        lists.link, lists.tables = link, (link.regions, self._table.serial)
        link.lists.append(lists)

    def _checked(self, peer: PeerId, parts: Sequence[WritePart], tag: bytes) -> PreparedWrite:
        self._check_open()
        link = self._links.known(peer)
        checked = request(parts, tag, self._table, link.regions, self.caps)
        return PreparedWrite(peer, parts, tag, link, checked, (link.regions, self._table.serial))

    def _launch(self, prepared: PreparedWrite) -> Handle:
        link, handle, most = prepared.link, Handle(self._next), self.caps.max_inflight_descs
        # An idle link takes a write of any size; one above the bound could otherwise never be posted.
        if link.writes and link.count + prepared.request.count > most:
            raise Busy(f"{link.count} pieces are in flight to peer {link.peer}: at most {most}")
        if link.lost is None:
            flight = self._post(handle, prepared)
            self._flights[handle] = flight
            link.enter(flight)
        else:
            self.drop(prepared)
            self._events.append(Failed(handle, link.lost, True))
        self._next += 1
        return handle

    def run(self, peer: PeerId, launch: Callable[[], Ticket], sources: tuple[int, ...]) -> Handle:
        self._check_open()
        link, handle = self._links.known(peer), Handle(self._next)
        if link.lost is None:
            write = self._kernels[handle] = KernelWrite(handle, peer, sources, launch())
            link.enter(write)
        else:
            self._events.append(Failed(handle, link.lost, True))
        self._next += 1
        return handle

    def poll(self) -> list[TransportEvent]:
        # Compared here first: this runs in every pass of the loop, and the call alone would cost more.
        if get_ident() != self._owner:
            self._check_owner()
        if not self.closed:
            if self._strays:
                self._gather()
            self._progress()
        if self._kernels:
            self._look()
        events, self._events = self._events, []
        return events

    def busy(self) -> bool:
        return bool(self._flights or self._strays or self._kernels)

    def abandon(self, handle: Handle) -> None:
        self._check_owner()
        flight = self._flights.get(handle) or self._kernels.get(handle)
        if flight is not None:
            flight.silent = True
        # An outcome that is known and not yet polled is withdrawn: the caller does not know the handle any more.
        self._events = [e for e in self._events if not (isinstance(e, Completed | Failed) and e.handle == handle)]

    def quiescent(self, handle: Handle) -> bool:
        if not 0 <= handle < self._next:
            raise UsageError(f"handle {handle} is not of this transport")
        return handle not in self._flights and handle not in self._kernels

    def close(self, drain_s: float = 1.0) -> None:
        self._check_owner()
        if self.closed:
            return
        steps: list[Step] = [
            ("waiting for writes in flight", lambda: self._drain(time.monotonic() + drain_s)),
            ("taking over what other threads left", self._gather),
        ]  # fmt: skip
        left = run_all(steps)
        self.closed = True
        self._links.close()
        left |= run_all([("the backend", self._end)])
        fault = Fault("in_doubt", "the transport was closed while this write was in flight")
        for flight in self._moving():
            # The backend is gone and moves no byte any more; a kernel that was launched still may.
            self._fail(flight, fault, quiescent=not isinstance(flight, KernelWrite))
        raise_exit(left)
        if left:
            raise TransportError(f"the transport is closed, but not all went well: {failures(left)}")

    def _drain(self, deadline: float) -> None:
        while (self.busy() or self._links.held()) and time.monotonic() < deadline:
            self._gather()
            self._progress()
            self._look()
            time.sleep(_DRAIN_TICK_S)

    # -- for backends

    def _moving(self) -> tuple[F | KernelWrite, ...]:
        return (*self._flights.values(), *self._kernels.values())

    def _look(self) -> None:
        """At the writes of kernels: one stream does a peer's, so they end in order."""
        waits: set[PeerId] = set()
        for write in tuple(self._kernels.values()):
            if write.peer in waits:
                continue
            try:
                if write.ticket.done():
                    self._complete(write)
                else:
                    waits.add(write.peer)
            except Exception as error:  # noqa: BLE001  # a device's fault: it stores nothing any more
                self._fail(write, Fault("backend", f"{type(error).__name__}: {error}"), quiescent=True)

    def _reads(self, region: MemoryRegion) -> bool:
        self._gather()
        return any(region.index in flight.sources for flight in self._moving())

    def _gather(self) -> None:
        while self._strays:
            flight = self._strays.popleft()
            # Its caller has given up on it: it is polled only so that its peer and its regions are held until it ends.
            flight.handle, flight.silent = Handle(self._next), True
            self._next += 1
            self._flights[flight.handle] = flight
            self._links.known(flight.peer).enter(flight)
            self._links.stray(flight.peer, -1)

    def _leave(self, flight: F) -> None:
        """Any thread: a write that goes on, for the owner to poll. The peer must be held."""
        self._links.stray(flight.peer, +1)
        self._strays.append(flight)

    def _complete(self, flight: F | KernelWrite) -> None:
        if not flight.silent:
            self._events.append(Completed(flight.handle))
        self._forget(flight)

    def _fail(self, flight: F | KernelWrite, fault: Fault, *, quiescent: bool) -> None:
        if not flight.silent:
            self._events.append(Failed(flight.handle, fault, quiescent))
        flight.silent = True
        if quiescent:
            self._forget(flight)

    def _lose(self, peer: PeerId, fault: Fault) -> None:
        """Call it after the outcomes that are known: what is left of the peer's writes is in doubt."""
        link = self._links.get(peer)
        if link is None or link.lost is not None:
            return
        # First of all: writes that are posted from here on fail at once instead of joining those in doubt.
        link.lost = fault
        for flight in self._moving():
            if flight.peer == peer:
                self._fail(flight, fault, quiescent=False)
        self._events.append(PeerLost(peer, fault))

    def _forget(self, flight: F | KernelWrite) -> None:
        del (self._kernels if isinstance(flight, KernelWrite) else self._flights)[flight.handle]
        self._links.known(flight.peer).leave(flight)

    # -- hooks

    def _prepare(self, prepared: PreparedWrite) -> Any:  # noqa: ARG002
        """Prepare a write in the library before it is posted; None: it cannot."""
        return None

    def _unprepare(self, raw: Any) -> None:
        """Free what `_prepare` made."""

    def _prep(self, lists: PageLists) -> Any:  # noqa: ARG002
        """Prepare the descriptors of all pages in the library; None: writes lay out their rows."""
        return None

    def _unprep(self, raw: Any) -> None:
        """Free what `_prep` made."""

    @abstractmethod
    def _post(self, handle: Handle, prepared: PreparedWrite) -> F:
        """Post, or raise if nothing was posted. A failure after that is for `_progress` to report."""

    @abstractmethod
    def _progress(self) -> None:
        """One bounded pass: `_complete`, `_fail`, `_lose`, and `Arrived` into `_events`."""

    @abstractmethod
    def _end(self) -> None:
        """Stop every write and free the backend."""

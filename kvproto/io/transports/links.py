"""Links: the peers of a transport, and what is in flight to each.

`connect` runs on any thread, everything else on the owner's, so this table alone has a lock. It is held for a few
dictionary operations, never during a call of the backend: whoever connects or warms a peer first *holds* it, then
talks to the backend unlocked, then lets it go. A held peer cannot be held, connected or dropped by anybody else.
"""

from __future__ import annotations

import threading

from kvproto.io.ticket import Ticket

from .base import Busy, Fault, Handle, PeerId, StaleEndpoint, UsageError
from .endpoint import InstanceDescription
from .page_lists import PageLists, PagesRequest
from .regions import Request, remote_table


class InFlightWrite:
    """A write in flight. Backends derive from it and add what their library gave them."""

    __slots__ = ("count", "handle", "peer", "silent", "sources")

    def __init__(self, handle: Handle, peer: PeerId, request: Request | PagesRequest) -> None:
        self.handle = handle
        self.peer = peer
        self.sources = request.sources
        # a call fewer for a staged write than `Request.count`
        self.count = request.count if isinstance(request, PagesRequest) else len(request.local)
        self.silent = False  # its outcome was reported, or is not wanted


class KernelWrite(InFlightWrite):
    """A write that a kernel does; nothing of it is the backend's."""

    __slots__ = ("ticket",)

    def __init__(self, handle: Handle, peer: PeerId, sources: tuple[int, ...], ticket: Ticket) -> None:
        self.handle, self.peer, self.sources, self.ticket = handle, peer, sources, ticket
        self.count, self.silent = 0, False


class TransportLink:
    """A peer we can write to. Its table is replaced as a whole, so that a reader needs no lock."""

    __slots__ = ("count", "endpoint", "lists", "lost", "peer", "regions", "strays", "writes")

    def __init__(self, endpoint: InstanceDescription) -> None:
        self.peer = PeerId(endpoint.instance)
        self.lost: Fault | None = None
        self.count = 0  # descriptors in flight
        self.writes = 0  # the owner's
        self.strays = 0  # left behind by another thread, not yet taken over by the owner
        self.lists: list[PageLists] = []  # those that the backend has prepared
        self.update(endpoint)

    def update(self, endpoint: InstanceDescription) -> None:
        self.endpoint = endpoint
        self.regions = remote_table(self.peer, endpoint.regions)

    def enter(self, flight: InFlightWrite) -> None:
        self.writes += 1
        self.count += flight.count

    def leave(self, flight: InFlightWrite) -> None:
        self.writes -= 1
        self.count -= flight.count


class TransportLinks:
    """All peers. A method that takes an endpoint or holds a peer may run on any thread."""

    def __init__(self, own: PeerId) -> None:
        self._own = own
        self._lock = threading.Lock()
        self._links: dict[PeerId, TransportLink] = {}
        self._held: set[PeerId] = set()
        self._closed = False

    def get(self, peer: PeerId) -> TransportLink | None:
        return self._links.get(peer)

    def known(self, peer: PeerId) -> TransportLink:
        link = self._links.get(peer)
        if link is None:
            raise StaleEndpoint(f"peer {peer} is not connected: connect() to its endpoint first")
        return link

    def all(self) -> tuple[TransportLink, ...]:
        return tuple(self._links.values())

    def begin(self, new: InstanceDescription) -> bool:
        """Hold the peer to connect it; False: nothing to do. Raises if this endpoint must not be used."""
        peer = PeerId(new.instance)
        with self._lock:
            if peer == self._own:
                raise UsageError("this endpoint is our own: a transport does not connect to itself")
            self._free(peer)
            known = self._links.get(peer)
            if known is not None and not _newer(known, new):
                return False
            self._held.add(peer)
            return True

    def end(self, new: InstanceDescription, *, linked: bool) -> None:
        peer = PeerId(new.instance)
        with self._lock:
            self._held.discard(peer)
            known = self._links.get(peer)
            if linked and known is not None:
                # The object stays: writes in flight are counted in it.
                known.update(new)
            elif linked:
                self._links[peer] = TransportLink(new)

    def hold(self, peer: PeerId) -> TransportLink:
        with self._lock:
            self._free(peer)
            link = self.known(peer)
            self._held.add(peer)
            return link

    def release(self, peer: PeerId) -> None:
        with self._lock:
            self._held.discard(peer)

    def stray(self, peer: PeerId, change: int) -> None:
        with self._lock:
            self.known(peer).strays += change

    def _free(self, peer: PeerId) -> None:
        if self._closed:
            raise UsageError("the transport is closed")
        if peer in self._held:
            raise Busy(f"peer {peer} is being connected or warmed by another thread: wait for that to return")

    def drop(self, peer: PeerId) -> TransportLink | None:
        """Take a link out and hold the peer; None if there is none. Raises Busy while anything of it moves."""
        with self._lock:
            self._free(peer)
            link = self._links.get(peer)
            if link is not None and (link.writes or link.strays):
                raise Busy(f"{link.writes + link.strays} writes to peer {peer} are not quiescent: poll until they are")
            if link is not None:
                # Out of the table and held: no thread connects this peer before the backend has let go of it.
                del self._links[peer]
                self._held.add(peer)
            return link

    def held(self) -> bool:
        return bool(self._held)

    def close(self) -> None:
        with self._lock:
            self._closed = True


def _newer(known: TransportLink, new: InstanceDescription) -> bool:
    if known.lost is not None:
        raise StaleEndpoint(f"peer {known.peer} is lost ({known.lost}): disconnect it, then connect its next instance")
    if new.serial < known.endpoint.serial:
        raise StaleEndpoint(
            f"endpoint {new.serial} of peer {known.peer} is older than {known.endpoint.serial}, which is known here: "
            "ask the peer for its current one"
        )
    # An equal serial is the same description: connecting twice is no fault and does nothing.
    return new.serial > known.endpoint.serial

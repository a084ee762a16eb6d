"""Peers and regions of a transport, and its owner's thread. Writes are in `write_records`.

A backend adds hooks that touch its library; who may call and what is valid is decided here, once.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping
from threading import get_ident

from .base import (
    Busy,
    Kind,
    MemoryRegion,
    PeerId,
    RemoteRegion,
    StaleEndpoint,
    TransportCaps,
    UsageError,
    WrongThread,
)
from .endpoint import VERSION, InstanceDescription, decode, encode
from .links import TransportLink, TransportLinks
from .regions import RegionTable


class PeersAndRegions(ABC):
    """Regions and peers of one transport."""

    def __init__(self, caps: TransportCaps, instance: PeerId) -> None:
        self.caps = caps
        self.instance = instance
        self.closed = False
        #: the one thread that may call this transport
        self._owner = get_ident()
        self._table = RegionTable(caps.kinds)
        self._links = TransportLinks(instance)
        #: by region, what a peer on this host may map it with
        self._shares: dict[int, tuple[bytes, bytes]] = {}

    # -- owner and regions

    def adopt(self) -> None:
        self._owner = get_ident()

    def register(self, addr: int, nbytes: int, kind: Kind = "DRAM", dev: int = 0) -> MemoryRegion:
        self._check_open()
        region = self._table.plan(addr, nbytes, kind, dev)
        self._attach(region)
        # Only now: an endpoint must not name a region that the backend does not have.
        self._table.add(region)
        return region

    def deregister(self, region: MemoryRegion) -> None:
        self._check_open()
        self._table.check(region)
        if self._reads(region):
            raise Busy(f"region {region.index} is read by a write in flight: wait until it is quiescent")
        # Out of the table first: a write that is posted meanwhile is refused instead of reading memory that goes.
        self._table.remove(region)
        self._unlist(region)
        self._detach(region)

    def endpoint(self) -> bytes:
        if self.closed:
            raise UsageError("the transport is closed")
        # Before the entries: if a region is added in between, the lower number has peers look again.
        serial = self._table.serial
        entries = self._table.entries(self._shares)
        return encode(InstanceDescription(self.caps.backend, VERSION, self.instance, serial, entries, self._blob()))

    # -- peers

    def connect(self, endpoint: bytes) -> PeerId:
        new = decode(endpoint, self.caps.backend)
        if self._links.begin(new):
            linked = False
            try:
                self._link(new)
                linked = True
            finally:
                self._links.end(new, linked=linked)
        return PeerId(new.instance)

    def warm(self, peer: PeerId, timeout_s: float = 1.0) -> bool:
        link = self._links.hold(peer)
        try:
            return link.lost is None and not self.closed and self._warm(link, timeout_s)
        finally:
            self._links.release(peer)

    def disconnect(self, peer: PeerId) -> None:
        self._check_open()
        link = self._links.drop(peer)
        if link is not None:
            try:
                self._unlink(link)
            finally:
                self._links.release(peer)

    def remote(self, peer: PeerId, index: int) -> RemoteRegion:
        region = self._links.known(peer).regions.get(index)
        if region is None:
            raise StaleEndpoint(f"peer {peer} has no region {index} in its current endpoint: ask it for a new one")
        return region

    def maps(self, peer: PeerId) -> Mapping[int, int] | None:  # noqa: ARG002
        return None

    def apart(self, peer: PeerId) -> bool | None:  # noqa: ARG002
        return None

    def elsewhere(self, peer: PeerId) -> bool:  # noqa: ARG002
        return False

    def unmapped(self, peer: PeerId) -> str:  # noqa: ARG002
        return ""

    def lifts(self, region: MemoryRegion) -> bool:  # noqa: ARG002
        return False

    def tell(self, peer: PeerId, tag: bytes) -> bool:  # noqa: ARG002
        return False

    def _check_owner(self) -> None:
        if get_ident() != self._owner:
            raise WrongThread(
                f"thread {threading.current_thread().name!r} is not the owner of this transport; "
                "call adopt() on the thread that takes it over, or hand the call to the owner"
            )

    def _check_open(self) -> None:
        if get_ident() != self._owner:  # compared here first: this runs for each write
            self._check_owner()
        if self.closed:
            raise UsageError("the transport is closed")

    # -- hooks

    @abstractmethod
    def _reads(self, region: MemoryRegion) -> bool:
        """Whether a write that has not come to rest reads this region."""

    @abstractmethod
    def _unlist(self, region: MemoryRegion) -> None:
        """Drop what is prepared from this region: its library's form of it goes."""

    @abstractmethod
    def _attach(self, region: MemoryRegion) -> None: ...
    @abstractmethod
    def _detach(self, region: MemoryRegion) -> None: ...
    @abstractmethod
    def _blob(self) -> bytes:
        """The backend's part of the endpoint. Any thread."""

    @abstractmethod
    def _link(self, new: InstanceDescription) -> None:
        """Learn a peer or its newer table. Any thread; may block."""

    @abstractmethod
    def _warm(self, link: TransportLink, timeout_s: float) -> bool:
        """Any thread; may block."""

    @abstractmethod
    def _unlink(self, link: TransportLink) -> None: ...

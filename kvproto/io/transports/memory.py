"""The memory transport: ranks in one process move real bytes on a fabric with a given schedule.

It is what the checker's replays, the stages of tests and the demonstrations run on, and it obeys the same
contract as the real ones, so whatever holds for `WriteRecords` is tested here in microseconds. Addresses are real
addresses of this process (`array.ctypes.data`, `tensor.data_ptr()`); the caller keeps the memory alive. See `fabric.py`
for what can be scheduled and what can go wrong.

    fabric = Fabric(piece=4096)
    p, d = MemoryTransport(fabric), MemoryTransport(fabric)
    source, target = p.register(...), d.register(...)
    peer = p.connect(d.endpoint())
    p.write(peer, source, p.remote(peer, target.index), bulk(0, 0, 65536), b"tag")
    while fabric.step(rng): ...
    d.poll()  # [Arrived(p.instance, b"tag")]
"""

from __future__ import annotations

from .base import Arrived, Handle, MemoryRegion, PeerId, PreparedWrite, TransportCaps
from .cargo import FabricPeerLost, FabricStep, News, WriteArrived
from .endpoint import InstanceDescription
from .fabric import Fabric
from .links import InFlightWrite, TransportLink
from .write_records import WriteRecords

__all__ = ["Fabric", "FabricStep", "MemoryTransport"]

MAX_TAG = 8192


class MemoryTransport(WriteRecords[InFlightWrite]):
    """One instance on a fabric, named `memory-0`, `memory-1`, ... unless `instance` is given."""

    def __init__(
        self, fabric: Fabric, instance: str | None = None, *, max_inflight_descs: int = 1 << 20, maps: bool = False
    ) -> None:
        """`maps`: peers' memory may be addressed, being this process's."""
        name = fabric.join(instance)
        caps = TransportCaps("memory", ("DRAM",), MAX_TAG, 1 << 20, max_inflight_descs, fabric.native_notify, False)
        super().__init__(caps, name)
        self.fabric, self._mapping = fabric, maps
        self._known: dict[PeerId, tuple[object, dict[int, int]]] = {}

    def successor(self) -> MemoryTransport:
        return MemoryTransport(self.fabric, max_inflight_descs=self.caps.max_inflight_descs, maps=self._mapping)

    def maps(self, peer: PeerId) -> dict[int, int] | None:
        link = self._links.get(peer) if self._mapping else None
        if link is None:
            return None
        known = self._known.get(peer)
        if known is None or known[0] is not link.regions:
            known = self._known[peer] = link.regions, {index: each.addr for index, each in link.regions.items()}
        return known[1]

    def tell(self, peer: PeerId, tag: bytes) -> bool:
        return self._mapping and self.fabric.tell(self.instance, peer, tag)

    def _attach(self, region: MemoryRegion) -> None:
        self.fabric.expose(self.instance, region.index, region.addr, region.nbytes)

    def _detach(self, region: MemoryRegion) -> None:
        self.fabric.hide(self.instance, region.index)

    def _blob(self) -> bytes:
        return b""

    def _link(self, new: InstanceDescription) -> None:
        pass

    def _warm(self, _link: TransportLink, _timeout_s: float) -> bool:
        return True

    def _unlink(self, link: TransportLink) -> None:
        pass

    def _post(self, handle: Handle, prepared: PreparedWrite) -> InFlightWrite:
        self.fabric.launch(self.instance, prepared.peer, handle, prepared.request, prepared.tag)
        return InFlightWrite(handle, prepared.peer, prepared.request)

    def _progress(self) -> None:
        for news in self.fabric.news(self.instance):
            self._hear(news)

    def _hear(self, news: News) -> None:
        if isinstance(news, WriteArrived):
            self._events.append(Arrived(news.peer, news.tag))
        elif isinstance(news, FabricPeerLost):
            self._lose(news.peer, news.fault)
        elif (flight := self._flights.get(news.handle)) is not None:
            if news.fault is None:
                self._complete(flight)
            else:
                self._fail(flight, news.fault, quiescent=news.quiescent)

    def _end(self) -> None:
        self.fabric.kill(self.instance)

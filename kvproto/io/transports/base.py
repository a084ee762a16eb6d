"""The transport contract: what a rank may ask of a byte mover, and what it may believe of the answers.

A transport moves bytes with one-sided writes between registered regions of two processes. The protocol above it
decides everything; a transport only tells the truth about these things, and the truth is less than one would like:

1. `Arrived(tag)` implies that every byte of that write is visible at the target.
2. `Completed(handle)` implies that the source may be reused and that the tag was handed to the peer's transport.
   It does not imply that the peer has *seen* the tag; only an acknowledgement of the application says that.
3. A write is delivered at most once. There is no order between writes: consumers sort by what is in the tag, and
   drop what is unknown, repeated or of an old epoch.
4. Every accepted write ends in exactly one of `Completed`, `Failed(quiescent=True)`, `Failed(quiescent=False)`.
   The last one is *in doubt*: no backend can cancel a write, so bytes may still be read here and may still land
   there, and the tag may still arrive. `quiescent(handle)` tells when that is over; until then source and
   destination are quarantined. `abandon(handle)` is the same doubt by the caller's own wish.
5. Deadlines belong to the caller. A silent peer looks like a write that never ends, for ever: liveness is the
   control plane's business.
6. `PeerLost` comes after the failures of that peer's writes, once. The peer stays lost until `disconnect`, which
   is refused while one of its writes may still move.

`write` raises only if nothing was posted (`UsageError`, `StaleEndpoint`, `Busy`); what goes wrong afterwards, a dead
peer included, is an event. `poll` never blocks and never raises for a peer.

**Ownership.** One thread owns a transport: the one that made it, or the one that last called `adopt`. It calls
everything. Three methods may be called from any thread, because they may block and a loop may not: `connect`, `warm`
and `endpoint`. They may run while the owner keeps polling, and warming *needs* that the peer's owner polls.

**Both sides poll.** With `caps.needs_target_progress` a write completes only if the target polls too.

Units: addresses, offsets and lengths are bytes, times are seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NewType, Protocol, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

from kvproto.errors import KvprotoError
from kvproto.io.ticket import Ticket

if TYPE_CHECKING:
    from .page_lists import PageLists, PageNumbers, PagePiece

Kind = Literal["DRAM", "VRAM"]
FaultKind = Literal["unavailable", "usage", "stale_endpoint", "peer_lost", "busy", "in_doubt", "backend"]
PeerId = NewType("PeerId", str)  # the peer's instance id: unique to one life of one process
Handle = NewType("Handle", int)  # one accepted write; never reused within a transport
Descs: TypeAlias = npt.NDArray[np.uint64]  # (n, 3): source offset, destination offset, length


class Fault(msgspec.Struct, frozen=True):
    """Why a write or a peer failed: data, so that it can be an event's field and travel."""

    kind: FaultKind
    detail: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.detail}"


class TransportError(KvprotoError):
    """Root of what a transport raises. `kind` is the class's word, one of a `Fault`'s."""

    kind: ClassVar[FaultKind] = "backend"


class BackendUnavailable(TransportError):
    """The backend is not installed or does not start here. Choose another one."""

    kind: ClassVar[FaultKind] = "unavailable"


class UsageError(TransportError):
    """A bug of the caller: bad descriptors, unregistered memory, long tag, closed transport. Never retry."""

    kind: ClassVar[FaultKind] = "usage"


class WrongThread(UsageError):
    """An owner's method was called by another thread."""


class StaleEndpoint(TransportError):
    """The peer's description is not the one in force. Ask the peer for a new endpoint, then retry once."""

    kind: ClassVar[FaultKind] = "stale_endpoint"


class BadEndpoint(UsageError):
    """Bytes that are no endpoint, or one of another backend, version or size."""


class PeerGone(TransportError):
    """The process or the link behind a peer is gone. Disconnect; connect to its next instance."""

    kind: ClassVar[FaultKind] = "peer_lost"


class Busy(TransportError):
    """Nothing was done: something is still in flight, or a queue is full. Retry after the next events."""

    kind: ClassVar[FaultKind] = "busy"


class TransportCaps(msgspec.Struct, frozen=True):
    """The capabilities of a backend."""

    backend: str
    kinds: tuple[Kind, ...]
    max_tag: int  # bytes
    max_descs: int  # descriptors of one write, after joining adjacent ones
    max_inflight_descs: int  # descriptors of all writes in flight to one peer
    native_notify: bool  # False: tags do not travel; after Completed the control plane carries them
    needs_target_progress: bool  # True: the target's owner must poll for a write to complete


class MemoryRegion(msgspec.Struct, frozen=True):
    """Registered memory of this process. `index` names it to peers; a published index is never reused."""

    index: int
    addr: int
    nbytes: int
    kind: Kind
    dev: int


class RemoteRegion(msgspec.Struct, frozen=True):
    """Registered memory of a peer, as its endpoint described it."""

    peer: PeerId
    index: int
    addr: int
    nbytes: int
    kind: Kind
    dev: int


class WritePart(msgspec.Struct, frozen=True):
    """One pair of regions in a write of several."""

    src: MemoryRegion
    dst: RemoteRegion
    descs: Descs


class PreparedWrite(msgspec.Struct, eq=False):
    """A write that is ready to be posted. `raw` is the backend's; the rest tells whether it still holds.

    `pages`: of a write of whole pages, instead of `parts`: lists, numbers of our pages, and of the peer's."""

    peer: PeerId
    parts: Sequence[WritePart]
    tag: bytes
    link: Any
    request: Any
    tables: tuple[Any, int]
    raw: Any = None
    pages: tuple[PageLists, PageNumbers, PageNumbers] | None = None


class Completed(msgspec.Struct, frozen=True):
    """A write is through: its source is free, its bytes are visible at the target."""

    handle: Handle


class Failed(msgspec.Struct, frozen=True):
    """A write failed. If it is not quiescent it is in doubt: see property 4."""

    handle: Handle
    error: Fault
    quiescent: bool


class Arrived(msgspec.Struct, frozen=True):
    """A peer's whole write has arrived; the peer may be unconnected here. `tag` is not authenticated."""

    peer: PeerId
    tag: bytes


class PeerLost(msgspec.Struct, frozen=True):
    """A peer's process or link is gone; the outcomes of its writes came before."""

    peer: PeerId
    error: Fault


TransportEvent: TypeAlias = Completed | Failed | Arrived | PeerLost


class Transport(Protocol):
    """One instance per rank."""

    @property
    def caps(self) -> TransportCaps: ...
    @property
    def instance(self) -> PeerId: ...

    def successor(self) -> Transport:
        """Make the next instance: of this backend and these options, with no memory and no peers yet.

        The calling thread owns it. This one goes on until `close`; a library that has one engine a process serves both,
        so memory has to be closed here before it is opened there. Any thread."""

    def adopt(self) -> None:
        """Make the calling thread the owner. The previous owner must have stopped calling."""

    def register(self, addr: int, nbytes: int, kind: Kind = "DRAM", dev: int = 0) -> MemoryRegion:
        """Open memory to this transport and its peers.

        The caller keeps it alive until `deregister` or `close`. Raises UsageError for empty, overlapping or unsupported
        memory."""

    def deregister(self, region: MemoryRegion) -> None:
        """Close memory; Busy while a write that is not quiescent uses it.

        Peers' writes into it cannot be seen from here: the caller must know that they are drained, and some backends
        end the process if they are not."""

    def endpoint(self) -> bytes:
        """This instance as peers must know it: identity and all regions of now. Any thread."""

    def connect(self, endpoint: bytes) -> PeerId:
        """Learn a peer, or its newer region table; idempotent. May block; any thread.

        Raises BadEndpoint, PeerGone, StaleEndpoint (older than known, or the peer is lost), Busy (connecting)."""

    def warm(self, peer: PeerId, timeout_s: float = 1.0) -> bool:
        """Bring up the wire without moving a byte, if the backend can. Blocks up to `timeout_s`; any thread.
        False: not confirmed in time, which is no failure: the first write then pays for it."""

    def disconnect(self, peer: PeerId) -> None:
        """Forget a peer; unknown ones are ignored. Raises Busy while one of its writes is not quiescent."""

    def remote(self, peer: PeerId, index: int) -> RemoteRegion:
        """The peer's region of that index. Raises StaleEndpoint if its endpoint has none."""

    def write(self, peer: PeerId, src: MemoryRegion, dst: RemoteRegion, descs: npt.ArrayLike, tag: bytes) -> Handle:
        """Post one write of n pieces.

        `descs` are (n, 3) integers: source offset, destination offset, length. An empty tag asks for no
        notification."""

    def write_many(self, peer: PeerId, parts: Sequence[WritePart], tag: bytes) -> Handle:
        """Post one write with one tag over several pairs of regions: sources of one kind, targets of one kind."""

    def prepare(self, peer: PeerId, parts: Sequence[WritePart], tag: bytes) -> PreparedWrite:
        """All of `write_many` but the posting, for a write that will be wanted soon. Nothing is read or sent."""

    def post(self, prepared: PreparedWrite) -> Handle:
        """Post a prepared write, once.

        If regions or peers have changed it is prepared again, and may be refused then. After Busy it can be tried
        again; after anything else it is spent."""

    def drop(self, prepared: PreparedWrite) -> None:
        """Give up a prepared write that was not posted; drop those to a peer before it is disconnected."""

    def page_lists(self, peer: PeerId, pieces: Sequence[PagePiece]) -> PageLists:
        """Prepare writes of whole pages: the runs of every page of two pools, the same for all of them.

        They are the peer's until it is disconnected, or `drop_lists`.  Raises UsageError, StaleEndpoint."""

    def write_pages(self, lists: PageLists, near: PageNumbers, far: PageNumbers, tag: bytes) -> Handle:
        """Post one write of whole pages: page `near[i]` of ours to page `far[i]` of the peer's.

        If regions or peers have changed the lists are prepared again, and may be refused then."""

    def prepare_pages(self, lists: PageLists, near: PageNumbers, far: PageNumbers, tag: bytes) -> PreparedWrite:
        """All of `write_pages` but the posting, as `prepare` does it of `write_many`."""

    def drop_lists(self, lists: PageLists) -> None:
        """Give up prepared lists; writes that were posted from them go on."""

    def maps(self, peer: PeerId) -> Mapping[int, int] | None:
        """Return the addresses of the peer's mapped regions in this process, by index; None: none is mapped.

        The addresses are valid as long as the same object is returned.
        """

    def apart(self, peer: PeerId) -> bool | None:
        """Whether all of the peer's mapped memory is on another device than ours; None: it is not known."""

    def elsewhere(self, peer: PeerId) -> bool:
        """Whether the peer's device memory is known to be on another host."""

    def unmapped(self, peer: PeerId) -> str:
        """Why memory of the peer is not here, though it may be of this host; empty: there is nothing to say."""

    def lifts(self, region: MemoryRegion) -> bool:
        """Whether writes from this region read its twin on a device (`host_memory`) instead.

        The answer does not change while the region is registered.
        """

    def run(self, peer: PeerId, launch: Callable[[], Ticket], sources: tuple[int, ...]) -> Handle:
        """Track a write by a kernel of the caller, from our regions into mapped ones of the peer.

        `launch` begins it; if it raises, the error is passed on and nothing was written. It ends like a write, without
        a tag.
        """

    def tell(self, peer: PeerId, tag: bytes) -> bool:
        """Send a tag alone, which comes as `Arrived`, and may be lost; false: this backend cannot, or not now."""

    def poll(self) -> list[TransportEvent]:
        """Make progress, and return the events since the last poll. Never blocks."""

    def busy(self) -> bool:
        """True while any write, abandoned and doubtful ones included, is not quiescent: keep polling."""

    def abandon(self, handle: Handle) -> None:
        """Stop reporting this write. It goes on; its regions stay in use until `quiescent(handle)`."""

    def quiescent(self, handle: Handle) -> bool:
        """True if this write will neither read its source nor write its target any more."""

    def close(self, drain_s: float = 1.0) -> None:
        """Poll up to `drain_s` for writes in flight, then end the backend.

        After that all is quiescent except kernels that `run` launched. Nothing ends a kernel: its write fails in doubt,
        and `poll` sees its end. Repeatable."""

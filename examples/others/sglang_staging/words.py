"""What SGLang's prefill and decode ranks say, what happens to them, and what they do.

Names are those of its code where it has one (`STAGING_REQ`, `CHUNK_READY`, `KV_STATUS`, `ABORT`, `WaitingForInput`).
Two things are here that its messages do not have, so that properties can be stated: `life` says which use of a room's
id this is, and `nth` and `posted` count writes.  No row of the protocol as it is looks at any of them.

A write and its CHUNK_READY are one message: the prefill worker waits until the write is done and then speaks of it, and
what it says in between (an ABORT_ACK) has `posted`.
"""

from __future__ import annotations

import msgspec

from kvproto.fsm import vocabulary
from kvproto.fsm.codec import U64, Body
from kvproto.fsm.timing import Timer, Timers
from kvproto.fsm.vocabulary import Effect, Event, Internal, State

#: STAGING_RSP's offset that means: this chunk will never fit
OVERSIZED = -2


# ------------------------------------------------------------------------------------------- messages
class TransferInfo(Body, tag="TransferInfo", frozen=True):
    """A decode rank's metadata of a room."""

    room: U64
    life: U64


class StagingReq(Body, tag="STAGING_REQ", frozen=True):
    """Give this chunk a region of your ring."""

    room: U64
    life: U64
    chunk: U64


class StagingRsp(Body, tag="STAGING_RSP", frozen=True):
    """The chunk's region."""

    room: U64
    life: U64
    chunk: U64
    offset: int
    end: int
    round: U64


class Watermark(Body, tag="WATERMARK", frozen=True):
    """Everything before this is free."""

    round: U64
    tail: U64


class ChunkReady(Body, tag="CHUNK_READY", frozen=True):
    """The chunk's bytes are in its region: `writer` says so."""

    room: U64
    life: U64
    chunk: U64
    offset: int
    end: int
    writer: U64
    nth: U64


class KvStatus(Body, tag="KV_STATUS", frozen=True):
    """How the room ended at this prefill rank."""

    room: U64
    life: U64
    ok: bool


class Abort(Body, tag="ABORT", frozen=True):
    """The room has failed here: stop, and say when nothing can land any more."""

    room: U64
    life: U64


class AbortAck(Body, tag="ABORT_ACK", frozen=True):
    """Nothing can land any more."""

    room: U64
    life: U64
    posted: U64


class Ping(Body, tag="PING", frozen=True):
    """Are you there?  (Not SGLang's: a mend.)"""

    room: U64


class Pong(Body, tag="PONG", frozen=True):
    """Yes."""

    room: U64


ALL = TransferInfo, StagingReq, StagingRsp, Watermark, ChunkReady, KvStatus, Abort, AbortAck, Ping, Pong


# --------------------------------------------------------------------------------------------- states
class P(State):
    """A room at a prefill rank."""

    #: nothing of it is known
    UNKNOWN = 0
    #: some of the decode ranks' metadata has come, and no sender is there
    METADATA = 1
    #: the sender waits for metadata
    BOOTSTRAPPING = 2
    #: `WaitingForInput`, `Transferring`: all metadata is here
    WAITING = 3
    #: said to be sent
    SUCCESS = 4
    #: failed
    FAILED = 5


class Q(State):
    """A chunk in the transfer queue."""

    #: not computed
    NONE = 0
    #: no worker has looked at it
    QUEUED = 1
    #: a worker has; what it could not write it has put back
    DEFERRED = 2
    #: written
    SENT = 3
    #: its room is gone
    DROPPED = 4


class W(State):
    """A thread that takes chunks from the queue."""

    RUNNING = 0
    #: the next write fails
    FAULTY = 1
    #: an exception has left its loop
    DEAD = 2


class T(State):
    """The thread that takes messages at a decode rank."""

    RUNNING = 0
    #: an exception has left its loop
    DEAD = 1


class D(State):
    """A room at a decode rank."""

    NEW = 0
    #: its metadata is sent
    REGISTERED = 1
    #: every prefill rank has said Success
    SUCCESS = 2
    #: failed; pages and regions are held until all prefill ranks have acknowledged the abort
    HELD = 3
    #: failed; pages given back and `kv_receiver` None, the staging handler does not know yet
    DETACHED = 4
    #: handed to the engine
    COMMITTED = 5
    #: everything given back
    RELEASED = 6


class G(State):
    """A chunk at a decode rank."""

    NONE = 0
    #: it has a region
    GRANTED = 1
    #: larger than the ring
    OVERSIZED = 2
    #: the kernel that scatters it runs
    SCATTERING = 3
    #: in the pages
    DONE = 4
    #: the room is over
    GONE = 5


# --------------------------------------------------------------------------------- events of a prefill rank
Key = tuple[int, int, int]


class SenderCreated(Event, frozen=True):
    """The scheduler makes a sender for the room."""

    room: int
    life: int


class MetadataReceived(Event, frozen=True):
    """A decode rank's TransferInfo; so many make it complete."""

    room: int
    life: int
    peer: int
    needed: int


class Forwarded(Event, frozen=True):
    """A batch with the room was formed, and its chunks are computed and queued."""

    room: int
    chunks: int


class GrantReceived(Event, frozen=True):
    """A region, or OVERSIZED."""

    room: int
    life: int
    grant: Grant


class Grant(msgspec.Struct, frozen=True, order=True):
    """What a STAGING_RSP said."""

    chunk: int
    peer: int
    offset: int
    end: int
    round: int


class ChunkStarted(Event, frozen=True):
    """A worker has taken the chunk from the queue for the first time (`_staging_outstanding`)."""

    room: int
    life: int


class ChunkSent(Event, frozen=True):
    """The chunk is written to all."""

    room: int
    life: int
    chunk: int


class ChunkDropped(Event, frozen=True):
    """The chunk will not be written."""

    room: int
    life: int


class ChunkFailed(Event, frozen=True):
    """The chunk cannot be written, and its room fails."""

    room: int
    life: int


class AbortReceived(Event, frozen=True):
    """A decode rank has given the room up."""

    room: int
    life: int
    peer: int


class Cancelled(Event, frozen=True):
    """The prefill engine gives the room up."""

    room: int


class PongReceived(Event, frozen=True):
    """A decode rank is there."""

    room: int
    peer: int


class RoomTimer(vocabulary.TimerFired, frozen=True):
    """The room's timer."""

    room: int
    tries: int


class ChunkQueued(Event, frozen=True):
    """`add_transfer_request`; the key is room, life and chunk."""

    key: Key


class ChunkTried(Event, frozen=True):
    """A worker takes the chunk, and finds this."""

    key: Key
    #: its room is known and has not failed; it is still the same room
    alive: bool
    same: bool
    #: decode ranks in the order in which their metadata came; those that can be written to, or never
    dests: tuple[int, ...]
    ready: tuple[int, ...]
    oversized: tuple[int, ...]
    #: `failed_sessions`
    banned: tuple[int, ...]
    worker: W


class RetryNow(Event, frozen=True):
    """A worker's turn comes: what it finds then is a `ChunkTried`."""

    key: Key


class WatermarkSeen(Event, frozen=True):
    """A WATERMARK: every worker that waits looks again (`watermark_cv`)."""

    peer: int
    mark: tuple[int, int]


class ChunkTimer(vocabulary.TimerFired, frozen=True):
    """The worker's next pass (1 ms)."""

    key: Key
    tries: int


class TransportBreaks(Event, frozen=True):
    """The next write will fail."""

    thread: int


class WriteFailed(Event, frozen=True):
    """A write has raised."""

    thread: int


# ---------------------------------------------------------------------------------- events of a decode rank
class Opened(Event, frozen=True):
    """Pages are allocated: `send_metadata`."""

    room: int
    life: int
    writers: tuple[int, ...]


class Aborted(Event, frozen=True):
    """The decode engine gives the room up; `hold`: deferred release is on."""

    room: int
    hold: bool


class KvStatusReceived(Event, frozen=True):
    """A prefill rank has ended."""

    room: int
    life: int
    peer: int
    ok: bool


class AckReceived(Event, frozen=True):
    """A prefill rank has stopped."""

    room: int
    life: int
    peer: int


class Checked(Event, frozen=True):
    """`is_done` was asked: `idle` if no chunk has a region, `complete` if every chunk is in the pages."""

    room: int
    idle: bool
    complete: bool


class Unregistered(Event, frozen=True):
    """`unregister_decode_req`."""

    room: int


class DecodeTimer(vocabulary.TimerFired, frozen=True):
    """30 seconds without all acknowledgements."""

    room: int
    tries: int


class ReqReceived(Event, frozen=True):
    """A STAGING_REQ, and what is known of its room."""

    key: tuple[int, int]
    peer: int
    staging: bool
    registered: bool
    detached: bool
    fits: bool


class Subscribed(Event, frozen=True):
    """Who asks hears of watermarks from then on, and of the present one at once."""

    peer: int
    registered: bool


class ChunkArrived(Event, frozen=True):
    """A CHUNK_READY."""

    key: tuple[int, int]
    registered: bool
    #: of the room's use of its id that is registered
    same: bool
    writer: int
    needed: int


class ScatterFinished(Event, frozen=True):
    """The scheduler has polled the scatter's event."""

    key: tuple[int, int]


class ChunkForgotten(Event, frozen=True):
    """The room is over."""

    key: tuple[int, int]


class ThreadRaised(Event, frozen=True):
    """An exception leaves the listener thread."""

    thread: int


# ------------------------------------------------------------------------------- effects inside of a rank
class Ask(Internal, frozen=True):
    """STAGING_REQ for every chunk to these decode ranks."""

    room: int
    life: int
    peers: tuple[int, ...]


class Queue(Internal, frozen=True):
    """Queue every chunk."""

    room: int
    life: int
    chunks: int


class Retry(Internal, frozen=True):
    """A worker goes through the room's chunks."""

    room: int


class Sweep(Internal, frozen=True):
    """A worker takes what it had put back of the room, which has failed."""

    room: int


class RetryOne(Internal, frozen=True):
    """A worker takes this chunk once more."""

    key: Key


class Post(Internal, frozen=True):
    """Gather, write, and say CHUNK_READY, to these."""

    key: Key
    peers: tuple[int, ...]


class Ban(Internal, frozen=True):
    """`failed_sessions.add`."""

    key: Key


class Acknowledge(Internal, frozen=True):
    """ABORT_ACK to these."""

    room: int
    life: int
    peers: tuple[int, ...]


class Tell(Internal, frozen=True):
    """The same to several."""

    peers: tuple[int, ...]
    body: Body


class Assign(Internal, frozen=True):
    """A region, and STAGING_RSP to every prefill rank of the room."""

    key: tuple[int, int]


class Answer(Internal, frozen=True):
    """STAGING_RSP again."""

    key: tuple[int, int]
    oversized: bool


class Free(Internal, frozen=True):
    """Give the region back, and WATERMARK to whoever has ever asked."""

    key: tuple[int, int]


class Check(Internal, frozen=True):
    """Ask `is_done`."""

    room: int


class Unregister(Internal, frozen=True):
    """Forget the room's chunks, with their regions."""

    room: int


# ------------------------------------------------------------------------------- effects that properties see
class Reported(Effect, frozen=True):
    """What the scheduler of either side is told of the room."""

    room: int
    life: int
    word: str


class Posted(Effect, frozen=True):
    """A write was done."""

    key: Key
    peer: int


class RegionHeld(Effect, frozen=True):
    """A chunk has this region from now on (`offset` < 0: none any more)."""

    key: Key
    offset: int
    end: int


class Landed(Effect, frozen=True):
    """Bytes are in the ring: whose, and where; the `nth` write of this prefill rank to this decode rank."""

    key: Key
    peer: int
    offset: int
    end: int
    nth: int


class AckHeard(Effect, frozen=True):
    """The prefill rank has stopped after so many writes."""

    peer: int
    posted: int


class ScatterLaunched(Effect, frozen=True):
    """The kernel reads the region."""

    key: Key


class PagesWritten(Effect, frozen=True):
    """The chunk is in the pages."""

    key: Key


class Noted(Event, frozen=True):
    """Something that happens whatever the tables make of it."""

    effect: Effect


class Timing(Timers, frozen=True):
    """Every timer."""

    #: a worker puts a chunk back
    worker: Timer = Timer(0.001)
    #: deferred release
    release: Timer = Timer(30.0)
    #: a mend
    heartbeat: Timer = Timer(5.0)

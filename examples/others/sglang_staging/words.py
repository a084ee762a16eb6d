"""What SGLang's prefill and decode ranks say, what happens to them, and what they do.

Names are those of its code where it has one (`STAGING_REQ`, `CHUNK_READY`, `KV_STATUS`, `ABORT`, `WaitingForInput`).
Two things are here that its messages do not have, so that properties can be stated: `life` says which use of a room's
id this is, and `nth` and `posted` count writes.  No row of the protocol as it is looks at any of them.

A write and its CHUNK_READY are one message: the prefill worker waits until the write is done and then speaks of it, and
what it says in between (an ABORT_ACK) has `posted`.
"""

from __future__ import annotations

from kvproto.fsm.codec import U64, Body
from kvproto.fsm.timing import Timer, Timers
from kvproto.fsm.vocabulary import State

#: room, life, chunk
Key = tuple[int, int, int]
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


class Timing(Timers, frozen=True):
    """Every timer."""

    #: a worker puts a chunk back
    worker: Timer = Timer(0.001)
    #: deferred release
    release: Timer = Timer(30.0)
    #: a mend
    heartbeat: Timer = Timer(5.0)

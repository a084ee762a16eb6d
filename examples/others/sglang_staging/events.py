"""What happens to SGLang's ranks: a message, a call of the engine, a timer, a worker's turn."""

from __future__ import annotations

import msgspec

from examples.others.sglang_staging.words import Key, W
from kvproto.fsm import vocabulary
from kvproto.fsm.vocabulary import Effect, Event

# --------------------------------------------------------------------------------- events of a prefill rank


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


class Noted(Event, frozen=True):
    """Something that happens whatever the tables make of it."""

    effect: Effect

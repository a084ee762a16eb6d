"""The messages: what the two sides say to each other, as the protocol sees them.

A frame on the wire is a *header* `(epoch, room id, gen)` and one of these bodies; `kvproto.protocol.codec` packs and
unpacks it.  The header tells late, repeated and foreign messages apart, so a body carries only what it is
about.  The writer that a message concerns is not in it: it is the prefill rank at the end of the link.

Requests, responses, notifications and watermarks may each be sent any number of times and mean the same every
time.  Who answers what:

| asked by | message | answered with |
|---|---|---|
| decode | `HELLO` | `WELCOME`, or `REFUSAL` with the reason |
| decode | `OPEN` | `OPENED`, or `DRAINED` with the cause |
| decode | `ANNOUNCE` | nothing, or `DRAINED` with the cause |
| prefill | `STAGING_REQ` | `STAGING_RSP` or `STAGING_REFUSED`; first `STAGING_QUEUED` while the ring is full |
| prefill | `PAGES_REQ` | `PAGES_RSP` |
| prefill | `WATERMARK_REQ` | `WATERMARK` |
| prefill | `STG_NOTIFY` | `CHUNK_ACK` |
| prefill | `AUX` | `AUX_ACK` |
| decode | `ABORT` | `DRAINED` when nothing of the room is in flight |
| prefill | `DRAINED` | `NOTED` |
| prefill | anything of a room that the decode rank does not know | `GONE` |
| either | `HEARTBEAT` of an epoch that the receiver does not know | `RESET` |
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from kvproto.fsm.codec import U32, U64, Body
from kvproto.layout.placement import Placement
from kvproto.layout.sharding import Layout
from kvproto.protocol.states import Cause

Chunk = Annotated[int, Meta(ge=0, lt=2**24)]
Size = Annotated[int, Meta(ge=0, lt=2**48)]
#: bytes of a room's secret
MAX_SECRET = 64
#: what a decode engine shows for a room, as the prefill engine has given it out
Secret = Annotated[bytes, Meta(max_length=MAX_SECRET)]
#: the trace that a room belongs to, as W3C's Trace Context writes it (`traceparent`, ASCII): carried, and looked at by
#: nobody here
MAX_TRACEPARENT = 55
TraceParent = Annotated[bytes, Meta(max_length=MAX_TRACEPARENT)]
Why = Annotated[str, Meta(max_length=1024)]
#: `part:hash` of each part that two builds must have in common
Digest = Annotated[str, Meta(max_length=1024)]

#: `chunk` of the aux row: not a cell of the grid
AUX_CHUNK = -1
#: the wire version that this code speaks
VERSION = 1
#: bounds of what a message may carry, in bytes
MAX_AUX = 256 * 1024
MAX_PAGES = 4 * 1024 * 1024
MAX_ENDPOINT = 1024 * 1024


class Hello(Body, tag="HELLO", frozen=True):
    """Decode calls: who I am, what I hold, where it may be written."""

    version: U32
    digest: Digest
    session: U64
    group: U64
    rank: U32
    layout: Layout
    grid: U32
    lease: float
    endpoint: Annotated[bytes, Meta(max_length=MAX_ENDPOINT)]
    #: where the rows of its pool lie; nothing: as the layout says
    placement: Placement | None = None


class Welcome(Body, tag="WELCOME", frozen=True):
    """Prefill agrees: the link has this epoch from now on."""

    version: U32
    digest: Digest
    session: U64
    epoch: U64
    group: U64
    rank: U32
    layout: Layout
    grid: U32
    lease: float


class Refusal(Body, tag="REFUSAL", frozen=True):
    """Prefill does not agree, and says why."""

    session: U64
    why: Why


class Reset(Body, tag="RESET", frozen=True):
    """The epoch in the header is not one that I know: call again."""


class Heartbeat(Body, tag="HEARTBEAT", frozen=True):
    """I am here."""


class Open(Body, tag="OPEN", frozen=True):
    """Decode has allocated pages for the room: `tokens` in all, `prefix` of them already there.

    The pages that are to be written make so many `runs` of consecutive ones (0: not counted).
    """

    tokens: U32
    prefix: U32
    secret: Secret = b""
    traceparent: TraceParent = b""
    runs: U32 = 0


class Announce(Body, tag="ANNOUNCE", frozen=True):
    """Decode will open the room, of `tokens` tokens, when it has pages for it."""

    tokens: U32
    secret: Secret = b""
    traceparent: TraceParent = b""


class Opened(Body, tag="OPENED", frozen=True):
    """Prefill knows the room (its engine may not yet)."""


class StagingReq(Body, tag="STAGING_REQ", frozen=True):
    """Where may I stage my part of this chunk?"""

    chunk: Chunk


class StagingRsp(Body, tag="STAGING_RSP", frozen=True):
    """The region of the chunk, writable once the watermark allows; with the watermark as it is now."""

    chunk: Chunk
    grant: U64
    offset: Size
    round: U64
    end: Size
    mark_round: U64
    mark_tail: Size


class StagingQueued(Body, tag="STAGING_QUEUED", frozen=True):
    """Your request is in the ring's queue, which is served in turn; with the watermark as it is now."""

    chunk: Chunk
    mark_round: U64
    mark_tail: Size


class StagingRefused(Body, tag="STAGING_REFUSED", frozen=True):
    """This chunk is not staged here: ask for its pages."""

    chunk: Chunk


class PagesReq(Body, tag="PAGES_REQ", frozen=True):
    """I shall not stage my part of this chunk (any more): which pages does it go to?"""

    chunk: Chunk


class PagesRsp(Body, tag="PAGES_RSP", frozen=True):
    """The pages of the chunk, in token order: little-endian u32 each."""

    chunk: Chunk
    pages: Annotated[bytes, Meta(max_length=MAX_PAGES)]


class Watermark(Body, tag="WATERMARK", frozen=True):
    """The oldest live grant is at `tail` of `round`: what lies before it is free."""

    round: U64
    tail: Size


class WatermarkReq(Body, tag="WATERMARK_REQ", frozen=True):
    """What is the watermark?"""


class StgNotify(Body, tag="STG_NOTIFY", frozen=True):
    """My part of this chunk is in place: in the ring (`grant`), or in the pages (`grant` 0)."""

    chunk: Chunk
    grant: U64


class ChunkAck(Body, tag="CHUNK_ACK", frozen=True):
    """I know that your part of this chunk is in place."""

    chunk: Chunk


class Aux(Body, tag="AUX", frozen=True):
    """The room's aux row."""

    data: Annotated[bytes, Meta(max_length=MAX_AUX)]
    traceparent: TraceParent = b""


class AuxAck(Body, tag="AUX_ACK", frozen=True):
    """The aux row has landed."""


class Abort(Body, tag="ABORT", frozen=True):
    """Stop writing for this room, and tell me when nothing is in flight any more."""

    cause: Cause
    secret: Secret = b""


class Drained(Body, tag="DRAINED", frozen=True):
    """The room is over here: nothing of it is in flight on this link, nothing will be posted."""

    cause: Cause


class Noted(Body, tag="NOTED", frozen=True):
    """I know that you have drained."""


class Gone(Body, tag="GONE", frozen=True):
    """I do not know this room (any more)."""


LinkBody = Hello | Welcome | Refusal | Reset | Heartbeat | Watermark | WatermarkReq
RoomBody = (
    Open | Announce | Opened
    | StagingReq | StagingRsp | StagingQueued | StagingRefused | PagesReq | PagesRsp | StgNotify
    | ChunkAck | Aux | AuxAck | Abort | Drained | Noted | Gone
)  # fmt: skip
Message = LinkBody | RoomBody

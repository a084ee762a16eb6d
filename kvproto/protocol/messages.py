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
| prefill | `STAGING_REQ`, `PAGES_REQ` of a room that the decode rank does not know | `GONE` |
| prefill | these two, `STG_NOTIFY`, `AUX` of a room that is another group's | `GONE` |
| either | `HEARTBEAT` of an epoch that the receiver does not know | `RESET` |
| prefill | `GOODBYE` | `GOODBYE`: a decode rank that has not read it when its connection ends never does |
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from kvproto.fsm.codec import U32, U64, Body
from kvproto.layout.placement import Placement
from kvproto.layout.sharding import Layout
from kvproto.protocol.states import Cause

Chunk = Annotated[int, Meta(ge=0, lt=2**24)]
Size = Annotated[int, Meta(ge=0, lt=2**48)]
#: seconds of the clock of whoever asks; its answer repeats them, and nobody else reads them
Moment = Annotated[float, Meta(ge=0.0, lt=2.0**48)]
#: bytes of a room's secret
MAX_SECRET = 64
#: what a decode engine shows for a room, as the prefill engine has given it out
Secret = Annotated[bytes, Meta(max_length=MAX_SECRET)]
#: the trace that a room belongs to, as W3C's Trace Context writes it (`traceparent`, ASCII): carried, and looked at by
#: nobody here
MAX_TRACEPARENT = 55
TraceParent = Annotated[bytes, Meta(max_length=MAX_TRACEPARENT)]
Why = Annotated[str, Meta(max_length=1024)]
#: characters of a sentence about a failure
MAX_REASON = 300
Reason = Annotated[str, Meta(max_length=MAX_REASON)]
#: words with blanks between them; digests and agreements have `name:value` for a word
Words = Annotated[str, Meta(max_length=1024)]

#: `chunk` of the aux row: none of the plan's
AUX_CHUNK = -1
#: layer groups of a room, at most: a model has fewer layers
MAX_LAYER_GROUPS = 1 << 10
#: the newest wire version that this code speaks
VERSION = 3
#: the oldest one that it speaks: a peer that speaks none as new is refused
OLDEST = 3
#: bounds of what a message may carry, in bytes
MAX_AUX = 256 * 1024
MAX_PAGES = 4 * 1024 * 1024
MAX_ENDPOINT = 1024 * 1024


class Hello(Body, tag="HELLO", frozen=True):
    """Decode calls: who I am, what I hold, where it may be written."""

    #: the newest wire version that the sender speaks; the pair works at the highest one that both speak
    version: U32
    #: `part:hash` of each part of the tables and the code behind them; logged where it differs, and refuses nobody
    digest: Words
    #: the call: the decode rank counts it up for each call after a loss, and the answer repeats it, so that an answer
    #: to an older call is known as one
    session: U64
    #: the sender's engine instance: a number of its own
    group: Annotated[int, Meta(ge=1)]
    #: the sender's number in its group, stage · tp + tp_rank
    rank: U32
    #: how the sender's KV is cut; both sides derive who owes what to whom from the two layouts
    layout: Layout
    #: tokens a chunk; alike on both ends
    chunk_tokens: U32
    #: how long what a decode rank names may be written to; alike on both ends
    lease: float
    #: where the sender's memory may be written: the transport's own description, which the protocol does not read
    endpoint: Annotated[bytes, Meta(max_length=MAX_ENDPOINT)]
    #: where the rows of its pool lie; nothing: as the layout says
    placement: Placement | None = None
    #: whom it calls: an address may have passed to another instance, which says so and hears nothing else of the call.
    #: The group is 0 if whoever listens there is meant
    to_group: U64 = 0
    #: and which rank of that group
    to_rank: U32 = 0
    #: the oldest wire version that the sender speaks; 0: it speaks one alone
    oldest: U32 = 0
    #: `name:version` of what both must mean alike; any difference is refused; one that is not named stands at 1
    agreements: Words = ""
    #: what the sender can do beyond what its version demands, by name; unknown names are ignored
    capabilities: Words = ""


class Welcome(Body, tag="WELCOME", frozen=True):
    """Prefill agrees: the link has this epoch from now on."""

    version: U32
    digest: Words
    session: U64
    #: the link's name from now on, in every header; never used before by this prefill rank
    epoch: U64
    group: U64
    rank: U32
    layout: Layout
    chunk_tokens: U32
    lease: float
    oldest: U32 = 0
    agreements: Words = ""
    capabilities: Words = ""


class Refusal(Body, tag="REFUSAL", frozen=True):
    """Prefill does not agree, and says why."""

    session: U64
    #: the reason, for people
    why: Why


class Reset(Body, tag="RESET", frozen=True):
    """The epoch in the header is not one that I know: call again."""


class Heartbeat(Body, tag="HEARTBEAT", frozen=True):
    """I am here."""


class Goodbye(Body, tag="GOODBYE", frozen=True):
    """The sender closes the link in good order: its epoch is over."""

    #: nothing that the sender has written can land any more; a decode rank writes nothing, so always says so
    quiet: bool
    #: of a decode rank that was not answered, so knows no epoch: the call that it takes back; 0: the epoch is over
    session: U64 = 0


class Open(Body, tag="OPEN", frozen=True):
    """Decode has allocated pages for the room: `tokens` in all, `prefix` of them already there."""

    #: tokens of the prompt; the prefill engine has to name as many
    tokens: U32
    #: of these, the first ones that decode has already: none is sent; at most `tokens`
    prefix: U32
    #: what the prefill engine gave out with the request; a room that asks for one goes to nobody who does not show it
    secret: Secret = b""
    #: the trace of the request (W3C Trace Context, ASCII; empty: none), handed to the engine and read by nobody here
    traceparent: TraceParent = b""
    #: how many runs of consecutive pages those make that are to be written (0: not counted): what it may cost to write
    #: them page by page
    runs: U32 = 0
    #: groups of layers that each cell is cut into, each a chunk of its own, so that KV may leave while
    #: later layers are computed; at most as many as the smallest share has layers
    layer_groups: Annotated[int, Meta(ge=1, le=MAX_LAYER_GROUPS)] = 1
    #: every prefill rank has confirmed the room, and is asked how it stands: who knows nothing of it has forgotten it
    again: bool = False


class Announce(Body, tag="ANNOUNCE", frozen=True):
    """Decode will open the room, of `tokens` tokens, when it has pages for it."""

    #: tokens of the prompt; the prefix is not yet known
    tokens: U32
    secret: Secret = b""
    traceparent: TraceParent = b""


class Opened(Body, tag="OPENED", frozen=True):
    """Prefill knows the room (its engine may not yet)."""


class StagingReq(Body, tag="STAGING_REQ", frozen=True):
    """Request a region of the ring for the sender's part of this chunk."""

    #: which chunk of the room, from 0: a layer group of a cell; the aux row has messages of its own
    chunk: Chunk
    #: when this was asked, by the sender's clock; the answer repeats it, and what it grants is granted from then on
    asked: Moment = 0.0


class StagingRsp(Body, tag="STAGING_RSP", frozen=True):
    """The region of the chunk, writable once the watermark allows; with the watermark as it is now."""

    chunk: Chunk
    #: the region's number, from 1, given once in a decode rank's life; the notification repeats it
    grant: U64
    #: where the region begins, bytes from the start of the ring; the writer adds its part's place in the region, which
    #: follows from the plan
    offset: Size
    #: how often the ring had been gone round when the region was taken
    round: U64
    #: where the whole region ends, bytes from the start of the ring: what the watermark is compared with
    end: Size
    #: the watermark as it is now: the round of the oldest region that is not free
    mark_round: U64
    #: the watermark as it is now: bytes from the start of the ring, in that round
    mark_tail: Size
    #: what the request said that this answers
    asked: Moment = 0.0
    #: it answers none, but comes because the region did: it is granted from the first request on
    queued: bool = False


class StagingQueued(Body, tag="STAGING_QUEUED", frozen=True):
    """The request waits for the chunk's other writers or in the ring's queue; with today's watermark."""

    chunk: Chunk
    mark_round: U64
    mark_tail: Size
    #: other writers of the chunk have not asked yet: no region is reserved before their KV is there, too
    early: bool = False


class StagingRefused(Body, tag="STAGING_REFUSED", frozen=True):
    """This chunk is not staged here: ask for its pages."""

    chunk: Chunk


class PagesReq(Body, tag="PAGES_REQ", frozen=True):
    """I shall not stage my part of this chunk (any more): which pages does it go to?"""

    chunk: Chunk
    #: as in a request for a region
    asked: Moment = 0.0


class PagesRsp(Body, tag="PAGES_RSP", frozen=True):
    """The pages of the chunk, in token order: little-endian u32 each.

    Of a chunk at the end they are those of each cache there, by name: how many there are, then its slots or pages.  A
    joint chunk has them behind the pages of its tokens.
    """

    chunk: Chunk
    #: indices of the decode rank's pages, little-endian u32 each, in token order
    pages: Annotated[bytes, Meta(max_length=MAX_PAGES)]
    #: what the request said that this answers
    asked: Moment = 0.0


class Watermark(Body, tag="WATERMARK", frozen=True):
    """The oldest live grant is at `tail` of `round`: what lies before it is free."""

    #: the round of the oldest region that is not free; of an empty ring, of its head
    round: U64
    #: where that region begins, bytes from the start of the ring
    tail: Size
    #: of an answer: the nonce of its question
    nonce: U64 = 0


class WatermarkReq(Body, tag="WATERMARK_REQ", frozen=True):
    """Request the watermark."""

    #: the session of another incarnation that calls in the receiver's name; 0: it is the watermark that is wanted
    nonce: U64 = 0


class StgNotify(Body, tag="STG_NOTIFY", frozen=True):
    """My part of this chunk is in place: in the ring (`grant`), or in the pages (`grant` 0)."""

    chunk: Chunk
    #: the region that the part was written to, as it was told; 0: the part is in the pages
    grant: U64


class ChunkAck(Body, tag="CHUNK_ACK", frozen=True):
    """I know that your part of this chunk is in place."""

    chunk: Chunk


class Aux(Body, tag="AUX", frozen=True):
    """The room's aux row."""

    #: what decode needs beside the KV, as the prefill engine gave it
    data: Annotated[bytes, Meta(max_length=MAX_AUX)]
    traceparent: TraceParent = b""


class AuxAck(Body, tag="AUX_ACK", frozen=True):
    """The aux row has landed."""


class Blame(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The origin of a room's failure, for people: no table reads it."""

    #: the side and the index of the rank on which it began
    side: Annotated[str, Meta(pattern="^(prefill|decode)$", max_length=7)]
    rank: U32
    #: that rank's sentence; empty: the cause says it all
    why: Reason = ""


class Abort(Body, tag="ABORT", frozen=True):
    """Stop writing for this room, and tell me when nothing is in flight any more."""

    #: why the room is over; never `NONE`
    cause: Cause
    secret: Secret = b""
    #: where the failure began; nothing: on the sender
    blame: Blame | None = None


class Drained(Body, tag="DRAINED", frozen=True):
    """The room is over here: nothing of it is in flight on this link, nothing will be posted."""

    #: why the room is over here; `NONE`: it succeeded
    cause: Cause
    #: where the failure began; nothing: on the sender
    blame: Blame | None = None


class Noted(Body, tag="NOTED", frozen=True):
    """I know that you have drained."""


class Gone(Body, tag="GONE", frozen=True):
    """I do not know this room (any more)."""


LinkBody = Hello | Welcome | Refusal | Reset | Heartbeat | Goodbye | Watermark | WatermarkReq
RoomBody = (
    Open | Announce | Opened
    | StagingReq | StagingRsp | StagingQueued | StagingRefused | PagesReq | PagesRsp | StgNotify
    | ChunkAck | Aux | AuxAck | Abort | Drained | Noted | Gone
)  # fmt: skip
Message = LinkBody | RoomBody

"""The decode rank's grant: one chunk of one room, from the first request for it to the last byte.

The first writer that asks opens the grant; the region has one part per writer.  A rank of the room's group that does
not write to this chunk has no say in it.  Writers ask when their KV is computed, and a region is reserved only when
every writer has asked (`AWAIT_WRITERS` until then).  So no region is held for the forward of another pipeline stage
while ready chunks wait behind it: an early region would be head-of-line blocking.  Each request is answered at once:
with the region, or that the chunk waits for other writers, or that it is in the ring's queue (backpressure).

The fan-in is a *set* of writers, so a notification that comes twice counts once.  A writer that asks for the pages
instead has given its part of the region up (`by_pages`); it counts like the others when its bytes are in the pages.
The region does not wait for it: when all writers that stage have written, their parts are scattered and the region is
free. When all writers have given the region up, it is free at once.

A region is freed in three ways only: its scatter has ended, no writer may write it (`FILLING_PAGES`), or the room
has failed and every writer has drained (`QUARANTINED` until then).  A scatter is launched once, when the part of the
last distinct writer that stages is in place.

A part is confirmed when it has arrived, not when it was scattered.  Its writer does not need it any longer, and may
succeed although this rank's room fails later.  Success of the transfer is what this side reports.

A staged write that carries its notification may fail and have told of its part.  If the notification comes first, the
writer's request for pages is answered with the confirmation.  If the request comes first, the notification is ignored
(`told_before`): the region may be free, and the part comes by pages.

A freed grant leaves nothing behind: the room's `done` remembers the chunk.
"""

from __future__ import annotations

from msgspec.structs import replace

from kvproto.fsm.table import Output, Table, Value
from kvproto.layout.cut import NO_CUT, Cut
from kvproto.protocol import effects as do
from kvproto.protocol.events import (
    ChunkLanded,
    GrantClosed,
    GrantEvent,
    PagesRequested,
    PartArrived,
    RoomDrained,
    RoomFailed,
    RoomStopped,
    Scattered,
    ScatterFailed,
    SpaceDenied,
    SpaceQueued,
    SpaceReserved,
    SpaceUsable,
    StagingRequested,
)
from kvproto.protocol.kinds import RankMask
from kvproto.protocol.messages import ChunkAck, StagingRefused
from kvproto.protocol.states import Cause
from kvproto.protocol.states import DGrant as S


class DGrantValue(Value, frozen=True, gc=False):
    """One chunk; the masks have a bit for each prefill rank, sizes are bytes."""

    #: the tokens and the layer group of the chunk
    cut: Cut = NO_CUT
    #: all that contribute
    writers: RankMask = 0
    #: those that asked for the region, or for the pages
    asked: RankMask = 0
    #: those whose part is in place
    arrived: RankMask = 0
    #: those that write into the pages instead
    by_pages: RankMask = 0
    grant: int = 0
    offset: int = 0
    round: int = 0
    end: int = 0
    #: the room has failed while the region was scattered
    over: bool = False


V = DGrantValue


# ------------------------------------------------------------------------------------------- guards
def not_a_writer(v: V, e: StagingRequested | PagesRequested, now: float) -> bool:
    """The sender does not contribute to the chunk."""
    return not v.writers >> e.peer & 1


def sole(v: V, e: StagingRequested | PagesRequested, now: float) -> bool:
    """The chunk has no other writer."""
    return e.writers == 1 << e.peer


def last_asks(v: V, e: StagingRequested | PagesRequested, now: float) -> bool:
    """With this writer all have asked."""
    return v.asked | 1 << e.peer == v.writers


def gave_up(v: V, e: StagingRequested, now: float) -> bool:
    """The writer has given the region up."""
    return bool(v.by_pages >> e.peer & 1)


def there(v: V, e: StagingRequested | PagesRequested | PartArrived, now: float) -> bool:
    """The writer's part is in place."""
    return bool(v.arrived >> e.peer & 1)


def told_before(v: V, e: PartArrived, now: float) -> bool:
    """The staged write has failed since, and its writer has given the region up."""
    return e.grant == v.grant and bool(v.grant) and bool(v.by_pages >> e.peer & 1)


def last_gives_up(v: V, e: PagesRequested, now: float) -> bool:
    """With this writer all have given the region up."""
    return v.by_pages | 1 << e.peer == v.writers


def rest_is_there(v: V, e: PagesRequested, now: float) -> bool:
    """All other writers that stage have written."""
    return not v.writers & ~(v.by_pages | 1 << e.peer) & ~v.arrived


def came_by_pages(v: V, e: PartArrived, now: float) -> bool:
    """The writer has given the region up, and its part is in the pages."""
    return not e.grant and bool(v.by_pages >> e.peer & 1)


def as_agreed(v: V, e: PartArrived, now: float) -> bool:
    """The part came the way that was agreed for this writer."""
    return e.grant == (0 if v.by_pages >> e.peer & 1 else v.grant) and bool(v.writers >> e.peer & 1)


def last_part(v: V, e: PartArrived, now: float) -> bool:
    """Every writer's part is in place."""
    return as_agreed(v, e, now) and v.arrived | 1 << e.peer == v.writers


def last_staged(v: V, e: PartArrived, now: float) -> bool:
    """The part of every writer that stages is in place."""
    return as_agreed(v, e, now) and not v.writers & ~v.by_pages & ~(v.arrived | 1 << e.peer)


def over(v: V, e: Scattered, now: float) -> bool:
    """The room has failed."""
    return v.over


def all_there(v: V, e: Scattered, now: float) -> bool:
    """Every writer's part is in place."""
    return v.arrived == v.writers


def _waiting(v: V) -> int:
    return v.asked & ~v.by_pages & ~v.arrived


def in_doubt(v: V) -> int:
    """The writers (mask) that may have been told where to write, and whose part is not in place."""
    told = v.asked & v.by_pages if v.state in (S.AWAIT_WRITERS, S.AWAIT_SPACE) else v.asked
    return told & ~v.arrived


# --------------------------------------------------------------------------------------------- lets
def first_asks(v: V, e: StagingRequested, now: float) -> V:
    """The first writer asks for the region."""
    return replace(v, cut=e.cut, writers=e.writers, asked=1 << e.peer)


def first_gives_up(v: V, e: PagesRequested, now: float) -> V:
    """The first writer asks for the pages; others may have no way there."""
    return replace(v, cut=e.cut, writers=e.writers, asked=1 << e.peer, by_pages=1 << e.peer)


def asks(v: V, e: StagingRequested, now: float) -> V:
    """One more writer asks for the region."""
    return replace(v, asked=v.asked | 1 << e.peer)


def gives_up(v: V, e: PagesRequested, now: float) -> V:
    """One more writer has given the region up."""
    return replace(v, asked=v.asked | 1 << e.peer, by_pages=v.by_pages | 1 << e.peer)


def stop(v: V, e: RoomStopped, now: float) -> V:
    """The room has failed; the scatter ends by itself."""
    return replace(v, over=True)


def asks_pages(v: V, e: PagesRequested, now: float) -> V:
    """One more writer asks for the pages."""
    return replace(v, asked=v.asked | 1 << e.peer)


def have_space(v: V, e: SpaceReserved, now: float) -> V:
    """The region is there."""
    return replace(v, grant=e.grant, offset=e.offset, round=e.round, end=e.end)


def all_by_pages(v: V, e: SpaceDenied, now: float) -> V:
    """Nobody will stage this chunk."""
    return replace(v, by_pages=v.writers)


def arrive(v: V, e: PartArrived, now: float) -> V:
    """One more part is in place."""
    return replace(v, arrived=v.arrived | 1 << e.peer)


# ------------------------------------------------------------------------------------------ effects
def reserve(v: V, e: StagingRequested | PagesRequested) -> Output:
    """Take a region, or queue for one."""
    return do.ReserveSpace(e.room, e.chunk, v.cut)


def cancel(v: V, e: GrantEvent) -> Output:
    """Queue no more."""
    return do.CancelSpace(e.room, e.chunk)


def free(v: V, e: GrantEvent) -> Output:
    """The region is the ring's again."""
    return do.FreeSpace(v.grant)


def tell_grant(v: V, e: SpaceReserved) -> Output:
    """Tell the writers that asked where the region is."""
    return do.SendGrant(e.room, v.asked & ~v.by_pages, e.chunk, v.grant, v.offset, v.round, v.end, queued=True)


def say_grant(v: V, e: StagingRequested) -> Output:
    """Tell this writer where the region is."""
    return do.SendGrant(e.room, 1 << e.peer, e.chunk, v.grant, v.offset, v.round, v.end, e.asked)


def tell_queued(v: V, e: SpaceQueued) -> Output:
    """Tell the writers that asked that they are in the queue."""
    return do.SendQueued(e.room, v.asked, e.chunk)


def say_queued(v: V, e: StagingRequested) -> Output:
    """Tell this writer that it is in the queue."""
    return do.SendQueued(e.room, 1 << e.peer, e.chunk)


def say_early(v: V, e: StagingRequested) -> Output:
    """Tell this writer that others have not asked."""
    return do.SendQueued(e.room, 1 << e.peer, e.chunk, early=True)


def tell_denied(v: V, e: SpaceDenied) -> Output:
    """Tell the writers that asked that there is no region."""
    return do.Send(e.room, v.asked, StagingRefused(e.chunk))


def say_denied(v: V, e: StagingRequested) -> Output:
    """Tell this writer that there is no region."""
    return do.Send(e.room, 1 << e.peer, StagingRefused(e.chunk))


def say_pages(v: V, e: PagesRequested) -> Output:
    """Tell this writer the pages."""
    return do.TransmitPages(e.link, e.epoch, e.room, e.chunk, v.cut, e.asked)


def tell_watermark(v: V, e: SpaceUsable) -> Output:
    """Tell the writers that may be waiting."""
    return do.SendWatermark(e.room, _waiting(v))


def confirm(v: V, e: PartArrived | PagesRequested) -> Output:
    """Confirm the part."""
    return do.Send(e.room, 1 << e.peer, ChunkAck(e.chunk))


def scatter(v: V, e: PartArrived | PagesRequested) -> Output:
    """Scatter the staged parts."""
    return do.LaunchScatter(e.room, e.chunk, v.writers & ~v.by_pages, v.offset, v.end, v.cut)


def land(v: V, e: GrantEvent) -> ChunkLanded:
    """Tell the room that the chunk is in its pages."""
    return ChunkLanded(e.room, e.chunk)


def close(v: V, e: GrantEvent) -> GrantClosed:
    """Tell the room that the grant has ended."""
    return GrantClosed(e.room, e.chunk)


def fail_scatter(v: V, e: ScatterFailed) -> RoomFailed:
    """Tell the room that the scatter failed."""
    return RoomFailed(e.room, Cause.KERNEL_FAILED)


decode_grant = Table(
    "decode_grant", DGrantValue, S, initial=S.NEW, final=(S.FREED,),
    events=(
        StagingRequested, SpaceReserved, SpaceQueued, SpaceUsable, PartArrived, Scattered, SpaceDenied, PagesRequested,
        ScatterFailed, RoomStopped, RoomDrained,
    ),
    timers={},
    success_path=(S.NEW, S.AWAIT_WRITERS, S.AWAIT_SPACE, S.FILLING, S.SCATTERING, S.FREED),
    failure_states=(S.QUARANTINED,),
)  # fmt: skip
opens, row, ignore, refuse = decode_grant.opens, decode_grant.row, decode_grant.ignore, decode_grant.refuse

QUEUED = (S.AWAIT_WRITERS, S.AWAIT_SPACE)
OPEN = (*QUEUED, S.FILLING, S.FILLING_PAGES)
#: the region that it names is its own
HOLDS = (S.FILLING, S.SCATTERING, S.QUARANTINED)

# fmt: off
# ---------------------------------------------------------------------------------------- the staged way
refuse((*OPEN, S.SCATTERING), (StagingRequested, PagesRequested), "not a writer of the chunk", when=not_a_writer)
opens(S.NEW,         StagingRequested, S.AWAIT_SPACE,   when=sole, let=first_asks, do=(reserve,))
opens(S.NEW,         StagingRequested, S.AWAIT_WRITERS, let=first_asks, do=(say_early,))
row(QUEUED,          StagingRequested,                  when=gave_up, do=(say_denied,))
row(S.AWAIT_WRITERS, StagingRequested, S.AWAIT_SPACE,   when=last_asks, let=asks, do=(reserve,))
row(S.AWAIT_WRITERS, StagingRequested,                  let=asks, do=(say_early,))
row(S.AWAIT_SPACE,   StagingRequested,                  do=(say_queued,))
row(S.AWAIT_SPACE,   SpaceQueued,                       do=(tell_queued,))
row(S.AWAIT_SPACE,   SpaceReserved,    S.FILLING,       let=have_space, do=(tell_grant,))
row(S.FILLING,       StagingRequested,                  when=gave_up, do=(say_denied,))
row(S.FILLING,       StagingRequested,                  do=(say_grant,))
row(S.FILLING,       SpaceUsable,                       do=(tell_watermark,))
row(S.FILLING,       PartArrived,                       when=there, do=(confirm,))
row(S.FILLING,       PartArrived,      S.SCATTERING,    when=last_staged, let=arrive, do=(confirm, scatter))
row(S.FILLING,       PartArrived,                       when=as_agreed, let=arrive, do=(confirm,))
row(S.SCATTERING,    Scattered,        S.FREED,         when=over, do=(free, close))
row(S.SCATTERING,    Scattered,        S.FREED,         when=all_there, do=(free, land))

# ------------------------------------------------------------------------------------- the way over pages
opens(S.NEW,         PagesRequested,   S.FILLING_PAGES, when=sole, let=first_gives_up, do=(say_pages,))
opens(S.NEW,         PagesRequested,   S.AWAIT_WRITERS, let=first_gives_up, do=(say_pages,))
row(S.AWAIT_SPACE,   SpaceDenied,      S.FILLING_PAGES, let=all_by_pages, do=(tell_denied,))
row((*OPEN, S.SCATTERING), PagesRequested,              when=there, do=(confirm,))
row(S.AWAIT_WRITERS, PagesRequested,   S.FILLING_PAGES, when=last_gives_up, let=gives_up, do=(say_pages,))
row(S.AWAIT_WRITERS, PagesRequested,   S.AWAIT_SPACE,   when=last_asks, let=gives_up, do=(say_pages, reserve))
row(S.AWAIT_WRITERS, PagesRequested,                    let=gives_up, do=(say_pages,))
row(S.AWAIT_SPACE,   PagesRequested,   S.FILLING_PAGES, when=last_gives_up, let=gives_up, do=(cancel, say_pages))
row(S.AWAIT_SPACE,   PagesRequested,                    let=gives_up, do=(say_pages,))
row(QUEUED,          PartArrived,                       when=came_by_pages, let=arrive, do=(confirm,))
row(S.FILLING,       PagesRequested,   S.FILLING_PAGES, when=last_gives_up, let=gives_up, do=(free, say_pages))
row(S.FILLING,       PagesRequested,   S.SCATTERING,    when=rest_is_there, let=gives_up, do=(say_pages, scatter))
row(S.FILLING,       PagesRequested,                    let=gives_up, do=(say_pages,))
ignore(S.FILLING_PAGES, StagingRequested, "a late request: the part is in place", when=there)
row(S.FILLING_PAGES, StagingRequested,                  do=(say_denied,))
row(S.FILLING_PAGES, PagesRequested,                    let=asks_pages, do=(say_pages,))
row(S.FILLING_PAGES, PartArrived,                       when=there, do=(confirm,))
row(S.FILLING_PAGES, PartArrived,      S.FREED,         when=last_part, let=arrive, do=(confirm, land))
row(S.FILLING_PAGES, PartArrived,                       when=as_agreed, let=arrive, do=(confirm,))
row(S.SCATTERING,    PagesRequested,                    do=(say_pages,))
row(S.SCATTERING,    PartArrived,                       when=there, do=(confirm,))
row(S.SCATTERING,    PartArrived,                       when=came_by_pages, let=arrive, do=(confirm,))
row(S.SCATTERING,    Scattered,        S.FILLING_PAGES, do=(free,))

# -------------------------------------------------------------------------------------- the room has failed
row(S.SCATTERING,    ScatterFailed,    S.FREED,         do=(free, fail_scatter, close))
row(S.SCATTERING,    RoomStopped,                       let=stop)
row(S.AWAIT_WRITERS, RoomStopped,      S.FREED,         do=(close,))
row(S.AWAIT_SPACE,   RoomStopped,      S.FREED,         do=(cancel, close))
row(S.FILLING,       RoomStopped,      S.QUARANTINED)
row(S.FILLING_PAGES, RoomStopped,      S.FREED,         do=(close,))
row(S.QUARANTINED,   RoomDrained,      S.FREED,         do=(free, close))

# --------------------------------------------------------------------------------------- what means nothing
ignore(S.SCATTERING, StagingRequested, "a late request: what is staged is in place")
ignore(S.SCATTERING, RoomDrained,      "the scatter ends by itself")
ignore(S.QUARANTINED, (StagingRequested, PagesRequested, PartArrived), "the room has failed; the writer is told")
ignore((S.FILLING, S.FILLING_PAGES, S.SCATTERING), PartArrived, "its write has failed; the writer goes by pages", when=told_before)
ignore((S.SCATTERING, S.QUARANTINED), SpaceUsable, "no writer waits for the watermark")
ignore(S.NEW,        SpaceUsable,      "its region was given back")

# ------------------------------------------------------------------------------- what breaks the protocol
refuse((*OPEN, S.SCATTERING), PartArrived, "not the way that was agreed for this writer")
refuse((S.NEW, *OPEN, S.QUARANTINED), (Scattered, ScatterFailed), "no scatter is under way")
# fmt: on

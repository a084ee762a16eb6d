"""The prefill rank's send: one chunk of one room to one decode rank.

A staged send asks for a region of the ring when its KV is computed, not before (`AWAIT_KV`).  A region that is
granted earlier stays empty until the forward ends.  The ring is freed in order, so chunks that are ready would wait
behind a forward of any other room: head-of-line blocking.  Two other designs keep early grants: to reclaim an empty
region when a ready chunk queues, or to replace the ring by a free list.  Neither can gain more than early grants gain
in a ring so large that nobody waits: 0.1 to 0.2 ms of the median on replayed traces, which is the round trip of the
request.  p99 is the same, with `prefetch` and without.

A send writes when it has a grant and the watermark that makes the region usable; it waits for no other send.  It
takes a local staging slot only when it has both, so it holds nothing while it waits.  Then follow gather, write,
notification and the decode rank's confirmation.  If the engine withdraws the KV before the gather, the send gives the
region up at once, asks for the pages, and waits there for its KV.  In a closed pool there are no pages to ask for
(`closed`).  The send then keeps its region, or its place in the queue, waits in `AWAIT_KV` and asks again: the decode
rank answers with the same region, so no part is written into a region that was told free.  Such a region stays empty
until the preempted forward is repeated, and ready chunks behind it wait.  To give it up and come back needs requests
and grants that are numbered: an old grant that is still on its way would be taken for the new one.

Every wait for an answer ends by a timer.  The send repeats its request, each time after twice the time of the one
before; every request is idempotent.  When the tries are used up, or the region is refused, the send gives the ring up
and asks for the chunk's *pages*.  The decode rank marks this part as not staged before it answers, so the fan-in
still completes.  That path needs no ring space: no cycle of waits can close, and the ring is deadlock-free.  It is
also the route of a send for which it is the cheaper one: two guards of `SendOpened` compare the costs
(`kvproto.layout.costs`), whatever the sharding.

Load moves no send to the pages.  Flow control is by credits: only so many requests to a decode rank may be unanswered
at a time, and the others queue (`AWAIT_CREDIT`).  A request is answered at once, in one of three ways.  The first is
the region.  The second says that other writers of the chunk have not asked yet (`AWAIT_WRITERS`): their KV is
computed later, and the decode rank reserves no region before it is there.  The third is backpressure: the chunk is in
the ring's queue (`AWAIT_TURN`), which is served in turn.  A send that has waited there for much of a lease asks once
more when it gets its region, and so has it for a whole lease.

The region that comes of the queue is told once, and a connection that is cut loses many such answers at a time.  So a
queued send asks at each end of its timer, also while the queue moves.  If it asked only while the queue stands still,
each send would find its loss only when its own empty region is the oldest one.  The losses would be found one after the
other, and the rooms of all other prefill ranks would wait for all of them.  The price is half a request a second and
queued send: a replay whose queue was minutes long took twice the steps, and no room was later.

Pages are expensive: many small writes instead of one.  As long as the watermark rises the queue moves, and no try is
used up.  While it stands still tries are used up, and a send leaves only after it has waited for as long as pages
take longer (`pages_extra_s`).  So waiting and pages together cost at most twice what the better of the two would have.
Where it cannot go page to page, waiting is always cheaper: the room's own timers end it, never its patience with the
ring.  The KV of another writer is awaited for as long as a forward may take, not for ever: two engines that compute
two rooms in opposite orders, and keep the memory of one until it is sent, would wait for each other.  Only so many
sends at a time write page to page; the others queue for a permit (`AWAIT_PERMIT`).  While all permits are taken, no
send leaves the ring.

At most one staged write is ever begun: the only row that begins one leaves `GATHERING` for `WRITING`, and no row
leads back.  A write is a machine of its own (`prefill_write`).  A staged one that fails is retried page to page as soon
as no byte of it can land any more (`retries`): the region is given up before the pages are named.  Its writes into
pages are not retried: some of them may have landed, and to begin again would repeat the bulk.  Where there is no way
page to page, nothing is retried.  Each other failure fails the room.

A write of which nothing was posted when its lease ended (`WriteLapsed`) has not failed.  The region is still the
send's; it asks for the region once more and has it for another lease, as it does where the lease ends earlier.  The
lease runs from the sending of the request that was answered, so this rank's lease always ends before the decode
rank's: a request says when it was made (`asked`), and its answer repeats it.  A grant out of the ring's queue answers
no request; its lease runs from the first one (`first`).  The write asks for the lease at each post.  A write into
pages has many posts, and one that its lease cuts off in the middle has failed; so it begins with half a lease left
(`begin_by`), or the send asks for the pages once more.

Where the transport's writes carry their own notification (`native_notify`), the decode rank may confirm a part before this
rank has seen its write end.  The confirmation is remembered (`acked`), and nothing is notified twice.  It also proves
that every byte arrived, so a write that fails afterwards has succeeded.  A write that fails before it may have
delivered its notification, too (`told`).  Whichever the decode rank hears first decides: after the notification it
answers the request for pages with the confirmation (`ChunkAcked`), after the request it ignores the notification.

When the room ends, a send that only waits stops at once; one with a gather or a write in flight drains.  Messages
that arrive for a send that is over are rows of `NEW`: there is no send.  The aux row travels as a send too: without
ring and pages, but asked for, confirmed and repeated like the others.  While the room's last part is being written into
pages its first message waits for that write's note, and goes with it (`notification`).
"""

from __future__ import annotations

from msgspec.structs import replace

from kvproto.fsm.table import Output, Table, Value
from kvproto.protocol import effects as do
from kvproto.protocol.events import (
    AuxReady,
    ChunkAcked,
    CreditTaken,
    Gathered,
    GatherFailed,
    KvProduced,
    KvWithdrawn,
    PagesBegun,
    PagesGranted,
    PermitTaken,
    RoomFailed,
    SendEvent,
    SendFinished,
    SendOpened,
    SendStopped,
    SlotTaken,
    StagingDeferred,
    StagingDenied,
    StagingGranted,
    Target,
    TimerFired,
    WatermarkReached,
    WriteBegun,
    WriteCompleted,
    WriteFailed,
    WriteLapsed,
    WriteStopped,
)
from kvproto.protocol.kinds import Mark, SlotOrNone
from kvproto.protocol.messages import PagesReq, StagingReq, StgNotify
from kvproto.protocol.states import Cause
from kvproto.protocol.states import PSend as S


class PSendValue(Value, frozen=True, gc=False):
    """One send; times in seconds of this rank's clock, sizes in bytes."""

    #: bound when it opens
    to: Target = Target()
    #: the chunk's KV is computed
    kv: bool = False
    #: how often the state's timer has ended while it counted
    tries: int = 0
    #: the link's watermark when it last did
    mark: Mark = 0
    #: when the grant or the pages were asked for, as requests say; one that is repeated unanswered says the same
    asked: float = 0.0
    #: when the grant was first asked for
    first: float = 0.0
    #: when what was given can no longer be used
    lease: float = 0.0
    #: until when a write into the pages may begin: half a lease is left to it
    begin_by: float = 0.0
    grant: int = 0
    offset: int = 0
    round: int = 0
    end: int = 0
    slot: SlotOrNone = -1
    #: the chunk's pages while the KV, or a permit, is awaited, u32 little-endian each
    pages: bytes = b""
    #: the staged write carries its own notification
    native_notify: bool = False
    #: it cannot go page to page
    closed: bool = False
    #: the part was confirmed before its write was seen to end
    acked: bool = False
    #: a staged write has failed, and may have told the decode rank that the part is in place
    told: bool = False


V = PSendValue
#: states in which the room's pages are read
READING = (S.GATHERING, S.WRITING_PAGES)
On = SendEvent | TimerFired


# ------------------------------------------------------------------------------------------- guards
def staged_and_produced(v: V, e: SendOpened, now: float) -> bool:
    """KV that is computed, and pages would not be cheaper than the ring."""
    return staged(v, e, now) and e.ready


def staged(v: V, e: SendOpened, now: float) -> bool:
    """KV, and pages would not be cheaper than the ring."""
    return not e.aux and e.staged_cost <= e.pages_cost


def paged(v: V, e: SendOpened, now: float) -> bool:
    """KV, and pages are cheaper."""
    return not e.aux


def aux_ready(v: V, e: SendOpened, now: float) -> bool:
    """The aux row is there already."""
    return e.ready


def usable(v: V, e: StagingGranted, now: float) -> bool:
    """The region may be written."""
    return e.usable


def granted_from(v: V, e: StagingGranted, now: float) -> float:
    """Return the time from which the region is this send's."""
    return v.first if e.queued else min(e.asked, now)


def early(v: V, e: StagingDeferred, now: float) -> bool:
    """Other writers of the chunk have not asked yet."""
    return e.early


def waited_long(v: V, e: StagingGranted, now: float) -> bool:
    """Much of the lease has passed in the queue."""
    return now >= granted_from(v, e, now) + e.lease / 2


def produced(v: V, e: On, now: float) -> bool:
    """The KV is there."""
    return v.kv


def closed(v: V, e: SendEvent, now: float) -> bool:
    """It cannot go page to page."""
    return v.closed


def lease_holds(v: V, e: SendEvent, now: float) -> bool:
    """The lease of the region still holds."""
    return now < v.lease


def produced_in_time(v: V, e: PagesGranted, now: float) -> bool:
    """The KV is there, and a write into the pages has half a lease left."""
    return v.kv and now < e.asked + e.lease / 2


def older(v: V, e: PagesGranted, now: float) -> bool:
    """It answers an older request than the last one."""
    return e.asked < v.asked


def produced_and_older(v: V, e: PagesGranted, now: float) -> bool:
    """The KV is there, and it answers an older request than the last one."""
    return v.kv and e.asked < v.asked


def may_begin(v: V, e: SendEvent, now: float) -> bool:
    """A write into the pages has half a lease left."""
    return now < v.begin_by


def moves(v: V, e: TimerFired, now: float) -> bool:
    """The watermark has risen since the timer last ended: the queue moves."""
    return e.mark != v.mark


def patient(v: V, e: TimerFired, now: float) -> bool:
    """Tries are left, no more sends may write page to page, or to wait was cheaper so far."""
    return v.tries < e.tries or e.full or now < v.asked + e.pages_extra_s


def tries_left(v: V, e: TimerFired, now: float) -> bool:
    """There are tries left."""
    return v.tries < e.tries


def native_notify(v: V, e: ChunkAcked | WriteCompleted, now: float) -> bool:
    """The write carries its own notification."""
    return v.native_notify


def acked(v: V, e: WriteCompleted, now: float) -> bool:
    """The part has been confirmed."""
    return v.acked


def reads_withdrawn(v: V) -> bool:
    """It reads pages whose KV the engine has taken back, for bytes that leave this rank.

    A failed send with a slot writes from that, or nothing: a send that has let go of its pages never reads them again.
    """
    return not v.kv and (v.state in READING or (v.state is S.DRAINING and v.slot < 0))


def settled(v: V, e: WriteFailed, now: float) -> bool:
    """No byte of the failed write can land any more."""
    return e.settled


def settled_after_ack(v: V, e: WriteFailed, now: float) -> bool:
    """No byte of the failed write can land any more, and the part has been confirmed."""
    return e.settled and v.acked


def retries(v: V, e: WriteFailed, now: float) -> bool:
    """No byte of the failed write can land any more, and it can go page to page."""
    return e.settled and not v.closed


def told(v: V, e: ChunkAcked, now: float) -> bool:
    """Its staged write has failed, and may have told of the part."""
    return v.told


def may_have_told(v: V) -> bool:
    """The send asks for pages because its staged write has failed, which may have told of the part."""
    return v.state is S.AWAIT_PAGES and v.told


def tried_so_far(v: V) -> int:
    """How often the state's timer has ended."""
    return v.tries


# --------------------------------------------------------------------------------------------- lets
def open_(v: V, e: SendOpened, now: float) -> V:
    """Set the facts that are known when it begins; a request for pages leaves at once."""
    return replace(v, to=e.to, kv=e.ready, asked=now, native_notify=e.native_notify, closed=e.closed)


def bind(v: V, e: SendOpened, now: float) -> V:
    """Return the destination of the aux row."""
    return replace(v, to=e.to)


def ask(v: V, e: CreditTaken, now: float) -> V:
    """A request for the region: the first, or once more because the lease of the one before is over."""
    return replace(v, asked=now, first=v.first or now)


def take_grant(v: V, e: StagingGranted, now: float) -> V:
    """The region is ours until the lease ends."""
    return replace(
        v, grant=e.grant, offset=e.offset, round=e.round, end=e.end, lease=granted_from(v, e, now) + e.lease, tries=0
    )


def keep_pages(v: V, e: PagesGranted, now: float) -> V:
    """The pages are ours until the lease ends."""
    since = min(e.asked, now)
    return replace(v, pages=e.pages, lease=since + e.lease, begin_by=since + e.lease / 2)


def queue(v: V, e: StagingDeferred, now: float) -> V:
    """The decode rank has the request."""
    return replace(v, tries=0)


def note_mark(v: V, e: TimerFired, now: float) -> V:
    """Nobody is late."""
    return replace(v, tries=0, mark=e.mark)


def have_kv(v: V, e: KvProduced, now: float) -> V:
    """The KV is there."""
    return replace(v, kv=True)


def lose_kv(v: V, e: KvWithdrawn, now: float) -> V:
    """The KV is there no more."""
    return replace(v, kv=False)


def have_slot(v: V, e: SlotTaken, now: float) -> V:
    """The slot is ours."""
    return replace(v, slot=e.slot)


def ask_anew(v: V, e: On, now: float) -> V:
    """Give up the grant; the new request says when it was made."""
    return replace(v, grant=0, slot=-1, tries=0, asked=now)


def retry(v: V, e: WriteFailed, now: float) -> V:
    """As `ask_anew`; the failed write may have told of the part."""
    return replace(v, grant=0, slot=-1, tries=0, asked=now, told=v.native_notify)


def ask_anew_with_kv(v: V, e: KvProduced, now: float) -> V:
    """As `ask_anew`; the KV is there."""
    return replace(v, kv=True, grant=0, slot=-1, tries=0, asked=now)


def ask_anew_without_kv(v: V, e: KvWithdrawn, now: float) -> V:
    """As `ask_anew`; the KV is there no more."""
    return replace(v, kv=False, grant=0, slot=-1, tries=0, asked=now)


def await_kv(v: V, e: KvWithdrawn | Gathered | WriteLapsed, now: float) -> V:
    """The KV is there no more; the region, or the place in the queue, is asked for again with it."""
    return replace(v, kv=False, grant=0, slot=-1, tries=0)


def ask_once_more(v: V, e: On, now: float) -> V:
    """The answer came too late, or its lease will end; the new request says when it was made."""
    return replace(v, asked=now)


def tried(v: V, e: TimerFired, now: float) -> V:
    """One try fewer."""
    return replace(v, tries=v.tries + 1)


def have_ack(v: V, e: ChunkAcked, now: float) -> V:
    """The part is confirmed; the write has yet to end."""
    return replace(v, acked=True)


def begin_ack(v: V, e: WriteCompleted, now: float) -> V:
    """The part is in place; the confirmation may be asked for anew."""
    return replace(v, tries=0)


# ------------------------------------------------------------------------------------------ effects
def ask_grant(v: V, e: On) -> Output:
    """Ask for a region."""
    return do.Transmit(v.to.link, v.to.epoch, e.room, StagingReq(e.chunk, v.asked))


def ask_pages(v: V, e: On) -> Output:
    """Ask for the pages, and say thereby that this part will not be staged."""
    return do.Transmit(v.to.link, v.to.epoch, e.room, PagesReq(e.chunk, v.asked))


def ask_watermark(v: V, e: TimerFired) -> Output:
    """Pull the watermark."""
    return do.AskWatermark(e.room, e.peer)


def watch(v: V, e: StagingGranted) -> Output:
    """Be told when the watermark passes."""
    return do.WatchWatermark(e.room, e.chunk, e.peer, v.round, v.end)


def take_slot(v: V, e: SendEvent) -> Output:
    """Take a slot, or queue for one."""
    return do.TakeSlot(e.room, e.chunk, e.peer)


def take_credit(v: V, e: On) -> Output:
    """Be let ask, or queue for it."""
    return do.TakeCredit(e.room, e.chunk, e.peer)


def free_credit(v: V, e: On) -> Output:
    """The request is answered, or given up."""
    return do.FreeCredit(e.room, e.chunk, e.peer)


def take_permit(v: V, e: SendEvent) -> Output:
    """Be let write page to page, or queue for it."""
    return do.TakePermit(e.room, e.chunk, e.peer)


def free_permit(v: V, e: On) -> Output:
    """Write page to page no more, if it did."""
    return do.FreePermit(e.room, e.chunk, e.peer)


def leave_queue(v: V, e: On) -> Output:
    """Queue no more."""
    return do.LeaveQueue(e.room, e.chunk, e.peer)


def free_slot(v: V, e: On) -> Output:
    """Give the slot back, if there is one."""
    return do.FreeSlot(e.room, e.chunk, e.peer)


def gather(v: V, e: SlotTaken) -> Output:
    """Gather into the slot."""
    return do.LaunchGather(e.room, e.chunk, e.peer, v.to, v.slot, v.offset, v.grant)


def write(v: V, e: Gathered) -> WriteBegun:
    """Begin the one write."""
    return WriteBegun(e.room, e.chunk, e.peer, v.to, v.slot, v.offset, v.grant, v.lease)


def write_pages(v: V, e: PermitTaken) -> PagesBegun:
    """Begin the small writes into the pages that were named."""
    return PagesBegun(e.room, e.chunk, e.peer, v.to, v.pages, v.lease)


def stop_write(v: V, e: On) -> WriteStopped:
    """Post nothing more."""
    return WriteStopped(e.room, e.chunk, e.peer)


def notify(v: V, e: On) -> Output:
    """Say that the part is in place."""
    return do.Transmit(v.to.link, v.to.epoch, e.room, StgNotify(e.chunk, v.grant))


def send_aux(v: V, e: On) -> Output:
    """Send the aux row."""
    return do.TransmitAux(v.to.link, v.to.epoch, e.room)


def finish(v: V, e: On) -> SendFinished:
    """Tell the room that this send has ended."""
    return SendFinished(e.room, e.chunk, e.peer)


def fail_write(v: V, e: On) -> RoomFailed:
    """Tell the room that the write failed."""
    return RoomFailed(e.room, Cause.WRITE_FAILED, e.peer)


def fail_gather(v: V, e: On) -> RoomFailed:
    """Tell the room that the gather failed."""
    return RoomFailed(e.room, Cause.KERNEL_FAILED, e.peer)


def fail_silent(v: V, e: TimerFired) -> RoomFailed:
    """Tell the room that the decode rank does not answer."""
    return RoomFailed(e.room, Cause.NO_ANSWER, e.peer)


prefill_send = Table(
    "prefill_send", PSendValue, S, initial=S.NEW, final=(S.DONE, S.STOPPED),
    events=(
        SendOpened, CreditTaken, StagingGranted, StagingDeferred, StagingDenied, WatermarkReached, KvProduced, KvWithdrawn,
        SlotTaken, Gathered, GatherFailed, WriteCompleted, WriteFailed, WriteLapsed, PagesGranted, PermitTaken,
        ChunkAcked, AuxReady, SendStopped, TimerFired,
    ),
    timers={
        S.AWAIT_GRANT: "grant_retry", S.AWAIT_WRITERS: "fan_in_retry", S.AWAIT_TURN: "queue_retry",
        S.AWAIT_WATERMARK: "grant_retry",
        S.AWAIT_SLOT: "lease",
        S.GATHERING: "kernel", S.WRITING: "flight", S.WRITING_PAGES: "flight", S.AWAIT_PAGES: "answer",
        S.AWAIT_PERMIT: "renew", S.AWAIT_ACK: "answer", S.AWAIT_AUX_ACK: "answer",
    },
    tries=tried_so_far,
    success_path=(
        S.NEW, S.AWAIT_KV, S.AWAIT_CREDIT, S.AWAIT_GRANT, S.AWAIT_WRITERS, S.AWAIT_WATERMARK, S.AWAIT_SLOT, S.GATHERING,
        S.WRITING, S.AWAIT_ACK, S.DONE,
    ),
    failure_states=(S.DRAINING, S.STOPPED), counted_states=(S.AWAIT_PAGES,),
)  # fmt: skip
opens, row, ignore, refuse = prefill_send.opens, prefill_send.row, prefill_send.ignore, prefill_send.refuse

#: the decode rank has the request, and will tell
QUEUED = (S.AWAIT_WRITERS, S.AWAIT_TURN)
BEFORE = (S.AWAIT_GRANT, *QUEUED, S.AWAIT_WATERMARK)
PAGES = (S.AWAIT_PAGES, S.AWAIT_PAGES_KV)
AUX = (S.AWAIT_AUX, S.AWAIT_AUX_ACK)
FLYING = (S.WRITING, S.WRITING_PAGES)
GRANTED = (S.AWAIT_WATERMARK, S.AWAIT_SLOT, S.GATHERING, S.WRITING)
STAGED = (S.AWAIT_GRANT, *QUEUED, *GRANTED)
#: the decode rank may have the part
WRITTEN = (*FLYING, S.AWAIT_ACK, S.AWAIT_AUX_ACK)
LATER = (*PAGES, S.AWAIT_PERMIT, S.WRITING_PAGES, S.AWAIT_ACK, S.DRAINING)

# fmt: off
# ---------------------------------------------------------------------------------------- the staged way
opens(S.NEW,           SendOpened,       S.AWAIT_CREDIT,    when=staged_and_produced, let=open_, do=(take_credit,))
opens(S.NEW,           SendOpened,       S.AWAIT_KV,        when=staged, let=open_)
opens(S.NEW,           SendOpened,       S.AWAIT_PAGES,     when=paged, let=open_, do=(ask_pages,))
opens(S.NEW,           SendOpened,       S.AWAIT_AUX_ACK,   when=aux_ready, let=bind, do=(send_aux,))
opens(S.NEW,           SendOpened,       S.AWAIT_AUX,       let=bind)
row(S.AWAIT_KV,        KvProduced,       S.AWAIT_CREDIT,    let=have_kv, do=(take_credit,))
row(S.AWAIT_CREDIT,    CreditTaken,      S.AWAIT_GRANT,     let=ask, do=(ask_grant,))
row(S.AWAIT_GRANT,     StagingGranted,   S.AWAIT_SLOT,      when=usable, let=take_grant, do=(free_credit, take_slot))
row(S.AWAIT_GRANT,     StagingGranted,   S.AWAIT_WATERMARK, let=take_grant, do=(free_credit, watch))
row(S.AWAIT_GRANT,     StagingDeferred,  S.AWAIT_WRITERS,   when=early, let=queue, do=(free_credit,))
row(S.AWAIT_GRANT,     StagingDeferred,  S.AWAIT_TURN,      let=queue, do=(free_credit,))
ignore(S.AWAIT_WRITERS, StagingDeferred, "a repeated answer", when=early)
row(S.AWAIT_WRITERS,   StagingDeferred,  S.AWAIT_TURN,      let=queue)
row(QUEUED,            StagingGranted,                      when=waited_long, let=ask_once_more, do=(ask_grant,))
row(QUEUED,            StagingGranted,   S.AWAIT_SLOT,      when=usable, let=take_grant, do=(take_slot,))
row(QUEUED,            StagingGranted,   S.AWAIT_WATERMARK, let=take_grant, do=(watch,))
row(S.AWAIT_WATERMARK, WatermarkReached, S.AWAIT_SLOT,      do=(take_slot,))
row(S.AWAIT_SLOT,      SlotTaken,        S.GATHERING,       when=lease_holds, let=have_slot, do=(gather,))
row(S.GATHERING,       Gathered,         S.WRITING,         when=lease_holds, do=(write,))
row(S.WRITING,         ChunkAcked,                          when=native_notify, let=have_ack)
row(S.WRITING,         WriteCompleted,   S.DONE,            when=acked, do=(free_slot, finish))
row(S.WRITING,         WriteCompleted,   S.AWAIT_ACK,       when=native_notify, let=begin_ack, do=(free_slot,))
row(S.WRITING,         WriteCompleted,   S.AWAIT_ACK,       let=begin_ack, do=(free_slot, notify))
row(S.AWAIT_ACK,       ChunkAcked,       S.DONE,            do=(finish,))

# ------------------------------------------------------------------------- asking again, and giving the ring up
row(S.AWAIT_GRANT,     TimerFired,                          when=patient, let=tried, do=(ask_grant,))
row(S.AWAIT_GRANT,     TimerFired,       S.AWAIT_PAGES,     let=ask_anew, do=(free_credit, ask_pages))
row(S.AWAIT_GRANT,     StagingDenied,    S.AWAIT_PAGES,     let=ask_anew, do=(free_credit, ask_pages))
row(S.AWAIT_TURN,      TimerFired,                          when=moves, let=note_mark, do=(ask_grant,))
row(QUEUED,            TimerFired,                          when=patient, let=tried, do=(ask_grant,))
row(QUEUED,            TimerFired,       S.AWAIT_PAGES,     let=ask_anew, do=(ask_pages,))
row(QUEUED,            StagingDenied,    S.AWAIT_PAGES,     let=ask_anew, do=(ask_pages,))
row(S.AWAIT_WATERMARK, TimerFired,                          when=moves, let=note_mark)
row(S.AWAIT_WATERMARK, TimerFired,                          when=patient, let=tried, do=(ask_watermark,))
row(S.AWAIT_WATERMARK, TimerFired,       S.AWAIT_PAGES,     let=ask_anew, do=(ask_pages,))
row(S.AWAIT_SLOT,      TimerFired,       S.AWAIT_CREDIT,    let=ask_anew, do=(leave_queue, take_credit))
row(S.AWAIT_SLOT,      SlotTaken,        S.AWAIT_CREDIT,    let=ask_anew, do=(free_slot, take_credit))
row(S.GATHERING,       Gathered,         S.AWAIT_CREDIT,    when=produced, let=ask_anew, do=(free_slot, take_credit))
row(S.GATHERING,       Gathered,         S.AWAIT_KV,        when=closed, let=await_kv, do=(free_slot,))
row(S.GATHERING,       Gathered,         S.AWAIT_PAGES,     let=ask_anew, do=(free_slot, ask_pages))
row(S.WRITING,         WriteLapsed,      S.AWAIT_CREDIT,    when=produced, let=ask_anew, do=(free_slot, take_credit))
row(S.WRITING,         WriteLapsed,      S.AWAIT_KV,        when=closed, let=await_kv, do=(free_slot,))
row(S.WRITING,         WriteLapsed,      S.AWAIT_PAGES,     let=ask_anew, do=(free_slot, ask_pages))

# ------------------------------------------------------------------------------------- the way over pages
row(S.AWAIT_PAGES,     PagesGranted,     S.AWAIT_PERMIT,    when=produced_in_time, let=keep_pages, do=(take_permit,))
ignore(S.AWAIT_PAGES,  PagesGranted, "an answer to an older request; the last one is under way", when=produced_and_older)
row(S.AWAIT_PAGES,     PagesGranted,                        when=produced, let=ask_once_more, do=(ask_pages,))
row(S.AWAIT_PAGES,     PagesGranted,     S.AWAIT_PAGES_KV,  let=keep_pages)
row(S.AWAIT_PAGES,     KvProduced,                          let=have_kv)
row(S.AWAIT_PAGES_KV,  KvProduced,       S.AWAIT_PERMIT,    when=may_begin, let=have_kv, do=(take_permit,))
row(S.AWAIT_PAGES_KV,  KvProduced,       S.AWAIT_PAGES,     let=ask_anew_with_kv, do=(ask_pages,))
row(S.AWAIT_PERMIT,    PermitTaken,      S.WRITING_PAGES,   when=may_begin, do=(write_pages,))
row(S.AWAIT_PERMIT,    PermitTaken,      S.AWAIT_PAGES,     let=ask_anew, do=(free_permit, ask_pages))
row(S.AWAIT_PERMIT,    TimerFired,                          let=ask_once_more, do=(ask_pages,))
ignore(S.AWAIT_PERMIT, PagesGranted, "an answer to an older request; the last one is under way", when=older)
row(S.AWAIT_PERMIT,    PagesGranted,                        let=keep_pages)
row(S.WRITING_PAGES,   WriteCompleted,   S.AWAIT_ACK,       let=begin_ack, do=(free_permit, notify))
row(S.WRITING_PAGES,   WriteLapsed,      S.AWAIT_PAGES,     let=ask_anew, do=(free_permit, ask_pages))
row(S.AWAIT_PAGES,     ChunkAcked,       S.DONE,            when=told, do=(finish,))
row(S.AWAIT_PAGES,     TimerFired,                          when=tries_left, let=tried, do=(ask_pages,))
row(S.AWAIT_PAGES,     TimerFired,                          do=(fail_silent,))

# ------------------------------------------------------------------------------- the engine takes the KV back
row(S.AWAIT_CREDIT,    KvWithdrawn,      S.AWAIT_KV,        let=lose_kv, do=(leave_queue,))
row(S.AWAIT_GRANT,     KvWithdrawn,      S.AWAIT_KV,        when=closed, let=await_kv, do=(free_credit,))
row((*QUEUED, S.AWAIT_WATERMARK), KvWithdrawn, S.AWAIT_KV,  when=closed, let=await_kv)
row(S.AWAIT_SLOT,      KvWithdrawn,      S.AWAIT_KV,        when=closed, let=await_kv, do=(leave_queue,))
row(S.AWAIT_GRANT,     KvWithdrawn,      S.AWAIT_PAGES,     let=ask_anew_without_kv, do=(free_credit, ask_pages))
row((*QUEUED, S.AWAIT_WATERMARK), KvWithdrawn, S.AWAIT_PAGES, let=ask_anew_without_kv, do=(ask_pages,))
row(S.AWAIT_SLOT,      KvWithdrawn,      S.AWAIT_PAGES,     let=ask_anew_without_kv, do=(leave_queue, ask_pages))
row((S.AWAIT_PAGES, S.GATHERING, *FLYING), KvWithdrawn,     let=lose_kv)
row(S.AWAIT_PERMIT,    KvWithdrawn,      S.AWAIT_PAGES_KV,  let=lose_kv, do=(leave_queue,))
row((S.GATHERING, *FLYING), KvProduced,                     let=have_kv)
ignore(S.AWAIT_ACK, (KvProduced, KvWithdrawn), "its pages are not read any more")

# --------------------------------------------------------------------------------------------- the aux row
row(S.AWAIT_AUX,       AuxReady,         S.AWAIT_AUX_ACK,   do=(send_aux,))
row(S.AWAIT_AUX_ACK,   ChunkAcked,       S.DONE,            do=(finish,))
row(S.AWAIT_AUX_ACK,   TimerFired,                          when=tries_left, let=tried, do=(send_aux,))
row(S.AWAIT_AUX_ACK,   TimerFired,                          do=(fail_silent,))
row(S.AWAIT_ACK,       TimerFired,                          when=tries_left, let=tried, do=(notify,))
row(S.AWAIT_ACK,       TimerFired,                          do=(fail_silent,))

# ---------------------------------------------------------------------------------------------- what fails
row(S.GATHERING,       GatherFailed,     S.STOPPED,         do=(free_slot, fail_gather, finish))
row(S.GATHERING,       TimerFired,       S.DRAINING,        do=(fail_gather,))
row(S.WRITING,         WriteFailed,      S.DONE,            when=settled_after_ack, do=(free_slot, finish))
row(S.WRITING,         WriteFailed,      S.AWAIT_PAGES,     when=retries, let=retry, do=(free_slot, ask_pages))
row(S.WRITING,         WriteFailed,      S.STOPPED,         when=settled, do=(free_slot, fail_write, finish))
row(S.WRITING_PAGES,   WriteFailed,      S.STOPPED,         when=settled, do=(free_permit, fail_write, finish))
row(FLYING,            WriteFailed,      S.DRAINING,        do=(fail_write,))
row(FLYING,            TimerFired,       S.DRAINING,        do=(stop_write, fail_write))

# ------------------------------------------------------------------------------------------- the room has ended
row(S.AWAIT_GRANT,     SendStopped,      S.STOPPED,         do=(free_credit, finish))
row((*QUEUED, S.AWAIT_WATERMARK, S.AWAIT_KV, *PAGES, S.AWAIT_ACK, *AUX), SendStopped, S.STOPPED, do=(finish,))
row((S.AWAIT_CREDIT, S.AWAIT_SLOT, S.AWAIT_PERMIT), SendStopped, S.STOPPED, do=(leave_queue, finish))
row(S.GATHERING,       SendStopped,      S.DRAINING)
row(FLYING,            SendStopped,      S.DRAINING,        do=(stop_write,))
row(S.DRAINING,        Gathered,         S.STOPPED,         do=(free_slot, free_permit, finish))
row(S.DRAINING,        GatherFailed,     S.STOPPED,         do=(free_slot, free_permit, finish))
row(S.DRAINING,        WriteFailed,      S.STOPPED,         when=settled, do=(free_slot, free_permit, finish))
ignore(S.DRAINING,     WriteFailed,      "bytes may still land: wait until they cannot")
ignore(S.DRAINING,     SendStopped,      "it is draining")

# --------------------------------------------------------------------------------------- what means nothing
ignore((*GRANTED, *LATER), StagingGranted, "a repeated answer")
ignore((S.AWAIT_TURN, *GRANTED, *LATER), StagingDeferred, "a repeated answer")
ignore(LATER,          StagingDenied,    "a repeated answer")
ignore((S.AWAIT_PAGES_KV, S.WRITING_PAGES, S.AWAIT_ACK, S.DRAINING), PagesGranted, "a repeated answer")
ignore((S.AWAIT_GRANT, *QUEUED, S.AWAIT_SLOT, S.GATHERING, S.WRITING, *LATER), WatermarkReached, "it does not wait for this watermark")
ignore(S.DRAINING,     ChunkAcked,       "the room is over")

ignore(S.NEW, (StagingGranted, StagingDeferred, StagingDenied, PagesGranted, ChunkAcked), "a late answer: the send is over")
ignore(S.NEW, (WatermarkReached, SendStopped), "the send is over")

# ------------------------------------------------------------------------------- what breaks the protocol
UNASKED = (S.AWAIT_KV, S.AWAIT_CREDIT)
ignore(UNASKED,        StagingDenied,    "it may have asked before; it asks again, and is told again", when=closed)
refuse(UNASKED,        StagingDenied,    "nothing was asked for, or the region was granted")
ignore(UNASKED,        (StagingGranted, StagingDeferred, WatermarkReached), "it has not asked yet")
refuse(GRANTED,        StagingDenied,    "the region was granted")
refuse((*UNASKED, *STAGED), PagesGranted, "no pages were asked for")
refuse((*UNASKED, *STAGED, *PAGES, S.AWAIT_PERMIT, S.WRITING_PAGES, S.AWAIT_AUX), ChunkAcked, "nothing was notified")
refuse((S.NEW, *UNASKED, *BEFORE, S.AWAIT_SLOT, *FLYING, *PAGES, S.AWAIT_PERMIT, S.AWAIT_ACK, *AUX), (Gathered, GatherFailed), "nothing is being gathered")
refuse(S.NEW,          WriteFailed,      "the send is over")
# fmt: on

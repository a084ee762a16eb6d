"""The prefill rank's write: the one-sided writes of one send, from its first batch to its last byte.

A *batch* is what the transport takes in one call.  A staged write is one batch and opens posted: its send has checked
the lease in the same step.  A write over pages may be many batches, which are made first.  Every other post goes
through a guard here, `lease_holds`, which checks the lease at the time that it is then.  So a rank that was stopped for
longer than its lease posts nothing when it goes on.  If nothing at all has been posted by then, nothing is lost: the
send is told so (`WriteLapsed`), and asks anew.  A write that has begun and does not end within a lease fails: to begin
again would only repeat its bulk.

What is posted cannot be called back.  A write that is given up (its lease is over, its send was stopped, a batch
failed) posts nothing more and ends when the last of its batches has ended.  A batch that fails may leave bytes under
way: the send is told at once (`IN_DOUBT`), and once more when none can land.  While a write is here at all, its link
takes no new call.

How many pieces a pass posts, and what waits while the transport has no room, are the handler's (pacing decides nothing
but when).
"""

from __future__ import annotations

from msgspec.structs import replace

from kvproto.fsm.table import Output, Table, Value
from kvproto.protocol import effects as do
from kvproto.protocol.events import (
    BatchCompleted,
    BatchDeferred,
    BatchFailed,
    BatchReady,
    BatchRefused,
    BatchSettled,
    BatchUnmade,
    PagesBegun,
    WriteBegun,
    WriteCompleted,
    WriteEvent,
    WriteFailed,
    WriteLapsed,
    WriteStopped,
)
from kvproto.protocol.states import PWrite as S


class PWriteValue(Value, frozen=True, gc=False):
    """The writes of one send."""

    #: when nothing of it may be posted any more (seconds of this rank's clock)
    until: float = 0.0
    #: batches that were posted and have not ended
    flying: int = 0
    #: the bytes of some batch are at the peer
    landed: bool = False


V = PWriteValue


# ------------------------------------------------------------------------------------------- guards
def lease_holds_for_last(v: V, e: BatchReady, now: float) -> bool:
    """The lease still holds, and with this batch all is posted."""
    return now < v.until and e.last


def lease_holds(v: V, e: BatchReady, now: float) -> bool:
    """The lease of the region or of the pages still holds."""
    return now < v.until


def untouched(v: V, e: BatchReady, now: float) -> bool:
    """Nothing was posted: no batch is in flight, and none has ended."""
    return not v.flying and not v.landed


def none_flies(v: V, e: WriteEvent, now: float) -> bool:
    """No batch is in flight."""
    return not v.flying


def last_flies(v: V, e: WriteEvent, now: float) -> bool:
    """It was the last batch in flight."""
    return v.flying == 1


def last_settled(v: V, e: BatchFailed, now: float) -> bool:
    """It was the last batch in flight, and no byte of it can land any more."""
    return e.settled and v.flying == 1


def settled(v: V, e: BatchFailed, now: float) -> bool:
    """No byte of it can land any more."""
    return e.settled


# --------------------------------------------------------------------------------------------- lets
def lend(v: V, e: PagesBegun, now: float) -> V:
    """The time until which batches may be posted."""
    return replace(v, until=e.until)


def begin(v: V, e: WriteBegun, now: float) -> V:
    """The time until which the one batch may be posted, which is in flight."""
    return replace(v, until=e.until, flying=1)


def one_more(v: V, e: BatchReady, now: float) -> V:
    """One batch more is in flight."""
    return replace(v, flying=v.flying + 1)


def one_fewer(v: V, e: WriteEvent, now: float) -> V:
    """One batch fewer is in flight."""
    return replace(v, flying=v.flying - 1)


def one_landed(v: V, e: BatchCompleted, now: float) -> V:
    """One batch fewer is in flight, and its bytes are there."""
    return replace(v, flying=v.flying - 1, landed=True)


# ------------------------------------------------------------------------------------------ effects
def post_write(v: V, e: WriteBegun) -> Output:
    """Post the one batch."""
    return do.PostWrite(e.room, e.chunk, e.peer, e.to, e.slot, e.offset, e.grant)


def make_pages(v: V, e: PagesBegun) -> Output:
    """Make the batches ready, one after the other."""
    return do.PreparePages(e.room, e.chunk, e.peer, e.to, e.pages)


def post(v: V, e: BatchReady) -> Output:
    """Post the batch."""
    return do.PostBatch(e.room, e.chunk, e.peer)


def drop(v: V, e: WriteEvent) -> Output:
    """Nothing more is posted."""
    return do.DropBatches(e.room, e.chunk, e.peer)


def complete(v: V, e: BatchCompleted) -> WriteCompleted:
    """Tell the send that every byte is there."""
    return WriteCompleted(e.room, e.chunk, e.peer)


def lapse(v: V, e: BatchReady) -> WriteLapsed:
    """Tell the send that nothing was posted, and nothing will be."""
    return WriteLapsed(e.room, e.chunk, e.peer)


def report_in_doubt(v: V, e: BatchFailed) -> WriteFailed:
    """Tell the send that it has failed, and that bytes may still land."""
    return WriteFailed(e.room, e.chunk, e.peer, settled=False)


def fail(v: V, e: WriteEvent) -> WriteFailed:
    """Tell the send that it has failed, and that no byte can land any more."""
    return WriteFailed(e.room, e.chunk, e.peer, settled=True)


prefill_write = Table(
    "prefill_write", PWriteValue, S, initial=S.NEW, final=(S.COMPLETED, S.FAILED),
    events=(
        WriteBegun, PagesBegun, BatchReady, BatchUnmade, BatchDeferred, BatchRefused, BatchCompleted, BatchFailed,
        BatchSettled, WriteStopped,
    ),
    timers={},
    success_path=(S.NEW, S.POSTING, S.IN_FLIGHT, S.COMPLETED),
    failure_states=(S.ENDING, S.IN_DOUBT, S.FAILED),
)  # fmt: skip
opens, row, ignore, refuse = prefill_write.opens, prefill_write.row, prefill_write.ignore, prefill_write.refuse

GIVEN_UP = (S.ENDING, S.IN_DOUBT)
POSTED = (S.POSTING, S.IN_FLIGHT)

# fmt: off
# ----------------------------------------------------------------------------------------- what goes well
opens(S.NEW,     WriteBegun,     S.IN_FLIGHT, let=begin, do=(post_write,))
opens(S.NEW,     PagesBegun,     S.POSTING,   let=lend, do=(make_pages,))
row(S.POSTING,   BatchReady,     S.IN_FLIGHT, when=lease_holds_for_last, let=one_more, do=(post,))
row(S.POSTING,   BatchReady,                  when=lease_holds, let=one_more, do=(post,))
row(S.POSTING,   BatchDeferred,               let=one_fewer)
row(S.IN_FLIGHT, BatchDeferred,  S.POSTING,   let=one_fewer)
row(S.POSTING,   BatchCompleted,              let=one_landed)
row(S.IN_FLIGHT, BatchCompleted, S.COMPLETED, when=last_flies, do=(complete,))
row(S.IN_FLIGHT, BatchCompleted,              let=one_landed)

# ------------------------------------------------------------------------------------------ what is given up
row(S.POSTING,   BatchReady,     S.FAILED,    when=untouched, do=(drop, lapse))
row(S.POSTING,   BatchReady,     S.FAILED,    when=none_flies, do=(drop, fail))
row(S.POSTING,   BatchReady,     S.ENDING,    do=(drop,))
row(S.POSTING,   WriteStopped,   S.FAILED,    when=none_flies, do=(drop, fail))
row(S.POSTING,   WriteStopped,   S.ENDING,    do=(drop,))
row(S.POSTING,   BatchUnmade,    S.FAILED,    do=(fail,))
row(S.IN_FLIGHT, WriteStopped,   S.ENDING,    do=(drop,))
row(POSTED,      BatchRefused,   S.FAILED,    when=last_flies, do=(drop, fail))
row(POSTED,      BatchRefused,   S.ENDING,    let=one_fewer, do=(drop,))
row(POSTED,      BatchFailed,    S.FAILED,    when=last_settled, do=(drop, fail))
row(POSTED,      BatchFailed,    S.ENDING,    when=settled, let=one_fewer, do=(drop,))
row(POSTED,      BatchFailed,    S.IN_DOUBT,  do=(drop, report_in_doubt))

# --------------------------------------------------------------------------------------- what has to end first
row(GIVEN_UP,    BatchCompleted, S.FAILED,    when=last_flies, do=(fail,))
row(GIVEN_UP,    BatchCompleted,              let=one_fewer)
row(GIVEN_UP,    BatchDeferred,  S.FAILED,    when=last_flies, do=(fail,))
row(GIVEN_UP,    BatchDeferred,               let=one_fewer)
row(GIVEN_UP,    BatchRefused,   S.FAILED,    when=last_flies, do=(fail,))
row(GIVEN_UP,    BatchRefused,                let=one_fewer)
row(GIVEN_UP,    BatchFailed,    S.FAILED,    when=last_settled, do=(fail,))
row(GIVEN_UP,    BatchFailed,                 when=settled, let=one_fewer)
row(S.ENDING,    BatchFailed,    S.IN_DOUBT,  do=(report_in_doubt,))
ignore(S.IN_DOUBT, BatchFailed,  "bytes may still land: wait until they cannot")
row(S.IN_DOUBT,  BatchSettled,   S.FAILED,    when=last_flies, do=(fail,))
row(S.IN_DOUBT,  BatchSettled,                let=one_fewer)

# --------------------------------------------------------------------------------------- what means nothing
ignore((S.NEW, *GIVEN_UP), (BatchReady, BatchUnmade), "the write was given up meanwhile")
ignore(S.ENDING, WriteStopped,   "it ends")

# ------------------------------------------------------------------------------- what breaks the protocol
refuse(S.IN_FLIGHT, (BatchReady, BatchUnmade), "all of it is posted")
refuse(S.NEW,    (BatchDeferred, BatchRefused, BatchCompleted, BatchFailed), "nothing was posted")
refuse((S.NEW, *POSTED, S.ENDING), BatchSettled, "no batch is in doubt")
# fmt: on

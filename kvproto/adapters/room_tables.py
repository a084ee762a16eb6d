"""Room tables: a request at a rank, between the scheduler's orders and the endpoint's outcomes.

Orders and outcomes may cross, and these rows are easily forgotten.  The room *ends while the prompt is still computed*,
because the other side gave it up: its KV is not needed, and the report waits until the scheduler asks for it (`GONE`).
It has *ended and is not released*: its blocks may still be read, and have to be withdrawn if they are taken away.  It is
*lost before there are blocks*: the request must not wait for KV once it has them (`LOST`).  It *waits long for blocks*:
the room is announced repeatedly, so that neither side gives it up.  It is given up and the scheduler does not wait: the
endpoint is still notified, and the engine gets no report (`QUIET`), because a report of a forgotten request would stop
the engine.

A failed load is reported when the room is released, not when it has failed: until then something may land.
"""

from __future__ import annotations

from kvproto.adapters.request_events import (
    AnnounceOrdered,
    BlocksOrdered,
    CarryOut,
    Forget,
    GiveUpOrdered,
    LoadOrdered,
    OpenOrdered,
    Ordered,
    PromiseOrdered,
    Renew,
    RoomEnded,
    RoomReleased,
    SkipOrdered,
    TimerFired,
    WithdrawOrdered,
)
from kvproto.adapters.request_words import SCHEDULER, DRank, PRank, Received, Sent
from kvproto.fsm.table import Output, Table, Value
from kvproto.fsm.vocabulary import Transmit


class SendingRoom(Value, frozen=True, gc=False):
    """Nothing but the state."""


class ReceivingRoom(Value, frozen=True, gc=False):
    """Nothing but the state."""


Heard = Ordered | RoomEnded | RoomReleased | TimerFired
# fmt: off


def reported(v: Value, e: GiveUpOrdered, now: float) -> bool:
    """The scheduler waits for the report."""
    return e.order.report


def landed(v: Value, e: RoomEnded, now: float) -> bool:
    return e.well


def carry_out(v: Value, e: Ordered) -> Output:
    """It is the endpoint's matter."""
    return CarryOut(e.request, e.order)


def renew(v: Value, e: TimerFired) -> Output:
    return Renew(e.request)


def report_sent(v: Value, e: Heard) -> Output:
    """Its blocks are not needed any more."""
    return Transmit(SCHEDULER, Sent(e.request))


def report_received(v: Value, e: Heard) -> Output:
    return Transmit(SCHEDULER, Received(e.request, failed=False))


def report_failed(v: Value, e: Heard) -> Output:
    """Not all of its KV is there, and no more will come."""
    return Transmit(SCHEDULER, Received(e.request, failed=True))


def forget_told(v: Value, e: Heard) -> Output:
    """The scheduler knows."""
    return Forget(e.request, told=True)


def forget(v: Value, e: Heard) -> Output:
    """Nobody asks."""
    return Forget(e.request, told=False)


prefill_room = Table(
    "prefill_room", SendingRoom, PRank, initial=PRank.NEW, final=(PRank.OVER,), timers={},
    events=(OpenOrdered, BlocksOrdered, WithdrawOrdered, PromiseOrdered, GiveUpOrdered, RoomEnded, RoomReleased),
    success_path=(PRank.NEW, PRank.OPEN, PRank.PROMISED, PRank.OVER), failure_states=(PRank.QUIET,),
)
R = PRank
opens, row, ignore, refused = prefill_room.opens, prefill_room.row, prefill_room.ignore, prefill_room.refuse

opens(R.NEW,               OpenOrdered,     R.OPEN,     do=(carry_out,))
row(R.OPEN,                BlocksOrdered,               do=(carry_out,))
row((R.OPEN, R.ENDED),     PromiseOrdered,  R.PROMISED)
row(R.PROMISED,            RoomReleased,    R.OVER,     do=(report_sent, forget_told))

row((R.OPEN, R.ENDED),     WithdrawOrdered,             do=(carry_out,))
row(R.OPEN,                RoomEnded,       R.ENDED)
row(R.ENDED,               RoomReleased,    R.GONE)
row(R.GONE,                PromiseOrdered,  R.OVER,     do=(report_sent, forget_told))
row(R.NEW,                 GiveUpOrdered,               do=(carry_out,))
row((R.OPEN, R.ENDED),     GiveUpOrdered,   R.PROMISED, when=reported, do=(carry_out,))
row((R.OPEN, R.ENDED),     GiveUpOrdered,   R.QUIET,    do=(carry_out,))
row(R.GONE,                GiveUpOrdered,   R.OVER,     when=reported, do=(report_sent, forget_told))
row(R.GONE,                GiveUpOrdered,   R.OVER,     do=(forget,))
row(R.QUIET,               RoomReleased,    R.OVER,     do=(forget,))

ignore((R.ENDED, R.GONE),  BlocksOrdered,               "the room has ended: nobody wants more of it")
ignore(R.GONE,             WithdrawOrdered,             "nothing reads its blocks any more")
ignore((R.PROMISED, R.QUIET), RoomEnded,                "it is the release that counts")
ignore(R.NEW,              (RoomEnded, RoomReleased),   "it is over here")
refused((R.ENDED, R.GONE, R.PROMISED, R.QUIET), OpenOrdered, "it was opened, and has ended")
refused((R.ENDED, R.GONE), RoomEnded,                   "it has an outcome")
refused(R.OPEN,            (OpenOrdered, RoomReleased), "it is open, and has no outcome")
refused(R.GONE,            RoomReleased,                "it is released")
refused(R.NEW,             (BlocksOrdered, WithdrawOrdered, PromiseOrdered), "it was not opened here")
refused((R.PROMISED, R.QUIET), (BlocksOrdered, WithdrawOrdered, PromiseOrdered, GiveUpOrdered), "it has ended")


decode_room = Table(
    "decode_room", ReceivingRoom, DRank, initial=DRank.NEW, final=(DRank.OVER,),
    timers={DRank.ANNOUNCED: "renew"},
    events=(AnnounceOrdered, LoadOrdered, SkipOrdered, GiveUpOrdered, RoomEnded, RoomReleased, TimerFired),
    success_path=(DRank.NEW, DRank.ANNOUNCED, DRank.OPEN, DRank.LANDED, DRank.OVER),
    failure_states=(DRank.LOST, DRank.QUIET),
)
Q = DRank
opens_d, row_d, ignore_d, refused_d = decode_room.opens, decode_room.row, decode_room.ignore, decode_room.refuse

opens_d(Q.NEW,           AnnounceOrdered, Q.ANNOUNCED, do=(carry_out,))
row_d(Q.ANNOUNCED,       TimerFired,                   do=(renew,))
row_d(Q.ANNOUNCED,       LoadOrdered,     Q.OPEN,      do=(carry_out,))
row_d(Q.OPEN,            RoomEnded,       Q.LANDED,    when=landed)
row_d(Q.OPEN,            RoomEnded,       Q.FAILED)
row_d(Q.LANDED,          RoomReleased,    Q.OVER,      do=(report_received, forget_told))
row_d(Q.FAILED,          RoomReleased,    Q.OVER,      do=(report_failed, forget_told))

row_d(Q.ANNOUNCED,       SkipOrdered,     Q.QUIET,     do=(carry_out,))
row_d(Q.ANNOUNCED,       GiveUpOrdered,   Q.QUIET,     do=(carry_out,))
row_d(Q.ANNOUNCED,       RoomEnded,       Q.LOST)
row_d(Q.LOST,            LoadOrdered,     Q.OVER,      do=(report_failed, forget_told))
row_d(Q.LOST,            SkipOrdered,     Q.OVER,      do=(forget,))
row_d(Q.LOST,            GiveUpOrdered,   Q.OVER,      do=(forget,))
row_d(Q.OPEN,            GiveUpOrdered,                do=(carry_out,))
row_d(Q.QUIET,           RoomReleased,    Q.OVER,      do=(forget,))

ignore_d(Q.QUIET,        RoomEnded,                    "nobody asks how it ends")
ignore_d((Q.LANDED, Q.FAILED), GiveUpOrdered,          "it has ended: the release is told in a moment")
ignore_d(Q.LOST,         RoomReleased,                 "it had no blocks")
ignore_d(Q.NEW,          (RoomEnded, RoomReleased),    "it is over here")
ignore_d(Q.NEW,          GiveUpOrdered,                "it was reported meanwhile")
refused_d(Q.NEW,         (LoadOrdered, SkipOrdered),   "it was not announced")
refused_d((Q.ANNOUNCED, Q.OPEN, Q.LANDED, Q.FAILED, Q.LOST, Q.QUIET), AnnounceOrdered, "it was announced")
refused_d((Q.OPEN, Q.LANDED, Q.FAILED, Q.QUIET), (LoadOrdered, SkipOrdered), "there are blocks for it, or it has ended")
refused_d(Q.QUIET,       GiveUpOrdered,                "it has ended")
refused_d((Q.LANDED, Q.FAILED, Q.LOST), RoomEnded,     "it has an outcome")
refused_d((Q.ANNOUNCED, Q.OPEN), RoomReleased,         "it has no outcome")
# fmt: on

"""A room at a prefill rank of SGLang 0.5.23 as a table; its queue stands in `transfer_queue`.

Where a mend is named, both are written: the row as it is in SGLang, and the row that mends it.  `tables(frozenset())`
is the protocol as it is.

What a room knows beside its state: whose metadata has come, in that order (it is the order in which a worker writes),
the regions that it was granted, how many chunks a worker has begun and not ended (`_staging_outstanding`), and who
waits for an acknowledgement.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from examples.others.sglang_staging.effects import (
    Acknowledge,
    Ask,
    Queue,
    Reported,
    Retry,
    Sweep,
    Tell,
)
from examples.others.sglang_staging.events import (
    AbortReceived,
    Cancelled,
    ChunkDropped,
    ChunkFailed,
    ChunkSent,
    ChunkStarted,
    Forwarded,
    Grant,
    GrantReceived,
    MetadataReceived,
    PongReceived,
    RoomTimer,
    SenderCreated,
)
from examples.others.sglang_staging.words import (
    KvStatus,
    P,
    Ping,
)
from kvproto.fsm.table import Output, Table, Value

Mends = frozenset[str]


class Room(Value, frozen=True, gc=False):
    """What a prefill rank remembers of a room."""

    life: int = 0
    dests: tuple[int, ...] = ()
    grants: tuple[Grant, ...] = ()
    forwarded: bool = False
    chunks: int = 0
    outstanding: int = 0
    owed: tuple[int, ...] = ()
    #: by a mend: chunks that are written to all; who has not answered the last ping
    sent: tuple[int, ...] = ()
    silent: tuple[int, ...] = ()


Ending = ChunkSent | ChunkDropped | ChunkFailed
Any_ = Any


# fmt: off
def complete(v: Room, e: MetadataReceived, now: float) -> bool: return len({*v.dests, e.peer}) == e.needed
def newer(v: Room, e: MetadataReceived | SenderCreated, now: float) -> bool: return e.life > v.life
def newer_whole(v: Room, e: MetadataReceived, now: float) -> bool: return e.life > v.life and e.needed == 1
def other_life(v: Room, e: Any_, now: float) -> bool: return bool(e.life != v.life)
def asked_already(v: Room, e: MetadataReceived, now: float) -> bool: return v.forwarded
def asked_and_complete(v: Room, e: MetadataReceived, now: float) -> bool: return v.forwarded and complete(v, e, now)
def last_chunk(v: Room, e: ChunkSent, now: float) -> bool: return e.chunk == v.chunks - 1
def all_chunks(v: Room, e: ChunkSent, now: float) -> bool: return len({*v.sent, e.chunk}) == v.chunks
def drained(v: Room, e: AbortReceived, now: float) -> bool: return v.outstanding == 0
def ends_owing(v: Room, e: Ending, now: float) -> bool: return v.outstanding == 1 and bool(v.owed)
def somebody_silent(v: Room, e: RoomTimer, now: float) -> bool: return bool(v.silent)

def fresh(v: Room, e: SenderCreated, now: float) -> Room: return Room(v.state, life=e.life)
def first(v: Room, e: MetadataReceived, now: float) -> Room: return Room(v.state, life=e.life, dests=(e.peer,))
def add(v: Room, e: MetadataReceived, now: float) -> Room: return replace(v, dests=(*v.dests, e.peer))
def forward(v: Room, e: Forwarded, now: float) -> Room: return replace(v, forwarded=True, chunks=e.chunks)
def keep(v: Room, e: GrantReceived, now: float) -> Room:
    return replace(v, grants=tuple(sorted({*(g for g in v.grants if (g.chunk, g.peer) != (e.grant.chunk, e.grant.peer)), e.grant})))
def begin(v: Room, e: ChunkStarted, now: float) -> Room: return replace(v, outstanding=v.outstanding + 1)
def end(v: Room, e: Ending, now: float) -> Room: return replace(v, outstanding=max(0, v.outstanding - 1))
def end_sent(v: Room, e: ChunkSent, now: float) -> Room:
    return replace(v, outstanding=max(0, v.outstanding - 1), sent=tuple(sorted({*v.sent, e.chunk})))
def owe(v: Room, e: AbortReceived, now: float) -> Room: return replace(v, owed=tuple(sorted({*v.owed, e.peer})))
def abort_early(v: Room, e: AbortReceived, now: float) -> Room: return replace(v, life=e.life)
def probe(v: Room, e: RoomTimer, now: float) -> Room: return replace(v, silent=v.dests)
def heard(v: Room, e: PongReceived, now: float) -> Room: return replace(v, silent=tuple(d for d in v.silent if d != e.peer))

def ask(v: Room, e: Forwarded) -> Output: return Ask(e.room, v.life, v.dests)
def ask_peer(v: Room, e: MetadataReceived) -> Output: return Ask(e.room, v.life, (e.peer,))
def queue(v: Room, e: Forwarded | MetadataReceived) -> Output: return Queue(e.room, v.life, v.chunks)
def retry(v: Room, e: GrantReceived) -> Output: return Retry(e.room)
def sweep(v: Room, e: Any_) -> Output: return Sweep(e.room)
def ack(v: Room, e: AbortReceived) -> Output: return Acknowledge(e.room, e.life, (e.peer,))
def ack_owed(v: Room, e: Ending) -> Output: return Acknowledge(e.room, v.life, v.owed)
def say_partial(v: Room, e: MetadataReceived) -> Output: return Reported(e.room, v.life, "partial")
def say_ready(v: Room, e: MetadataReceived) -> Output: return Reported(e.room, v.life, "ready")
def say_success(v: Room, e: ChunkSent) -> Output: return Reported(e.room, v.life, "success")
def say_failed(v: Room, e: Any_) -> Output: return Reported(e.room, v.life, "failed")
def tell_success(v: Room, e: ChunkSent) -> Output: return Tell(v.dests, KvStatus(e.room, v.life, ok=True))
def tell_failed(v: Room, e: Any_) -> Output: return Tell(v.dests, KvStatus(e.room, v.life, ok=False))
def tell_failed_late(v: Room, e: MetadataReceived) -> Output: return Tell((e.peer,), KvStatus(e.room, v.life, ok=False))
def ping(v: Room, e: RoomTimer) -> Output: return Tell(v.dests, Ping(e.room))
# fmt: on


def rooms(mends: Mends) -> Table[Room]:
    """The table of rooms."""
    timers: dict[Any, str] = {P.WAITING: "heartbeat"} if "R14" in mends else {}
    table = Table(
        "prefill_room", Room, P, initial=P.UNKNOWN, final=(P.SUCCESS, P.FAILED), tombstones=True,
        events=(SenderCreated, MetadataReceived, Forwarded, GrantReceived, ChunkStarted, ChunkSent, ChunkDropped,
                ChunkFailed, AbortReceived, Cancelled, PongReceived, RoomTimer), timers=timers,
        success_path=(P.UNKNOWN, P.BOOTSTRAPPING, P.WAITING, P.SUCCESS), failure_states=(P.FAILED,),
    )  # fmt: skip
    for add in (_metadata_rows, _forward_rows, _chunk_rows, _give_up_rows, _heartbeat_rows):
        add(table, mends)
    return table


OVER, EARLY = (P.SUCCESS, P.FAILED), (P.METADATA, P.BOOTSTRAPPING)


# fmt: off
def _metadata_rows(table: Table[Room], mends: Mends) -> None:
    """Metadata, and the sender."""
    opens, row, ignore = table.opens, table.row, table.ignore
    told = "R13" in mends
    opens(P.UNKNOWN,   SenderCreated,    P.BOOTSTRAPPING, let=fresh)
    row(P.METADATA,    SenderCreated,    P.BOOTSTRAPPING)
    row(OVER,          SenderCreated,    P.BOOTSTRAPPING, when=newer, let=fresh)
    ignore((P.BOOTSTRAPPING, P.WAITING, *OVER), SenderCreated, "it is known")
    opens(P.UNKNOWN,   MetadataReceived, P.WAITING,       when=complete, let=first, do=(say_ready,))
    opens(P.UNKNOWN,   MetadataReceived, P.METADATA,      let=first, do=(say_partial,))
    if "R8" in mends:
        row(EARLY,     MetadataReceived, P.WAITING,       when=asked_and_complete, let=add, do=(ask_peer, queue, say_ready))
        row(EARLY,     MetadataReceived,                  when=asked_already, let=add, do=(ask_peer,))
    else:
        row(EARLY,     MetadataReceived, P.WAITING,       when=asked_and_complete, let=add, do=(queue, say_ready))
    row(EARLY,         MetadataReceived, P.WAITING,       when=complete, let=add, do=(say_ready,))
    row(EARLY,         MetadataReceived,                  let=add, do=(say_partial,))
    row(OVER,          MetadataReceived, P.WAITING,       when=newer_whole, let=first, do=(say_ready,))
    row(OVER,          MetadataReceived, P.METADATA,      when=newer, let=first, do=(say_partial,))
    if told:
        row(P.FAILED,  MetadataReceived,                  do=(tell_failed_late,))
        ignore((P.WAITING, P.SUCCESS), MetadataReceived,  "it comes twice")
    else:
        ignore((P.WAITING, *OVER), MetadataReceived,      "it comes twice, or late")


def _forward_rows(table: Table[Room], mends: Mends) -> None:
    """The forward pass, and what it asks for."""
    row, ignore = table.row, table.ignore
    row(P.BOOTSTRAPPING, Forwarded,                       let=forward, do=(ask,))
    row(P.WAITING,     Forwarded,                         let=forward, do=(ask, queue))
    ignore((P.UNKNOWN, P.METADATA, *OVER), Forwarded,     "no batch is formed of it")
    if "R15" in mends:
        ignore((P.BOOTSTRAPPING, P.WAITING, *OVER), GrantReceived, "of another life", when=other_life)
    row((P.METADATA, P.BOOTSTRAPPING, P.WAITING, *OVER), GrantReceived, let=keep, do=(retry,))
    ignore(P.UNKNOWN, GrantReceived,                      "unknown room: a warning")


def _chunk_rows(table: Table[Room], mends: Mends) -> None:
    """Chunks end."""
    row, ignore = table.row, table.ignore
    if "R15" in mends:
        for event in (ChunkSent, ChunkDropped, ChunkFailed):
            ignore((*EARLY, P.WAITING, *OVER), event,     "of another life", when=other_life)
    row((P.BOOTSTRAPPING, P.WAITING, *OVER), ChunkStarted, let=begin)
    if "R11" in mends:
        row(P.WAITING, ChunkSent,        P.SUCCESS,       when=all_chunks, let=end_sent, do=(tell_success, say_success))
        row(P.WAITING, ChunkSent,                         let=end_sent)
    else:
        row(P.WAITING, ChunkSent,        P.SUCCESS,       when=last_chunk, let=end, do=(tell_success, say_success))
        row(P.WAITING, ChunkSent,                         let=end)
    row(P.BOOTSTRAPPING, ChunkSent,                       let=end)
    row(OVER,          ChunkSent,                         when=ends_owing, let=end, do=(ack_owed,))
    row(OVER,          ChunkSent,                         let=end)
    row((P.BOOTSTRAPPING, P.WAITING, P.SUCCESS), ChunkFailed, P.FAILED, let=end, do=(sweep, tell_failed, say_failed))
    row(P.FAILED,      ChunkFailed,                       when=ends_owing, let=end, do=(ack_owed,))
    row(P.FAILED,      ChunkFailed,                       let=end)
    row(OVER,          ChunkDropped,                      when=ends_owing, let=end, do=(ack_owed,))
    row((P.BOOTSTRAPPING, P.WAITING, *OVER), ChunkDropped, let=end)
    ignore((P.UNKNOWN, P.METADATA), (ChunkStarted, ChunkSent, ChunkDropped, ChunkFailed), "nothing of it is counted")


def _give_up_rows(table: Table[Room], mends: Mends) -> None:
    """Somebody gives up."""
    opens, row, ignore = table.opens, table.row, table.ignore
    failing = (sweep, tell_failed, say_failed) if "R13" in mends else (sweep, say_failed)
    if "R17" in mends:
        opens(P.UNKNOWN, AbortReceived,  P.FAILED,        let=abort_early, do=(ack, *failing))
        row(P.METADATA,  AbortReceived,  P.FAILED,        do=(ack, *failing))
    else:
        row((P.UNKNOWN, P.METADATA), AbortReceived,       do=(ack,))
    if "R15" in mends:
        row((P.BOOTSTRAPPING, P.WAITING, *OVER), AbortReceived, when=other_life, do=(ack,))
    row((P.BOOTSTRAPPING, P.WAITING), AbortReceived, P.FAILED, when=drained, do=(ack, *failing))
    row((P.BOOTSTRAPPING, P.WAITING), AbortReceived, P.FAILED, let=owe, do=failing)
    row(OVER,          AbortReceived,                     when=drained, do=(ack,))
    row(OVER,          AbortReceived,                     let=owe)
    row((P.BOOTSTRAPPING, P.WAITING), Cancelled, P.FAILED, do=failing)
    ignore((P.UNKNOWN, P.METADATA, *OVER), Cancelled,     "there is nothing to give up")


def _heartbeat_rows(table: Table[Room], mends: Mends) -> None:
    """Is decode there?  Not in SGLang: R14's mend."""
    row, ignore = table.row, table.ignore
    if "R14" in mends:
        row(P.WAITING, RoomTimer,        P.FAILED,        when=somebody_silent, do=(sweep, tell_failed, say_failed))
        row(P.WAITING, RoomTimer,                         let=probe, do=(ping,))
        row(P.WAITING, PongReceived,                      let=heard)
        ignore((P.UNKNOWN, *EARLY, *OVER), PongReceived,  "nobody waits for it")
    else:
        ignore(tuple(P), PongReceived,                    "nobody asks")
# fmt: on

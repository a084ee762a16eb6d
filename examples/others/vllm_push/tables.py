"""vLLM's NIXL push connector as tables: decode registers its blocks with prefill, which writes into them.

It is modelled as its public reliability inventory of July 2026 describes it (rows C1, C3, L1 and S2): the handshake with
a decode engine holds up the one `nixl-push-writer` thread, a partial prefix hit is cut at the front, an aborted request
gives its blocks back at once, and the watchdog of a registration only logs.  Where a mend is named, both rows are
written.

`blocks` are places in the prompt: those of which decode has allocated blocks and wants the contents.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from kvproto.fsm import vocabulary
from kvproto.fsm.codec import U64, Body
from kvproto.fsm.table import Output, Table, Value
from kvproto.fsm.timing import Timer, Timers
from kvproto.fsm.vocabulary import Effect, Event, Internal, State, Transmit

Mends = frozenset[str]
Blocks = tuple[int, ...]


# ------------------------------------------------------------------------------------------- messages
class PushReg(Body, tag="PUSH_REG", frozen=True):
    """Write the request into these blocks when it is computed."""

    request: U64
    blocks: tuple[U64, ...]


class Write(Body, tag="WRITE", frozen=True):
    """The contents of the first ones have landed in the second ones, and this is the notification."""

    request: U64
    source: tuple[U64, ...]
    target: tuple[U64, ...]


class Handshake(Body, tag="HANDSHAKE", frozen=True):
    """Who are you, and where is your memory?"""


class Metadata(Body, tag="METADATA", frozen=True):
    """The answer."""


class PushFail(Body, tag="PUSH_FAIL", frozen=True):
    """It will not be written.  (A mend.)"""

    request: U64


class PushPending(Body, tag="PUSH_PENDING", frozen=True):
    """It is not computed yet.  (A mend.)"""

    request: U64


class Cancel(Body, tag="CANCEL", frozen=True):
    """Do not write it.  (A mend.)"""

    request: U64


class Cancelled(Body, tag="CANCELLED", frozen=True):
    """Nothing will be written any more.  (A mend.)"""

    request: U64


ALL = PushReg, Write, Handshake, Metadata, PushFail, PushPending, Cancel, Cancelled


# --------------------------------------------------------------------------------------------- states
class P(State):
    """A request at the prefill engine."""

    NEW = 0
    #: decode has registered its blocks (`_pending_d_registrations`)
    REGISTERED = 1
    #: computed, and nobody has registered (`_push_finished_blocks`)
    FINISHED = 2
    #: both: it can be written
    MATCHED = 3
    #: the writer waits for the decode engine's metadata
    SHAKING = 4
    #: written
    SENT = 5
    #: it will not be
    ENDED = 6


class D(State):
    """A request at the decode engine."""

    NEW = 0
    #: `WAITING_FOR_REMOTE_KVS`
    REGISTERED = 1
    #: loaded, and decoding
    LOADED = 2
    #: given up, its blocks kept until nothing can be written.  (A mend.)
    HELD = 3
    #: given up, its blocks given back
    FREED = 4


# ---------------------------------------------------------------------------------- events and effects
class RegReceived(Event, frozen=True):
    """A PUSH_REG."""

    request: int
    peer: int
    blocks: Blocks


class PromptFinished(Event, frozen=True):
    """`request_finished`: the prompt of so many blocks is computed, and they are kept for the lease."""

    request: int
    blocks: int


class PrefillAborted(Event, frozen=True):
    """The prefill engine gives the request up."""

    request: int


class PushTried(Event, frozen=True):
    """The writer's turn: does it know the decode engine, and is it held up by another's handshake?"""

    request: int
    known: bool
    busy: bool


class ShakeDone(Event, frozen=True):
    """The decode engine's metadata is here."""

    request: int


class CancelReceived(Event, frozen=True):
    """Decode gives the request up."""

    request: int
    peer: int


class LeaseTimer(vocabulary.TimerFired, frozen=True):
    """The lease of the blocks ends."""

    request: int
    tries: int


class Allocated(Event, frozen=True):
    """`update_state_after_alloc`: blocks for these places, of a request at this prefill engine."""

    request: int
    peer: int
    blocks: Blocks


class WriteArrived(Event, frozen=True):
    """A WRITE's notification."""

    request: int


class DecodeAborted(Event, frozen=True):
    """The decode engine gives the request up."""

    request: int


class FailReceived(Event, frozen=True):
    """Nothing will come."""

    request: int


class PendingReceived(Event, frozen=True):
    """It will come."""

    request: int


class StopReceived(Event, frozen=True):
    """Nothing will come any more."""

    request: int


class WatchTimer(vocabulary.TimerFired, frozen=True):
    """`push_registration_timeout`."""

    request: int
    tries: int


class Try(Internal, frozen=True):
    """Let the writer look at the request."""

    request: int


class Wrote(Effect, frozen=True):
    """The source was read."""

    request: int


class SourceFreed(Effect, frozen=True):
    """The prefill engine has its blocks again."""

    request: int


class BlocksHeld(Effect, frozen=True):
    """Decode has blocks for the request, or has given them back."""

    request: int
    held: bool


class Landed(Effect, frozen=True):
    """Contents of these places are in the blocks of those."""

    request: int
    source: Blocks
    target: Blocks


class Timing(Timers, frozen=True):
    """Every timer."""

    lease: Timer = Timer(30.0)
    watch: Timer = Timer(480.0)


# --------------------------------------------------------------------------------------------- prefill
class Producer(Value, frozen=True, gc=False):
    """Who has registered what; how long the prompt is; whether its blocks are given back."""

    peer: int = 0
    blocks: Blocks = ()
    length: int = 0
    expired: bool = False


# fmt: off
def register(v: Producer, e: RegReceived, now: float) -> Producer: return replace(v, peer=e.peer, blocks=e.blocks)
def finish(v: Producer, e: PromptFinished, now: float) -> Producer: return replace(v, length=e.blocks)
def expire(v: Producer, e: LeaseTimer, now: float) -> Producer: return replace(v, expired=True)
def is_busy(v: Producer, e: PushTried, now: float) -> bool: return e.busy
def stranger(v: Producer, e: PushTried, now: float) -> bool: return not e.known
def is_expired(v: Producer, e: Any, now: float) -> bool: return v.expired

def try_(v: Producer, e: RegReceived | PromptFinished) -> Output: return Try(e.request)
def shake(v: Producer, e: PushTried) -> Output: return Transmit(v.peer, Handshake())
def write_front(v: Producer, e: PushTried | ShakeDone) -> Output:
    return Transmit(v.peer, Write(e.request, tuple(range(v.length))[:len(v.blocks)], v.blocks))
def write_end(v: Producer, e: PushTried | ShakeDone) -> Output:
    return Transmit(v.peer, Write(e.request, tuple(range(v.length))[v.length - len(v.blocks):], v.blocks))
def wrote(v: Producer, e: PushTried | ShakeDone) -> Output: return Wrote(e.request)
def free_source(v: Producer, e: Any) -> Output: return SourceFreed(e.request)
def fail(v: Producer, e: Any) -> Output: return Transmit(v.peer, PushFail(e.request))
def fail_back(v: Producer, e: RegReceived) -> Output: return Transmit(e.peer, PushFail(e.request))
def pending(v: Producer, e: RegReceived) -> Output: return Transmit(e.peer, PushPending(e.request))
def cancelled(v: Producer, e: CancelReceived) -> Output: return Transmit(e.peer, Cancelled(e.request))


def producers(mends: Mends) -> Table[Producer]:
    """The table of requests at a prefill engine."""
    table = Table(
        "producer", Producer, P, initial=P.NEW, final=(P.SENT, P.ENDED), tombstones=True,
        events=(RegReceived, PromptFinished, PrefillAborted, PushTried, ShakeDone, CancelReceived, LeaseTimer),
        timers={P.FINISHED: "lease", P.MATCHED: "lease", P.SHAKING: "lease"},
        success_path=(P.NEW, P.REGISTERED, P.MATCHED, P.SHAKING, P.SENT), failure_states=(P.FINISHED, P.ENDED),
    )
    opens, row, ignore = table.opens, table.row, table.ignore
    over, both, live = (P.SENT, P.ENDED), (P.MATCHED, P.SHAKING), "L1" in mends
    write = (write_end if "C3" in mends else write_front, wrote, free_source)
    opens(P.NEW,      RegReceived,    P.REGISTERED, let=register, do=(pending,) if live else ())
    row(P.FINISHED,   RegReceived,    P.MATCHED,    let=register, do=(try_,))
    if live:
        row((P.REGISTERED, *both), RegReceived,     do=(pending,))
        row(P.ENDED,  RegReceived,                  do=(fail_back,))
        ignore(P.SENT, RegReceived,                 "it is written")
    else:
        ignore((P.REGISTERED, *both, *over), RegReceived, "it is registered, or over: the registration stays unmatched")
    opens(P.NEW,      PromptFinished, P.FINISHED,   let=finish)
    row(P.REGISTERED, PromptFinished, P.MATCHED,    let=finish, do=(try_,))
    row(P.ENDED,      PromptFinished,               do=(free_source,))
    ignore((P.FINISHED, *both, P.SENT), PromptFinished, "it is computed")
    opens(P.NEW,      PrefillAborted, P.ENDED)
    row(P.REGISTERED, PrefillAborted, P.ENDED,      do=(fail,) if live else ())
    ignore((P.FINISHED, *both, *over), PrefillAborted, "it is computed")
    if "S2" not in mends:
        ignore(P.MATCHED, PushTried,                "the writer waits for another's handshake", when=is_busy)
    if "V5" in mends:
        row(P.MATCHED, PushTried,     P.ENDED,      when=is_expired, do=(fail,))
        row(P.SHAKING, ShakeDone,     P.ENDED,      when=is_expired, do=(fail,))
    row(P.MATCHED,    PushTried,      P.SHAKING,    when=stranger, do=(shake,))
    row(P.MATCHED,    PushTried,      P.SENT,       do=write)
    row(P.SHAKING,    ShakeDone,      P.SENT,       do=write)
    ignore((P.NEW, P.REGISTERED, P.FINISHED, P.SHAKING, *over), PushTried, "there is nothing to write")
    ignore((P.NEW, P.REGISTERED, P.FINISHED, P.MATCHED, *over), ShakeDone, "it does not wait for it")
    row(P.FINISHED,   LeaseTimer,     P.ENDED,      do=(free_source,))
    ignore(both,      LeaseTimer,                   "they are given back", when=is_expired)
    row(both,         LeaseTimer,                   let=expire, do=(free_source,))
    opens(P.NEW,      CancelReceived, P.ENDED,      do=(cancelled,))
    row(P.REGISTERED, CancelReceived, P.ENDED,      do=(cancelled,))
    row((P.FINISHED, *both), CancelReceived, P.ENDED, do=(free_source, cancelled))
    row(over,         CancelReceived,               do=(cancelled,))
    return table


# ---------------------------------------------------------------------------------------------- decode
class Consumer(Value, frozen=True, gc=False):
    """Where it is computed, what is wanted of it, and whether prefill owes an answer."""

    peer: int = 0
    blocks: Blocks = ()
    asked: bool = False


def allocate(v: Consumer, e: Allocated, now: float) -> Consumer: return replace(v, peer=e.peer, blocks=e.blocks)
def unanswered(v: Consumer, e: WatchTimer, now: float) -> bool: return v.asked
def ask(v: Consumer, e: WatchTimer, now: float) -> Consumer: return replace(v, asked=True)
def answered(v: Consumer, e: PendingReceived, now: float) -> Consumer: return replace(v, asked=False)
def unasked(v: Consumer, e: DecodeAborted, now: float) -> Consumer: return replace(v, asked=False)

def send_reg(v: Consumer, e: Allocated | WatchTimer) -> Output: return Transmit(v.peer, PushReg(e.request, v.blocks))
def send_cancel(v: Consumer, e: DecodeAborted | WatchTimer) -> Output: return Transmit(v.peer, Cancel(e.request))
def hold(v: Consumer, e: Allocated) -> Output: return BlocksHeld(e.request, held=True)
def free(v: Consumer, e: Any) -> Output: return BlocksHeld(e.request, held=False)


def consumers(mends: Mends) -> Table[Consumer]:
    """The table of requests at a decode engine."""
    timers: dict[Any, str] = {D.REGISTERED: "watch"} | ({D.HELD: "watch"} if "L1" in mends else {})
    table = Table(
        "consumer", Consumer, D, initial=D.NEW, final=(D.LOADED, D.FREED), tombstones=True,
        events=(Allocated, WriteArrived, DecodeAborted, FailReceived, PendingReceived, StopReceived, WatchTimer),
        timers=timers, success_path=(D.NEW, D.REGISTERED, D.LOADED), failure_states=(D.HELD, D.FREED),
    )
    opens, row, ignore = table.opens, table.row, table.ignore
    over = (D.LOADED, D.FREED)
    opens(D.NEW,       Allocated,     D.REGISTERED, let=allocate, do=(hold, send_reg))
    ignore((D.REGISTERED, D.HELD, *over), Allocated, "it has its blocks")
    row(D.REGISTERED,  WriteArrived,  D.LOADED)
    ignore((D.NEW, D.HELD, *over), WriteArrived,    "nobody waits for it")
    if "C1" in mends:
        row(D.REGISTERED, DecodeAborted, D.HELD,    let=unasked, do=(send_cancel,))
    else:
        row(D.REGISTERED, DecodeAborted, D.FREED,   do=(free,))
    row(D.LOADED,      DecodeAborted, D.FREED,      do=(free,))
    ignore((D.NEW, D.HELD, D.FREED), DecodeAborted, "it is given up")
    row((D.REGISTERED, D.HELD), FailReceived, D.FREED, do=(free,))
    ignore((D.NEW, *over), FailReceived,            "nobody waits for it")
    row(D.REGISTERED,  PendingReceived,             let=answered)
    ignore((D.NEW, D.HELD, *over), PendingReceived, "nobody waits for it")
    row(D.HELD,        StopReceived,  D.FREED,      do=(free,))
    ignore((D.NEW, D.REGISTERED, *over), StopReceived, "nobody waits for it")
    if "L1" in mends:
        row((D.REGISTERED, D.HELD), WatchTimer, D.FREED, when=unanswered, do=(free,))
        row(D.REGISTERED, WatchTimer,               let=ask, do=(send_reg,))
        row(D.HELD,    WatchTimer,                  let=ask, do=(send_cancel,))
    else:
        ignore(D.REGISTERED, WatchTimer,            "a warning is logged")
    return table
# fmt: on

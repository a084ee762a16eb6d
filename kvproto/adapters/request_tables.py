"""Request tables of an engine's scheduler: one for computed prompts, one for loaded ones.

The usual life of a prompt: it arrives, is scheduled chunk by chunk, is computed, is sent, and its blocks are free when
every rank has reported.  The other rows are easily forgotten.  Aborted *before it has blocks*: its room was never
opened, and a decode instance that waits for it is still notified (`refuse`).  *Preempted*: nothing may be read from
blocks of another request, but the room goes on.  Ended in any way while its room is open: the blocks stay until all
ranks have reported, whatever the engine wants.
"""

from __future__ import annotations

from typing import TypeVar

from msgspec.structs import replace

from kvproto.adapters.request_events import (
    Allocated,
    Arrived,
    Finished,
    FreeBlocks,
    HandOver,
    Preempted,
    RankReported,
    Resume,
    Scheduled,
)
from kvproto.adapters.request_words import (
    Announce,
    D,
    GiveBlocks,
    GiveUp,
    Load,
    OpenRoom,
    P,
    Promise,
    Ranks,
    Skip,
    Ticket,
    Withdraw,
)
from kvproto.fsm.table import Output, Table, Value
from kvproto.fsm.vocabulary import Broadcast

NOTHING = Ticket(0, 0)


# ------------------------------------------------------------------------------------ at the scheduler
class Request(Value, frozen=True, gc=False):
    """Its ticket, the ranks that have yet to report (a mask), and whether one has reported a failure."""

    ticket: Ticket = NOTHING
    ranks: Ranks = 0
    failed: bool = False


class Handed(Request, frozen=True, gc=False):
    """A prompt that is computed here, with the blocks that ranks know, now and before this step."""

    given: int = 0
    before: int = 0


class Fetched(Request, frozen=True, gc=False):
    """A prompt that is computed elsewhere."""


R = TypeVar("R", bound=Request)
Told = Arrived | Scheduled | Preempted | Allocated | Finished | RankReported
# fmt: off


def whole(v: Request, e: Scheduled, now: float) -> bool:
    """This step computes the last token of the prompt."""
    return e.upto >= v.ticket.tokens


def well(v: Request, e: Finished, now: float) -> bool:
    """Nobody has given it up."""
    return e.well


def lacking(v: Request, e: Allocated, now: float) -> bool:
    """Some of its KV is not here."""
    return e.prefix < v.ticket.tokens


def last(v: Request, e: RankReported, now: float) -> bool:
    """All other ranks have reported."""
    return v.ranks == 1 << e.rank


def uncalled(v: Request, e: RankReported, now: float) -> bool:
    """This rank has reported it before, or is none of its ranks."""
    return not v.ranks >> e.rank & 1


def hand(v: Handed, e: Arrived, now: float) -> Handed:
    """Remember the request's ticket and ranks."""
    return Handed(v.state, ticket=e.ticket, ranks=e.ranks)


def fetch(v: Fetched, e: Arrived, now: float) -> Fetched:
    """Remember the request's ticket and ranks."""
    return Fetched(v.state, ticket=e.ticket, ranks=e.ranks)


def grow(v: Handed, e: Scheduled, now: float) -> Handed:
    """The ranks know of all blocks that it has."""
    return replace(v, before=v.given, given=len(e.blocks))


def lose(v: Handed, e: Preempted, now: float) -> Handed:
    """It has no blocks."""
    return replace(v, given=0)


def count(v: R, e: RankReported, now: float) -> R:
    """One rank less."""
    return replace(v, ranks=v.ranks & ~(1 << e.rank), failed=v.failed or e.failed)


def open_room(v: Request, e: Scheduled) -> Output:
    """The forward comes: have grants asked for."""
    return Broadcast(v.ranks, OpenRoom(e.request, v.ticket))


def give(v: Handed, e: Scheduled) -> Output:
    """Tell the ranks what this step computes, and the new blocks."""
    return Broadcast(v.ranks, GiveBlocks(e.request, e.blocks[v.before:], min(e.upto, v.ticket.tokens), e.slots, e.windows))


def withdraw(v: Request, e: Preempted) -> Output:
    """Nothing more is read from its blocks."""
    return Broadcast(v.ranks, Withdraw(e.request))


def promise(v: Request, e: Finished) -> Output:
    """Its blocks are kept until all ranks have reported."""
    return Broadcast(v.ranks, Promise(e.request))


def refuse(v: Request, e: Finished) -> Output:
    """Notify the other side; nothing is held here."""
    return Broadcast(v.ranks, GiveUp(e.request, v.ticket, report=False))


def give_up(v: Request, e: Finished) -> Output:
    """Notify the other side; keep the blocks until all ranks have reported."""
    return Broadcast(v.ranks, GiveUp(e.request, v.ticket, report=True))


def announce(v: Request, e: Arrived) -> Output:
    """The prefill instance is told before there are blocks."""
    return Broadcast(v.ranks, Announce(e.request, v.ticket))


def load(v: Request, e: Allocated) -> Output:
    """Load the missing KV into its blocks."""
    return Broadcast(v.ranks, Load(e.request, e.blocks, e.prefix, e.slots, e.windows))


def skip(v: Request, e: Allocated) -> Output:
    """The prefill instance need not keep anything for it."""
    return Broadcast(v.ranks, Skip(e.request))


def free(v: Request, e: Told) -> Output:
    """The blocks are for others."""
    return FreeBlocks(e.request)


def hand_over(v: Request, e: Finished) -> Output:
    """The answer says where the KV is."""
    return HandOver(e.request, v.ticket)


def resume(v: Request, e: RankReported) -> Output:
    """It can run."""
    return Resume(e.request, v.failed or e.failed)


prefill_request = Table(
    "prefill_request", Handed, P, initial=P.NEW, final=(P.RELEASED, P.REFUSED), timers={},
    events=(Arrived, Scheduled, Preempted, Finished, RankReported),
    success_path=(P.NEW, P.ADMITTED, P.OPEN, P.COMPUTED, P.PROMISED, P.RELEASED), failure_states=(P.REFUSED, P.ABORTED),
)
opens, row, ignore, refused = prefill_request.opens, prefill_request.row, prefill_request.ignore, prefill_request.refuse

opens(P.NEW,                    Arrived,      P.ADMITTED,  let=hand)
row(P.ADMITTED,                 Scheduled,    P.COMPUTED,  when=whole, let=grow, do=(open_room, give))
row(P.ADMITTED,                 Scheduled,    P.OPEN,      let=grow, do=(open_room, give))
row(P.OPEN,                     Scheduled,    P.COMPUTED,  when=whole, let=grow, do=(give,))
row(P.OPEN,                     Scheduled,                 let=grow, do=(give,))
row(P.COMPUTED,                 Finished,     P.PROMISED,  when=well, do=(hand_over, promise))
row((P.PROMISED, P.ABORTED),    RankReported, P.RELEASED,  when=last, do=(free,))

row((P.OPEN, P.COMPUTED),       Preempted,    P.PREEMPTED, let=lose, do=(withdraw,))
row(P.PREEMPTED,                Scheduled,    P.COMPUTED,  when=whole, let=grow, do=(give,))
row(P.PREEMPTED,                Scheduled,    P.OPEN,      let=grow, do=(give,))
row((P.ADMITTED, P.PREEMPTED),  Finished,     P.REFUSED,   do=(refuse, free))
row((P.OPEN, P.COMPUTED),       Finished,     P.ABORTED,   do=(give_up,))
refused((P.PROMISED, P.ABORTED), RankReported, "this rank has reported it, or is none of its ranks", when=uncalled)
row((P.PROMISED, P.ABORTED),    RankReported,              let=count)

row(P.NEW,                      Finished,                  do=(free,))
ignore(P.NEW,                   (Scheduled, Preempted),    "it hands nothing over")
ignore(P.COMPUTED,              Scheduled,                 "its prompt is computed: what comes now is its own")
ignore((P.PROMISED, P.ABORTED), Preempted,                 "it has ended, and keeps its blocks")
refused((P.ADMITTED, P.PREEMPTED), Preempted,              "it has no blocks")
refused((P.PROMISED, P.ABORTED), (Scheduled, Finished),    "it has ended")
refused((P.ADMITTED, P.OPEN, P.PREEMPTED, P.COMPUTED, P.PROMISED, P.ABORTED), Arrived, "a request of this name is here")
refused((P.NEW, P.ADMITTED, P.OPEN, P.PREEMPTED, P.COMPUTED), RankReported, "nobody waits for a report")


decode_request = Table(
    "decode_request", Fetched, D, initial=D.NEW, final=(D.RELEASED, D.REFUSED), timers={},
    events=(Arrived, Allocated, Finished, RankReported),
    success_path=(D.NEW, D.ADMITTED, D.OPEN, D.RELEASED), failure_states=(D.REFUSED, D.ABORTED),
)
opens_d, row_d, ignore_d, refused_d = decode_request.opens, decode_request.row, decode_request.ignore, decode_request.refuse

opens_d(D.NEW,           Arrived,      D.ADMITTED, let=fetch, do=(announce,))
row_d(D.ADMITTED,        Allocated,    D.OPEN,     when=lacking, do=(load,))
row_d(D.ADMITTED,        Allocated,    D.RELEASED, do=(skip,))
row_d(D.OPEN,            RankReported, D.RELEASED, when=last, do=(resume,))

row_d(D.ADMITTED,        Finished,     D.REFUSED,  do=(refuse, free))
row_d(D.OPEN,            Finished,     D.ABORTED,  do=(give_up,))
row_d(D.ABORTED,         RankReported, D.RELEASED, when=last, do=(free,))
refused_d((D.OPEN, D.ABORTED), RankReported,       "this rank has reported it, or is none of its ranks", when=uncalled)
row_d((D.OPEN, D.ABORTED), RankReported,           let=count)

row_d(D.NEW,             Finished,                 do=(free,))
ignore_d(D.NEW,          Allocated,                "no KV of it is awaited: its blocks are for what it computes")
refused_d(D.OPEN,        Allocated,                "it has blocks for its whole prompt")
refused_d(D.ABORTED,     (Allocated, Finished),    "it has ended")
refused_d((D.ADMITTED, D.OPEN, D.ABORTED), Arrived, "a request of this name is here")
refused_d((D.NEW, D.ADMITTED), RankReported,       "nobody waits for a report")
# fmt: on

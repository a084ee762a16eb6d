"""Request parties: the scheduler and the ranks as parties, and both as one protocol for the tools.

`scheduler` and `rank` make a party of either side.  If scheduler and ranks are processes, orders travel with the
engine's steps and reports with their results.  If they are one process, `Transmit` is handed from one to the other.  An
engine that aggregates the reports of its ranks has one rank here, with the number `ALL`.
"""

from __future__ import annotations

from typing import Any, Literal

from kvproto.adapters.request_events import (
    AnnounceOrdered,
    BlocksOrdered,
    GiveUpOrdered,
    LoadOrdered,
    OpenOrdered,
    PromiseOrdered,
    RankReported,
    SkipOrdered,
    Timing,
    WithdrawOrdered,
)
from kvproto.adapters.request_tables import decode_request, prefill_request
from kvproto.adapters.request_words import (
    SCHEDULER,
    Announce,
    GiveBlocks,
    GiveUp,
    Load,
    OpenRoom,
    Promise,
    Received,
    Sent,
    Skip,
    Withdraw,
)
from kvproto.adapters.room_tables import decode_room, prefill_room
from kvproto.fsm.party import Member, MemberMessage
from kvproto.fsm.routing import Routes

Side = Literal["prefill", "decode"]
TABLES = prefill_request, decode_request, prefill_room, decode_room
#: all ranks as one
ALL = 1
PREFILL_ORDERS = OpenRoom, GiveBlocks, Withdraw, Promise, GiveUp
DECODE_ORDERS = Announce, Load, Skip, GiveUp


def sent(h: MemberMessage) -> RankReported:
    """A rank needs the blocks no more."""
    return RankReported(h.body.request, h.peer, failed=False)


def received(h: MemberMessage) -> RankReported:
    """At a rank nothing more is to come."""
    return RankReported(h.body.request, h.peer, h.body.failed)


def open_ordered(h: MemberMessage) -> OpenOrdered:
    """The forward comes."""
    return OpenOrdered(h.body.request, h.body)


def blocks_ordered(h: MemberMessage) -> BlocksOrdered:
    """More is computed."""
    return BlocksOrdered(h.body.request, h.body)


def withdraw_ordered(h: MemberMessage) -> WithdrawOrdered:
    """The blocks are somebody else's."""
    return WithdrawOrdered(h.body.request, h.body)


def promise_ordered(h: MemberMessage) -> PromiseOrdered:
    """The scheduler waits."""
    return PromiseOrdered(h.body.request, h.body)


def announce_ordered(h: MemberMessage) -> AnnounceOrdered:
    return AnnounceOrdered(h.body.request, h.body)


def load_ordered(h: MemberMessage) -> LoadOrdered:
    return LoadOrdered(h.body.request, h.body)


def skip_ordered(h: MemberMessage) -> SkipOrdered:
    return SkipOrdered(h.body.request, h.body)


def give_up_ordered(h: MemberMessage) -> GiveUpOrdered:
    return GiveUpOrdered(h.body.request, h.body)


to_prefill_scheduler = Routes("prefill_scheduler", (Sent,), ())
to_prefill_scheduler.route(Sent, to=sent)
to_decode_scheduler = Routes("decode_scheduler", (Received,), ())
to_decode_scheduler.route(Received, to=received)

to_prefill_rank = Routes("prefill_rank", PREFILL_ORDERS, ())
to_prefill_rank.route(OpenRoom, to=open_ordered)
to_prefill_rank.route(GiveBlocks, to=blocks_ordered)
to_prefill_rank.route(Withdraw, to=withdraw_ordered)
to_prefill_rank.route(Promise, to=promise_ordered)
to_prefill_rank.route(GiveUp, to=give_up_ordered)

to_decode_rank = Routes("decode_rank", DECODE_ORDERS, ())
to_decode_rank.route(Announce, to=announce_ordered)
to_decode_rank.route(Load, to=load_ordered)
to_decode_rank.route(Skip, to=skip_ordered)
to_decode_rank.route(GiveUp, to=give_up_ordered)

ROUTES = to_prefill_scheduler, to_decode_scheduler, to_prefill_rank, to_decode_rank
SCHEDULERS = {"prefill": (prefill_request, to_prefill_scheduler), "decode": (decode_request, to_decode_scheduler)}
RANKS = {"prefill": (prefill_room, to_prefill_rank), "decode": (decode_room, to_decode_rank)}


def by_request(event: Any) -> Any:
    return event.request


def scheduler(side: Side, ranks: int = 1) -> Member:
    return _member(SCHEDULER, _names(ranks), *SCHEDULERS[side])


def rank(side: Side, number: int = ALL, ranks: int = 1) -> Member:
    """A rank; numbers count from 1."""
    return _member(number, _names(ranks), *RANKS[side])


def _names(ranks: int) -> dict[int, str]:
    return {SCHEDULER: "scheduler", **{number: f"rank{number}" for number in range(1, ranks + 1)}}


def _member(number: int, names: dict[int, str], table: Any, routes: Routes) -> Member:
    party = Member(number, names, Timing(), routes)
    party.add("requests", table, by_request)
    return party


def everyone(ranks: int = 1) -> int:
    return (1 << ranks + 1) - 2

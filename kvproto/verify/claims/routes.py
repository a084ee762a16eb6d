"""Routes: whom a rank hears and whom it answers, for every message in every combination of facts.

There are a few hundred cases, so each is looked at (`kvproto.verify.prove.edge`); what is asked of them is said here, not by the
routes once more: what may be heard of whom.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kvproto.fsm.routing import Fact, Route, Routes
from kvproto.protocol import messages as msg
from kvproto.protocol.routes import (
    D_CHUNKS,
    TO_DECODE,
    TO_PREFILL,
    ChunkIs,
    HeardMessage,
    LinkIs,
    SenderIs,
    decode_routes,
    not_yours,
    note,
    prefill_routes,
    taken,
)  # fmt: skip

#: a case, and the route that takes it
Promise = Callable[[Routes, type, tuple[Fact, ...], Route], bool]
MINE = {prefill_routes.name: TO_PREFILL, decode_routes.name: TO_DECODE}
CALLS = (msg.Hello, msg.Welcome, msg.Refusal)


def hears_its_own_side(routes: Routes, message: type, facts: tuple[Fact, ...], route: Route) -> bool:
    """Nobody hears what is for the other side."""
    return message in MINE[routes.name] or route.end == "drop"


def hears_by_its_link(routes: Routes, message: type, facts: tuple[Fact, ...], route: Route) -> bool:
    """A rank takes only calls of its name and beats from a stranger. By a link that is not up it takes
    answers and resets, too, and a prefill rank the end of a call. From an address that a decode rank tries beside a
    link it takes the answer to its call alone.
    """
    link, stranger = _of(facts, LinkIs), message in (msg.Hello, msg.Heartbeat)
    if link is LinkIs.BESIDE:
        return (route.end == "route") == (routes is decode_routes and message in (msg.Welcome, msg.Refusal))
    told = (msg.Goodbye,) if routes is prefill_routes else ()
    stale = link is LinkIs.STALE and message in (*CALLS, msg.Reset, *told)
    return route.end == "drop" or link is LinkIs.CURRENT or stranger or stale


def hears_who_may_speak(routes: Routes, message: type, facts: tuple[Fact, ...], route: Route) -> bool:
    """By a link that is up, and of calls and beats by any, all is heard but messages about another's room
    or rank.
    """
    if message not in MINE[routes.name] or _of(facts, LinkIs) is LinkIs.BESIDE or (message is not msg.Hello and _of(facts, LinkIs) is not LinkIs.CURRENT):
        return True
    always = (msg.Heartbeat, msg.Reset, msg.Goodbye, msg.Welcome, msg.Refusal, msg.Watermark, msg.WatermarkReq)
    both = routes is prefill_routes and message is not msg.Hello
    rivals = (SenderIs.OUTSIDER, SenderIs.RIVAL) if both else (SenderIs.OUTSIDER,)
    return (route.end == "route") == (message in always or _of(facts, SenderIs) not in rivals)


def tells_who_waits(routes: Routes, message: type, facts: tuple[Fact, ...], route: Route) -> bool:
    """A requester of another's room is told so; while two claim a room only an abort is answered."""
    if _of(facts, LinkIs) is not LinkIs.CURRENT:
        return route.end != "answer"
    sender = _of(facts, SenderIs)
    answer: Callable[[HeardMessage], Any] | None = None
    if routes is prefill_routes:
        asks = msg.Abort if sender is SenderIs.RIVAL else (msg.Open, msg.Announce, msg.Abort)
        answer = taken if sender in (SenderIs.OUTSIDER, SenderIs.RIVAL) and issubclass(message, asks) else None
    elif sender is SenderIs.OUTSIDER and message in (msg.Drained, msg.Aux, *D_CHUNKS):
        answer = note if message is msg.Drained else not_yours
    return route.to == (answer,) if answer is not None else route.end != "answer"


def speaks_of_the_grant(routes: Routes, message: type, facts: tuple[Fact, ...], route: Route) -> bool:
    """A message about a chunk with a grant goes to the grant, of any other chunk to the room."""
    if message not in D_CHUNKS or route.end != "route":
        return True
    asks = [ask for by_fact in route.asks for ask in by_fact if isinstance(ask, ChunkIs)]
    return (ChunkIs.GRANTED in asks) == (_of(facts, ChunkIs) is ChunkIs.GRANTED)


def _of(facts: tuple[Fact, ...], kind: type[Fact]) -> Fact:
    (found,) = (fact for fact in facts if isinstance(fact, kind))
    return found


#: by property
PROMISES: tuple[tuple[str, Promise], ...] = (
    ("S9", hears_its_own_side), ("S9", hears_by_its_link), ("S9", hears_who_may_speak), ("L1", tells_who_waits),
    ("S1", speaks_of_the_grant),
)  # fmt: skip

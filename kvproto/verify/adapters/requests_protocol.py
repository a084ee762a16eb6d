"""Requests protocol: an engine's requests as one protocol, for stories and for agreement of two sides."""

from __future__ import annotations

from kvproto.adapters import request_events, request_words
from kvproto.adapters.request_events import (
    Allocated,
    Arrived,
    CarryOut,
    Finished,
    FreeBlocks,
    HandOver,
    Preempted,
    Renew,
    Resume,
    RoomEnded,
    RoomReleased,
    Scheduled,
    TimerFired,
    Timing,
)
from kvproto.adapters.request_parties import ROUTES, TABLES
from kvproto.adapters.request_words import Order, Received, Sent
from kvproto.fsm.codec import Body
from kvproto.fsm.telling import Telling
from kvproto.verify.framework.digest_text import DigestTexts, digest, routes_say, table_says
from kvproto.verify.framework.protocol import Protocol
from kvproto.verify.framework.sources import Sources


def said() -> str:
    """Return what a scheduler and its ranks must have in common."""
    texts = DigestTexts()
    routes = tuple(part for each in ROUTES for part in routes_say(each))
    return digest({"messages": texts.part("messages", (Order, Sent, Received)), "routes": texts.part("routes", routes)}
                  | {table.name: texts.part(table.name, table_says(table)) for table in TABLES})  # fmt: skip


class RequestTelling(Telling):
    """Stories are told of requests."""

    party, subject = "party", "request"
    sources = {  # noqa: RUF012
        "engine": (Arrived, Scheduled, Preempted, Allocated, Finished), "endpoint": (RoomEnded, RoomReleased),
        "timer": (TimerFired,),
    }  # fmt: skip
    told = (FreeBlocks, HandOver, Resume, CarryOut, Renew)
    untold = frozenset({"body", "order"})


TELLING = RequestTelling(TABLES, Timing, said, (request_events, request_words), Body)
SOURCES = Sources(
    TABLES, ROUTES, engine=(Arrived, Scheduled, Preempted, Allocated, Finished, RoomEnded, RoomReleased), answers={},
    raised={}, states=(),
)  # fmt: skip
REQUESTS = Protocol(
    name="requests", tables=TABLES, timing=Timing(), digest=said, sources=SOURCES,
    telling="kvproto.verify.adapters.requests_protocol:TELLING",
    checker="kvproto.verify.adapters.request_worlds:CHECKER",
)  # fmt: skip

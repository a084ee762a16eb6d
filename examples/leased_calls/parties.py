"""Parties: client and server, and all of it as one object for the tools."""

from typing import Any

from examples.leased_calls import words
from examples.leased_calls.tables import CLIENT, SERVER, TABLES, client, server
from examples.leased_calls.words import (
    Ask,
    Execute,
    Grant,
    Granted,
    HasRun,
    LeaseAsked,
    Refusal,
    Refused,
    Result,
    ResultCame,
    Run,
    RunAsked,
    Tell,
    Timing,
    Wanted,
)
from kvproto.fsm.codec import Body
from kvproto.fsm.party import Member, MemberMessage
from kvproto.fsm.routing import Routes
from kvproto.fsm.telling import Telling
from kvproto.verify.framework.digest_text import digest_of
from kvproto.verify.framework.protocol import Protocol
from kvproto.verify.framework.sources import Sources

ALL = Ask, Grant, Run, Result, Refusal
NAMES = {CLIENT: "client", SERVER: "server"}


def asked(h: MemberMessage) -> LeaseAsked:
    """The server knows in which life it is."""
    return LeaseAsked(h.body.call, h.party.life)


to_client, to_server = Routes("client", ALL, ()), Routes("server", ALL, ())
to_client.route(Grant, to=Granted)
to_client.route(Result, to=ResultCame)
to_client.route(Refusal, to=Refused)
to_client.drop((Ask, Run), why="messages for the other side")
to_server.route(Ask, to=asked)
to_server.route(Run, to=RunAsked)
to_server.drop((Grant, Result, Refusal), why="messages for the other side")


class Caller(Member):
    """Has calls run."""


class Server(Member):
    """Runs calls; `life` is how often it has started, by its stable storage."""

    KEPT = ("life",)
    life = 0


def make(number: int, life: int = 0, timing: Timing = Timing()) -> Member:  # noqa: B008  # a constant
    """The client, or the server in this life."""
    party: Any
    if number == CLIENT:
        party = Caller(number, NAMES, timing, to_client)
        party.add("calls", client, lambda event: event.call, bound=1 << 20)
    else:
        party = Server(number, NAMES, timing, to_server)
        party.add("calls", server, lambda event: event.call, bound=1 << 20)
        party.life = life
    member: Member = party
    return member


def said() -> str:
    """Return what two builds must have in common."""
    return digest_of(TABLES, (to_client, to_server))


class Words(Telling):
    """Stories are told of calls."""

    party, subject = "party", "call"
    sources = {"application": (Wanted,), "handler": (HasRun,), "timer": (words.TimerFired,)}  # noqa: RUF012
    told = (Execute, Tell)
    untold = frozenset({"call", "body"})


TELLING = Words(TABLES, Timing, said, (words,), Body)
SOURCES = Sources(
    TABLES, (to_client, to_server), engine=(Wanted,), answers={Execute: (HasRun,)}, raised={}, states=()
)  # fmt: skip
CALLS = Protocol(
    name="leased calls", tables=TABLES, timing=Timing(), digest=said, sources=SOURCES,
    telling="examples.leased_calls.parties:TELLING", scenes="examples.leased_calls.worlds:SCENES",
    checker="examples.leased_calls.worlds:CHECKER", claims="examples.leased_calls.claims:CLAIMS",
)  # fmt: skip

"""The two kinds of parties, what their messages become, and all of it as one object for the tools."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from examples.two_phase_commit import protocol
from examples.two_phase_commit.protocol import (
    TABLES,
    Begun,
    Decision,
    DecisionReceived,
    Inquire,
    Inquired,
    Message,
    Prepare,
    PrepareAsked,
    Recovered,
    Timing,
    Vote,
    VoteReceived,
)
from kvproto.fsm.codec import Body
from kvproto.fsm.party import Member, MemberMessage
from kvproto.fsm.routing import Fact, Routes
from kvproto.fsm.telling import Telling
from kvproto.fsm.timing import NamedTimers
from kvproto.verify.framework.digest_text import DigestTexts, digest, routes_say, table_says
from kvproto.verify.framework.protocol import Protocol
from kvproto.verify.framework.sources import Sources

ALL = Prepare, Vote, Decision, Inquire
#: a log that is never cut: a decision may be asked for at any time
FOR_EVER = 1 << 62


class SenderIs(Fact):
    """Who has sent the message."""

    #: one of the parties
    MEMBER = 0
    #: nobody who is known here
    STRANGER = 1


def asked(h: MemberMessage) -> PrepareAsked:
    """Whether the changes are at hand, the party knows."""
    return PrepareAsked(h.body.txn, h.body.txn in h.party.at_hand)


to_coordinator = Routes("coordinator", ALL, (SenderIs,))
to_coordinator.drop(ALL, SenderIs.STRANGER, why="messages of strangers")
to_coordinator.route(Vote, to=VoteReceived)
to_coordinator.route(Inquire, to=Inquired)
to_coordinator.drop((Prepare, Decision), why="messages for the other side")

to_participant = Routes("participant", ALL, (SenderIs,))
to_participant.drop(ALL, SenderIs.STRANGER, why="messages of strangers")
to_participant.route(Prepare, to=asked)
to_participant.route(Decision, to=DecisionReceived)
to_participant.drop((Vote, Inquire), why="messages for the other side")


def by_txn(event: Any) -> Any:
    """The transaction that an event is about."""
    return event.txn


class Party(Member):
    """Either kind: a machine a transaction."""

    def facts(self, heard: MemberMessage) -> int:
        """Whether the sender is one of the parties."""
        return Routes.place(SenderIs.MEMBER if heard.peer in self.peers else SenderIs.STRANGER)


class Coordinator(Party):
    """Begins transactions, and decides."""

    def __init__(self, number: int, names: Mapping[int, str], timing: NamedTimers) -> None:
        super().__init__(number, names, timing, to_coordinator)
        self.add("transactions", protocol.coordinator, by_txn, bound=FOR_EVER)


class Participant(Party):
    """Promises what it has `at_hand`: the transactions whose changes can be made."""

    KEPT = ("at_hand",)

    def __init__(self, number: int, names: Mapping[int, str], timing: NamedTimers) -> None:
        super().__init__(number, names, timing, to_participant)
        self.add("transactions", protocol.participant, by_txn, bound=FOR_EVER)
        self.at_hand: frozenset[int] = frozenset()


def make(number: int, names: Mapping[int, str], timing: Timing = Timing()) -> Coordinator | Participant:  # noqa: B008
    """The party of this number."""
    kind = Coordinator if number == protocol.COORDINATOR else Participant
    return kind(number, names, timing)


def said() -> str:
    """What two builds must have in common."""
    texts = DigestTexts()
    parts = {"messages": (Message,), "routes": (*routes_say(to_coordinator), *routes_say(to_participant))}
    return digest({name: texts.part(name, roots) for name, roots in parts.items()}
                  | {table.name: texts.part(table.name, table_says(table)) for table in TABLES})  # fmt: skip


class Words(Telling):
    """Stories are told of transactions."""

    party, subject = "party", "transaction"
    sources = {"application": (Begun,), "log": (Recovered,), "timer": (protocol.TimerFired,)}  # noqa: RUF012
    told = (protocol.WriteLog, protocol.Announce)
    untold = frozenset({"txn", "body"})

    def title(self, party: str) -> str:
        """`coordinator`, `participant 1`."""
        return "coordinator" if party == "C" else f"participant {party[1:]}"


WORDS = Words(TABLES, Timing, said, (protocol,), Body)
SOURCES = Sources(TABLES, (to_coordinator, to_participant), engine=(Begun, Recovered), answers={}, raised={}, states=())
PROTOCOL = Protocol(
    name="two-phase commit", tables=TABLES, timing=Timing(), digest=said, sources=SOURCES,
    telling="examples.two_phase_commit.parties:WORDS", scenes="examples.two_phase_commit.worlds:SCENES",
    checker="examples.two_phase_commit.worlds:CHECKER", claims="examples.two_phase_commit.claims:CLAIMS",
)  # fmt: skip

"""Telling: the names and words of a protocol that defines none of its own."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from examples.two_phase_commit import protocol
from examples.two_phase_commit.parties import make
from examples.two_phase_commit.protocol import TABLES, Begun, Decision, Prepare, Timing, Vote, VoteReceived
from kvproto.fsm import codec
from kvproto.fsm.codec import Body
from kvproto.fsm.plain_json import PlainError
from kvproto.fsm.records import HeardEntry, SentEntry, StepEntry
from kvproto.fsm.telling import LogHead, Message, Moment, SenderClues, Telling
from kvproto.fsm.vocabulary import Event, Report, Transmit


class Terms(msgspec.Struct, frozen=True):
    """A struct in an event."""

    size: int


class Agreed(Event, frozen=True):
    """An event with every kind of field."""

    txn: int
    terms: Terms
    secret: bytes
    sure: bool


class Both(codec.Message, tag="BOTH", frozen=True):
    """A message that is an event itself."""

    txn: int


def digest() -> str:
    return "digest"


@pytest.fixture
def telling() -> Telling:
    both: Any = SimpleNamespace(Both=Both, Base=codec.Message)
    return Telling(TABLES, Timing, digest, (protocol, both), Body)


def step(event: Event, source: str = "A", target: str = "B") -> StepEntry:
    return StepEntry(2, 1.0, "coordinator", (7,), event, source, target, 0, ())


# ------------------------------------------------------------------------------------ what there is to tell
def test_classes_are_found_by_name_among_events_effects_and_messages(telling: Telling) -> None:
    assert telling.tables == {table.name: table for table in TABLES}
    assert telling.by_value == {table.value: table for table in TABLES}
    assert (telling.timing, telling.digest, telling.body) == (Timing, digest, Body)
    made = telling.machines(Timing())
    assert {name: machine.table for name, machine in made.items()} == telling.tables
    assert telling.events["Begun"] is Begun and telling.events["BOTH"] is Both and "Message" not in telling.events
    assert telling.effects["Transmit"] is Transmit and telling.messages == {
        "PREPARE": Prepare, "VOTE": Vote, "DECISION": Decision, "INQUIRE": protocol.Inquire, "BOTH": Both,
    }  # fmt: skip
    for value in (Begun(7, 3), Report("a", "b"), Vote(7, yes=True)):
        base: Any = next(each for each in telling.json.kinds if isinstance(value, each))
        written: Any = telling.json.plain(value)
        assert written["type"] and telling.json.struct(base, written) == value


@pytest.mark.parametrize(
    ("kind", "name", "least", "most"),
    [(int, "peer", -1, 1 << 20), (int, "row", 0, 1 << 16), (int, "route", 0, 1 << 16), (int, "number", 0, 1 << 62),
     (float, "time", -1e12, 1e12), (float, "period", 1e-9, 1e9)],
)  # fmt: skip
def test_numbers_that_are_places_and_times_have_bounds(
    telling: Telling, kind: type, name: str, least: float, most: float
) -> None:
    assert [telling.json.value(kind, each, name, "here") for each in (least, most)] == [least, most]
    for number in (least - (1 if kind is int else abs(least) / 2), most + (1 if kind is int else most / 2)):
        with pytest.raises(PlainError, match=r"^here: .* is out of bounds$"):
            telling.json.value(kind, number, name, "here")


def test_a_chart_notes_what_comes_from_outside(telling: Telling) -> None:
    assert telling.noted == ("engine", "application", "log")


# ------------------------------------------------------------------------------------------------- parties
def test_a_log_begins_with_its_party(telling: Telling) -> None:
    party = make(0, {0: "C", 1: "P1"})
    head = telling.head_of(party, whole=True)
    assert head == LogHead("C", "digest", party.timing, True, "coordinator", {1: "P1"})
    assert telling.names([head]) == {"C": "C"} and telling.identity(head) == "C"
    assert telling.peers(head, {}) == {1: "P1"} and telling.longest_flight(head) == math.inf
    assert telling.title("P1") == telling.column("P1") == "P1"


def test_nobody_knows_more_of_a_sender_than_the_logs_say(telling: Telling) -> None:
    clues, message = telling.clues([], {}), Message("P1", "C", 7, "VOTE", ())
    assert type(clues) is SenderClues and clues.cause(message) is None and clues.comes_later(message) is False


# ------------------------------------------------------------------------------------------------ machines
def test_a_machine_is_known_by_the_first_field_of_its_events(telling: Telling) -> None:
    event, table = VoteReceived(7, 1, yes=True), TABLES[0]
    assert telling.key_of(table, event) == telling.key_getter(table)(event) == (7,)
    moved = step(event)
    assert telling.subject_of(moved) == 7 and telling.part_of(moved) is None and telling.background(moved) is False
    assert telling.machine(moved) == "coordinator" and telling.track(moved) == "subject 7: coordinator"
    assert telling.subject_name(7) == "7" and telling.subject_title(7) == "subject 7"


def test_a_subject_is_a_number_of_twenty_digits_at_most(telling: Telling) -> None:
    assert [telling.subject_from(each) for each in ("7", "9" * 20)] == [7, int("9" * 20)]
    for text in ("", "x", "-7", "1_0", "٣", "9" * 21):
        with pytest.raises(PlainError, match=f"^'{text}' is no subject: write its number$"):
            telling.subject_from(text)


# ------------------------------------------------------------------------------------------------ messages
def test_a_message_is_known_by_its_subject_name_and_fields(telling: Telling) -> None:
    vote, fields = Vote(7, yes=True), (("txn", 7), ("yes", True))
    heard, sent = HeardEntry(2, 1.0, (1,), vote), SentEntry(2, Transmit(3, vote))
    assert telling.heard(heard) == (1, 7, vote) and telling.spoken(vote) == ("VOTE", fields)
    assert telling.left(sent.effect) == (3, 7, "VOTE", fields) and telling.left(Report("a", "b")) is None
    assert telling.era(heard) == telling.era(sent)
    about = [Message("P1", "C", subject, "VOTE", fields) for subject in (7, None)]
    assert [telling.aside(each) for each in about] == [False, True]
    assert [telling.part_of_message(each) for each in about] == [None, None]


# --------------------------------------------------------------------------------------- words and charts
@pytest.mark.parametrize(
    ("fields", "said"),
    [((("txn", 7), ("yes", True)), "VOTE txn 7, yes"), ((("txn", 7), ("yes", False)), "VOTE txn 7"), ((), "VOTE")],
)
def test_a_message_is_a_line_without_what_is_not_so(telling: Telling, fields: Any, said: str) -> None:
    assert telling.said(Message("P1", "C", 7, "VOTE", fields)) == said


@pytest.mark.parametrize(
    ("fact", "told"),
    [
        (Agreed(7, Terms(2), b"x", sure=True), "Agreed(txn 7, terms Terms(…), sure)"),
        (Agreed(7, Terms(2), b"x", sure=False), "Agreed(txn 7, terms Terms(…), not sure)"),
        (protocol.TimerFired(7, 3), "TimerFired"), (Transmit(3, Vote(7, yes=True)), "Transmit(peer 3)"),
    ],
)  # fmt: skip
def test_a_fact_is_told_without_secrets_and_what_goes_without_saying(telling: Telling, fact: Any, told: str) -> None:
    assert telling.fact(fact) == told


def test_a_chart_notes_told_effects_and_changes_in_the_background(telling: Telling) -> None:
    telling.told = (Report,)
    moved = step(Begun(7, 3))
    moment = Moment(0, "C", 1.0, moved)
    assert list(telling.drawn(moment, Report("a", "b"), {})) == ["    Note over C: Report(what a, why b)"]
    assert not list(telling.drawn(moment, Transmit(3, Vote(7, yes=True)), {}))
    assert list(telling.drawn_background(moment, moved)) == ["    Note over C: coordinator is B"]
    assert not list(telling.drawn_background(moment, step(Begun(7, 3), "B", "B")))

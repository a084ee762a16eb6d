"""Records: a log says what its party did, comes back from its lines, and wrong lines are refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from examples.two_phase_commit.parties import WORDS, Coordinator, make
from examples.two_phase_commit.protocol import Begun, C, Decision, Prepare, Timing, Vote, VoteReceived, coordinator
from kvproto.fsm import bounded_files, records
from kvproto.fsm.driver import Driver
from kvproto.fsm.records import HeardEntry, Log, SentEntry, StepEntry, TraceError, log_of, parse
from kvproto.fsm.timing import Timer
from kvproto.fsm.vocabulary import Transmit
from kvproto.verify.framework.trace.replay import replay

BEGINNING: Any = WORDS.json.plain(coordinator.value(coordinator.initial))
REPORT = {"type": "Report", "what": "a", "why": "b"}
DECIDED = {"type": "DecisionReceived", "txn": 7, "commit": True}


@pytest.fixture
def party() -> Coordinator:
    """It has asked one participant, heard its vote, and heard it again."""
    made = make(0, {0: "C", 1: "P1"}, Timing(votes=Timer(period=0.5, tries=3)))
    assert isinstance(made, Coordinator)
    made.handle(Begun(7, 0b10), 1.0)
    for now in (2.0, 3.0):
        made.receive(1, Vote(7, yes=True), now, 5)
    return made


def written(party: Coordinator) -> list[dict[str, Any]]:
    return [json.loads(line) for line in records.lines(log_of(party, telling=WORDS), WORDS)]


def parsed(*lines: object) -> list[Log]:
    return parse([json.dumps(line) for line in lines], telling=WORDS)


# ------------------------------------------------------------------------------------------ made and written
def test_a_log_says_what_its_party_did(party: Coordinator) -> None:
    log = log_of(party, telling=WORDS)
    begun, _, _, decided, _, _, again = log.entries
    assert isinstance(begun, StepEntry) and isinstance(decided, StepEntry) and isinstance(again, StepEntry)
    vote, key = VoteReceived(7, 1, yes=True), (7,)
    heard = HeardEntry(4, 2.0, (1,), Vote(7, yes=True), 1, 5)
    assert log.head == WORDS.head_of(party, whole=True)
    assert log.entries == [
        StepEntry(2, 1.0, "coordinator", key, Begun(7, 0b10), "UNKNOWN", "AWAIT_VOTES", 0, begun.effects),
        SentEntry(3, Transmit(1, Prepare(7)), 1),
        heard,
        StepEntry(5, 2.0, "coordinator", key, vote, "AWAIT_VOTES", "COMMITTED", 1, decided.effects),
        SentEntry(6, Transmit(1, Decision(7, commit=True)), 2),
        replace(heard, line=7, time=3.0),
        StepEntry(8, 3.0, "coordinator", key, vote, "COMMITTED", "COMMITTED", again.row, ()),
    ]
    assert replay(log, telling=WORDS) is None and len(begun.effects) == 1 and len(decided.effects) == 3
    assert again.row is not None and coordinator.rows[again.row].source is C.COMMITTED


def test_a_log_that_begins_in_the_middle_has_the_value_before_it_once(party: Coordinator) -> None:
    kept = list(party.trace)[2:]
    log = log_of(party, kept, telling=WORDS)
    steps = [entry for entry in log.entries if isinstance(entry, StepEntry)]
    assert [step.value and step.value.state for step in steps] == [C.AWAIT_VOTES, None]
    assert parse(records.lines(log, WORDS), telling=WORDS) == [log]


@pytest.mark.parametrize(("most", "whole"), [(0, False), (7, False), (8, True)])
def test_a_log_is_whole_as_long_as_its_trace_has_room(party: Coordinator, most: int, whole: bool) -> None:
    kept = list(party.trace)
    party.trace = Driver.make_trace(most)
    party.trace.extend(kept)
    assert len(kept) == 7 and log_of(party, telling=WORDS).head.whole is whole


def test_a_log_comes_back_with_its_timers_and_names(party: Coordinator) -> None:
    log = log_of(party, telling=WORDS)
    assert parse(records.lines(log, WORDS), telling=WORDS) == [log]
    assert written(party)[0]["format"] == 2


# -------------------------------------------------------------------------------------------------- refused
def test_a_file_with_a_line_without_an_end_is_no_trace(
    party: Coordinator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "t.jsonl"
    records.save(party, path, WORDS)
    assert records.load(path, telling=WORDS) == [log_of(party, telling=WORDS)]
    monkeypatch.setattr(bounded_files, "LONGEST_LINE", 20)
    with pytest.raises(TraceError, match=rf"^{path}: a line longer than 20 bytes"):
        records.load(path, telling=WORDS)


@pytest.mark.parametrize(
    ("line", "changes", "says"),
    [
        (2, {"effect": REPORT}, "effect: no message leaves by Report"),
        (1, {"machine": "x"}, "no entry of kind 'step', machine 'x'"),
        (1, {"kind": "x" * 50}, f"no entry of kind '{'x' * 40}', machine "),
        (1, {"event": REPORT}, "Event: there is no event 'Report'"),
        (1, {"event": DECIDED}, "event: coordinator takes no DecisionReceived"),
        (1, {"effects": {}}, "effects: a list is expected"),
        (1, {"effects": [{"type": []}]}, "Effect: there is no effect "),
        (1, {"effects": [5]}, "Effect: an object is expected, not 5"),
        (1, {"time": None}, "time: null is no time"), (1, {"time": "x"}, "time: 'x' is no float"),
        (1, {"row": "x"}, "row: 'x' is no int"), (3, {"peer": "x"}, "peer: 'x' is no int"),
        (1, {"value": 5}, "value: an object with a state of coordinator is expected"),
        (1, {"value": {}}, "value: an object with a state of coordinator is expected"),
        (1, {"value": {**BEGINNING, "state": "NOWHERE"}}, "value: an object with a state of coordinator is"),
        (1, {"value": {**BEGINNING, "more": 1}}, "value: the fields of "),
    ],
)  # fmt: skip
def test_a_wrong_line_is_refused_by_what_is_wrong_in_it(
    party: Coordinator, line: int, changes: dict[str, Any], says: str
) -> None:
    head, *entries = written(party)
    with pytest.raises(TraceError, match=f"^trace:2: {says}"):
        parsed(head, entries[line - 1] | changes)


def test_the_first_line_names_the_party_and_a_long_kind_is_cut() -> None:
    with pytest.raises(TraceError, match=r"^trace:1: the first line must name the party \(kind: party, not x{40}\); "):
        parsed({"kind": "x" * 50})

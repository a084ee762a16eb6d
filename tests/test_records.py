"""Records: a log comes back from its lines, and each kind of wrong line is refused by what is wrong in it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from examples.two_phase_commit.parties import WORDS
from examples.two_phase_commit.worlds import SCENES
from kvproto.fsm import bounded_files, records
from kvproto.fsm.records import StepEntry, TraceError

LOGS = SCENES[1].logs()
LINES: list[dict[str, Any]] = [json.loads(line) for line in records.lines(LOGS[0], WORDS)]
STEP, SENT = (next(line for line in LINES if line["kind"] == kind) for kind in ("step", "sent"))
BEGINNING: dict[str, Any] = WORDS.json.plain(WORDS.tables[STEP["machine"]].value(WORDS.tables[STEP["machine"]].initial))  # type: ignore[assignment]


def parsed(*lines: object) -> list[records.Log]:
    return records.parse([json.dumps(line) for line in lines], telling=WORDS)


def test_a_log_comes_back_with_its_timers_and_names() -> None:
    for log in LOGS:
        assert records.parse(records.lines(log, WORDS), telling=WORDS) == [log]


def test_a_step_comes_back_with_the_value_before_it() -> None:
    (log,) = parsed(LINES[0], {**STEP, "value": BEGINNING})
    (step,) = log.entries
    assert isinstance(step, StepEntry)
    table = WORDS.tables[STEP["machine"]]
    assert step.value == table.value(table.initial)


def test_a_file_with_a_line_without_an_end_is_no_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text(json.dumps(LINES[0]))
    assert len(records.load(path, telling=WORDS)) == 1
    monkeypatch.setattr(bounded_files, "LONGEST_LINE", 20)
    with pytest.raises(TraceError, match=rf"^{path}: a line longer than 20 bytes"):
        records.load(path, telling=WORDS)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ({**SENT, "effect": {"type": "Report", "what": "a", "why": "b"}}, "effect: no message leaves by Report"),
        ({**STEP, "machine": "x"}, "no entry of kind 'step', machine 'x'"),
        ({**STEP, "kind": "x" * 50}, f"no entry of kind '{'x' * 40}', machine "),
        ({**STEP, "event": {"type": "Report", "what": "a", "why": "b"}}, "Event: there is no event 'Report'"),
        ({**STEP, "event": {"type": "DecisionReceived", "txn": 1, "commit": True}},
         "event: coordinator takes no DecisionReceived"),
        ({**STEP, "effects": {}}, "effects: a list is expected"),
        ({**STEP, "effects": [{"type": []}]}, "Effect: there is no effect "),
        ({**STEP, "effects": [5]}, "Effect: an object is expected, not 5"),
        ({**STEP, "time": None}, "time: null is no time"), ({**STEP, "time": "x"}, "time: 'x' is no float"),
        ({**STEP, "row": "x"}, "row: 'x' is no int"),
        ({**STEP, "value": 5}, "value: an object with a state of coordinator is expected"),
        ({**STEP, "value": {**BEGINNING, "state": "NOWHERE"}}, "value: an object with a state of coordinator is"),
        ({**STEP, "value": {}}, "value: an object with a state of coordinator is expected"),
        ({**STEP, "value": {**BEGINNING, "more": 1}}, "value: the fields of "),
        (5, "an object is expected"),
    ],
)  # fmt: skip
def test_a_wrong_line_is_refused_by_what_is_wrong_in_it(line: object, says: str) -> None:
    with pytest.raises(TraceError, match=f"^trace:2: {says}"):
        parsed(LINES[0], line)


def test_the_first_line_names_the_party_and_a_long_kind_is_cut() -> None:
    with pytest.raises(TraceError, match=r"^trace:1: the first line must name the party \(kind: party, not x{40}\); "):
        parsed({"kind": "x" * 50})

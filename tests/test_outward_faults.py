"""Each outward call of an endpoint goes wrong once: what the injector knows, reaches and finds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.night import by_night

from kvproto.cli import main
from kvproto.lab.torture.outward_calls import Injector, Strike, every_call, unknown_calls
from kvproto.lab.torture.outward_faults import campaign, coverage, run, table
from kvproto.protocol.states import Cause

#: runs by day, which take some 15 s of one core
BY_DAY = 80


def test_the_injector_knows_every_method_of_every_interface_and_no_other() -> None:
    assert not unknown_calls()


def test_a_sample_of_all_faults_finds_nothing() -> None:
    verdicts, reached = campaign(0, by_night(None, by_day=BY_DAY))
    assert verdicts and not [each for each in verdicts if each.found]
    assert {row["call"] for row in table(verdicts, reached)} == {*every_call()}


@pytest.mark.parametrize(
    "strike", [
        Strike("prefill", "clock.real", 40, "raises"), Strike("decode", "clock.real", 40, "raises"),
        Strike("prefill", "transport.write_many", 1, "raises"), Strike("decode", "spans.ended", 1, "exits"),
        Strike("both", "log.emit", 2, "raises"), Strike("decode", "transport.close", 1, "raises"),
        Strike("prefill", "control.receive", 3, "exits"), Strike("prefill", "transport.register", 1, "raises"),
        Strike("prefill", "kernels.bind", 2, "nothing"),
    ],
)  # fmt: skip
def test_these_faults_cost_what_they_concern_and_no_more(strike: Strike) -> None:
    assert run(strike, "staged")[1].found == ""


def test_the_named_call_goes_wrong_once_and_is_made_as_ever_afterwards() -> None:
    injector = Injector(Strike("prefill", "transport.register", 1, "raises"))
    with pytest.raises(RuntimeError, match=r"injected into transport\.register"):
        injector.make("prefill", "transport.register", lambda: Cause.NONE)
    assert injector.struck and injector.make("prefill", "transport.register", lambda: Cause.NONE) is Cause.NONE


def test_the_command_prints_the_coverage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["faults", "--sample", "3", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["coverage"]
    assert sum(row["injected"] for row in rows) == 3 and len(rows) == len(every_call())


def test_the_coverage_in_the_documents_is_what_whole_runs_reach() -> None:
    page = (Path(__file__).parent.parent / "docs" / "operating.md").read_text()
    verdicts, reached = campaign(0, 0)
    assert not verdicts and coverage(reached) in page, coverage(reached)

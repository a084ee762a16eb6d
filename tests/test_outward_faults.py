"""Each outward call of an endpoint goes wrong once: what the injector knows, reaches and finds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.night import by_night

from kvproto.cli import main
from kvproto.data import writes
from kvproto.lab.torture.outward_calls import UNMADE, Injector, Strike, every_call, unknown_calls
from kvproto.lab.torture.outward_faults import campaign, coverage, run, setups, table
from kvproto.protocol.states import Cause

#: runs by day, half a second each
BY_DAY = 40


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


def test_whole_runs_make_every_call_but_those_with_a_reason_and_the_documents_say_so() -> None:
    page = (Path(__file__).parent.parent / "docs" / "operating.md").read_text()
    verdicts, reached = campaign(0, 0)
    assert not verdicts and coverage(reached) in page, coverage(reached)
    assert {*every_call()} - reached == {*UNMADE}, "a call that no run makes has a reason of its own, and no other has"


@pytest.mark.parametrize(
    ("setup", "strike"), [
        ("staged", Strike("refused", "transport.deregister", 1, "raises")),
        ("slow", Strike("prefill", "transport.disconnect", 1, "raises")),
        ("staged", Strike("decode", "control.stands", 1, "raises")),
        ("pages", Strike("decode", "control.disconnect", 1, "exits")),
        ("staged", Strike("decode", "ranks.call", 1, "raises")),
        ("pages", Strike("decode", "ranks.call", 2, "exits")),
        ("pages", Strike("decode", "ranks.leave", 1, "raises")),
        ("pages", Strike("decode", "kernels.prepare", 4, "exits")),
        ("staged", Strike("decode", "control.connect", 1, "raises")),
        ("mapped", Strike("prefill", "transport.run", 1, "raises")),
        ("mapped", Strike("prefill", "transport.tell", 1, "raises")),
        ("mapped", Strike("prefill", "kernels.cross", 1, "exits")),
        ("mapped", Strike("decode", "transport.successor", 1, "raises")),
        ("mapped", Strike("decode", "transport.close", 1, "raises")),
        ("mapped", Strike("decode", "transport.endpoint", 2, "raises")),
        ("mapped", Strike("decode", "transport.register", 8, "exits")),
        ("mapped", Strike("prefill", "transport.deregister", 3, "raises")),
        ("mapped", Strike("prefill", "transport.lifts", 2, "raises")),
        ("slow", Strike("prefill", "transport.prepare", 1, "exits")),
        ("slow", Strike("prefill", "transport.drop", 1, "raises")),
        ("slow", Strike("prefill", "transport.quiescent", 1, "raises")),
        ("slow", Strike("prefill", "transport.post", 1, "raises")),
        ("device", Strike("decode", "kernels.join", 1, "raises")),
        ("device", Strike("prefill", "transport.write_many", 1, "nothing")),
        ("threads", Strike("prefill", "control.wait", 1, "raises")),
        ("threads", Strike("decode", "clock.real", 9, "exits")),
        ("threads", Strike("prefill", "transport.busy", 1, "raises")),
        ("threads", Strike("decode", "clock.allow", 1, "raises")),
        ("nixl", Strike("prefill", "transport.connect", 1, "raises")),
        ("nixl", Strike("decode", "transport.poll", 9, "raises")),
        ("doors", Strike("prefill", "bell.ring", 1, "raises")),
        ("doors", Strike("prefill", "bell.tell", 1, "exits")),
        ("doors", Strike("prefill", "bell.tell", 1, "raises")),
        ("doors", Strike("prefill", "bell.close", 1, "raises")),
        ("doors", Strike("decode", "bell.rung", 9, "exits")),
        ("doors", Strike("decode", "bell.close", 1, "raises")),
    ],
)  # fmt: skip
def test_these_faults_of_a_set_up_cost_what_they_concern(setup: str, strike: Strike) -> None:
    if setup not in setups():
        pytest.skip("NIXL is not installed")
    injector, verdict = run(strike, setup)
    assert injector.struck and verdict.found == "", verdict


@pytest.mark.parametrize("setup", ["staged", "threads"])
def test_a_reason_that_hides_the_call_is_found(setup: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writes, "named", lambda _: "something went wrong")
    verdict = run(Strike("prefill", "transport.write_many", 1, "raises"), setup)[1]
    assert "the reason does not name the call" in verdict.found

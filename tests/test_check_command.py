"""`kvproto check`: what it prints for tools, how it ends, and that it can be stopped."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from msgspec import structs

from kvproto.cli import main as kvproto_main
from kvproto.cli.ending import UNFINISHED
from kvproto.verify.check.mutations import MUTANTS
from kvproto.verify.cli.check_command import main
from kvproto.verify.framework import search as fsm_search

ROOT = Path(__file__).parent.parent


def test_a_search_for_tools(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["smoke", "full-hit", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert {"states", "transitions", "states_per_s", "violations"} <= set(said)
    assert said["states"] == sum(run["states"] for run in said["runs"]) > 0
    assert (said["violations"], said["complete"]) == ([], True)


def test_the_exam_for_tools(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["lost-response", "dummy-always-true"]
    assert main(["--mutants", *asked, "--json", "--jobs", "2"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert [kill["name"] for kill in said] == asked
    for kill in said:
        assert kill["caught"] and kill["property"] == "L1" and kill["steps"] > 0 and kill["seconds"] > 0


def test_a_mutation_that_nobody_notices_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    blind = structs.replace(MUTANTS["lost-response"], world="roomy")  # nothing is lost there
    monkeypatch.setitem(MUTANTS, "lost-response", blind)
    assert main(["--mutants", "lost-response"]) == 1


@pytest.mark.parametrize(("option", "why"), [("--limit", "--limit raises it"), ("--memory", "--memory raises it")])
def test_what_is_not_all_of_it_is_not_well(
    option: str, why: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(fsm_search, "LOOK", 15)
    assert main(["smoke", option, "20", "--quiet"]) == UNFINISHED
    assert why in capsys.readouterr().out


def test_names_that_are_not_there_are_told_with_what_is_like_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert kvproto_main(["check", "abrot"]) == 2
    assert "is it abort" in capsys.readouterr().err
    assert kvproto_main(["check", "--mutants", "nobody"]) == 2


@pytest.mark.parametrize("jobs", [1, 2])
def test_what_was_found_so_far_when_it_is_interrupted(jobs: int) -> None:
    command = [sys.executable, "-um", "kvproto", "check", "full-hit", "2p1d-2rooms-abort", "1p2d-2rooms-abort"]
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)  # who is ignored hands that on
    asked = subprocess.Popen([*command, "--jobs", str(jobs)], cwd=ROOT, start_new_session=True, text=True,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE)  # fmt: skip
    signal.signal(signal.SIGINT, handler)
    assert asked.stdout
    said = iter(asked.stdout.readline, "")
    first = next((line for line in said if "full-hit" in line), "")
    time.sleep(1.0)  # into the next one, which takes longer by far
    os.killpg(asked.pid, signal.SIGINT)
    out = first + asked.communicate(timeout=60)[0]
    assert asked.returncode == UNFINISHED
    assert "full-hit" in out
    assert "interrupted" in out
    assert "1 of 3 configurations searched to the end, 0 with a violation" in out


@pytest.mark.parametrize("when", ["a process begins", "a process waits for work"])
def test_an_interrupt_ends_work_and_no_process_of_the_pool(when: str) -> None:
    command = [sys.executable, "-um", "kvproto", "check", "full-hit", "2p1d-2rooms-abort", "--jobs", "2"]
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    asked = subprocess.Popen(command, cwd=ROOT, start_new_session=True, text=True,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE)  # fmt: skip
    signal.signal(signal.SIGINT, handler)
    if when == "a process begins":
        children = Path(f"/proc/{asked.pid}/task/{asked.pid}/children")
        while len(children.read_text().split()) < 3 and asked.poll() is None:  # the tracker's, and two that search
            time.sleep(0.02)
    else:
        assert asked.stdout
        next(line for line in iter(asked.stdout.readline, "") if "full-hit" in line)
    os.killpg(asked.pid, signal.SIGINT)
    _, err = asked.communicate(timeout=60)
    assert asked.returncode == UNFINISHED
    assert "Traceback" not in err


def test_its_help_teaches(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    said = capsys.readouterr().out
    assert all(word in said for word in ("kvproto check quick", "--mutants", "exit code", "Ctrl-C"))

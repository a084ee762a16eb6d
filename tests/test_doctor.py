"""Doctor: what works is told from what does not, each part in a process of its own, with the remedy."""

from __future__ import annotations

import json
import os
import platform
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from kvproto.cli import doctor
from kvproto.cli.doctor import Trial, TrialResult


def test_the_doctor_tells_what_works_from_what_does_not(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    trials = (
        *(trial for trial in doctor.TRIALS if trial.area == "core"),
        Trial("device", "absent", "import no_such_library", "buy one"),
        Trial("device", "crash", "import os; os.abort()", "buy another"),
        Trial("device", "mute", "pass", "listen"),
    )
    monkeypatch.setattr(doctor, "TRIALS", trials)
    assert doctor.main([]) == 0
    said = capsys.readouterr().out
    assert "works  core       tables" in said and "  -    device     absent" in said
    assert "No module named 'no_such_library'" in said
    assert "remedy: buy one" in said
    assert "died of signal 6" in said
    assert "not a word" in said
    assert doctor.main(["--need", "absent", "--json"]) == 1
    end = capsys.readouterr()
    assert end.err == "needed, and does not work: absent\n"
    found = {each["name"]: each["works"] for each in json.loads(end.out)}
    assert found["tables"]
    assert not found["absent"]


def test_the_doctor_tries_whatever_a_machine_may_lack() -> None:
    tried = {(trial.area, trial.name) for trial in doctor.TRIALS}
    assert tried == {
        ("core", "msgspec"), ("core", "tables"), ("transport", "control plane (zmq)"), ("transport", "memory"),
        ("transport", "nixl"), ("transport", "mooncake"), ("device", "torch"), ("device", "GPU"), ("device", "triton"),
        ("library", "search in C"), ("library", "transformers"),
    }  # fmt: skip
    assert {name for name, *_ in doctor.PROGRAMS} == {"spin", "rumur", "gcc"}


def test_a_trial_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "PATIENCE", 0.5)
    found = doctor.attempt(Trial("device", "slow", "import time; time.sleep(30)", "wait"))
    assert found == TrialResult("device", "slow", False, "no answer within 0.5 s", "wait")


def test_a_trial_has_this_process_s_environment_and_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "only_here.py").write_text("WORD = 'found'")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("ONLY_NOW", "and set")
    code = "import only_here, os; print('much'); print(only_here.WORD, os.environ['ONLY_NOW'])"
    found = doctor.attempt(Trial("library", "both", code, "none"))
    assert found == TrialResult("library", "both", True, "found and set")


def test_a_trial_that_fails_after_a_word_has_failed() -> None:
    code = "print('fine', flush=True); raise SystemExit('not at all')"
    found = doctor.attempt(Trial("library", "late", code, "mend it"))
    assert found == TrialResult("library", "late", False, "not at all", "mend it")


@pytest.mark.parametrize(
    ("script", "works", "said"),
    [
        (None, False, "not found"),
        ("#!/bin/sh\necho $1 2.0; echo more; exit 1", True, "-V 2.0"),
        ("#!/bin/sh\necho 3.0 >&2", True, "3.0"),
        ("#!/bin/sh\n", True, "{path}"),
        ("no program\0", False, "[Errno 8] Exec format error: '{path}'"),
        ("#!/bin/sh\nexec sleep 30", False, "Command '['{path}', '-V']' timed out after 0.3 seconds"),
    ],
)
def test_a_program_is_asked_for_its_version(
    script: str | None, works: bool, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "spinner"
    if script is not None:
        path.write_text(script)
        path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(doctor, "PATIENCE", 0.3 if script and "sleep" in script else 60.0)
    monkeypatch.setattr(doctor, "TRIALS", ())
    monkeypatch.setattr(doctor, "PROGRAMS", (("spinner", ("-V",), "buy one"),))
    _, found, _ = doctor.examine()
    assert found == TrialResult("program", "spinner", works, said.format(path=path), "" if works else "buy one")


@pytest.mark.parametrize(("free", "works"), [(64 << 20, True), ((64 << 20) - 1, False), (None, False)])
def test_the_machine_has_enough_shared_memory_or_not(
    free: int | None, works: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "TRIALS", ())
    monkeypatch.setattr(doctor, "PROGRAMS", ())
    monkeypatch.setattr(os.path, "isdir", lambda path: path == "/dev/shm" and free is not None)  # noqa: S108
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=free))
    python, memory = doctor.examine()
    assert python == TrialResult("core", "python", True, platform.python_version())
    assert (memory.area, memory.name, memory.works) == ("machine", "shared memory", works)
    assert memory.said == f"{(free or 0) >> 20} MiB free in /dev/shm"
    assert memory.remedy == "give the container more: docker run --shm-size=1g"

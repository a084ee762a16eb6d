"""The command line: every command exists, loads only what it needs, and names what is wrong."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from kvproto import __version__, cli
from kvproto.cli import doctor
from kvproto.fsm.table import Table
from kvproto.protocol.digest import tables_digest
from kvproto.protocol.messages import OLDEST, VERSION
from kvproto.protocol.tables import TABLES
from kvproto.protocol.versions import AGREEMENTS, CAPABILITIES
from kvproto.verify.claims import kv
from kvproto.verify.cli import lint_command

ROOT = Path(__file__).parent.parent
OURS = ("lint", "draw", "export", "trace", "replay", "inspect", "doctor")


def test_no_command_gets_the_first_minute_and_help_lists_all(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 2
    first = capsys.readouterr().out
    for line in first.splitlines():
        if line.startswith("  kvproto "):
            assert line.split()[1] in cli.COMMANDS
    assert "Your first minute" in first and len(first.splitlines()) < 24, "what to type first fits on one screen"
    assert cli.main(["--help"]) == 0
    said = capsys.readouterr().out
    assert "kvproto COMMAND" in said and all(name in said for name in cli.COMMANDS)


def test_what_this_build_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--version"]) == 0
    said = capsys.readouterr().out
    assert said.startswith(f"kvproto {__version__}, wire version {VERSION}\n") and tables_digest() in said
    assert cli.main(["--version", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["version"] == __version__ and (told["oldest"], told["wire"]) == (OLDEST, VERSION)
    assert told["agreements"] == AGREEMENTS and told["capabilities"] == list(CAPABILITIES)
    assert " ".join(f"{part}:{digits}" for part, digits in told["digest"].items()) == tables_digest()


@pytest.mark.parametrize("name", OURS)
def test_every_command_explains_itself(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main([name, "--help"])
    assert ended.value.code == 0
    assert f"usage: kvproto {name}" in capsys.readouterr().out
    with pytest.raises(SystemExit) as ended:
        cli.main([name, "--no-such-option"])
    assert ended.value.code == 2


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_every_command_has_its_module(name: str) -> None:
    assert importlib.util.find_spec(cli.COMMANDS[name][0]) is not None


@pytest.mark.parametrize("command", [["lint"], ["draw"], ["export"], ["draw", "--scene", "all"]], ids=" ".join)
def test_nothing_heavy_is_loaded(command: list[str]) -> None:
    code = (
        "import sys; from kvproto.cli import main; code = main(sys.argv[1:]); "
        "heavy = {'torch', 'zmq', 'nixl', 'numpy', 'hypothesis', 'pytest'} & set(sys.modules); "
        "sys.exit(f'loaded {heavy}' if heavy else code)"
    )
    done = subprocess.run([sys.executable, "-c", code, *command], capture_output=True, text=True, timeout=60,
                          check=False, cwd=ROOT)  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_an_output_that_nobody_reads_is_no_error() -> None:
    done = subprocess.run(f"{sys.executable} -m kvproto export | head -c 10", shell=True, capture_output=True,  # noqa: S602
                          text=True, timeout=60, check=True, cwd=ROOT)  # fmt: skip
    assert done.stderr == ""


def test_lint_says_file_and_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert lint_command.main([]) == 0
    assert "no errors" in capsys.readouterr().out
    good = next(table for table in TABLES if table.name == "decode_grant")
    bad = Table(good.name, good.value, good.states, initial=good.initial, events=good.events, timers={})
    bad.rows = [row for row in good.rows if row.event.__name__ != "Scattered"]
    monkeypatch.setattr(kv, "KV", replace(kv.KV, tables=(bad,)))
    assert lint_command.main([]) == 1
    said = capsys.readouterr().out
    assert f"{good.rows[0].file}:" in said
    assert "undecided" in said
    assert lint_command.main(["--json"]) == 1
    assert {"table", "kind", "where", "text"} == set(json.loads(capsys.readouterr().out)[0])
    assert cli.main(["lint", "nonsense"]) == 2


def test_the_doctor_tells_what_works_from_what_does_not(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    trials = (
        *(trial for trial in doctor.TRIALS if trial.area == "core"),
        doctor.Trial("device", "absent", "import no_such_library", "buy one"),
        doctor.Trial("device", "crash", "import os; os.abort()", "buy another"),
        doctor.Trial("device", "mute", "pass", "listen"),
    )
    monkeypatch.setattr(doctor, "TRIALS", trials)
    assert doctor.main([]) == 0
    said = capsys.readouterr().out
    assert "No module named 'no_such_library'" in said
    assert "remedy: buy one" in said
    assert "died of signal 6" in said
    assert "not a word" in said
    assert doctor.main(["--need", "absent", "--json"]) == 1
    found = {each["name"]: each["works"] for each in json.loads(capsys.readouterr().out)}
    assert found["tables"]
    assert not found["absent"]


def test_a_trial_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "PATIENCE", 0.5)
    found = doctor.attempt(doctor.Trial("device", "slow", "import time; time.sleep(30)", "wait"))
    assert not found.works
    assert "no answer" in found.said

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
from kvproto.cli.ending import MEANINGS
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
    helps = []
    for word in ("--help", "-h", "help"):
        assert cli.main([word]) == 0
        helps.append(capsys.readouterr().out)
    said = helps.pop()
    assert helps == [said, said]
    assert "kvproto COMMAND" in said and all(name in said for name in cli.COMMANDS)
    columns = {line.index(what) for what in (*MEANINGS.values(), *(what for _, what in cli.COMMANDS.values()))
               for line in said.splitlines() if line.endswith(f" {what}")}  # fmt: skip
    assert len(columns) == 1, "what each is for stands in one column"


def test_what_this_build_is(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["kvproto", "-V"])
    assert cli.main() == 0
    said = capsys.readouterr().out
    assert said.startswith(f"kvproto {__version__}, wire version {VERSION}\n") and tables_digest() in said
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == said
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


@pytest.mark.parametrize(("name", "extra"), [("fly", "demo"), ("prove", "prove"), ("fuzz", "nixl"), ("top", "metrics")])
def test_the_extra_of_a_command_is_named_where_its_package_is_missing(
    name: str, extra: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(cli.COMMANDS, name, ("no_such_package.command", "flies"))
    assert cli.main([name]) == 2
    missing = f"this needs no_such_package, which is not installed: pip install 'kvproto[{extra}]'\n"
    assert capsys.readouterr().err == f"kvproto {name}: {missing}"
    for word in ("-h", "--help"):
        assert cli.main([name, word]) == 0
        assert capsys.readouterr().out == f"kvproto {name}: flies\n\nTo tell what it takes, {missing}"


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

"""Completion: what a shell offers is what the commands take."""

from __future__ import annotations

import shutil
import subprocess
import sys
from types import SimpleNamespace

import pytest
import shtab

from kvproto.cli import COMMANDS, main
from kvproto.cli.completion_command import _parsers_of, whole_parser
from kvproto.lab.cli import BENCHES
from kvproto.verify.cli.draw_command import SUFFIX
from kvproto.verify.cli.draw_command import parser as draw_parser


@pytest.fixture(scope="module")
def script() -> str:
    return shtab.complete(whole_parser(), "bash")


def offered(script: str, *words: str) -> set[str]:
    """The words that bash offers for the last of these."""
    line = " ".join(f"'{word}'" for word in words)
    ask = f"COMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; _shtab_kvproto; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    done = subprocess.run(["bash", "-c", f"{script}\ncompopt() {{ :; }}\n{ask}"], capture_output=True, text=True,
                          check=True, timeout=30)  # fmt: skip
    assert not done.stderr
    return set(done.stdout.split())


def test_bash_offers_commands_options_and_choices(script: str) -> None:
    assert offered(script, "kvproto", "") == {*COMMANDS}
    assert offered(script, "kvproto", "bench", "") == {*BENCHES}
    options = {name for action in draw_parser()._actions for name in action.option_strings}
    assert offered(script, "kvproto", "draw", "-") == options
    assert offered(script, "kvproto", "draw", "--format", "") == set(SUFFIX)
    assert offered(script, "kvproto", "draw", "--format", "s") == {"svg"}
    assert offered(script, "kvproto", "completion", "") >= {"bash", "zsh", "fish"}
    assert "--help" in offered(script, "kvproto", "trace", "--h")
    assert "_shtab_kvproto_trace_pos_0_COMPGEN=_shtab_compgen_files" in script


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_reads_its_script(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert all(name in script for name in (*COMMANDS, *BENCHES))
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell} here")
    subprocess.run([shell, "-n"], input=script, text=True, check=True, timeout=30)


def test_a_command_that_reads_no_arguments_is_a_defect(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "reads_nothing", SimpleNamespace(main=lambda _: 0))
    with pytest.raises(AssertionError, match="reads_nothing reads no arguments"):
        _parsers_of("reads_nothing")


def test_parsers_read_again_once_a_script_is_made(script: str) -> None:
    assert script and draw_parser().parse_args(["--guards"]).guards

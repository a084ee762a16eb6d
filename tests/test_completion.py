"""Completion: what a shell offers is what the commands take."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from kvproto.cli import COMMANDS, main
from kvproto.cli.completion_command import CompletedCommand, bash, commands, fish, zsh
from kvproto.lab.cli import BENCHES
from kvproto.verify.cli.draw_command import SUFFIX
from kvproto.verify.cli.draw_command import parser as draw_parser


@pytest.fixture(scope="module")
def known() -> list[CompletedCommand]:
    return commands()


def offered(script: str, *words: str) -> set[str]:
    """What bash offers for the last of these words."""
    line = " ".join(f"'{word}'" for word in words)
    ask = f"{script}\nCOMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; _kvproto; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    done = subprocess.run(["bash", "-c", ask], capture_output=True, text=True, check=True, timeout=30)
    assert not done.stderr
    return set(done.stdout.split())


def test_bash_offers_commands_options_and_choices(known: list[CompletedCommand]) -> None:
    script = bash(known)
    assert offered(script, "kvproto", "") == set(COMMANDS)
    assert offered(script, "kvproto", "bench", "") == set(BENCHES)
    options = {name for action in draw_parser()._actions for name in action.option_strings}
    assert offered(script, "kvproto", "draw", "-") == options
    assert offered(script, "kvproto", "draw", "--format", "") == set(SUFFIX)
    assert offered(script, "kvproto", "draw", "--format", "s") == {"svg"}
    assert offered(script, "kvproto", "completion", "") >= {"bash", "zsh", "fish"}
    assert "--help" in offered(script, "kvproto", "trace", "--h")


def test_every_option_is_in_every_script(known: list[CompletedCommand]) -> None:
    scripts = {"bash": bash(known), "fish": fish(known), "zsh": zsh(known)}
    for command in known:
        for name in (name for option in command.options for name in option.names if name.startswith("--")):
            assert name in scripts["bash"] and name in scripts["zsh"]
            assert f"__kvproto_at {' '.join(command.words)}' -" in scripts["fish"]
            assert f"-l {name[2:]}" in scripts["fish"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_reads_its_script(
    shell: str, known: list[CompletedCommand], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert all(command.words[-1] in script for command in known)
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell} here")
    subprocess.run([shell, "-n"], input=script, text=True, check=True, timeout=30)


def test_parsers_read_again_once_a_script_is_made(known: list[CompletedCommand]) -> None:
    assert known and draw_parser().parse_args(["--guards"]).guards

"""`kvproto completion SHELL`: a script by which a shell completes commands, options and their choices.

It is made from the arguments themselves: each command is begun as far as its parser, and what the parser knows is
written down.  So a script is as new as the installation that has made it.  Of a command that lacks a package here only
the name is known.
"""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

import msgspec

from kvproto.cli.console import say
from kvproto.cli.ending import WELL
from kvproto.cli.wings import commands_below
from kvproto.errors import KvprotoError

EPILOG = """\
examples:
  source <(kvproto completion bash)                                          this bash; in ~/.bashrc, every one
  kvproto completion zsh > "${fpath[1]}/_kvproto"                            zsh, from its next start
  kvproto completion fish > ~/.config/fish/completions/kvproto.fish          fish
"""


class CompletedOption(msgspec.Struct, frozen=True):
    """An option or a positional argument (no names): what it may be, and what it is for."""

    names: tuple[str, ...]
    choices: tuple[str, ...]
    #: whether a word follows
    takes: bool
    text: str


class CompletedCommand(msgspec.Struct, frozen=True):
    """A command (of a benchmark: `bench` and its name), and what can follow."""

    words: tuple[str, ...]
    text: str
    options: tuple[CompletedOption, ...] = ()


class _Begun(KvprotoError):  # noqa: N818
    def __init__(self, parser: argparse.ArgumentParser) -> None:
        self.parser = parser


@contextmanager
def _as_far_as_parsers() -> Iterator[None]:
    """While this lasts, a command ends where it would read its arguments."""

    def begun(parser: argparse.ArgumentParser, *_: Any, **__: Any) -> NoReturn:
        raise _Begun(parser)

    plain = argparse.ArgumentParser.parse_args
    argparse.ArgumentParser.parse_args = begun  # type: ignore[assignment, method-assign]
    try:
        yield
    finally:
        argparse.ArgumentParser.parse_args = plain  # type: ignore[method-assign]


def _options(module: str) -> tuple[CompletedOption, ...]:
    try:
        with _as_far_as_parsers():
            importlib.import_module(module).main([])
    except _Begun as begun:
        return tuple(_option(action) for action in begun.parser._actions)  # noqa: SLF001 - argparse has no other list
    except ImportError:
        return ()
    raise AssertionError(f"{module} reads no arguments")


def _option(action: argparse.Action) -> CompletedOption:
    text = (action.help or "").partition("(default")[0].replace("%%", "%").strip()
    choices = tuple(map(str, action.choices)) if action.choices is not None else ()
    return CompletedOption(tuple(action.option_strings), choices, action.nargs != 0, text)


def commands() -> list[CompletedCommand]:
    """Every command with what can follow it."""
    from kvproto.cli import COMMANDS

    below = commands_below()
    found = []
    for name, (module, text) in COMMANDS.items():
        found.append(CompletedCommand((name,), text, () if name in below else _options(module)))
    for upper, theirs in below.items():
        found += [CompletedCommand((upper, name), text, _options(module)) for name, (module, text) in theirs.items()]
    return found


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def _reply(words: Sequence[str]) -> str:
    return f'COMPREPLY=($(compgen -W "{" ".join(words)}" -- "$word"))'


def _after(command: CompletedCommand, known: Sequence[CompletedCommand]) -> list[str]:
    """All words that may follow a command: the names of what is below it, its options, its positional choices."""
    below = [each.words[-1] for each in known if each.words[:-1] == command.words]
    options = [name for option in command.options for name in option.names or option.choices]
    return [*below, *options]


def bash(known: Sequence[CompletedCommand]) -> str:
    """For bash; where no choice is known, its own completion of files."""
    lines = [
        "_kvproto() {", '    local word="${COMP_WORDS[COMP_CWORD]}" last="${COMP_WORDS[COMP_CWORD-1]}" at',
        '    at="${COMP_WORDS[1]}"', '    [ "$at" = bench ] && [ "$COMP_CWORD" -gt 2 ] && at="bench ${COMP_WORDS[2]}"',
        '    if [ "$COMP_CWORD" -eq 1 ]; then',
        f"        {_reply([each.words[0] for each in known if len(each.words) == 1])}",
        "        return", "    fi", '    case "$at $last" in',
    ]  # fmt: skip
    for command in known:
        for option in command.options:
            if option.choices and option.names:
                case = "|".join(f"{_quoted(' '.join([*command.words, name]))}" for name in option.names)
                lines.append(f"        {case}) {_reply(option.choices)}; return ;;")
    lines += ["    esac", '    case "$at" in']
    for command in known:
        lines.append(f"        {_quoted(' '.join(command.words))}) {_reply(_after(command, known))} ;;")
    return "\n".join([*lines, "    esac", "}", "complete -o default -F _kvproto kvproto", ""])


def zsh(known: Sequence[CompletedCommand]) -> str:
    """For zsh, whose completion of bash's functions carries it."""
    return "#compdef kvproto\nautoload -U +X bashcompinit && bashcompinit\n" + bash(known)


def fish(known: Sequence[CompletedCommand]) -> str:
    """For fish, with what each word is for."""
    lines = ["function __kvproto_at", "    set -l words (commandline -opc)", '    test "$words[2..-1]" = "$argv"',
             '    or string match -q -- "$argv *" "$words[2..-1]"', "end"]  # fmt: skip
    for command in known:
        *above, name = command.words
        where = f"__kvproto_at {' '.join(above)}" if above else "__fish_use_subcommand"
        lines.append(f"complete -c kvproto -f -n {_quoted(where)} -a {_quoted(name)} -d {_quoted(command.text)}")
        here = f"-n {_quoted('__kvproto_at ' + ' '.join(command.words))}"
        for option in command.options:
            names = " ".join(f"-l {n[2:]}" if n.startswith("--") else f"-s {n[1:]}" for n in option.names)
            takes = "-r" if option.takes and option.names else ""
            words = f"-x -a {_quoted(' '.join(option.choices))}" if option.choices else ""
            line = " ".join(filter(None, ["complete -c kvproto", here, names, words or takes]))
            if option.names or option.choices:
                lines.append(f"{line} -d {_quoted(option.text)}")
    return "\n".join([*lines, ""])


SHELLS: dict[str, Callable[[Sequence[CompletedCommand]], str]] = {"bash": bash, "zsh": zsh, "fish": fish}


def main(argv: Sequence[str]) -> int:
    """`kvproto completion`."""
    parser = argparse.ArgumentParser(
        prog="kvproto completion", description="A script by which your shell completes what kvproto is asked.",
        epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("shell", choices=SHELLS, help="whose script is printed")
    args = parser.parse_args(argv)
    say(SHELLS[args.shell](commands()).rstrip("\n"))
    return WELL

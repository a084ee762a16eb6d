"""Completion command: prints the script by which a shell completes commands and options.

`shtab` writes it from the parsers themselves: each command is begun as far as its parser.  So a script is as new as the
installation that has made it.  Of a command that lacks a package here only the name is known.
"""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

import shtab

from kvproto.cli.console import say
from kvproto.cli.ending import WELL
from kvproto.cli.wings import commands_below
from kvproto.command_line import CommandLine
from kvproto.errors import KvprotoError

EPILOG = """\
examples:
  source <(kvproto completion bash)                                          this bash; in ~/.bashrc, every one
  kvproto completion zsh > "${fpath[1]}/_kvproto"                            zsh, from its next start
  kvproto completion fish > ~/.config/fish/completions/kvproto.fish          fish
"""


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


def _parsers_of(module: str) -> list[argparse.ArgumentParser]:
    """The parser of a command, whose free words complete as files; none where its packages are missing."""
    try:
        with _as_far_as_parsers():
            importlib.import_module(module).main([])
    except _Begun as begun:
        for action in begun.parser._actions:  # noqa: SLF001 - argparse has no other list
            if action.choices is None:
                action.complete = shtab.FILE  # type: ignore[attr-defined]  # where shtab looks for it
        return [begun.parser]
    except ImportError:
        return []
    raise AssertionError(f"{module} reads no arguments")


def whole_parser() -> argparse.ArgumentParser:
    from kvproto.cli import COMMANDS

    below, root = commands_below(), argparse.ArgumentParser(prog="kvproto")
    names = root.add_subparsers()
    for name, (module, text) in COMMANDS.items():
        if name in below:
            lower = names.add_parser(name, help=text).add_subparsers()
            for own, (place, what) in below[name].items():
                lower.add_parser(own, help=what, add_help=False, parents=_parsers_of(place))
        else:
            names.add_parser(name, help=text, add_help=False, parents=_parsers_of(module))
    return root


def main(argv: Sequence[str]) -> int:
    """`kvproto completion`."""
    parser = CommandLine(
        prog="kvproto completion", description="A script by which your shell completes what kvproto is asked.",
        epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("shell", choices=shtab.SUPPORTED_SHELLS, help="whose script is printed")
    args = parser.parse_args(argv)
    say(shtab.complete(whole_parser(), args.shell).rstrip("\n"))
    return WELL

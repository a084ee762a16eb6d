"""`kvproto draw`: the machines and the scenes, in the form that is wanted."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from kvproto.arguments import one_question, only_with, output_folder
from kvproto.cli.console import say
from kvproto.cli.ending import FOUND, WELL
from kvproto.command_line import CommandLine
from kvproto.fsm.errors import ArgumentError
from kvproto.fsm.table import Table
from kvproto.verify.cli.tables_option import add_tables
from kvproto.verify.draw import generated_docs
from kvproto.verify.framework.draw.diagram import DiagramOptions, sketch
from kvproto.verify.framework.draw.mermaid import mermaid
from kvproto.verify.framework.draw.scene import Scene
from kvproto.verify.framework.draw.sequence_svg import sequence_svg
from kvproto.verify.framework.draw.svg import svg
from kvproto.verify.framework.draw.tables import functions_md, rows_md, states_md, value_md
from kvproto.verify.framework.protocol import Protocol

EPILOG = """\
examples:
  kvproto draw                                   every machine as Mermaid, to the terminal
  kvproto draw prefill_send --format svg --out . one picture, prefill_send.svg
  kvproto draw decode_grant --guards --effects   with guards and effects on the edges
  kvproto draw --scene abort                     a sequence chart across both ranks, made by running them
  kvproto draw --write                           bring PROTOCOL.md and spec/ up to date
"""
SUFFIX = {"mermaid": "mmd", "svg": "svg", "md": "md"}


def parser() -> argparse.ArgumentParser:
    made = CommandLine(
        prog="kvproto draw",
        description="Draw the protocol's machines and scenes. Everything is made from the rows that run.",
        epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    made.add_argument("machine", nargs="*", metavar="MACHINE", help="one or more of the tables' names (default: all)")
    made.add_argument("--format", choices=SUFFIX, help="md gives the tables (default: mermaid)")
    made.add_argument("--guards", action="store_true", help="name every guard, not only where an event forks")
    made.add_argument("--effects", action="store_true", help="name the effects on the edges")
    made.add_argument("--scene", metavar="SCENE", help="a sequence chart instead; `all` for every one")
    made.add_argument("--states", action="store_true", help="with --scene: note every change of state")
    made.add_argument("--out", type=output_folder, metavar="DIR", help="write files into DIR, not to the terminal")
    made.add_argument("--write", action="store_true", help="bring the generated parts of the repository up to date")
    made.add_argument("--check", action="store_true", help="say which generated parts are stale; exit 1 if any is")
    add_tables(made)
    return made


def main(argv: list[str]) -> int:
    args = (made := parser()).parse_args(argv)
    one_question(made, args, "--scene", "--write", "--check")
    if args.machine and (args.scene or args.write or args.check):
        made.error(f"{args.machine[0]!r} is a machine: --scene, --write and --check draw none by itself")
    if not args.scene:
        only_with(made, args, "--scene", "--states")
    if args.write or args.check:
        return refresh() if args.write else judge()
    tables, scenes = args.tables.chosen(args.machine), _scenes(args.tables, args.scene)
    args.format = args.format or "mermaid"
    if scenes:
        return _write_pictures(_charts(scenes, args), args.out)
    render = _renderer(args)
    return _write_pictures(((table.name, SUFFIX[args.format], render(table)) for table in tables), args.out)


def _scenes(protocol: Protocol, asked: str | None) -> list[Scene]:
    if asked is None:
        return []
    scenes = protocol.played()
    found = [scene for scene in scenes if asked in {scene.name, "all"}]
    if not found:
        raise ArgumentError(f"there is no scene {asked!r}; there are {', '.join(s.name for s in scenes) or 'none'}")
    return found


def _charts(scenes: list[Scene], args: argparse.Namespace) -> Iterator[tuple[str, str, str]]:
    if args.format not in {"mermaid", "svg"}:
        raise ArgumentError(f"a scene is no {args.format}: it is a sequence chart, which mermaid and svg draw")
    told = args.tables.told()
    for scene in scenes:
        chart = scene.chart(told, states=args.states)
        yield scene.name, SUFFIX[args.format], sequence_svg(chart) if args.format == "svg" else chart


def _renderer(args: argparse.Namespace) -> Callable[[Table[Any]], str]:
    if args.format == "md":
        return tables_md
    look = DiagramOptions(args.guards, args.effects)
    if args.format == "svg":
        return lambda table: svg(sketch(table, look))
    return lambda table: mermaid(sketch(table, look))


def tables_md(table: Table[Any]) -> str:
    """Everything about a machine in Markdown."""
    parts = (states_md(table), value_md(table), rows_md(table), functions_md(table))
    return f"# {table.name}\n\n" + "\n".join(parts)


def _write_pictures(pictures: Iterable[tuple[str, str, str]], out: Path | None) -> int:
    for name, suffix, content in pictures:
        if out is None:
            say(content.rstrip("\n"))
            continue
        (out / f"{name}.{suffix}").write_text(content)
        say(f"wrote {out / f'{name}.{suffix}'}")
    return WELL


def refresh() -> int:
    done = generated_docs.write()
    say("\n".join(f"wrote {path}" for path in done) or "everything was up to date")
    return WELL


def judge() -> int:
    old = generated_docs.stale()
    for path in old:
        say(f"stale: {path}")
    say("write it anew: kvproto draw --write" if old else "everything is up to date")
    return FOUND if old else WELL

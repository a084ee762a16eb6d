"""`kvproto trace`: the story of a room, told from the traces of all ranks."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from kvproto.arguments import only_with, output_file
from kvproto.cli.console import deliver
from kvproto.cli.ending import WELL
from kvproto.command_line import CommandLine
from kvproto.fsm.errors import ArgumentError
from kvproto.fsm.records import load
from kvproto.fsm.telling import Moment, Subject, Telling
from kvproto.verify.cli.tables_option import add_tables
from kvproto.verify.framework.inspect.page import moment_json
from kvproto.verify.framework.trace.merge import merge, select, subjects
from kvproto.verify.framework.trace.tell import sequence, text

FORMATS = ("text", "mermaid", "json")
EPILOG = """\
examples:
  kvproto trace p0.jsonl d0.jsonl                      which rooms there are
  kvproto trace p0.jsonl d0.jsonl --room 7             the story of room 7, in the order of cause and effect
  kvproto trace *.jsonl --room 7 --format mermaid      a sequence chart
  kvproto trace *.jsonl --room 7 --format json         every moment with its cause, for tools

A trace is written by kvproto.verify.trace.save(rank, path), or by an endpoint when something fails.  The ranks' clocks
need not agree: the story is ordered by what caused what.  A message is (lost) if its receiver's trace goes on and has
not heard it, (ended) if that trace ends before the message can have arrived, (untold) if that trace is not given or
begins later, (unseen) if no trace that is given has sent it, and (repeated) if it had come before.
"""


def main(argv: list[str]) -> int:
    parser = CommandLine(
        prog="kvproto trace", description="Tell what happened, from the traces of one or more ranks.", epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("file", nargs="+", type=Path, metavar="TRACE", help="JSON lines, of one rank or more")
    parser.add_argument("--room", "--about", metavar="ID", help="the room (in other protocols: the subject) to tell of")
    parser.add_argument("--format", choices=FORMATS, default="text", help="(default: %(default)s)")
    parser.add_argument("--links", action="store_true", help="with what was said about links (mermaid)")
    parser.add_argument("--states", action="store_true", help="with every change of state (mermaid)")
    parser.add_argument("--out", type=output_file, metavar="FILE", help="write to FILE, not to the terminal")
    add_tables(parser)
    args = parser.parse_args(argv)
    if args.format != "mermaid":
        only_with(parser, args, "--format mermaid", "--links", "--states")
    telling = args.tables.told()
    about = None if args.room is None else telling.subject_from(args.room)
    story = merge(load(*args.file, telling=telling), telling)
    if about is not None and about not in subjects(story, telling):
        missing = f"{telling.subject_title(about)} is not in these traces"
        option = "--room" if telling.subject == "room" else "--about"
        raise ArgumentError(f"{missing}; without {option} all are listed")
    deliver(_story_text(story, about, telling, args), args.out)
    return WELL


def _about(story: list[Moment], about: Subject, telling: Telling) -> list[Moment]:
    return story if about is None else select(story, [about], telling)


def _story_text(story: list[Moment], about: Subject, telling: Telling, args: argparse.Namespace) -> str:
    if args.format == "json":
        return json.dumps([moment_json(moment, telling) for moment in _about(story, about, telling)]) + "\n"
    if args.format == "mermaid":
        chosen = [about] if about is not None else list(subjects(story, telling))
        return sequence(story, chosen, telling, links=args.links, states=args.states)
    if about is not None:
        return "\n".join(text(story, about, telling)) + "\n"
    counts = subjects(story, telling).items()
    return "".join(f"{telling.subject_title(key)}: {n} steps\n" for key, n in counts) or f"no {telling.subject}s\n"

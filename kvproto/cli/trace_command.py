"""`kvproto trace`: the story of a room, told from the traces of all ranks."""

from __future__ import annotations

import argparse
from pathlib import Path

from kvproto.cli.console import WELL, complain, deliver
from kvproto.trace.merge import Moment, merge, rooms
from kvproto.trace.perfetto import perfetto
from kvproto.trace.plain_json import PlainError, room_from
from kvproto.trace.records import TraceError, load
from kvproto.trace.tell import sequence, text, title

EPILOG = """\
examples:
  kvproto trace p0.jsonl d0.jsonl                      which rooms there are
  kvproto trace p0.jsonl d0.jsonl --room 7             the story of room 7, in the order of cause and effect
  kvproto trace *.jsonl --room 7 --format mermaid      a sequence chart
  kvproto trace *.jsonl --format perfetto --out t.json open it at ui.perfetto.dev

A trace is written by kvproto.trace.save(rank, path), or by an endpoint when something fails.  The ranks' clocks need
not agree: the story is ordered by what caused what.
"""


def main(argv: list[str]) -> int:
    """`kvproto trace`."""
    parser = argparse.ArgumentParser(
        prog="kvproto trace", description="Tell what happened, from the traces of one or more ranks.", epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("file", nargs="+", type=Path, metavar="TRACE", help="JSON lines, of one rank or more")
    parser.add_argument("--room", metavar="ID[.GEN]", help="the room to tell of")
    parser.add_argument("--format", choices=("text", "mermaid", "perfetto"), default="text", help="(default: text)")
    parser.add_argument("--links", action="store_true", help="with what was said about links (mermaid)")
    parser.add_argument("--states", action="store_true", help="with every change of state (mermaid)")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write to FILE, not to the terminal")
    args = parser.parse_args(argv)
    try:
        story = merge(load(*args.file))
        room = None if args.room is None else room_from(args.room if "." in args.room else f"{args.room}.0", "--room")
    except (TraceError, PlainError) as error:
        return complain(str(error))
    if room is not None and room not in rooms(story):
        return complain(f"{title(room)} is not in these traces; without --room they are listed")
    deliver(_tell(story, room, args), args.out)
    return WELL


def _tell(story: list[Moment], room: int | None, args: argparse.Namespace) -> str:
    if args.format == "perfetto":
        return perfetto(story) + "\n"
    if args.format == "mermaid":
        chosen = [room] if room is not None else list(rooms(story))
        return sequence(story, chosen, links=args.links, states=args.states)
    if room is not None:
        return "\n".join(text(story, room)) + "\n"
    return "".join(f"{title(key)}: {count} steps\n" for key, count in rooms(story).items()) or "no rooms\n"

"""`kvproto inspect`: one self-contained HTML page from the traces of one or more ranks.

The page holds everything that it needs (the story, the machines' pictures, its style and its script) and asks no
network for anything: it opens from a disk, in a mail, behind a firewall.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from kvproto.cli.console import WELL, complain, say
from kvproto.draw.diagram import sketch
from kvproto.draw.svg import stylesheet, svg
from kvproto.protocol.events import room_of
from kvproto.protocol.messages import AUX_CHUNK
from kvproto.protocol.tables import TABLES
from kvproto.trace.merge import Moment, merge
from kvproto.trace.plain_json import plain
from kvproto.trace.records import Log, SentEntry, StepEntry, TraceError, load
from kvproto.trace.replay import replay
from kvproto.trace.tell import fact, machine, said

Json = dict[str, Any]


def page(logs: list[Log], title: str) -> str:
    """The HTML of these logs' story."""
    story = merge(logs)
    data = {
        "title": title,
        "ranks": sorted({moment.rank for moment in story}, key=lambda rank: (rank[0] != "P", rank)),
        "moments": [_moment(moment) for moment in story],
        "machines": {
            table.name: {"rows": [_row(row) for row in table.rows], "final": [state.name for state in table.final]}
            for table in TABLES
        },
        "differences": [str(found) for log in logs if (found := replay(log)) is not None],
    }
    pictures = "".join(
        f'<div class="picture" data-machine="{table.name}">{svg(sketch(table), embedded=True)}</div>'
        for table in TABLES
    )
    parts = {name: (files("kvproto.inspect") / f"page.{name}").read_text() for name in ("html", "css", "js")}
    return (
        parts["html"]
        .replace("/*STYLE*/", _pictures_style() + parts["css"])
        .replace("<!--PICTURES-->", pictures)
        .replace("/*DATA*/", json.dumps(data, separators=(",", ":")).replace("<", "\\u003c"))
        .replace("/*SCRIPT*/", parts["js"])
    )


def _pictures_style() -> str:
    """The pictures' colours follow the page's own switch between light and dark, not the system alone."""
    light, dark = stylesheet("light"), stylesheet("dark")
    return light + dark.partition("}")[0].replace("svg.kvproto", ':root[data-theme="dark"] svg.kvproto') + "}\n"


def _row(row: Any) -> str:
    return str(row) + (f" ({row.why})" if row.why else "")


def _moment(moment: Moment) -> Json:
    entry = moment.entry
    shown: Json = {"rank": moment.rank, "time": moment.time, "cause": moment.cause}
    if moment.message is not None:
        room, gen = room_of(moment.message.room)
        way = "sent" if isinstance(entry, SentEntry) else "heard"
        chunk = dict(moment.message.fields).get("chunk")
        other = moment.message.receiver if way == "sent" else moment.message.sender
        return {**shown, "kind": way, "text": said(moment.message), "peer": other, "fate": moment.way,
                "room": None if not moment.message.room else f"{room}.{gen}", "chunk": chunk}  # fmt: skip
    assert isinstance(entry, StepEntry)
    return {**shown, "kind": "step", **_step(entry), "source": moment.source}


def _step(step: StepEntry) -> Json:
    event = step.event
    room = None if step.machine.endswith("link") else "{}.{}".format(*room_of(getattr(event, "room", 0)))
    chunk = getattr(event, "chunk", None) if step.machine.endswith(("send", "grant")) else None
    return {
        "machine": step.machine, "who": machine(step), "room": room,
        "chunk": "aux" if chunk == AUX_CHUNK else chunk, "event": fact(event), "fields": plain(event),
        "from": step.source, "to": step.target, "row": step.row, "effects": [fact(each) for each in step.effects],
        "track": f"{step.machine} {' '.join(map(str, step.key))}",
    }  # fmt: skip


def main(argv: Sequence[str]) -> int:
    """`kvproto inspect`."""
    parser = argparse.ArgumentParser(
        prog="kvproto inspect", description="Make one web page of traces: step through what happened, offline.",
        epilog="Example: kvproto inspect p0.jsonl d0.jsonl --out story.html    (then open story.html in a browser)",
    )  # fmt: skip
    parser.add_argument("file", nargs="+", type=Path, metavar="TRACE", help="JSON lines, of one rank or more")
    parser.add_argument("--out", type=Path, metavar="FILE", default=Path("trace.html"), help="(default: %(default)s)")
    args = parser.parse_args(argv)
    try:
        logs = load(*args.file)
    except TraceError as error:
        return complain(str(error))
    args.out.write_text(page(logs, " ".join(path.name for path in args.file)))
    say(f"wrote {args.out}: open it in a browser")
    return WELL

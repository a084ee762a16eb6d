"""One self-contained HTML page from the traces of one or more parties.

The page holds everything that it needs (the story, the machines' pictures, its style and its script) and asks no
network for anything: it opens from a disk, in a mail, behind a firewall.
"""

from __future__ import annotations

import json
from html import escape
from importlib.resources import files
from itertools import zip_longest
from typing import Any

from kvproto.fsm.records import Log, SentEntry, StepEntry
from kvproto.fsm.telling import Moment, Telling
from kvproto.verify.framework.draw.diagram import sketch
from kvproto.verify.framework.draw.svg import stylesheet, svg
from kvproto.verify.framework.trace.merge import merge, subject_of
from kvproto.verify.framework.trace.replay import replay

Json = dict[str, Any]


def page(
    logs: list[Log], title: str, telling: Telling, protocol: str, *,
    beside: tuple[str, list[Log]] | None = None, follow: float = 0.0,
) -> str:  # fmt: skip
    """The HTML of these logs' story; `protocol` stands on top.

    `beside`: the title and the logs of another story, with which it is compared; `follow`: seconds after which the page
    reads itself anew, until it is told not to (0: never).
    """
    story = merge(logs, telling)
    other = [] if beside is None else merge(beside[1], telling)
    telling_other = [moment_json(moment, telling) for moment in other]
    return page_of({
        "title": title,
        "parties": sorted({moment.party for moment in story}, key=telling.column),
        "moments": (told := [moment_json(moment, telling) for moment in story]),
        "beside": None if beside is None else {"title": beside[0], "moments": telling_other},
        "difference": None if beside is None else first_difference(told, telling_other),
        "follow": follow,
        "differences": [str(found) for log in logs if (found := replay(log, telling)) is not None],
    }, telling, protocol)  # fmt: skip


def page_of(data: Json, telling: Telling, protocol: str, script: str = "") -> str:
    """The HTML of these data, with the tables' pictures; `script` runs after the page's own."""
    tables = telling.tables.values()
    machines = {
        table.name: {"rows": [_row(row) for row in table.rows], "final": [state.name for state in table.final],
                     "refusals": [row.index for row in table.rows if row.verb == "refuse"]}
        for table in tables
    }  # fmt: skip
    pictures = "".join(
        f'<div class="picture" data-machine="{table.name}">{svg(sketch(table), embedded=True)}</div>'
        for table in tables
    )
    folder = files("kvproto.verify.framework.inspect")
    parts = {name: (folder / f"page.{name}").read_text() for name in ("html", "css", "js")}
    words = {"PROTOCOL": protocol, "SUBJECT": telling.subject, "PART": telling.part, "PARTY": telling.party,
             "ASIDE": telling.nobodys}  # fmt: skip
    html = parts["html"]
    for mark, word in words.items():
        html = html.replace(f"<!--{mark}-->", escape(word))
    return (
        html
        .replace("/*STYLE*/", _pictures_style() + parts["css"])
        .replace("<!--PICTURES-->", pictures)
        .replace("/*DATA*/", json.dumps({**data, "machines": machines}, separators=(",", ":")).replace("<", "\\u003c"))
        .replace("/*SCRIPT*/", parts["js"] + script)
    )  # fmt: skip


def first_difference(ours: list[Json], theirs: list[Json]) -> tuple[int, int] | None:
    """Return the indices of the first moments of one party in which two stories differ; None: none do.

    Parties are compared one by one, since two runs may tell of independent things in another order; times do not count.
    Where one story only ends before the other, its end is where they part.
    """
    found = []
    for party in dict.fromkeys(each["party"] for each in (*ours, *theirs)):
        mine, other = ([each for each in story if each["party"] == party] for story in (ours, theirs))
        for a, b in zip_longest(mine, other):
            if a is None or b is None or _alike(a) != _alike(b):
                found.append(((a or (mine or ours)[-1])["index"], (b or (other or theirs)[-1])["index"]))
                break
    return min(found, default=None)


def _alike(moment: Json) -> Json:
    return {key: value for key, value in moment.items() if key not in {"index", "time", "cause"}}


def _pictures_style() -> str:
    """The pictures' colours follow the page's own switch between light and dark, not the system alone."""
    light, dark = stylesheet("light"), stylesheet("dark")
    return light + dark.partition("}")[0].replace("svg.kvproto", ':root[data-theme="dark"] svg.kvproto') + "}\n"


def _row(row: Any) -> str:
    return str(row) + (f" ({row.why})" if row.why else "")


def moment_json(moment: Moment, telling: Telling) -> Json:
    """One moment of a story; `cause` is the index of the one that led to it, in the whole story."""
    entry, message, about = moment.entry, moment.message, subject_of(moment, telling)
    shown: Json = {
        "index": moment.index, "party": moment.party, "time": moment.time, "cause": moment.cause,
        "subject": None if about is None else telling.subject_name(about),
    }  # fmt: skip
    if message is not None:
        way = "sent" if isinstance(entry, SentEntry) else "heard"
        other = message.receiver if way == "sent" else message.sender
        return {**shown, "kind": way, "text": telling.said(message), "peer": other, "fate": moment.way,
                "part": telling.part_of_message(message)}  # fmt: skip
    assert isinstance(entry, StepEntry)
    return {**shown, "kind": "step", **_step(entry, telling), "source": moment.source}


def _step(step: StepEntry, telling: Telling) -> Json:
    event, fact = step.event, telling.fact
    return {
        "machine": step.machine, "who": telling.machine(step), "part": telling.part_of(step), "event": fact(event),
        "fields": telling.json.plain(event), "from": step.source, "to": step.target, "row": step.row,
        "effects": [fact(each) for each in step.effects], "track": f"{step.machine} {' '.join(map(str, step.key))}",
    }  # fmt: skip

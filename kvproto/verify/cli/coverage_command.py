"""`kvproto coverage`: what tests, the checker and real runs have seen of tables and routes, side by side.

A source is a file of counts (`kvproto check --rows FILE`, `pytest --rows-out FILE`), a trace, or a directory of traces.
Tests are two sources: honest traffic, and what only peers and libraries that misbehave bring about.  What only a real
run has seen is worth a look: there the tests and the checker know less than the world.
"""

from __future__ import annotations

import argparse
import base64
import json
from html import escape
from pathlib import Path
from typing import Any

from kvproto.arguments import output_file
from kvproto.cli.console import say
from kvproto.cli.ending import FOUND, WELL
from kvproto.fsm import records
from kvproto.fsm.table import Table
from kvproto.verify.cli.tables_option import add_tables
from kvproto.verify.framework.draw.diagram import DiagramOptions, sketch
from kvproto.verify.framework.draw.svg import svg
from kvproto.verify.framework.protocol import Protocol
from kvproto.verify.framework.trace.coverage import MISBEHAVING, Collector, Counted
from kvproto.verify.framework.trace.coverage_file import CoverageError, load
from kvproto.verify.framework.trace.coverage_report import lacking, side_by_side
from kvproto.verify.framework.trace.replay import replay

EPILOG = """\
examples:
  kvproto check gate --rows checker.json          what the checker sees
  pytest -p kvproto.verify.testing.coverage_plugin --rows-out tests.json
  kvproto demo --trace traces                     what a real run sees
  kvproto coverage checker.json tests.json demo=traces
  kvproto coverage checker.json tests.json demo=traces --html coverage.html

The first column's neighbours say what is missing in it: rows and routes that another source has seen and this one has
not are listed by file and line.  Traces are checked against the tables first; one that differs is refused.
Exit code 0: all have seen something; 1: a source is empty; 2: one cannot be read, or is not what the tables do.
"""
STYLE = """
body{font-family:system-ui,sans-serif;margin:clamp(.5rem,2vw,2rem);color-scheme:light dark}
.row{display:grid;gap:1rem;grid-template-columns:repeat(auto-fit,minmax(min(100%,30rem),1fr))} figure{margin:0}
img{max-width:100%;height:auto} pre{white-space:pre-wrap;overflow-wrap:anywhere}
table{border-collapse:collapse;display:block;overflow-x:auto} td,th{padding:.2rem .8rem;text-align:right}
td:first-child,th:first-child{text-align:left}
"""
Sources = dict[str, Collector]


def main(argv: list[str]) -> int:
    """`kvproto coverage`."""
    args = parser().parse_args(argv)
    sources: Sources = {}
    for asked in args.source:
        name, _, path = asked.rpartition("=")
        found = read(Path(path), args.tables)
        sources |= {" ".join(filter(None, (name or Path(path).stem, kind))): each for kind, each in found.items()}
    if args.html:
        args.html.write_text(page(sources))
        say(f"wrote {args.html}")
    elif args.json:
        say(json.dumps({name: summary(counts) for name, counts in sources.items()}, indent=1))
    else:
        say(side_by_side(sources))
        for line in differences(sources, args.all):
            say(line)
    return WELL if all(counts.rows for counts in sources.values()) else FOUND


def parser() -> argparse.ArgumentParser:
    """The command's arguments."""
    made = argparse.ArgumentParser(
        prog="kvproto coverage",
        description="What has been seen of the protocol: rows, guard outcomes, pairs of rows, routes.",
        epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    made.add_argument("source", nargs="+", metavar="[NAME=]PATH", help="counts, a trace, or a directory of traces")
    made.add_argument("--html", type=output_file, metavar="FILE", help="a page with the painted diagrams side by side")
    made.add_argument("--json", action="store_true", help="one JSON document, for tools")
    made.add_argument("--all", action="store_true", help="list every row that differs, not the first ten a source")
    add_tables(made)
    return made


def read(path: Path, protocol: Protocol) -> Sources:
    """What has been seen, by kind ("": of no particular one).  Raises `CoverageError`, `TraceError`."""
    if path.suffix == ".json":
        return load(path, protocol.counted)
    files = sorted(path.glob("*.jsonl")) if path.is_dir() else [path]
    if not files:
        raise CoverageError(f"{path}: there are no traces (*.jsonl) in it")
    counts, telling = Collector(protocol.counted), protocol.told()
    for file in files:
        for log in records.load(file, telling=telling):
            different = replay(log, telling)
            if different is not None:
                raise CoverageError(f"{file}: not what the tables do (kvproto replay): {different}")
            counts.take_log(log)
    return {"": counts}


def summary(counts: Collector) -> dict[str, dict[str, list[int]]]:
    """By machine: rows, guard outcomes and pairs; by side: routes; each as seen and all."""
    found = {}
    for each in counts.of.tables:
        shares = {"rows": counts.covered(each), "guards": counts.outcomes(each), "pairs": counts.joined(each)}
        found[each.name] = {what: [share.seen, share.all] for what, share in shares.items()}
    for routes in counts.of.routes:
        share = counts.taken(routes)
        found[f"to {routes.name}"] = {"routes": [share.seen, share.all]}
    return found


def differences(sources: Sources, everything: bool) -> list[str]:  # noqa: FBT001
    """Rows and routes that some source has seen and this one has not."""
    lines = []
    for name, counts in sources.items():
        if name.split()[-1] == MISBEHAVING:
            continue  # it need not be complete
        others = {other: each for other, each in sources.items() if other != name}
        found, where = lacking(counts, others) if others else (0, [])
        if found:
            lines.append(f"{name} has not seen {found} row(s) or route(s) that others have:")
        shown = where if everything else where[:10]
        lines += [f"  {line}" for line in shown]
        if len(shown) < len(where):
            lines.append(f"  and {len(where) - len(shown)} more lines (--all)")
    return lines


def _counted(sources: Sources) -> Counted:
    return next(iter(sources.values())).of


def page(sources: Sources) -> str:
    """Every machine's diagram once for each source: what has fired is painted, what has not is dashed."""
    head = "<!doctype html><meta charset=utf-8><meta name=viewport content='width=device-width'><title>Coverage</title>"
    parts = [f"{head}<style>{STYLE}</style><h1>Coverage</h1>"]
    parts.append(_shares(sources))
    for each in _counted(sources).tables:
        pictures = "".join(_figure(name, counts, each) for name, counts in sources.items())
        parts.append(f"<h2>{each.name}</h2><div class=row>{pictures}</div>")
    parts.append(f"<pre>{escape(chr(10).join(differences(sources, everything=True)))}</pre>")
    return "\n".join(parts) + "\n"


def _shares(sources: Sources) -> str:
    head = "".join(f"<th>{escape(name)}: rows<th>guards<th>pairs" for name in sources)
    lines = [f"<table><tr><th>machine{head}"]
    for each in _counted(sources).tables:
        blocks = [(c.covered(each), c.outcomes(each), c.joined(each)) for c in sources.values()]
        lines.append(f"<tr><td>{each.name}" + "".join(f"<td>{r}<td>{g}<td>{p}" for r, g, p in blocks))
    for routes in _counted(sources).routes:
        taken = "".join(f"<td>{counts.taken(routes)}<td><td>" for counts in sources.values())
        lines.append(f"<tr><td>routes to {routes.name}{taken}")
    return "\n".join([*lines, "</table>"])


def _figure(name: str, counts: Collector, each: Table[Any]) -> str:
    picture = base64.b64encode(svg(sketch(each, DiagramOptions(), counts.rows)).encode()).decode()
    rows, guards, pairs = counts.covered(each), counts.outcomes(each), counts.joined(each)
    text = f"{escape(name)}: {rows} rows, {guards} guard outcomes, {pairs} pairs"
    image = f'<img alt="{text}" src="data:image/svg+xml;base64,{picture}">'
    return f"<figure><figcaption>{text}</figcaption>{image}</figure>"

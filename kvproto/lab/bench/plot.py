"""Bandwidth over size, with the plain copy as ceiling: a plot of what pipeline and transport runs found.

It needs matplotlib (`pip install 'kvproto[plot]'`), which is loaded when a plot is asked for and not before. The
format is what the file's name ends in: svg, png, pdf.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from kvproto.lab.bench.flat import MeasuredRow, MeasuredRun, rows_of
from kvproto.lab.bench.results import output

#: name -> size in MiB -> GB/s
Connections = dict[str, dict[float, float]]
CEILING = "plain copy"
FORMATS = (".svg", ".png", ".pdf")
HOW = {
    "polled": "NIXL, one write, polled", "thread": "NIXL, one write, with its progress thread",
    "ours": "one write of ours",
}  # fmt: skip


def add_plot(parser: argparse.ArgumentParser) -> None:
    """The option `--plot FILE`."""
    told = f"plot bandwidth over size ({', '.join(FORMATS)})"
    parser.add_argument("--plot", type=plotted, metavar="FILE", help=told)


def plotted(text: str) -> Path:
    """An argument that names a plot to be written."""
    to = Path(output(text))
    if to.suffix not in FORMATS:
        raise argparse.ArgumentTypeError(f"a plot is written as {', '.join(FORMATS)}, not {to.suffix or 'a bare name'}")
    return to


def draw(runs: Iterable[MeasuredRun], to: Path | None) -> int:
    """Write the plot, if one is wanted: 0, or 2 with a word on standard error if it cannot be."""
    if to is None:
        return 0
    try:
        plot(lines_of(runs), to)
    except (ImportError, ValueError, OSError) as error:
        print(f"no plot: {error}", file=sys.stderr)
        return 2
    return 0


def lines_of(runs: Iterable[MeasuredRun]) -> Connections:
    """Find what there is to plot: the best of each size; of pipelines one pair, 1->1 if there is such a one."""
    rows = [(run.bench, row) for run in runs if run.bench in ("pipeline", "transport") for row in rows_of(run.figures)]
    pairs = [_pair(row) for bench, row in rows if bench == "pipeline"]
    pair = "1->1" if "1->1" in pairs else next(iter(pairs), "")
    lines: Connections = {}
    for bench, row in rows:
        size, kib = row.labels.get("size"), row.labels.get("kib")
        size = kib / 1024 if isinstance(kib, int) else size
        for name, figure in _points(bench, row, pair):
            if figure in row.values and isinstance(size, int | float):
                line = lines.setdefault(name, {})
                line[size] = max(line.get(size, 0.0), row.values[figure])
    return lines


def _pair(row: MeasuredRow) -> str:
    return str(row.labels.get("pair")).split(" ")[0]


def _points(bench: str, row: MeasuredRow, pair: str) -> list[tuple[str, str]]:
    """Name the lines that the row has a point of, and by which figure."""
    what = row.labels.get("what")
    if bench == "transport":
        how = HOW.get(str(row.labels.get("how")), "")
        return [(how, "GB/s"), (CEILING, "copy GB/s")] if what == "bulk" and how else []
    if what == "slice":
        return [("page by page, in slices", "GB/s")]
    if _pair(row) != pair:
        return []
    if what == "many":
        return [("gather, write, scatter: many rooms", "GB/s")]
    return [("gather, write, scatter: one room", "GB/s"), ("NIXL, one write, polled", "bulk GB/s")]


def plot(lines: Connections, to: Path) -> None:
    """ValueError: nothing to plot. ImportError: no matplotlib."""
    if not lines:
        raise ValueError("there is no run of pipeline or transport in these results")
    try:
        figure: Any = importlib.import_module("matplotlib.figure")
    except ImportError as error:
        raise ImportError("matplotlib is not installed: pip install 'kvproto[plot]'") from error
    drawn = figure.Figure(figsize=(7.5, 4.5))
    axes = drawn.add_subplot()
    for name, found in sorted(lines.items(), key=lambda line: -max(line[1].values())):
        style = {"color": "black", "linestyle": "--"} if name == CEILING else {"marker": "o", "markersize": 4}
        axes.plot(sorted(found), [found[size] for size in sorted(found)], label=name, **style)
    sizes = sorted({size for found in lines.values() for size in found})
    axes.set(xscale="log", yscale="log", xlabel="MiB of KV", ylabel="GB/s")
    axes.set_xticks(sizes, [f"{size:g}" for size in sizes])
    axes.set_xticks([], minor=True)
    axes.grid(visible=True, which="major", alpha=0.3)
    axes.legend(fontsize="small")
    drawn.savefig(to, bbox_inches="tight")

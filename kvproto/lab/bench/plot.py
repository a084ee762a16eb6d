"""Bandwidth over size, with the plain copy as ceiling: a plot of what pipeline and transport runs found.

It needs matplotlib (`pip install 'kvproto[plot]'`), which is loaded when a plot is asked for and not before. The
format is what the file's name ends in: svg, png, pdf.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

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


def draw(results: Mapping[str, Any], to: Path | None) -> int:
    """Write the plot, if one is wanted: 0, or 2 with a word on standard error if it cannot be."""
    if to is None:
        return 0
    try:
        plot(lines_of(results), to)
    except (ImportError, ValueError, OSError) as error:
        print(f"no plot: {error}", file=sys.stderr)
        return 2
    return 0


def lines_of(results: Mapping[str, Any]) -> Connections:
    """What there is to plot: the best of each size; of pipelines one pair, 1->1 if there is such a one."""
    lines: Connections = {}
    runs = [run for run in results["runs"] if run["bench"] in {"pipeline", "transport"}]
    pairs = [_pair(row) for run in runs for row in run["figures"] if run["bench"] == "pipeline"]
    pair = "1->1" if "1->1" in pairs else next(iter(pairs), "")
    for run in runs:
        for row in run["figures"]:
            for name, speed in _points(run["bench"], row, pair):
                line = lines.setdefault(name, {})
                line[row["size"]] = max(line.get(row["size"], 0.0), speed)
    return lines


def _pair(row: Mapping[str, Any]) -> str:
    return str(row["pair"]).split(" ")[0]


def _points(bench: str, row: Mapping[str, Any], pair: str) -> list[tuple[str, float]]:
    if bench == "transport":
        return [(HOW[row["how"]], row["gbs"]), (CEILING, row["copy_gbs"])] if row["what"] == "bulk" else []
    if row["what"] == "slice":
        return [("page by page, in slices", row["gbs"])]
    if _pair(row) != pair:
        return []
    if row["what"] == "many":
        return [("gather, write, scatter: many rooms", row["gbs"])]
    found = [("gather, write, scatter: one room", row["gbs"])]
    return [*found, ("NIXL, one write, polled", row["bulk_gbs"])] if "bulk_gbs" in row else found


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

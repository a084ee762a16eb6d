"""Results as tables in Markdown, or as a plot: what README says of a machine is made from the file of its runs.

    kvproto bench figures                               the tables of examples/results/h200.json
    kvproto bench figures --plot bandwidth.svg          bandwidth over size, the copy as ceiling (needs matplotlib)
    kvproto bench figures --add A B                     put what single benchmarks wrote (--json) into that file
    kvproto bench figures --into README.md docs/figures.md      put summaries of it between these files' marks

A file of results is `{"runs": [...]}`; each run says which benchmark, by which command, on which machine. A run that
is added takes the place of one of the same command.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from kvproto.errors import ArgumentError, KvprotoError
from kvproto.fsm.bounded_files import FileError, document, text_of
from kvproto.lab.bench import conformance, step
from kvproto.lab.bench.highlights import highlights
from kvproto.lab.bench.kernel_tables import Run, kernels
from kvproto.lab.bench.pieces import DEFAULT
from kvproto.lab.bench.plot import add_plot, draw
from kvproto.lab.bench.result_types import checked_results, checked_run
from kvproto.lab.bench.summary import demo, summary
from kvproto.lab.bench.tables import churn, control, grid, layers, pinned, pipeline, route, transport
from kvproto.lab.bench.torture_table import torture
from kvproto.lab.bench.trace_report import told
from kvproto.lab.bench.trace_summary import replays

LEFT_OUT = ("all_ms", "all_bulk_ms", "odd", "shape")


TABLES: dict[str, Callable[[Any], str]] = {
    "kernels": kernels, "pipeline": pipeline, "pinned": pinned, "control": control, "transport": transport,
    "demo": demo, "layers": layers, "route": route, "grid": grid, "churn": churn,
    "torture": torture, "step": step.fenced, "conformance": conformance.fenced, "trace": told,
}  # fmt: skip


def tables(results: dict[str, Any]) -> str:
    """All runs, one after the other."""
    parts = []
    for run in results["runs"]:
        machine = {name: value for name, value in run["machine"].items() if value}
        gpus = machine.pop("gpus", None) or [machine.pop("gpu", "no GPU")]
        rest = ", ".join(f"{name} {value}" for name, value in machine.items())
        parts.append(f"`{run['command']}` ({len(gpus)} x {gpus[0]}; {rest})\n\n{TABLES[run['bench']](run['figures'])}")
    return "\n\n".join(parts)


#: what is put between which marks
MARKS: dict[str, Callable[[dict[str, Any]], str]] = {
    "figures": summary, "figures in short": highlights, "every figure": tables, "replays": replays,
}  # fmt: skip


def read(file: Path) -> Run:
    """One run, as a benchmark or the demonstration wrote it; times of single transfers are left out."""
    run: Run = document(file)
    if not isinstance(run, dict):
        raise FileError(f"{file}: no run: an object is expected")
    if "figures" not in run:
        head = [name for name in ("bench", "command", "machine") if name in run]
        run = {**{name: run[name] for name in head}, "figures": {k: v for k, v in run.items() if k not in head}}
    figures = run["figures"]
    rows = figures.get("kernels") if isinstance(figures, dict) else figures
    for row in rows if isinstance(rows, list) else ():
        for name in LEFT_OUT if isinstance(row, dict) else ():
            row.pop(name, None)
    return run


def put(runs: Iterable[Run], into: dict[str, Any]) -> dict[str, Any]:
    """The results with these runs; one of the same command is replaced where it stands."""
    found = {run["command"]: run for run in into.get("runs", [])}
    return {"runs": list((found | {run["command"]: run for run in runs}).values())}


def between(text: str) -> tuple[str, str, str, str]:
    """The marks' name, and what stands before, between and after them. ArgumentError: there are none."""
    for name in MARKS:
        before, found, rest = text.partition(f"<!-- {name} -->\n")
        inside, also, after = rest.partition(f"\n<!-- /{name} -->")
        if found and also:
            return name, before + found, inside, also + after
    raise ArgumentError(f"there is no <!-- {' --> and no <!-- '.join(MARKS)} -->")


def main(argv: Sequence[str] | None = None) -> int:
    """Print the tables, or write a plot, a file of results or a summary."""
    about = (__doc__ or "").split("\n\n", maxsplit=1)[0]
    parser = argparse.ArgumentParser(prog="kvproto bench figures", description=about)
    parser.add_argument("--results", type=Path, default=DEFAULT, help=f"the file of results (default {DEFAULT})")
    parser.add_argument("--add", type=Path, nargs="+", metavar="RUN", help="put these runs into it first")
    parser.add_argument("--merge", type=Path, nargs="+", metavar="RUN", help="make it anew of these runs first")
    parser.add_argument(
        "--into",
        type=Path,
        nargs="+",
        metavar="FILE",
        help=f"put a summary between these files' marks, <!-- {' -->, <!-- '.join(MARKS)} -->",
    )
    parser.add_argument("--json", action="store_true", help="print the results as they are")
    add_plot(parser)
    options = parser.parse_args(argv)
    fresh = options.merge or options.add
    old = {} if options.merge or (fresh and not options.results.exists()) else checked_results(options.results)
    if fresh:
        runs = [checked_run(str(file), read(file)) for file in fresh]
        options.results.parent.mkdir(parents=True, exist_ok=True)
        old = put(runs, old)
        options.results.write_text(json.dumps(old, indent=1) + "\n")
    try:
        return _show(old, options)
    except (LookupError, ArithmeticError, TypeError, ValueError) as error:
        if isinstance(error, KvprotoError):
            raise
        lacking = "a run has not all that its table is made from"
        raise FileError(f"{options.results}: {lacking}: {type(error).__name__}: {error}") from error


def _show(old: dict[str, Any], options: argparse.Namespace) -> int:
    if options.into:
        for file in options.into:
            name, before, _, after = between(text_of(file))
            file.write_text(before + MARKS[name](old) + after)
        return 0
    if options.plot:
        return draw(old, options.plot)
    print(json.dumps(old) if options.json else tables(old))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

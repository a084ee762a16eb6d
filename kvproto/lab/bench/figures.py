"""Figures of results: tables in Markdown, of files that benchmarks wrote; pages are made from them.

    kvproto bench figures                               the tables of examples/results/h200.json
    kvproto bench figures --add A B                     put what single benchmarks wrote (--json) into that file
    kvproto bench figures --into docs/figures.md      put tables of it between this file's marks

A file of results is `{"runs": [...]}`; each run says which benchmark, by which command, on which machine, and has its
figures flat (`flat`). A run that is added takes the place of one of the same command.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from kvproto.command_line import CommandLine
from kvproto.errors import ArgumentError
from kvproto.fsm.bounded_files import FileError, decoded, document, text_of
from kvproto.lab.bench.flat import Figure, MeasuredRun, checked_results, flat
from kvproto.lab.bench.goals import goals
from kvproto.lab.bench.pivot import every_run, pivot

Runs = list[MeasuredRun]
DEFAULT = Path("examples/results/h200.json")


def _replays(runs: Runs) -> str:
    """Lay out replayed traces: p99 and failures by commit, pool and way, and below the whole fleets."""
    figures = [each for run in runs for each in run.figures]
    both = [each for each in figures if "at" in each.labels and (each.name == "transfer, p99" or _failed(each))]
    return f"{pivot(both, ('at', 'pools', 'way'))}\n\n{pivot(each for each in figures if 'at' not in each.labels)}"


def _failed(figure: Figure) -> bool:
    return figure.name == "failed" and figure.value > 0


#: what is put between which marks
MARKS: dict[str, Callable[[Runs], str]] = {
    "figures": lambda runs: "\n\n".join(filter(None, [goals(runs), every_run(runs)])),
    "every figure": every_run, "replays": _replays,
}  # fmt: skip


def read(file: Path) -> MeasuredRun:
    """Read one run without single transfers' times; make it flat if it is not (`kvproto demo`, `torture`)."""
    run = document(file)
    if not isinstance(run, dict):
        raise FileError(f"{file}: no run: an object is expected")
    if "figures" not in run:
        head = {name: run[name] for name in ("bench", "command", "machine", "date") if name in run}
        run = {**head, "figures": {name: each for name, each in run.items() if name not in head}}
    rows = run["figures"] if isinstance(run["figures"], list) else [run["figures"]]
    try:
        if any("value" not in row for row in rows):
            run["figures"] = msgspec.to_builtins(flat([_counted(row) for row in rows]))
    except (LookupError, ArithmeticError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise FileError(f"{file}: no figures can be made of this run: {type(error).__name__}: {error}") from error
    found = decoded(str(file), run, MeasuredRun)
    found.figures = [each for each in found.figures if not each.is_detail]
    return found


def _counted(row: dict[str, Any]) -> dict[str, Any]:
    """Make the counts of a torture, of whom the carrier and the seed are labels, figures."""
    if "carrier" not in row:
        return row
    kept = (
        "carrier", "kill", "rooms", "undisturbed", "faults", "hits", "kills", "other_kv", "prompt_bytes", "again_bytes",
        "kept_bytes", "wrong_bytes", "judged", "attacks", "found", "seconds",
    )  # fmt: skip
    counts = {name: len(row[name]) if name == "found" else row[name] for name in kept if name in row}
    whole = {name: float(each) if isinstance(each, int) else each for name, each in counts.items()}
    attacks = {name: float(each) for name, each in row.get("attacks", {}).items()}
    return whole | ({"attacks": attacks} if attacks else {}) | ({"seed": row["seed"]} if "seed" in row else {})


def put(runs: Iterable[MeasuredRun], into: Runs) -> Runs:
    """Return the runs with these; one of the same command is replaced where it stands."""
    return list(({run.command: run for run in into} | {run.command: run for run in runs}).values())


def written(runs: Iterable[MeasuredRun]) -> bytes:
    """Write a file of results with a line for each figure, so that a change of it can be read."""
    texts = []
    for run in runs:
        head = msgspec.json.encode(msgspec.structs.replace(run, figures=[])).replace(b'"figures":[],', b"")
        figures = b",\n".join(msgspec.json.encode(figure) for figure in run.figures)
        texts.append(head[:-1] + b',"figures":[\n' + figures + b"\n]}")
    return b'{"runs":[\n' + b",\n".join(texts) + b"\n]}\n"


def between(text: str) -> tuple[str, str, str, str]:
    """Find the marks' name and the text before, between and after them. ArgumentError: no marks."""
    for name in MARKS:
        before, found, rest = text.partition(f"<!-- {name} -->\n")
        inside, also, after = rest.partition(f"\n<!-- /{name} -->")
        if found and also:
            return name, before + found, inside, also + after
    raise ArgumentError(f"there is no <!-- {' --> and no <!-- '.join(MARKS)} -->")


def main(argv: Sequence[str] | None = None) -> int:
    """Print the tables, or write a file of results or pages."""
    about = (__doc__ or "").split("\n\n", maxsplit=1)[0]
    parser = CommandLine(prog="kvproto bench figures", description=about)
    parser.add_argument("--results", type=Path, default=DEFAULT, help=f"the file of results (default {DEFAULT})")
    parser.add_argument("--add", type=Path, nargs="+", metavar="RUN", help="put these runs into it first")
    marks = ", ".join(f"<!-- {name} -->" for name in MARKS)
    parser.add_argument("--into", type=Path, nargs="+", metavar="FILE", help=f"put tables between these marks: {marks}")
    parser.add_argument("--json", action="store_true", help="print the results as they are")
    options = parser.parse_args(argv)
    runs = [] if options.add and not options.results.exists() else checked_results(options.results)
    if options.add:
        runs = put([read(file) for file in options.add], runs)
        options.results.parent.mkdir(parents=True, exist_ok=True)
        options.results.write_bytes(written(runs))
    for file in options.into or ():
        name, before, _, after = between(text_of(file))
        file.write_text(before + MARKS[name](runs) + after)
    if not options.into:
        print(msgspec.json.encode({"runs": runs}).decode() if options.json else every_run(runs))
    return 0

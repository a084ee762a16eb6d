"""Results as tables in Markdown, or as a plot: what README says of a machine is made from the file of its runs.

    kvproto bench figures                               the tables of examples/results/h200.json
    kvproto bench figures --plot bandwidth.svg          bandwidth over size, the copy as ceiling (needs matplotlib)
    kvproto bench figures --results OUT --merge A B     put what single benchmarks wrote (--json) into one file

A file of results is `{"runs": [...]}`; each run says which benchmark, by which command, on which machine.
"""

from __future__ import annotations

import argparse
import importlib
import json
import statistics
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

Run = dict[str, Any]
DEFAULT = Path("examples/results/h200.json")
LEFT_OUT = ("all_ms", "odd", "shape")


def markdown(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join([*lines, *("| " + " | ".join(str(cell) for cell in row) + " |" for row in rows)])


def kernels(run: Run) -> str:
    groups: dict[tuple[str, str], list[float]] = {}
    for row in run["figures"]["kernels"]:
        groups.setdefault((row["what"], row["pair"]), []).append(row["ratio"])
    rows = [(what, pair, f"{min(found):.3f}", f"{statistics.median(found):.3f}", len(found))
            for (what, pair), found in groups.items()]  # fmt: skip
    head = "kernel", "ranks, heads", "least share of the copy", "median", "rows (pages, sizes, parts)"
    return markdown(head, rows)


def pipeline(run: Run) -> str:
    rows = []
    for row in run["figures"]:
        if row["what"] == "slice":
            form = f"at most {row['max_descs']} a write" if row["max_descs"] else "as few writes as there can be"
            rows.append((row["pair"], f"slices, {form}", row["size"], "", "", f"{row['gbs']:.2f}", "", row["pieces"]))
            continue
        bulk = (f"{row['bulk_gbs']:.0f}", f"{row['ratio']:.3f}") if "ratio" in row else ("", "")
        what = "one room" if row["rooms"] == 1 else f"{row['rooms']} rooms"
        speed = f"{row['gbs']:.0f}" + (f" ({row['gbs'] / row['links']:.0f} a link)" if row["links"] > 1 else "")
        rows.append((row["pair"], what, row["size"], row["chunk"], bulk[0], speed, bulk[1], row["pieces"]))
    return markdown(("ranks", "what", "MiB", "chunk", "bulk GB/s", "GB/s", "share", "writes or pieces"), rows)


def pinned(run: Run) -> str:
    rows = [(row["what"], row["bytes"] >> 20, row["pieces"], f"{row['copy_gbs']:.1f}", f"{row['staged_gbs']:.1f}",
             f"{row['direct_gbs']:.1f}", f"{row['ratio']:.3f}") for row in run["figures"]]  # fmt: skip
    return markdown(("kernel", "MiB", "chunks", "host copy GB/s", "staged", "by the kernel alone", "share"), rows)


def control(run: Run) -> str:
    found = run["figures"]
    names = [name for name in found["rows"][0] if " to " in name]
    rows = [(row["rooms"], *(f"{row[name]['median']:.0f} / {row[name]['p99']:.0f}" for name in names))
            for row in found["rows"]]  # fmt: skip
    how = "loops that never sleep" if found["spin"] else "loops that sleep between events"
    where = "KV on GPUs" if found["cuda"] else "KV in host memory"
    speed = statistics.median(found["rooms_a_second"])
    idle = " and ".join(f"{100 * share:.2f} %" for share in found["idle"])
    return (
        f"{how}, {where}; microseconds, median / p99:\n\n" + markdown(("rooms", *names), rows)
        + f"\n\n{speed:.0f} rooms a second through one link; idle loops take {idle} of a core."
    )  # fmt: skip


def transport(run: Run) -> str:
    rows = [(row["size"], row["pieces"], f"{row['ms']:.3f}", f"{row['gbs']:.1f}") for row in run["figures"]]
    return markdown(("MiB", "pieces", "ms", "GB/s"), rows)


TABLES: dict[str, Callable[[Run], str]] = {
    "kernels": kernels, "pipeline": pipeline, "pinned": pinned, "control": control, "transport": transport,
}  # fmt: skip


def tables(results: dict[str, Any]) -> str:
    """All runs, one after the other."""
    parts = []
    for run in results["runs"]:
        machine = {name: value for name, value in run["machine"].items() if value}
        gpus = machine.pop("gpus", None) or [machine.pop("gpu", "no GPU")]
        rest = ", ".join(f"{name} {value}" for name, value in machine.items())
        parts.append(f"`{run['command']}` ({len(gpus)} x {gpus[0]}; {rest})\n\n{TABLES[run['bench']](run)}")
    return "\n\n".join(parts)


def merge(files: Sequence[Path]) -> dict[str, Any]:
    """One file of results of several; times of single transfers are left out."""
    runs = [json.loads(file.read_text()) for file in files]
    for run in runs:
        rows = run["figures"] if isinstance(run["figures"], list) else run["figures"].get("kernels", [])
        for row in rows:
            for name in LEFT_OUT:
                row.pop(name, None)
    return {"runs": runs}


def plot(results: dict[str, Any], to: Path) -> None:
    """Bandwidth over size: NIXL's bulk write, the pipeline, the slices."""
    plt: Any = importlib.import_module("matplotlib.pyplot")

    lines: dict[str, dict[int, float]] = {}
    for run in results["runs"]:
        for row in run["figures"] if run["bench"] == "pipeline" else ():
            if row["what"] == "one" and row["pair"].startswith("1->1"):
                _best(lines, "NIXL, one write", row["size"], row["bulk_gbs"])
                _best(lines, "gather, write, scatter: a room", row["size"], row["gbs"])
            elif row["what"] == "many" and row["pair"].startswith("1->1"):
                _best(lines, "the same, many rooms", row["size"], row["gbs"])
            elif row["what"] == "slice":
                _best(lines, "slices (1->2)", row["size"], row["gbs"])
    _, axes = plt.subplots(figsize=(7, 4.2))
    for name, found in lines.items():
        axes.plot(sorted(found), [found[size] for size in sorted(found)], marker="o", label=name)
    axes.set(xscale="log", yscale="log", xlabel="MiB of KV", ylabel="GB/s")
    axes.set_xticks([4, 16, 64, 256, 1024], ["4", "16", "64", "256", "1024"])
    axes.grid(visible=True, which="major", alpha=0.3)
    axes.legend()
    plt.savefig(to, bbox_inches="tight")


def _best(lines: dict[str, dict[int, float]], name: str, size: int, speed: float) -> None:
    line = lines.setdefault(name, {})
    line[size] = max(line.get(size, 0.0), speed)


def main(argv: Sequence[str] | None = None) -> int:
    """Print the tables, or write a plot or a merged file; 2 if the file is not there."""
    about = (__doc__ or "").split("\n\n", maxsplit=1)[0]
    parser = argparse.ArgumentParser(prog="kvproto bench figures", description=about)
    parser.add_argument("--results", type=Path, default=DEFAULT, help=f"the file of results (default {DEFAULT})")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="write a plot instead (.svg or .png)")
    parser.add_argument("--merge", type=Path, nargs="+", metavar="RUN", help="make the file of these runs first")
    parser.add_argument("--json", action="store_true", help="print the results as they are")
    options = parser.parse_args(argv)
    if options.merge:
        options.results.parent.mkdir(parents=True, exist_ok=True)
        options.results.write_text(json.dumps(merge(options.merge), indent=1) + "\n")
    if not options.results.exists():
        print(f"{options.results} is not there: give --results FILE", file=sys.stderr)
        return 2
    results = json.loads(options.results.read_text())
    if options.plot:
        plot(results, options.plot)
    else:
        print(json.dumps(results) if options.json else tables(results))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

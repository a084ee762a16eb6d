"""The summary of a file of results: what README shows of it.

The tables of `kvproto bench figures` have every row; here is one line a question. Each line stands only if the runs
that it is made from are there, and says where the figure is missed as plainly as where it is met.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator
from typing import Any

from kvproto.lab.bench.goals import goals
from kvproto.lab.bench.kernel_tables import Run, kernels
from kvproto.lab.bench.pieces import curves, table
from kvproto.lab.bench.tables import WAYS, MeasuredRow, by_layer, grid, layers, markdown, route

LEAST = 64  # MiB of a room, in the table of pipelines
#: what a cell of the grid should reach of the bulk write, and from how many MiB on
GOAL, WIDE = 0.9, 256


def summary(results: dict[str, Any]) -> str:
    """Markdown, without a heading."""
    runs: list[Run] = results["runs"]
    parts = [*_goals(runs), *_kernels(_of(runs, "kernels")), *_pipelines(_of(runs, "pipeline")),
             *_pieces(_of(runs, "pipeline")), *_slices(_of(runs, "pipeline")), *_grid(_of(runs, "grid")),
             *_routes(_of(runs, "route")),
             *_transport(_of(runs, "transport")), *_pinned(_of(runs, "pinned")), *_control(_of(runs, "control")),
             *_layers(_of(runs, "layers")), *_demo(_of(runs, "demo"))]  # fmt: skip
    return "\n\n".join(parts)


def _of(runs: Iterable[Run], bench: str) -> list[Run]:
    return [run for run in runs if run["bench"] == bench]


def _goals(runs: list[Run]) -> Iterator[str]:
    if told := goals(runs):
        yield f"Goals, and what was measured:\n\n{told}"


def _machine(run: Run) -> str:
    gpus = run["machine"].get("gpus") or [run["machine"].get("gpu") or "no GPU"]
    speed = run["machine"].get("python_ns")
    turn = f", {speed:.0f} ns a turn of Python" if speed else ""
    return f"{len(gpus)} x {gpus[0]}" + (f", {run['date']}" if "date" in run else "") + turn


def _kernels(runs: list[Run]) -> Iterator[str]:
    for run in runs:
        yield f"`{run['command']}` ({_machine(run)}, torch {run['machine']['torch']}):\n\n{kernels(run['figures'])}"


def _pipelines(runs: list[Run]) -> Iterator[str]:
    """The best of each size, a line a pair."""
    rows: list[MeasuredRow] = [row for run in runs for row in run["figures"] if row["what"] in {"one", "many"}]
    rows = [row for row in rows if not row["ring"] and row["size"] >= LEAST and row["staging"] == "device"]
    sizes = sorted({row["size"] for row in rows if row["what"] == "one"})
    lines = []
    for pair in dict.fromkeys(row["pair"] for row in rows):
        ours = [row for row in rows if row["pair"] == pair]
        one = (_best(row for row in ours if row["what"] == "one" and row["size"] == size) for size in sizes)
        many = _most([row for row in ours if row["what"] == "many"])
        lines.append((pair, *one, many))
    if lines:
        head = ("ranks, GPUs", *(f"a room of {size} MiB" for size in sizes), "many rooms, the best")
        yield ("From produced to the outcome, by the ring or into mapped pages, GB/s, and the share of NIXL's own bulk "
               "write of a room's bytes in the same run:"
               f"\n\n{markdown(head, lines)}")  # fmt: skip
        yield from _alone(rows)


def _alone(rows: list[MeasuredRow]) -> Iterator[str]:
    """What a room alone takes beyond its bulk write."""
    largest = max((row["size"] for row in rows if row["what"] == "one"), default=0)
    over: dict[str, float] = {}
    for row in (row for row in rows if (row["what"], row["size"]) == ("one", largest)):
        over[row["pair"]] = min(row["ms"] - row["bulk_ms"], over.get(row["pair"], row["ms"]))
    if over:
        least, most = min(over.values()), max(over.values())
        yield (f"A room alone has nothing to hide behind: it takes {least:.2f} to {most:.2f} ms more than its bulk "
               "write (first gather, last scatter, and what the hosts do around them), whatever its size; "
               "rooms that come together pay that once.")  # fmt: skip


def _best(rows: Iterable[MeasuredRow]) -> str:
    found = max(rows, key=lambda row: row["gbs"], default=None)
    return _share(found) if found else ""


def _most(rows: list[MeasuredRow]) -> str:
    found = max(rows, key=lambda row: row["gbs"], default=None)
    return f"{found['rooms']} x {found['size']} MiB: {_share(found)}" if found else ""


def _pieces(runs: list[Run]) -> Iterator[str]:
    """Rate over chunk size, of a run that was made for it."""
    for run in (run for run in runs if "--what pieces" in run["command"]):
        for pair in dict.fromkeys(row["pair"].split(" ")[0] for row in run["figures"]):
            yield (f"GB/s of one room over the size of its chunks ({pair}; bold: what `kvproto bench suggest` takes):"
                   f"\n\n{table(curves(run['figures'], pair))}")  # fmt: skip


def _slices(runs: list[Run]) -> Iterator[str]:
    """Where one run has both routes."""
    for run in runs:
        slices = {row["size"]: row for row in run["figures"] if row["what"] == "slice"}
        staged = {row["size"]: row for row in run["figures"] if row["what"] == "one"}
        both = sorted(slices.keys() & staged.keys())
        if both:
            times = ", ".join(f"{size} MiB {slices[size]['ms'] / staged[size]['ms']:.0f}" for size in both)
            pair = slices[both[0]]["pair"]
            yield f"Without staging, in slices ({pair}), the same bytes take this many times as long: {times}."


def _grid(runs: list[Run]) -> Iterator[str]:
    """All cells, those left out as well, and how many of them are as they should be."""
    for run in runs:
        rows = [row for row in run["figures"] if row["skipped"].get("cell") != "memory"]
        found = [row for row in rows if "share" in row]
        wide = [row for row in found if row["size"] >= WIDE]
        least = sum(row["share"] >= GOAL for row in wide)
        both = [row["faster"] for row in found if "faster" in row]
        told = f"{least} of {len(wide)} cells of {WIDE} MiB and more reach {GOAL} of the bulk write"
        if both:
            told += f"; ours is {min(both):.1f} to {max(both):.0f} times as fast as descriptors"
        floors = [(row["floor_ms"] - row["bulk_ms"], row["staged_ms"] - row["floor_ms"])
                  for row in found if "floor_ms" in row]  # fmt: skip
        if floors:
            hand, ours = (statistics.median(each) for each in zip(*floors, strict=True))
            told += (f". A room by hand (floor), without any protocol, takes {hand:.2f} ms more than its bulk write, "
                     f"and {ours:.2f} ms less than through endpoints (medians)")  # fmt: skip
        yield (f"`{run['command']}` ({_machine(run)}), milliseconds, median / p95; {told}. Cells beyond the memory are "
               f"not shown.\n\n{grid(rows)}")  # fmt: skip


def _routes(runs: list[Run]) -> Iterator[str]:
    for run in runs:
        yield (f"`{run['command']}` ({_machine(run)}), ring, pages, and the choice by cost, with the share of the bulk "
               f"write:\n\n{route(run['figures'])}")  # fmt: skip


def _transport(runs: list[Run]) -> Iterator[str]:
    for run in runs:
        bulk = {(row["how"], row["size"]): row for row in run["figures"] if row["what"] == "bulk"}
        sizes = list(dict.fromkeys(size for _, size in bulk))
        rows = [(f"{size:g}", f"{bulk['ours', size]['copy_gbs']:.0f}", *(_share(bulk[how, size]) for how in WAYS))
                for size in sizes]  # fmt: skip
        head = ("MiB", "plain copy", "NIXL, polled", "NIXL with its thread", "ours")
        yield f"`{run['command']}` ({_machine(run)}), one write, GB/s and share of the copy:\n\n{markdown(head, rows)}"


def _share(row: MeasuredRow) -> str:
    share = f" ({row['ratio']:.3f})" if "ratio" in row else ""
    return f"{row['gbs']:.0f}{share}" + (", mapped" if row.get("went") == "mapped" else "")


def _pinned(runs: list[Run]) -> Iterator[str]:
    for run in runs:
        least = {size: min(row["ratio"] for row in run["figures"] if row["bytes"] >> 20 == size)
                 for size in sorted({row["bytes"] >> 20 for row in run["figures"]})}  # fmt: skip
        told = ", ".join(f"{size} MiB {ratio:.3f}" for size, ratio in least.items())
        yield f"Staging in pinned host memory, share of the plain host copy: {told}."


def _control(runs: list[Run]) -> Iterator[str]:
    for run in runs:
        found = run["figures"]
        spans = [row["produced to posted"] for row in found["rows"]]
        median, p99 = (", ".join(f"{each[name]:.0f}" for each in spans) for name in ("median", "p99"))
        rooms = ", ".join(str(row["rooms"]) for row in found["rows"])
        how = "loops that never sleep" if found["spin"] else "loops that sleep between events"
        where = "KV on GPUs" if found["cuda"] else "KV in host memory"
        speed = statistics.median(found["rooms_a_second"])
        yield (f"From produced to the write being posted, {how}, {where}, with {rooms} rooms open: {median} us "
               f"(p99 {p99}). {speed:.0f} rooms a second through one link.")  # fmt: skip


def _layers(runs: list[Run]) -> Iterator[str]:
    for run in runs:
        what = "what is left of a transfer when the forward ends, in milliseconds:"
        yield f"`{run['command']}` ({_machine(run)}), {what}\n\n{layers(run['figures'])}"


def _demo(runs: list[Run]) -> Iterator[str]:
    for run in runs:
        yield f"`{run['command']}` ({_machine(run)}): {demo(run['figures'])}"


def demo(found: MeasuredRow) -> str:
    """The way to the first continued token, and what was carried while all KV was there before."""
    if found.get("by_layer"):
        told = "KV that leaves as forwards end, and layer by layer; milliseconds, medians of rooms that went alone:"
        return f"{found['title']}; {told}\n\n{by_layer(found['by_layer'])}"
    ways = {"unsharded": found["unsharded"]}
    ways |= {each["route"].replace("_", ", "): each["first_token"] for each in found["passes"] if each["first_token"]}
    parts = {
        "prefill": "forward of the prompt", "transfer": "then: what the transfer adds", "wait": "then: D is busy",
        "token": "forward of the token", "whole": "in all",
    }  # fmt: skip
    rows = [
        (text, *(f"{1e3 * way[part]['median']:.1f} / {1e3 * way[part]['p99']:.1f}" if part in way else ""
                 for way in ways.values()))
        for part, text in parts.items()
    ]  # fmt: skip
    lines = [f"{found['title']}; milliseconds to the first continued token, median / p99 of the rooms:", "",
             markdown(("", *ways), rows)]  # fmt: skip
    ready = [f"{each['route']} {each['seconds']['transfer']:.3f} s, {each['gbs']:.2f} GB/s"
             for each in found["passes"] if each["gbs"]]  # fmt: skip
    return "\n".join([*lines, "", f"With all KV there before: {'; '.join(ready)}."] if ready else lines)

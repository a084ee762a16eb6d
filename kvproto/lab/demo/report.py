"""Report: progress bars during a run, a table at its end, and the same as one JSON object."""

from __future__ import annotations

import os
import platform
import sys
import time
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from kvproto.lab.demo.caches_job import CachesJob
from kvproto.lab.demo.conduct import DemoResult, Pass
from kvproto.lab.demo.job import GroupShape
from kvproto.lab.demo.run import Run
from kvproto.lab.demo.times import spread

ROWS = (
    ("rooms", "rooms"), ("aborted", "aborted half-way"), ("chunks", "chunks"), ("bytes", "bytes written"),
    ("writes", "staged writes"), ("pages", "parts page to page"), ("direct", "parts as whole blocks"),
    ("pieces", "pieces written"), ("deferrals", "sends deferred"),
    ("refused", "too large to stage"), ("impatient", "out of patience"), ("lapsed", "lease over"),
    ("wraps", "wraps of the ring"), ("scatters", "scatters"),
)  # fmt: skip
PHASES = ("start", "bootstrap", "warm-up", "prefill", "transfer", "continuation")
TITLES = {
    "live": "live", "live_pages": "live, pages", "staged": "ready, staged", "pages": "ready, pages",
}  # fmt: skip
PART_TEXTS = {
    "prefill": "forward of the prompt on P", "transfer": "then: what the transfer adds",
    "wait": "then: D is not free yet", "token": "forward of the token on D", "whole": "in all",
}  # fmt: skip
MOST_WRONG = 20
LINE_S = 5.0
MOST_TOLD = 1000
TOLD = ("chunks", "writes", "pages", "direct", "deferrals", "wraps", "aborted")


class ProgressBars:
    """The progress bars of a run; called with ("judged" | "computed" | "placed" | "said", how much more).

    Where standard error is a file or a pipe a line says where the run is, `LINE_S` seconds after the one before.
    """

    def __init__(self, run: Run, *, shown: bool) -> None:
        job, lost = run.job, run.aborted
        whole = [room for room in job.rooms if room.room not in lost]
        self._progress = Progress(
            TextColumn("{task.description:>22}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
            console=Console(stderr=True), disable=not shown or not sys.stderr.isatty(),
        )  # fmt: skip
        self._lines, self._told = not sys.stderr.isatty(), time.monotonic()
        chunks = sum(-(-room.tokens // job.chunk) for room in whole) if "live" in run.passes else 0
        chunks += sum((room.tokens - 1) // (2 * job.chunk) for room in job.rooms if room.room in lost)
        chunks += run.passes.count("live_pages") * sum(-(-room.tokens // job.chunk) for room in job.rooms)
        tokens = sum(room.new for room in whole) if "live" in run.passes else 0
        tokens += run.passes.count("live_pages") * sum(min(2, room.new) for room in job.rooms)
        placed = len(run.passes) * len(job.rooms) * job.decode.ranks
        self._tasks: dict[str, TaskID] = {
            "judged": self._progress.add_task("rooms unsharded", total=len(job.rooms)),
            "computed": self._progress.add_task("chunks computed by P", total=chunks),
            "placed": self._progress.add_task("rooms in D's pages", total=placed),
            "said": self._progress.add_task("tokens continued by D", total=tokens),
        }  # fmt: skip

    def __call__(self, what: str, more: int) -> None:
        self._progress.advance(self._tasks[what], more)
        if self._lines and time.monotonic() - self._told > LINE_S:
            self._told = time.monotonic()
            told = [f"{task.description} {task.completed:.0f}/{task.total:.0f}" for task in self._progress.tasks]
            print(", ".join(told), file=sys.stderr, flush=True)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._progress.stop()


def ratios(result: DemoResult) -> dict[str, float]:
    """The slice route against the staged one, same rooms, all KV ready: pieces and seconds."""
    by = {done.route: done for done in result.passes}
    if "staged" not in by or "pages" not in by:
        return {}
    staged, pages = by["staged"], by["pages"]
    return {
        "pieces": pages.counts["pieces"] / max(1, staged.counts["pieces"]),
        "seconds": pages.seconds["transfer"] / staged.seconds["transfer"],
    }


def shape(group: GroupShape) -> str:
    return f"TP{group.tp}" + (f" x PP{group.pp}" if group.pp > 1 else "")


def title(run: Run) -> str:
    job = run.job
    p, d = job.prefill, job.decode
    ring = f"{run.ring:g} chunks" if run.in_chunks else f"{run.ring:,} bytes"
    return (
        f"{job.family} {job.dtype}, {job.about}: {shape(p)} -> {shape(d)},"
        f" pages {p.page_size} -> {d.page_size}, ring {ring}, {run.transport}, {run.device}"
    )


def show(result: DemoResult) -> None:
    """The tables, what the comparison found, and the ratio of the routes, on standard output."""
    console = Console(highlight=False)
    console.print(passes(result))
    if any(done.spans.get("whole") for done in result.passes):
        console.print(first_tokens(result))
    if ratio := ratios(result):
        times, pieces = ratio["seconds"], ratio["pieces"]
        console.print(f"Page by page against staging: {times:.1f} times the time, {pieces:,.0f} times the pieces.")
    if isinstance(result.run.job, CachesJob):
        console.print(parts(result))
    found, planted = result.controlled
    for text in result.wrong[:MOST_WRONG]:
        console.print(f"WRONG: {text}", style="red", markup=False)
    if more := result.wrong[MOST_WRONG:]:
        console.print(f"... and {len(more)} more", style="red")
    if result.ok:
        told = ["KV equal bit for bit on both sides"]
        told += [f"{result.tokens} tokens and their logits equal to the unsharded model's"] if result.tokens else []
        told += [f"{result.digests:,} digests equal on both sides"] if result.digests else []
        told += [f"{found} of {planted} planted corruptions found"] if planted else []
        console.print("; ".join([*told, "nothing left over", f"{result.seconds:.1f} s."]))


def passes(result: DemoResult) -> Table:
    """Return the table of each pass: its counts, and the times of its phases."""
    table = Table(title=title(result.run), title_justify="left")
    table.add_column("")
    for done in result.passes:
        table.add_column(TITLES[done.route], justify="right")
    for name, text in ROWS:
        if any(done.counts.get(name) for done in result.passes):
            table.add_row(text, *(f"{done.counts.get(name, 0):,}" for done in result.passes))
    table.add_section()
    for phase in PHASES:
        if any(done.seconds.get(phase) for done in result.passes):
            table.add_row(phase, *(_seconds(done, phase) for done in result.passes))
    speeds = [speed(result.run, done) for done in result.passes]
    if any(speeds):
        table.add_row("GB/s", *(f"{each:.2f}" if each else "-" for each in speeds))
    return table


def parts(result: DemoResult) -> Table:
    """Return the table of all caches' parts: rows of units that were compared on D, and bytes."""
    table = Table()
    table.add_column("part of a cache")
    for head in ("rows on D", "bytes on D"):
        table.add_column(head, justify="right")
    for kind, (rows, size) in result.parts.items():
        table.add_row(kind, f"{rows:,}", f"{size:,}")
    return table


def first_tokens(result: DemoResult) -> Table:
    """The way to the first continued token, in parts, of each live pass and of the unsharded model."""
    table = Table(title="to the first continued token: milliseconds, median / p99 of the rooms", title_justify="left")
    ways = {TITLES[done.route]: spread(done.spans) for done in result.passes if done.spans.get("whole")}
    ways = {"unsharded": spread(result.unsharded), **ways}
    table.add_column("")
    for name in ways:
        table.add_column(name, justify="right")
    for part, text in PART_TEXTS.items():
        cells = [way.get(part) for way in ways.values()]
        table.add_row(text, *(f"{1e3 * x['median']:.1f} / {1e3 * x['p99']:.1f}" if x else "-" for x in cells))
    return table


def speed(run: Run, done: Pass) -> float:
    """GB/s of a pass in which all KV was there before; 0 for others."""
    return 0.0 if done.route.startswith("live") else 1e-9 * run.timed_bytes / done.seconds["transfer"]


def _seconds(done: Pass, phase: str) -> str:
    value = done.seconds.get(phase, 0.0)
    return f"{value:.3f} s" if value else "-"


def as_json(result: DemoResult) -> dict[str, Any]:
    """One object; `kvproto bench figures --add` takes it for a run like those of the benchmarks."""
    found, planted = result.controlled
    # Lists would be figures of `bench figures`, and K and V alone have nothing to tell apart.
    named = {"controls": dict(result.controls), "parts": dict(result.parts)}
    given = [argument for argument in sys.argv[1:] if argument not in {"demo", "--json"}]
    return {
        "bench": "demo", "command": " ".join(["kvproto demo", *given]),
        "machine": result.machine or {"cores": os.cpu_count(), "python": platform.python_version()},
        "ok": result.ok, "title": title(result.run), "wrong": result.wrong[:MOST_TOLD],
        "wrong_in_all": len(result.wrong), "seconds": result.seconds,
        "tokens": result.tokens, "digests": result.digests, "ratios": ratios(result),
        "controls_found": found, "controls_planted": planted,
        **(named if isinstance(result.run.job, CachesJob) else {}), "unsharded": spread(result.unsharded),
        "passes": [
            {
                "route": done.route, **done.counts, "seconds": done.seconds, "gbs": speed(result.run, done),
                "first_token": spread(done.spans),
            }
            for done in result.passes
        ],
    }  # fmt: skip


def matrix_row(name: str, result: DemoResult | str) -> str:
    if isinstance(result, str):
        return f"FAIL  {name:34} {result.splitlines()[-1]}"
    live = result.passes[0].counts
    told = ", ".join(f"{live[key]:,} {key}" for key in TOLD if live[key])
    found, planted = result.controlled
    verdict = "ok  " if result.ok else "FAIL"
    first = "" if result.ok else f"; {result.wrong[0]}"
    return f"{verdict}  {name:34} {result.seconds:5.1f} s  {told}; controls {found}/{planted}{first}"

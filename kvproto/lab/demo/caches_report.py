"""Caches report: the rows that were compared of each part, as a table and as one JSON object."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table

from kvproto.lab.demo.caches_result import CachesResult
from kvproto.lab.demo.family import FAMILIES
from kvproto.lab.demo.report import MOST_TOLD, asked_of, shape, show_wrong


def title(result: CachesResult) -> str:
    job = result.run.job
    pages = f"pages {job.prefill.page_size} -> {job.decode.page_size}"
    return f"{job.family} {job.dtype}: {shape(job.prefill)} -> {shape(job.decode)}, {pages}, {result.run.transport}"


def planted(result: CachesResult) -> tuple[int, int]:
    return sum(found for found, _ in result.controls.values()), sum(all_ for _, all_ in result.controls.values())


def as_json(result: CachesResult) -> dict[str, Any]:
    return {
        "bench": "demo", **asked_of(), "ok": result.ok, "title": title(result), "wrong": result.wrong[:MOST_TOLD],
        "wrong_in_all": len(result.wrong), "seconds": result.seconds, "tokens": result.tokens, "bytes": result.moved,
        "rooms": len(result.run.job.rooms), "parts": dict(result.parts), "controls": dict(result.controls),
    }  # fmt: skip


def show(result: CachesResult) -> None:
    """Print the table, the corruptions, and what was wrong."""
    console = Console(highlight=False)
    job = result.run.job
    console.print(f"{title(result)}\n{FAMILIES[job.family].has}; {len(job.rooms)} rooms, {result.moved:,} bytes moved")
    console.print(table(result))
    for name, (found, all_) in result.controls.items():
        console.print(f"Planted on {all_} decode ranks: {name}; found on {found}.")
    show_wrong(console, result.wrong)
    if result.ok:
        told = f"{result.tokens} tokens and their logits equal to those of the model in one process"
        console.print(f"Every byte equal on both sides; {told}; nothing left over; {result.seconds:.1f} s.")


def table(result: CachesResult) -> Table:
    """The parts of all caches: rows of units that were compared on decode ranks, and bytes."""
    made = Table()
    for head, justify in (("cache", "left"), ("part", "left"), ("rows on D", "right"), ("bytes on D", "right")):
        made.add_column(head, justify=justify)  # type: ignore[arg-type]  # a literal
    for kind, (rows, size) in result.parts.items():
        cache, _, part = kind.partition(".")
        made.add_row(cache, part, f"{rows:,}", f"{size:,}")
    return made


def matrix_row(name: str, result: CachesResult | str) -> str:
    if isinstance(result, str):
        return f"FAIL  {name:24} {result.splitlines()[-1]}"
    found, all_ = planted(result)
    verdict, first = ("ok  ", "") if result.ok else ("FAIL", f"; {result.wrong[0]}")
    told = f"{len(result.run.job.rooms)} rooms, {result.moved:,} bytes, {result.tokens} tokens"
    return f"{verdict}  {name:24} {result.seconds:5.1f} s  {told}; controls {found}/{all_}{first}"

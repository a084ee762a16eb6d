"""The kernels' results as tables in Markdown: what they reach, and what they are compared with."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from typing import Any

Run = dict[str, Any]


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
    return "\n\n".join([markdown(head, rows), *_beside(run["figures"])])


def _beside(figures: dict[str, Any]) -> Iterable[str]:
    """What the kernels are compared with: torch's strided copies, themselves with digests, SGLang's."""
    if "strips" in figures:
        strips = [(f"{row['strip']} of {row['of']}", f"{row['write_ratio']:.3f}", f"{row['read_ratio']:.3f}")
                for row in figures["strips"]]  # fmt: skip
        yield markdown(("torch's copy of strips, bytes of each row", "written, share of the copy", "read"), strips)
    if "digests" in figures:
        costly: list[Sequence[Any]] = []
        for side in ("gather", "scatter"):
            costs = [100 * row["cost"] for row in figures["digests"] if row["what"] == side]
            costly.append((side, f"{statistics.median(costs):.1f} %", f"{max(costs):.1f} %", len(costs)))
        yield markdown(("digests", "what they cost, median", "most", "rows"), costly)
    if "peer" in figures:
        yield _peer(figures["peer"])


def _peer(peer: dict[str, Any]) -> str:
    if "missing" in peer:
        return f"SGLang's staging kernels: {peer['missing']}."
    rows: list[Sequence[Any]] = []
    for side in ("gather", "scatter"):
        found = [row for row in peer["kernels"] if row["what"] == side]
        calls = [row for row in peer["calls"] if row["what"] == side]
        columns = [_span([row[name] for row in found]) for name in ("ratio", "peer_ratio", "faster")]
        spent = [_span([row[name] for row in calls], 0) for name in ("ours_us", "peer_us")]
        rows.append((side, *columns, *spent, len(found)))
    head = f"beside SGLang {peer['release']}", "ours, of the copy", "its", "ours over its"
    return markdown((*head, "us until a call returns: ours", "its", "rows"), rows)


def _span(found: Sequence[float], digits: int = 2) -> str:
    return f"{min(found):.{digits}f} to {max(found):.{digits}f}"

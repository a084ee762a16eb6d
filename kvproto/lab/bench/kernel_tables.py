"""The kernels' results as tables in Markdown: what they reach, and what they are compared with.

A rank whose pool has more heads than a share moves strips of its rows, and no copy of strips reaches what a plain copy
does: how far torch's own gets, without pages or tables, stands beside.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from typing import Any

from kvproto.lab.bench.tables import markdown

Run = dict[str, Any]
GOAL = 0.95


def kernels(figures: dict[str, Any]) -> str:
    """Shares of the copy, a line a pair; the columns "usual" have the calls that endpoints make, at the full size: a
    gather for one destination, a scatter of all writers. All rows have also single writers, several destinations and
    smaller sizes."""
    rows = []
    for (what, pair), found in _groups(figures["kernels"]).items():
        usual = [row["ratio"] for row in found if _usual(row, found)]
        least, middle, all_least = min(usual), statistics.median(usual), min(row["ratio"] for row in found)
        rows.append((what, pair, f"{least:.3f}", f"{middle:.3f}", f"{all_least:.3f}", f"{len(usual)} of {len(found)}"))
    head = "share of the copy", "ranks, heads", "usual calls, least", "median", "all rows, least", "rows"
    return "\n\n".join([markdown(head, rows), _below(figures["kernels"]), *_beside(figures)])


def usual(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The calls that endpoints make, at the full size."""
    return [row for found in _groups(rows).values() for row in found if _usual(row, found)]


def _groups(rows: Sequence[dict[str, Any]]) -> dict[tuple[str, str], list[dict[str, Any]]]:
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["what"], row["pair"]), []).append(row)
    return groups


def _usual(row: dict[str, Any], group: Sequence[dict[str, Any]]) -> bool:
    parts = 1 if row["what"] == "gather" else max(other["parts"] for other in group)
    return bool(row["parts"] == parts and row["bytes"] > 0.9 * max(other["bytes"] for other in group))


def _below(rows: Sequence[dict[str, Any]]) -> str:
    low = [
        f"{row['what']} {row['pair']}, page {row['page']}, {row['bytes'] / (1 << 20):.0f} MiB, parts {row['parts']}, "
        f"{row['row']} bytes a token and part: {row['ratio']:.3f}"
        for row in rows if row["ratio"] < GOAL
    ]  # fmt: skip
    return f"Rows below {GOAL}: " + ("; ".join(low) if low else "none") + "."


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

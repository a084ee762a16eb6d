"""What docs/traces.md shows of replayed traces: latencies before and after a change, and what fleets carry.

Runs of an earlier commit say so at the end of their command, as in `… (at 1a2b3c4)`. Rows of one way alone are of
fleets: what they are asked is how much is carried, not what prefetching gains.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from kvproto.lab.bench.kernel_tables import Run
from kvproto.lab.bench.tables import markdown
from kvproto.lab.bench.trace_report import Row, latencies

BOTH: Final = ("prefetch", "no prefetch")
#: what makes a line of the table, and what a column of it
Line = tuple[str, float, int, int]
Column = tuple[str, bool]


def replays(results: Mapping[str, Any]) -> str:
    """Markdown, without a heading."""
    runs: list[Run] = [run for run in results["runs"] if run["bench"] == "trace"]
    return "\n\n".join([*_transfers(runs), *_fleets(runs)])


def _transfers(runs: list[Run]) -> Iterator[str]:
    """p99 with prefetch and without, a line a fleet, a column for each commit and kind of pool."""
    cells: dict[Line, dict[Column, str]] = {}
    for run in runs:
        for row in run["figures"]:
            if set(BOTH) <= set(row["ways"]):
                at = row["fleet"]
                line = row["trace"], at["engines"]["speed"], at["prefill"], at["ring"]
                cells.setdefault(line, {})[_commit(run), at["closed"]] = _both(row)
    if cells:
        columns = sorted({column for found in cells.values() for column in found}, key=lambda c: (c[1], not c[0], c[0]))
        head = ["trace", "tokens/s", "prefill instances", "ring, GiB", *map(_title, columns)]
        lines = [
            [trace, f"{speed:.0f}", prefill, f"{ring / 2**30:g}", *(found.get(column, "-") for column in columns)]
            for (trace, speed, prefill, ring), found in sorted(cells.items())
        ]
        yield f"p99 of KV ready -> at decode in seconds, with prefetch / without:\n\n{markdown(head, lines)}"


def _commit(run: Run) -> str:
    """Return the commit that the command names, if it is an earlier one."""
    return str(run["command"]).partition(" (at ")[2].rstrip(")")


def _title(column: Column) -> str:
    commit, closed = column
    return f"{'closed' if closed else 'open'} pools" + (f", at {commit}" if commit else "")


def _both(row: Row) -> str:
    ways = [row["ways"][way] for way in BOTH]
    failed = [sum(way["failed"].values()) for way in ways]
    told = " / ".join(f"{way['transfer']['p99']:.4f}" if way["transfer"] else "-" for way in ways)
    return told + (f" ({failed[0]} and {failed[1]} failed)" if any(failed) else "")


def _fleets(runs: list[Run]) -> Iterator[str]:
    """What fleets carry, and what it takes to replay them."""
    lines, machines = [], dict[str, None]()
    for run in runs:
        for row in run["figures"]:
            if len(row["ways"]) == 1:
                (found,), at = row["ways"].values(), row["fleet"]
                fleet = f"{at['prefill']} x TP{at['prefill_tp']}", f"{at['decode']} x TP{at['decode_tp']}"
                carried = f"{found['well']} of {found['requests']}", f"{found['requests_a_second']:.2f}"
                lines.append([
                    *fleet, *carried, f"{found['gbs']:.1f}", latencies(found, "transfer"), latencies(found, "ttft"),
                    f"{found['seconds']:.0f}", f"{found['cpu']:.0f}",
                ])  # fmt: skip
                host = run["machine"]
                python = f"Python {host['python']}, {host['python_ns']:.0f} ns a turn of its loop"
                machines[f"`{run['command']}` (one core of {host['cores']}, {python})"] = None
    if lines:
        head = ["prefill", "decode", "went well", "requests/s", "GB/s", "KV ready -> at decode, s: p50 / p90 / p99",
                "TTFT, s: p50 / p90 / p99", "seconds simulated", "of processor time"]  # fmt: skip
        yield f"{markdown(head, lines)}\n\n" + "\n".join(f"- {machine}" for machine in machines)

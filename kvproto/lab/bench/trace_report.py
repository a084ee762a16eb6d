"""Replays of request traces as tables: one replay in full, several with a line each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Final

import msgspec

from kvproto.lab.bench.tables import markdown

TRANSFER, TTFT = "KV ready -> at decode", "TTFT"
NONE: Final = "-"
Row = Mapping[str, Any]
Amount = Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]
Speed = Annotated[float, msgspec.Meta(ge=0, le=1e15)]
Name = Annotated[str, msgspec.Meta(max_length=256)]


class WayFigures(msgspec.Struct):
    """What a table names of one replay."""

    requests: Amount
    well: Amount
    aborted: Amount
    failed: dict[Name, Amount]
    unsettled: Amount
    requests_a_second: Speed
    gbs: Speed
    parts_staged: Amount
    parts_over_pages: Amount
    deferrals: Amount
    fallbacks: Amount
    failed_writes: Amount
    messages_lost: Amount
    transfer: dict[Name, Speed]
    ttft: dict[Name, Speed]
    seconds: Speed
    cpu: Speed
    left: list[str]


class FleetOfRow(msgspec.Struct):
    """What a table names of a fleet."""

    prefill: Amount
    prefill_tp: Amount
    decode: Amount
    decode_tp: Amount
    ring: Amount
    closed: bool
    engines: dict[Name, float | int | bool]


class TraceRow(msgspec.Struct):
    """A trace that was replayed on a fleet, in some ways."""

    trace: Name
    fleet: FleetOfRow
    ways: dict[Name, WayFigures]


def told(rows: Sequence[Row]) -> str:
    """Print the ways side by side: of one fleet every figure, of several the latencies of the transfer."""
    parts = [_whole(rows[0]) if len(rows) == 1 else _several(rows)]
    for row in rows:
        parts += [f"LEFT OVER, {way}: {found['left'][0]}" for way, found in row["ways"].items() if found["left"]]
    return "\n\n".join(parts)


def short(found: Row) -> str:
    """Say the most important figures of one way in a line."""
    return f"{found['well']} of {found['requests']} well; {TRANSFER} {latencies(found, 'transfer')} s"


def latencies(found: Row, what: str) -> str:
    """Return p50 / p90 / p99 in seconds."""
    return " / ".join(f"{found[what][part]:.4f}" for part in ("p50", "p90", "p99")) if found[what] else NONE


def ratio(row: Row, part: str) -> str:
    """Return the transfer's percentile with prefetch over that without."""
    with_, without = (row["ways"].get(way, {}).get("transfer") for way in ("prefetch", "no prefetch"))
    return f"{with_[part] / without[part]:.2f}" if with_ and without and without[part] else NONE


def _several(rows: Sequence[Row]) -> str:
    ways = list(dict.fromkeys(way for row in rows for way in row["ways"]))
    cells = []
    for row in rows:
        at, failed = row["fleet"], sum(sum(found["failed"].values()) for found in row["ways"].values())
        cells.append([
            row["trace"], _fleet(at), f"{at['engines']['speed']:.0f}", f"{at['ring'] / 2**30:g}",
            *(latencies(row["ways"][way], "transfer") if way in row["ways"] else NONE for way in ways),
            ratio(row, "p50"), ratio(row, "p99"), str(failed),
        ])  # fmt: skip
    head = ["trace", "fleet", "tokens/s", "ring, GiB", *ways, "p50 with over without", "p99", "failed"]
    return f"{TRANSFER}, s: p50 / p90 / p99\n\n{markdown(head, cells)}"


def _fleet(at: Row) -> str:
    pools = ", closed" if at["closed"] else ""
    return f"{at['prefill']} x TP{at['prefill_tp']} -> {at['decode']} x TP{at['decode_tp']}{pools}"


def _whole(row: Row) -> str:
    ways = row["ways"]
    lines: list[tuple[str, Callable[[Row], Any]]] = [
        ("requests that went well", lambda at: f"{at['well']} of {at['requests']}"),
        ("aborted by their client", lambda at: at["aborted"]),
        ("failed", lambda at: ", ".join(f"{count} {cause}" for cause, count in at["failed"].items()) or 0),
        ("not over when time was up", lambda at: at["unsettled"]),
        ("requests/s, GB/s", lambda at: f"{at['requests_a_second']:.3f}, {at['gbs']:.2f}"),
        ("parts staged, over pages", lambda at: f"{at['parts_staged']}, {at['parts_over_pages']}"),
        ("deferrals, fallbacks", lambda at: f"{at['deferrals']}, {at['fallbacks']}"),
        ("writes that failed, messages lost", lambda at: f"{at['failed_writes']}, {at['messages_lost']}"),
        (f"{TRANSFER}, s: p50 / p90 / p99", lambda at: latencies(at, "transfer")),
        ("longest", lambda at: f"{at['transfer'].get('max', 0):.4f}"),
        (f"{TTFT}, s: p50 / p90 / p99", lambda at: latencies(at, "ttft")),
        ("seconds simulated, of processor time", lambda at: f"{at['seconds']:.0f}, {at['cpu']:.0f}"),
    ]
    cells = [[what, *(tell(found) for found in ways.values())] for what, tell in lines]
    head = f"{row['trace']}: {_fleet(row['fleet'])}"
    with_over = f"p50 with prefetch over without: {ratio(row, 'p50')}; p99: {ratio(row, 'p99')}"
    return f"{head}\n\n{markdown(['', *ways], cells)}\n\n{with_over}"

"""Each goal beside what was measured, and beside the floor that was measured in the same run.

A floor is what the same bytes take by hand, with the same kernels and the same transport and nothing of a protocol
around them (`kvproto.lab.bench.bare`), or what something that is not ours takes in the place of ours: what is missed
above it is the protocol's, what is missed below it is not to be had in this form.  A line stands only if the runs that
it is made from are there; of several measurements the worst decides whether the goal is met.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from kvproto.lab.bench.kernel_tables import Run
from kvproto.lab.bench.tables import MeasuredRow, markdown, workers

#: MiB of a room alone, and what it should reach of its bulk write
ALONE = ((64, 0.6), (256, 0.85), (1024, 0.85))
#: what rooms that come together should reach of it, and cells of the grid of so many MiB
TOGETHER, CELL, WIDE = 0.9, 0.9, 256
#: milliseconds: what may be left after a forward beyond the last group's bulk write
LEFT = 0.3
#: microseconds at 64 rooms (median, p99, p99.9), and rooms a second
LATENCY, ROOMS = (40, 100, 400), 10_000
#: GB/s through pinned memory; share of a copy; microseconds an event, and of an event that is followed
PINNED, COPY, EVENT, FOLLOWED = 20, 0.95, 2.0, 0.2


class Goal(NamedTuple):
    """A line of the table."""

    what: str
    figure: str
    floor: str
    met: bool
    command: str


def goals(runs: Iterable[Run]) -> str:
    """A table in Markdown; empty if no run has anything to do with a goal."""
    found = [goal for run in runs for goal in MAKERS.get(run["bench"], _none)(run["figures"], run["command"])]
    lines = [(each.what, each.figure, each.floor, "yes" if each.met else "**no**", f"`{each.command}`")
             for each in found]  # fmt: skip
    return markdown(("goal", "measured", "floor, in the same run", "met", "command"), lines) if lines else ""


def _none(_figures: Any, _command: str) -> Iterator[Goal]:
    yield from ()


def _listed(parts: Iterable[tuple[str, str]]) -> str:
    return ", ".join(f"{name} {figure}" for name, figure in parts)


def _pipeline(rows: list[MeasuredRow], command: str) -> Iterator[Goal]:
    rows = [row for row in rows if "ratio" in row]
    ready = [row for row in rows if not row["ring"] and row.get("staging", "device") == "device"]
    for size, wanted in ALONE:
        best = _best(row for row in ready if row["rooms"] == 1 and row["size"] == size and "bare_ms" in row)
        if best:
            yield Goal(
                f"a room of {size} MiB alone: {wanted:g} of its bulk write",
                _listed((_pair(row), f"{row['ratio']:.2f} ({row.get('went', 'staged')})") for row in best),
                _listed((_pair(row), f"{row['bulk_ms'] / row['bare_ms']:.2f}") for row in best),
                all(row["ratio"] >= wanted for row in best), command,
            )  # fmt: skip
    for size in sorted({row["size"] for row in ready if row["what"] == "many"}):
        best = _best(row for row in ready if row["what"] == "many" and row["size"] == size)
        told = _listed((f"{_pair(row)}", f"{row['ratio']:.2f} ({row['gbs']:.0f} GB/s)") for row in best)
        met = all(row["ratio"] >= TOGETHER for row in best)
        yield Goal(f"rooms of {size} MiB together: {TOGETHER:g} of bulk writes", told, "the bulk write", met, command)
    pinned = [row for row in rows if row.get("staging") == "pinned" and row["rooms"] > 1]
    if pinned:
        most = {(_pair(row), workers(row)): row for row in sorted(pinned, key=lambda row: float(row["gbs"]))}
        writes = {workers(row): row["bulk_gbs"] for row in sorted(pinned, key=lambda row: float(row["bulk_gbs"]))}
        yield Goal(
            f"staging in pinned memory, between processes of one host: {PINNED} GB/s",
            _listed((f"{pair} by {who}", f"{most[pair, who]['gbs']:.1f}") for pair, who in sorted(most)),
            _listed((f"one write by {who}", f"{writes[who]:.1f}") for who in sorted(writes)),
            all(row["gbs"] >= PINNED for row in {pair: row for (pair, _), row in most.items()}.values()), command,
        )  # fmt: skip


def _pair(row: MeasuredRow) -> str:
    return str(row["pair"]).partition(" ")[0]


def _best(rows: Iterable[MeasuredRow]) -> list[MeasuredRow]:
    """Of each pair of ranks the form that reaches most."""
    best: dict[str, MeasuredRow] = {}
    for row in rows:
        if row["ratio"] > best.get(row["pair"], {"ratio": 0.0})["ratio"]:
            best[row["pair"]] = row
    return list(best.values())


def _grid(rows: list[MeasuredRow], command: str) -> Iterator[Goal]:
    wide = [row for row in rows if row["size"] >= WIDE and "share" in row]
    if not wide:
        return
    reached = [row for row in wide if row["share"] >= CELL]
    least = min(wide, key=lambda row: float(row["share"]))
    floors = [row["bulk_ms"] / row["floor_ms"] for row in wide if "floor_ms" in row]
    below = [row for row in wide if row.get("floor_ms", 0.0) * CELL > row["bulk_ms"]]
    yield Goal(
        f"the grid: {CELL:g} of bulk in each cell of {WIDE} MiB and more",
        f"{len(reached)} of {len(wide)} cells; least {least['share']:.2f} ({_pair(least)}, {least['size']:g} MiB)",
        f"one room {min(floors):.2f} to {max(floors):.2f}; {len(below)} cells cannot" if floors else "",
        len(reached) == len(wide), command,
    )  # fmt: skip
    faster = [row["faster"] for row in rows if "faster" in row]
    if faster:
        told = f"{min(faster):.1f} to {max(faster):.0f} times as fast, {len(faster)} cells"
        yield Goal("the grid: never below descriptors", told, "the descriptors", min(faster) >= 1, command)


def _layers(rows: list[MeasuredRow], command: str) -> Iterator[Goal]:
    best: dict[int, MeasuredRow] = {}
    for row in rows:
        if row["groups"] > 1 and row["after_ms"] < best.get(row["tokens"], {"after_ms": 1e9})["after_ms"]:
            best[row["tokens"]] = row
    if best:
        over = [(row, row["after_ms"] - row["last_ms"]) for row in best.values()]
        yield Goal(
            f"after a forward: the last layer group's bulk write and {LEFT} ms",
            _listed((f"{row['tokens']} tokens, {row['groups']} groups, {row['way']}", f"+{excess:.2f} ms")
                    for row, excess in over),
            _listed((f"{row['tokens']}", f"+{row['floor_ms'] - row['last_ms']:.2f} ms") for row, _ in over),
            all(excess <= LEFT for _, excess in over), command,
        )  # fmt: skip


def _control(found: MeasuredRow, command: str) -> Iterator[Goal]:
    row = {row["rooms"]: row for row in found["rows"]}[64]
    alone = row.get("produced to posted, without the gather")
    if alone:
        told = [alone[name] for name in ("median", "p99", "p999")]
        yield Goal(
            f"produced to posted, 64 rooms, without the gather: {' / '.join(map(str, LATENCY))} us, p50 / p99 / p99.9",
            " / ".join(f"{each:.0f}" for each in told),
            f"the transport's own post {row['posting to posted']['median']:.0f}" if "posting to posted" in row else "",
            all(each <= most for each, most in zip(told, LATENCY, strict=True)), command,
        )  # fmt: skip
    calls = _listed((side, f"{each['room']:.0f}") for side, each in found.get("calls", {}).items())
    speed = statistics.median(found["rooms_a_second"])
    by_hand = found.get("rooms_a_second_by_hand")
    floor = f"by hand {statistics.median(by_hand):.0f}" if by_hand else f"Python calls a room: {calls}" if calls else ""
    yield Goal(f"rooms a second through one link: {ROOMS}", f"{speed:.0f}", floor, speed >= ROOMS, command)


def _kernels(found: MeasuredRow, command: str) -> Iterator[Goal]:
    strips = {(row["strip"], row["of"]): row for row in found.get("strips", [])}
    rows = found["kernels"]
    narrow = [row for row in rows if (row["what"], row["row"], row["parts"]) == ("scatter", 128, 1)]
    if narrow and (128, 1024) in strips:
        least = min(row["ratio"] for row in narrow)
        floor = f"torch's copy of such strips {strips[128, 1024]['write_ratio']:.2f}"
        yield Goal(f"scatter of fp8 by one writer: {COPY:g} of the copy", f"{least:.2f}", floor, least >= COPY, command)
    small = [row for row in rows if row["bytes"] <= 17 << 20]
    if small and all("copy_gbs" in row for row in small):
        least = min(row["ratio"] for row in small)
        more = max(2e-3 * row["bytes"] * (1 / row["kernel_gbs"] - 1 / row["copy_gbs"]) for row in small)
        floor = f"{more:.1f} us more than the copy, of any size"
        yield Goal(f"kernels on 16 MiB: {COPY:g} of the copy", f"{least:.2f}", floor, least >= COPY, command)


def _step(found: MeasuredRow, command: str) -> Iterator[Goal]:
    best, median = found["us_per_event_best"], found["us_per_event"]
    told = f"{median:.2f}, best block {best:.2f}"
    yield Goal(f"an event through the full typed path: {EVENT:g} us", told, "", median <= EVENT, command)


def _conformance(found: MeasuredRow, command: str) -> Iterator[Goal]:
    pays = found["rank_pays"]
    floor = f"the judge, behind it, {found['judge']:.1f}"
    yield Goal(f"an event of a rank that is followed: {FOLLOWED:g} us more", f"{pays:.2f}", floor, pays <= FOLLOWED,
               command)  # fmt: skip


MAKERS: dict[str, Callable[[Any, str], Iterator[Goal]]] = {
    "kernels": _kernels, "pipeline": _pipeline, "grid": _grid, "layers": _layers, "control": _control, "step": _step,
    "conformance": _conformance,
}  # fmt: skip

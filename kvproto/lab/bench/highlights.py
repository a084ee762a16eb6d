"""The summary's summary: one line a question, for README. What is missed is told like what is met."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator
from typing import Any

from kvproto.lab.bench.kernel_tables import Run, usual
from kvproto.lab.bench.tables import MeasuredRow, markdown

Line = tuple[str, str]


def highlights(results: dict[str, Any]) -> str:
    """A table in Markdown; a line stands only if the runs that it is made from are there."""
    runs: list[Run] = results["runs"]
    lines = [*_kernels(_rows(runs, "kernels")), *_pipeline(_rows(runs, "pipeline")), *_control(_rows(runs, "control")),
             *_demo(_rows(runs, "demo"))]  # fmt: skip
    return markdown(("what", "measured"), lines)


def _rows(runs: Iterable[Run], bench: str) -> list[Any]:
    found: list[Any] = []
    for run in runs:
        if run["bench"] == bench:
            found += run["figures"] if isinstance(run["figures"], list) else [run["figures"]]
    return found


def _kernels(found: list[MeasuredRow]) -> Iterator[Line]:
    for run in found:
        ratios = sorted(row["ratio"] for row in usual(run["kernels"]))
        theirs = run.get("peer", {}).get("kernels", [])
        told = f"{ratios[0]:.2f} to {ratios[-1]:.2f} of a copy on the device"
        if theirs:
            peers = sorted(row["peer_ratio"] for row in theirs)
            told += f" (SGLang's in the same run: {peers[0]:.2f} to {peers[-1]:.2f})"
        yield "gather and scatter kernels, 512 MiB, pages at random", told
        if "host" in run:
            most = max(row["median_us"] for row in run["host"])
            yield "host time of a launch", f"{most:.0f} us at most (median)"


def _pipeline(found: list[MeasuredRow]) -> Iterator[Line]:
    """Of each pair of ranks, and by the ring or into mapped pages, the best of many rooms, and of one."""
    best: dict[tuple[str, str, int], float] = {}
    for row in found:
        if "ratio" in row and not row["ring"] and row["staging"] == "device":
            way = " mapped" if row.get("went") == "mapped" else ""
            key = row["what"], row["pair"].split(" ")[0] + way, row["size"]
            best[key] = max(row["ratio"], best.get(key, 0.0))
    largest = max((size for _, _, size in best), default=0)
    for what, text in (("many", "several rooms of"), ("one", "one room alone, of")):
        shares = {pair: share for (kind, pair, size), share in best.items() if (kind, size) == (what, largest)}
        if shares:
            told = ", ".join(f"{pair} {share:.2f}" for pair, share in shares.items())
            yield f"{text} {largest} MiB, share of NIXL's bulk write", told
    slices = {row["size"]: row["ms"] for row in found if row["what"] == "slice"}
    staged = {row["size"]: row["ms"] for row in found if row["what"] == "one" and row["pair"].startswith("1->2 on 2")
              and row["staging"] == "device" and row.get("went", "staged") == "staged"}  # fmt: skip
    times = [f"{size} MiB {slices[size] / staged[size]:.0f} x" for size in sorted(slices.keys() & staged.keys())]
    if times:
        yield "the same bytes page by page, times the time", ", ".join(times)


def _control(found: list[MeasuredRow]) -> Iterator[Line]:
    for run in (run for run in found if run["cuda"] and run["spin"]):
        rooms = {row["rooms"]: row for row in run["rows"]}[64]
        alone = rooms.get("produced to posted, without the gather")
        posted, but = (alone, ", without the gather") if alone else (rooms["produced to posted"], "")
        speed = statistics.median(run["rooms_a_second"])
        yield (f"KV produced until its write is posted{but}, 64 rooms open",
               f"{posted['median']:.0f} us, p99 {posted['p99']:.0f} us (goal 40 and 100)")  # fmt: skip
        by_hand = run.get("rooms_a_second_by_hand")
        told = f", by hand {statistics.median(by_hand):.0f}" if by_hand else ""
        yield "rooms a second through one link, hardly any KV", f"{speed:.0f}, bounded by the two loops' Python{told}"


def _demo(found: list[MeasuredRow]) -> Iterator[Line]:
    for run in [each for each in found if not each.get("by_layer")]:
        added = {each["route"]: each["first_token"]["transfer"] for each in run["passes"] if each["first_token"]}
        told = ", ".join(f"{name.replace('live_', '')} {1e3 * each['median']:.1f} ms, p99 {1e3 * each['p99']:.1f} ms"
                         for name, each in added.items()).replace("live", "staged", 1)  # fmt: skip
        model = run["title"].partition(", pages")[0]
        yield f"`kvproto demo --device cuda`, {model}: what the transfer adds to the first token", told

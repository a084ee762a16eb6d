"""What was measured, as tables in Markdown: a terminal shows them as they are, documents and notes take them over.

A benchmark prints at its end what `kvproto bench figures` makes of its file later. Bytes that were wrong are shouted
below a table, row by row.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tabulate import tabulate

MeasuredRow = Mapping[str, Any]
WAYS = ("polled", "thread", "ours")
ROUTES = ("staged", "pages", "cost")


def markdown(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """The cells as they are: a figure that wants its digits cut comes as text."""
    table: str = tabulate(rows, head, tablefmt="github", disable_numparse=True)
    return table


def measured(rows: Sequence[MeasuredRow]) -> str:
    """Every row as it was measured, a column a name; what is no single figure is left to the file."""
    flat = [{name: each for name, each in row.items() if not isinstance(each, dict | list)} for row in rows]
    table: str = tabulate(flat, headers="keys", tablefmt="github", floatfmt=".4g")
    return table + wrong(rows)


def wrong(rows: Iterable[MeasuredRow]) -> str:
    """A line for each row whose bytes were wrong."""
    return "".join(f"\nWRONG: {row}" for row in rows if not row.get("right", True))


def pipeline(rows: Sequence[MeasuredRow]) -> str:
    cells = []
    for row in rows:
        bulk = (f"{row['bulk_gbs']:.0f}", f"{row['ratio']:.3f}") if "ratio" in row else ("", "")
        speed = f"{row['gbs']:.1f}" + (f" ({row['gbs'] / row['links']:.0f} a link)" if row["links"] > 1 else "")
        form = (row["chunk"], row["slots"], row["ring"] or "")
        if row["what"] == "slice":
            speed, form = f"{row['gbs']:.2f}", ("", "", "")
        floor = f"{row['bare_ms']:.3f}" if "bare_ms" in row else ""
        cells.append((row["pair"], case(row), row["size"], *form, bulk[0], row.get("went", ""), speed, bulk[1],
                      f"{row['ms']:.3f}", floor, row["pieces"]))  # fmt: skip
    head = ("ranks", "what", "MiB", "chunk", "slots", "ring", "bulk GB/s", "by", "GB/s", "share", "ms", "by hand",
            "writes or pieces")  # fmt: skip
    return markdown(head, cells) + wrong(rows)


def workers(row: MeasuredRow) -> str:
    """Who carries a write from host memory to host memory."""
    if not row["workers"]:
        return "copy engine" if row.get("maps") else "one thread"
    return f"{row['workers']} workers" + (", mapped" if row.get("maps") else "")


def case(row: MeasuredRow) -> str:
    """What a row of a pipeline moves."""
    if row["what"] == "slice":
        return "slices, " + (f"at most {row['max_descs']} a write" if row["max_descs"] else "as endpoints do it")
    pinned = f", pinned, {workers(row)}" if row.get("staging") == "pinned" and "workers" in row else ""
    return ("one room" if row["rooms"] == 1 else f"{row['rooms']} rooms") + pinned


def route(rows: Sequence[MeasuredRow]) -> str:
    """Ring, pages, and the choice; `--simulate` has no more than estimates."""
    if any("profile" in row for row in rows):
        return measured(rows)
    cells = [
        (row["pair"], row["size"], row["pages"], f"{row['bulk_ms']:.3f}",
         *(f"{row[f'{way}_ms']:.3f} ({row[f'{way}_share']:.3f})" for way in ROUTES), row["pieces"], row["chosen"],
         f"{100 * row['loss']:.0f} %", f"{row['staged_estimate_ms']:.3g} / {row['pages_estimate_ms']:.3g}")
        for row in rows
    ]  # fmt: skip
    head = ("ranks", "MiB", "pages", "bulk ms", "staged ms (share)", "pages ms (share)", "cost ms (share)", "pieces",
            "chosen", "loss", "estimates, ms")  # fmt: skip
    return markdown(head, cells) + wrong(rows)


def grid(rows: Sequence[MeasuredRow]) -> str:
    """Milliseconds, median / p95; what was left out is named in its place."""
    cells = []
    for row in rows:
        head = row["pair"], row["page"], f"{row['batch']} x {row['tokens'] >> 10}k", row["size"]
        if "share" not in row:
            cells.append((*head, row["skipped"]["cell"], "", "", "", "", "", ""))
            continue
        slow = row["skipped"].get("descriptors") or _spread(row, "descriptors")
        floor = f"{row['floor_ms']:.3f}" if "floor_ms" in row else ""
        faster = f"{row['faster']:.1f}" if "faster" in row else ""
        ours = row.get("went", "staged"), _spread(row, "staged"), f"{row['share']:.3f}"
        cells.append((*head, _spread(row, "bulk"), floor, *ours, slow, faster))
    names = ("ranks", "page", "prompts", "MiB", "bulk", "floor", "by", "ours", "share of bulk", "descriptors",
             "times as fast")  # fmt: skip
    return markdown(names, cells) + wrong(rows)


def _spread(row: MeasuredRow, name: str) -> str:
    return f"{row[f'{name}_ms']:.3f} / {row[f'{name}_p95_ms']:.3f}"


def pinned(rows: Sequence[MeasuredRow]) -> str:
    cells = [(row["what"], row["bytes"] >> 20, row["pieces"], f"{row['copy_gbs']:.1f}", f"{row['staged_gbs']:.1f}",
              f"{row['direct_gbs']:.1f}", f"{row['ratio']:.3f}") for row in rows]  # fmt: skip
    head = ("kernel", "MiB", "chunks", "host copy GB/s", "staged", "by the kernel alone", "share")
    return markdown(head, cells) + wrong(rows)


def layers(rows: Sequence[MeasuredRow]) -> str:
    """What is left when a forward ends, by its layer groups."""
    times = "after_ms", "floor_ms", "last_ms"
    cells = [(row["way"], row["tokens"], row["bytes"] >> 20, row["groups"], f"{row['bulk_ms']:.3f}",
              *(f"{row[name]:.3f}" for name in times), f"{row['after_ms'] - row['last_ms']:.3f}",
              f"{row['total_ms']:.2f}") for row in rows]  # fmt: skip
    head = ("way", "tokens", "MiB", "groups", "bulk, ms", "after the forward", "last group by hand", "its bulk",
            "excess", "in all")  # fmt: skip
    return markdown(head, cells) + wrong(rows)


def by_layer(rows: Sequence[MeasuredRow]) -> str:
    """First tokens with KV that leaves as forwards end, and layer by layer (`kvproto demo --by-layer`)."""
    pairs = [(part, way) for part in ("prefill", "transfer", "whole") for way in ("without", "by_layer")]
    cells = [
        (row["tokens"], f"{row['groups']}{'' if row['asked'] else ', by cost'}",
         *(f"{1e3 * row[way][part]:.1f}" for part, way in pairs), f"{row['gain']:+.1%}")
        for row in rows
    ]  # fmt: skip
    head = ("tokens", "groups", "forward, ms", "by layer", "transfer adds", "by layer", "first continued token",
            "by layer", "gain")  # fmt: skip
    return markdown(head, cells)


def latencies(rows: Sequence[MeasuredRow]) -> str:
    """Microseconds, median / p99."""
    names = [name for name in rows[0] if " to " in name]
    cells = [(row["rooms"], *(f"{row[name]['median']:.0f} / {row[name]['p99']:.0f}" for name in names))
             for row in rows]  # fmt: skip
    return markdown(("rooms", *names), cells)


def control(found: MeasuredRow) -> str:
    how = "loops that never sleep" if found["spin"] else "loops that sleep between events"
    where = "KV on GPUs" if found["cuda"] else "KV in host memory"
    speed = statistics.median(found["rooms_a_second"])
    keyed = found.get("rooms_a_second_with_keys")
    ratio = f", {statistics.median(keyed):.0f} with keys ({statistics.median(keyed) / speed:.2f})" if keyed else ""
    bare = found.get("rooms_a_second_by_hand")
    by_hand = f", {statistics.median(bare):.0f} by hand" if bare else ""
    idle = " and ".join(f"{100 * share:.2f} %" for share in found["idle"])
    alone = {row["rooms"]: row for row in found["rows"]}[64].get("produced to posted, without the gather")
    reached = "not measured"
    if alone:
        reached = " / ".join(f"{alone[name]:.0f}" for name in ("median", "p99", "p999")) + " us"
    calls = ", ".join(f"{side} {n['room']:.0f} and {n['chunk']:.0f}" for side, n in found.get("calls", {}).items())
    return (
        f"{how}, {where}, a room every {found['pace_ms']:g} ms; microseconds, median / p99:\n\n"
        + latencies(found["rows"])
        + f"\n\nproduced to posted, without the gather, 64 rooms, median / p99 / p99.9: {reached}"
        + " (goal 40 / 100 / 400);"
        + f"\n{speed:.0f} rooms a second through one link (goal 10000){ratio}{by_hand};"
        + f" idle loops take {idle} of a core;"
        + f"\nPython calls a room and a further chunk: {calls or 'not counted'}."
        + ("" if found["right"] else "\nWRONG: the decode pool is not what the prefill pool is")
    )


def transport(rows: Sequence[MeasuredRow]) -> str:
    bulk, tags = ({(row["how"], row["size"]): row for row in rows if row["what"] == what} for what in ("bulk", "tag"))
    names = dict(zip(WAYS, ("NIXL polled", "with its thread", "ours"), strict=True))
    ways = {how: name for how, name in names.items() if any(key[0] == how for key in tags)}
    writes = [(f"{size:g}", f"{bulk['ours', size]['copy_gbs']:.1f}",
               *(f"{bulk[how, size]['gbs']:.1f} ({bulk[how, size]['ratio']:.3f})" for how in ways))
              for size in dict.fromkeys(size for _, size in bulk)]  # fmt: skip
    told = [(f"{size:.4g}", *(f"{tags[how, size]['told_us']:.0f} / {tags[how, size]['over_us']:.0f}" for how in ways))
            for size in dict.fromkeys(size for _, size in tags)]  # fmt: skip
    pieces = [(f"{row['size']:g}", row["pieces"], f"{row['ms']:.3f}", f"{row['gbs']:.2f}")
              for row in rows if row["what"] == "pieces"]  # fmt: skip
    return "\n\n".join([
        "One write, GB/s and share of the copy:", markdown(("MiB", "copy", *ways.values()), writes),
        "A tag, microseconds until the target has it / until its sender knows of the end:",
        markdown(("MiB", *ways.values()), told),
        "One write of many pieces:", markdown(("MiB", "pieces", "ms", "GB/s"), pieces),
    ]) + wrong(rows)  # fmt: skip


def churn(found: dict[str, Any]) -> str:
    """What instances cost that have ended without a word, and what is left of those that were let go of."""
    names = {"D": "decode", "P": "prefill"}
    dead = [
        (names[row["side"]], row["departed"], f"{row['pass_us']:.1f}", f"{row['mean_us']:.1f}", f"{row['p99_us']:.1f}",
         f"{100 * row['idle_share']:.2f} %", f"{row['rss_mib']:.1f}", f"{row['grown_kib_s']:.1f}")
        for row in found["departed"]
    ]  # fmt: skip
    gone = [
        (names[row["side"]], row["instances"], f"{row['seconds']:.0f}",
         *(f"{row[when]['rss_mib']:.1f}" if when in row else "-" for when in ("before", "halfway", "after")),
         f"{row['after']['descriptors'] - row['before']['descriptors']:+.0f}",
         ", ".join(f"{name} {count:+d}" for name, count in row["left"].items()) or "nothing")
        for row in found["come_and_gone"]
    ]  # fmt: skip
    head = ["side", "departed", "pass us", "mean us", "p99 us", "processor at rest", "MiB", "KiB/s at rest"]
    tail = ["side", "come and gone", "s", "MiB before", "halfway", "after", "descriptors", "left in books"]
    return "\n\n".join([markdown(head, dead)] + [markdown(tail, gone)] * bool(gone))

"""GpuRows: SGLang on GPUs, each scenario carried by kvproto and by SGLang's own NIXL backend.

With a pair stand its GPUs, where they were noted: those of prefill → those of decode, one for each rank, and of how
many.
"""

from __future__ import annotations

from typing import Any

from examples.engine_runs.seen import seen

HEAD = (
    "pair", "carried by", "scenario", "answers of the whole model", "digests compared, differ",
    "ms from the last KV to its being taken over: median, longest", "to decode's first step",
    "ms to a first token: median, longest", "as it must be", "seen",
)  # fmt: skip
CARRIERS = {"kvproto": "kvproto, with digests", "plain": "kvproto", "nixl": "SGLang's own (NIXL)"}
#: rows that are about a whole run
WHOLE = ("counts", "digests")


def cells(rows: list[dict[str, Any]]) -> list[tuple[str, ...]]:
    """Return the table's rows, those of one pair and scenario together."""
    compared = {(row["pair"], row["backend"]): row for row in rows if row["scenario"] == "digests"}
    gpus = {row["pair"]: f" (GPU {row['gpus']})" for row in rows if "gpus" in row}
    order = {name: at for at, name in enumerate(dict.fromkeys((row["pair"], row["scenario"]) for row in rows))}
    shown = sorted(rows, key=lambda row: (order[row["pair"], row["scenario"]], list(CARRIERS).index(row["backend"])))
    return [
        (
            row["pair"].replace(":", " → ", 1) + gpus.get(row["pair"], ""), CARRIERS[row["backend"]], row["scenario"],
            row.get("tokens", "-").replace("/", " of "), _digests(compared.get((row["pair"], row["backend"]))),
            *[", ".join(f"{number:.1f}" for number in row.get(name) or ()) or "-"
              for name in ("lag_ms", "step_ms", "ttft_ms")],
            "yes" if row["good"] else f"**no**: {'; '.join(row.get('errors', [])) or 'other tokens'}", seen(row),
        )
        for row in shown
        if row["scenario"] not in WHOLE
    ]  # fmt: skip


def _digests(row: dict[str, Any] | None) -> str:
    return "-" if row is None else f"{row['compared']:,}, {row['differ']}"

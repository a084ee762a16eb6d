"""Turns report: what the way back has saved, as a table and as one JSON object."""

from __future__ import annotations

import statistics
from typing import Any

from rich.console import Console
from rich.table import Table

from kvproto.lab.demo.report import MOST_TOLD, asked_of, show_wrong, title
from kvproto.lab.demo.turns_conduct import TurnsResult


def rows(result: TurnsResult) -> list[dict[str, Any]]:
    """Return each turn's tokens over all conversations, and the medians of its times in seconds."""
    talks, found = result.talks, list[dict[str, Any]]()
    for turn in range(max(map(len, talks.turns.values()))):
        these = {room: turns[turn] for room, turns in talks.turns.items()}
        back = {room: result.times[room, turn - 1] for room in these} if turn else {}
        own = sum(talks.turns[room][turn - 1].tokens for room in back)
        found.append({
            "turn": turn + 1, "prompt": sum(this.tokens for this in these.values()), "own": own,
            "back": sum(this.held for this in these.values()) - own,
            "computed": sum(this.input for this in these.values()),
            "prefill_s": statistics.median(result.times[room, turn].prefill for room in these),
            "back_s": statistics.median(each.back for each in back.values()) if back else 0.0,
            "recomputed_s": statistics.median(each.recomputed for each in back.values()) if back else 0.0,
        })  # fmt: skip
    return found


def saving(result: TurnsResult) -> dict[str, Any]:
    """Return the tokens that P did not compute again, the bytes that came instead, and both ways' seconds."""
    times = [result.times[room, turn] for room, turns in result.talks.turns.items() for turn in range(len(turns) - 1)]
    return {
        "tokens": sum(row["back"] for row in rows(result)), "bytes": result.back,
        "back_s": sum(each.back for each in times), "recomputed_s": sum(each.recomputed for each in times),
    }  # fmt: skip


def as_json(result: TurnsResult) -> dict[str, Any]:
    return {
        "bench": "demo", **asked_of(), "ok": result.ok, "title": title(result.talks.run),
        "wrong": result.wrong[:MOST_TOLD], "wrong_in_all": len(result.wrong), "seconds": result.seconds,
        "tokens": result.tokens, "conversations": len(result.talks.turns), "turns": rows(result),
        "saving": saving(result),
    }  # fmt: skip


def show(result: TurnsResult) -> None:
    """Print the table, what was saved, and what was wrong."""
    console, saved = Console(highlight=False), saving(result)
    console.print(table(result))
    console.print(
        f"Saved: {saved['tokens']:,} tokens that P did not compute again, by {saved['bytes']:,} bytes from D;"
        f" {1e3 * saved['back_s']:.1f} ms of ways back instead of {1e3 * saved['recomputed_s']:.1f} ms of forwards."
    )
    show_wrong(console, result.wrong)
    if result.ok:
        told = f"{result.tokens} tokens and their logits equal to the unsharded model's"
        console.print(f"KV equal bit for bit on both sides; {told}; nothing left over; {result.seconds:.1f} s.")


def table(result: TurnsResult) -> Table:
    """The turns: tokens of all conversations, and medians of the times."""
    made = Table(title=f"{title(result.talks.run)}, {len(result.talks.turns)} conversations", title_justify="left")
    heads = "turn", "prompts", "on P", "back", "computed", "forward ms", "way back ms", "instead ms"
    for head in heads:
        made.add_column(head, justify="right")
    for row in rows(result):
        times = (f"{1e3 * row[name]:.1f}" if row[name] else "-" for name in ("prefill_s", "back_s", "recomputed_s"))
        tokens = (f"{row[name]:,}" for name in ("prompt", "own", "back", "computed"))
        made.add_row(str(row["turn"]), *tokens, *times)
    return made

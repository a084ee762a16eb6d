"""Report: a run for people: a line while it goes on, and a page at the end."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from kvproto.lab.torture.conduct import Torture
from kvproto.lab.torture.plan import TorturePlan
from kvproto.lab.torture.result import SoakResult, TakeoverResult, TortureResult

if TYPE_CHECKING:
    from kvproto.lab.torture.attack import AttackResult  # which loads torch: the parent of a torture does not need it

EVERY_S = 1.0


class ProgressLine:
    """One line on the terminal, rewritten each second; without a terminal a line in ten seconds."""

    def __init__(self, *, shown: bool) -> None:
        self._shown, self._live, self._next, self._began = shown, sys.stderr.isatty(), 0.0, time.monotonic()

    def torture(self, run: Torture) -> None:
        struck = sum(run.siege.struck.values()) + run.ledger.troubles.total()
        storm = ", ".join(f"{each.kind} {each.target}" for each in run.storm.strikes) if run.storm else "calm"
        self._say(f"{run.ledger.complete} rooms, {struck} faults, {len(run.ledger.found)} found; {storm}")

    def soak(self, result: SoakResult) -> None:
        mib = ", ".join(f"{side} {each[-1]:.1f} MiB" for side, each in result.rss.items())
        self._say(f"{result.rooms} rooms, {result.rooms / result.seconds:.0f} a second; {mib}")

    def takeover(self, result: TakeoverResult) -> None:
        self._say(f"{result.rooms} rooms over, {result.kills} kills of rooms in {result.lives} lives")

    def attack(self, result: AttackResult) -> None:
        self._say(f"{result.rooms} rooms, {sum(result.attacks.values())} attacks")

    def _say(self, text: str) -> None:
        if not self._shown or time.monotonic() < self._next:
            return
        self._next = time.monotonic() + EVERY_S * (1 if self._live else 10)
        text = f"{time.monotonic() - self._began:5.0f} s  {text}"
        sys.stderr.write(f"\r\033[K{text[:110]}" if self._live else f"{text}\n")
        sys.stderr.flush()

    def clear(self) -> None:
        if self._shown and self._live:
            sys.stderr.write("\r\033[K")


def torture_page(result: TortureResult) -> str:
    calm = f"{result.starved} failed while the machine kept processes waiting" if result.starved else "all went well"
    lines = [
        f"seed {result.seed} over {result.carrier}: {result.rooms} rooms, {result.faults} faults, {result.seconds} s",
        f"  outcomes     {_counts(result.outcomes)}",
        f"  strikes      {_counts(result.strikes)}; {result.hits} messages and connections hit",
        f"  troubles     {_counts(result.troubles)}",
        f"  undisturbed  {result.undisturbed} rooms: {calm}",
        f"  memory       {', '.join(f'{name} {a:.0f} -> {b:.0f} MiB' for name, (a, b) in result.rss.items())}",
    ]
    lines += [f"  conformance  {result.judged:,} steps judged"] if result.judged else []
    lines += [f"  {result.starvation}"] if result.starvation else []
    return _page(lines, result)


def _page(lines: list[str], result: TortureResult | TakeoverResult) -> str:
    lines += [f"FOUND {text}" for text in result.found] or ["nothing was found"]
    if result.traces:
        lines += [
            f"every rank's trace, as it was when the first was found, is in {result.traces}:",
            f"  kvproto replay {result.traces}/*.jsonl              did the ranks do what the tables say?",
            f"  kvproto trace {result.traces}/*.jsonl --room ID     the story of a room",
        ]
    return "\n".join(lines)


def soak_page(result: SoakResult) -> str:
    pace = f"{result.seconds:.0f} s, {result.rooms_a_second:.0f} rooms a second"
    lines = [f"{result.rooms} rooms over one link, {result.carrier}: {pace}"]
    lines += [
        f"  {side}: {mib[0]:.1f} MiB after the first batch, {mib[-1]:.1f} at the end; "
        f"{result.slope.get(side, 0.0):+.2f} bytes a room over the second half"
        for side, mib in result.rss.items()
    ]
    return "\n".join([*lines, *(f"FOUND {text}" for text in result.found)] if result.found else [*lines, "flat"])


def takeover_page(result: TakeoverResult) -> str:
    """Return the page of a run in which instances are killed and others take their rooms over."""
    head = f"seed {result.seed} over {result.carrier}: {result.rooms} rooms, each under way when its {result.kill}"
    lines = [
        f"{head} instance was killed; {result.seconds} s",
        f"  kills        {result.kills} of rooms in {result.lives} lives; {result.killed_again} rooms more than once",
        f"  bytes        {result.prompt_bytes} of all prompts, {result.again_bytes} sent beyond that",
        f"  kept         {result.kept_bytes} bytes that had arrived and were not sent again",
        f"  other KV     {result.other_kv} rooms whose replacement had other KV, sent whole",
        f"  wrong bytes  {result.wrong_bytes}",
        f"  conformance  {result.judged:,} steps judged",
    ]
    return _page(lines, result)


def attack_page(result: AttackResult) -> str:
    lines = [
        f"{result.seconds:.0f} s of strangers at the door, {result.carrier}: {result.rooms} rooms went through",
        f"  came         {_counts(result.attacks)}",
        f"  turned away  {_counts(result.away)}",
        f"  memory       {', '.join(f'{side} {a:.0f} -> {b:.0f} MiB' for side, (a, b) in result.rss.items())}",
    ]
    return "\n".join([*lines, *([f"FOUND {text}" for text in result.found] or ["nothing changed but counters"])])


def plan_page(plan: TorturePlan) -> str:
    fleet = plan.fleet
    memory = f"{fleet.slots} slots, a ring of {fleet.ring} chunks, a window of {fleet.window}"
    lines = [
        f"seed {plan.seed}: {plan.size.rooms} rooms, {plan.size.at_once} at a time each way; {memory}",
        "  prefill tp {} pp {} pages of {}, decode tp {} pp {} pages of {}".format(*fleet.shape),
        *(f"  {name}: clock from {origin:g} s, rate {rate}" for name, (origin, rate) in fleet.clocks.items()),
    ]
    for episode in plan.episodes:
        lines.append(f"after {episode.at} rooms, in the {episode.storm} that follow:")
        for strike in episode.strikes:
            every = f", every {strike.every}. message" if strike.every else ""
            amount = f", {strike.amount:g} s" if strike.amount else ""
            how = f"for {strike.seconds:g} s{every}{amount}"
            lines.append(f"  {strike.kind} {strike.target} at {strike.after:g} s {how}")
    return "\n".join(lines)


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items()) if count) or "none"

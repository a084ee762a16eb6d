"""Report on mutants: who caught what, in how many steps; and the kill table that is made from it.

The catalogue of hazards has rows that no table of this protocol can bring back: they are about bytes on the wire, about
who holds which heads, about sockets.  For those `ELSEWHERE` names the tests that plant the defect, or that would fail
with it.
"""

from __future__ import annotations

import time
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from kvproto.fsm.bounded_files import FileError, decoded, text_of
from kvproto.fsm.errors import ArgumentError
from kvproto.verify.check.configs import CONFIGS, SUITES
from kvproto.verify.check.search import Result
from kvproto.verify.framework.checker import Checker
from kvproto.verify.framework.protocol import named

#: golden counts of the configurations in a file
CountName = Literal["states", "transitions", "depth", "milliseconds"]
GoldenCount = Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]
Known = dict[str, dict[CountName, GoldenCount]]

ELSEWHERE: dict[str, tuple[str, str]] = {
    "delimiter-in-field": ("a field that contains a separator", "tests/test_core_wire.py"),
    "global-rank-offset": ("head offset from the global rank", "tests/test_layout_properties.py"),
    "replica-modulo": ("replicas mapped by modulo", "tests/test_layout_properties.py"),
    "heads-overestimated": ("total heads as heads a rank times TP", "tests/test_layout_properties.py"),
    "kv-asymmetric-heads": ("V taken to have K's head size", "tests/test_layout_properties.py"),
    "non-integer-ratio": ("a ratio that does not divide, truncated", "tests/test_layout_properties.py"),
    "dead-subscriber": ("sends to peers that are gone block", "tests/test_control.py"),
    "blocked-by-dead-peer": ("a send at the high-water mark blocks", "tests/test_control.py"),
    "shared-socket": ("two threads use one socket", "tests/test_control.py"),
    "unbounded-index": ("a chunk index from the wire sizes something", "tests/test_check_hostile.py"),
    "duplicate-room": ("a second room with a live id", "tests/test_check_hostile.py"),
    "foreign-room": ("a rank of another group is heard about a room", "tests/test_check_hostile.py"),
    "collision-kills": ("another group's abort of a live room id is heard", "tests/test_check_hostile.py"),
    "zero-is-agreed": ("a part by pages counts while the region is awaited", "tests/test_check_hostile.py"),
    "beats-behind-bulk": ("one queue for all frames; beats alone are signs of life", "tests/test_hazards.py"),
    "repeats-without-backoff": ("a send's timer has the same period each time", "tests/test_hazards.py"),
    "dear-fallback": ("who waits is late although the watermark rises", "tests/test_hazards.py"),
    "meaning-unversioned": ("code behind an agreement changes, and its version stays", "tests/test_agreements.py"),
    "stranger-to-library": (
        "what a peer says of its memory goes to the library as it came",
        "tests/test_nixl_metadata.py",
    ),
    "dead-link-costs": ("a link that nobody answers is called for ever", "tests/test_hazards.py"),
    "old-link-wins": ("a new address is ignored while the old link counts as up", "tests/test_hazards.py"),
    "doubt-without-cause": ("a lost rank that was told nothing is waited for", "tests/test_hazards.py"),
    "first-come-owner": ("a room stays with who asked first", "tests/test_claims.py"),
    "unclaimed-cache": ("states beside the KV are not looked at", "tests/test_hazards.py"),
    "event-of-former-kv": ("a withdrawal keeps an event for KV that comes later", "tests/test_withdraw_events.py"),
    "conv-as-interval": ("a convolution of q, k and v is one part", "tests/test_state.py"),
    "table-read-early": ("a copy reads the page table when it is prepared", "tests/test_withdraw_events.py"),
}


class Kill(msgspec.Struct):
    """One mutation's fate; `property` is the one that failed first, empty if none did."""

    name: str
    caught: bool
    property: str
    steps: int
    seconds: float
    config: str
    expected: tuple[str, ...]
    states: int
    about: str
    text: str = ""


def questions(names: Sequence[str], known: Iterable[str]) -> list[str]:
    """These planted bugs, or all that are known.  Raises ArgumentError with all names."""
    known = list(known)
    unknown = sorted(set(names) - set(known))
    if unknown:
        raise ArgumentError(f"no mutation {unknown[0]!r}: one of {', '.join(known) or 'none'}")
    return list(names) or known


def try_planted(asked: tuple[str, str, int]) -> Kill:
    """Plant a bug that a checker names, and search its world: what became of it.

    `asked`: the checker's place, the bug, and MiB that the search may take.
    """
    place, name, memory = asked
    checker, begun = named(place, Checker), time.perf_counter()
    with checker.planting(name) as bug:
        result = checker.search(bug.world, limit=None, memory=memory, report=None)
    if result.ended == "interrupted":
        raise KeyboardInterrupt
    tale = result.violations[0] if result.violations else None
    broken, steps, text = (tale.property, len(tale.steps), tale.text) if tale else ("", 0, result.ended)
    return Kill(name, broken in bug.expect, broken, steps, time.perf_counter() - begun, bug.world, bug.expect,
                result.states, bug.about, text)  # fmt: skip


def line(kill: Kill) -> str:
    mark = "caught" if kill.caught else "MISSED"
    how = f"{kill.property or '-':<9} in {kill.steps:>2} steps, {kill.seconds:>5.1f} s"
    return f"{mark}  {kill.name:<28} {how}  {kill.config}"


def kill_table(kills: Iterable[Kill]) -> str:
    """The table in Markdown; it has no times, so that it changes only when the protocol or the mutants do."""
    lines = [
        "# Who catches what", "",
        "Made by `kvproto check --mutants --table spec/kill-table.md`; a test fails when it is stale. Each hazard is",
        "planted in the tables (`kvproto/verify/check/mutations/`), and the named configuration is searched until",
        "a property fails. `steps`: length of the shortest way there; 0 where nothing that can happen ends well.", "",
        "| hazard | what is planted | fails | steps | in |", "|---|---|---|---|---|",
    ]  # fmt: skip
    for kill in kills:
        fails = kill.property if kill.caught else "**nothing**"
        lines.append(f"| {kill.name} | {kill.about} | {fails} | {kill.steps} | {kill.config} |")
    lines += [
        "", "Hazards that are not in the tables, and the tests that fail when they are planted:", "",
        "| hazard | what is planted | fails |", "|---|---|---|",
        *(f"| {name} | {about} | `{test}` |" for name, (about, test) in ELSEWHERE.items()), "",
    ]  # fmt: skip
    return "\n".join(lines)


def known_counts(path: Path) -> Known:
    """Golden counts from a file.  Raises `FileError`."""
    try:
        data = tomllib.loads(text_of(path, 1 << 20))
    except (ValueError, RecursionError) as error:  # a ValueError: no TOML, or a number without an end
        raise FileError(f"{path}: no golden counts: {error}") from error
    return {name: decoded(f"{path}: {name}", data[name], dict[CountName, GoldenCount]) for name in data}


def counts(results: Sequence[Result], known: Known) -> str:
    """Return golden counts in TOML: of each exhausted configuration, and the known ones of the others.

    Of deeper worlds it says, too, how much of a core's time they took.
    """
    lines = [
        "# How much there is of each configuration. A change of meaning changes these numbers: review it.",
        "# Made by `kvproto check standard two-by-two --counts spec/counts.toml`; `small` brings the small ones up to",
        "# date.", "",
    ]  # fmt: skip
    found: Known = {
        r.name: {"states": r.states, "transitions": r.transitions, "depth": r.depth}
        for r in results
        if r.ended == "exhausted"
    }
    for r in results:
        if r.name in found and r.name in SUITES["deep"]:
            found[r.name]["milliseconds"] = int(1000 * r.cpu_seconds)
    for name in CONFIGS:
        if name in found or name in known:
            lines += [f"[{name}]", *(f"{what} = {n}" for what, n in (found.get(name) or known[name]).items()), ""]
    return "\n".join(lines)


def totals(results: Sequence[Result]) -> dict[str, Any]:
    """Return a search as `--json` prints it."""
    seconds, states = sum(r.seconds for r in results), sum(r.states for r in results)
    return {
        "states": states,
        "transitions": sum(r.transitions for r in results),
        "seconds": seconds,
        "states_per_s": int(states / max(seconds, 1e-9)),
        "complete": all(r.ended == "exhausted" for r in results),
        "violations": [_violation(r.name, tale) for r in results for tale in r.violations],
        "runs": [_run(result) for result in results],
    }


def sum_up(results: Sequence[Result], asked: int) -> str:
    states, seconds = sum(r.states for r in results), sum(r.seconds for r in results)
    done, broken = sum(r.ended == "exhausted" for r in results), sum(bool(r.violations) for r in results)
    moves, rate = sum(r.transitions for r in results), int(states / max(seconds, 1e-9))
    text = f"{done} of {asked} configurations searched to the end, {broken} with a violation: {states:,} states, "
    return text + f"{moves:,} transitions, {seconds:,.0f} s of one core's time, {rate:,}/s"


def _violation(name: str, tale: Any) -> dict[str, Any]:
    steps = len(tale.steps)
    return {"config": name, "property": tale.property, "text": tale.text, "steps": steps, "story": tale.story()}


def _run(result: Result) -> dict[str, Any]:
    names = (
        "name", "engine", "states", "transitions", "depth", "seconds", "states_per_s", "cpu_seconds",
        "states_per_cpu_s", "ended", "megabytes", "sights",
    )  # fmt: skip
    return {name: getattr(result, name) for name in names}

"""The gate: every mutant is killed by its tests, or somebody has said why it cannot be.

First the tests of a file run on what is there: those that fail already kill nothing.  Then trials, `jobs` at a time;
one that takes ten times as long as the unchanged tests, and a minute at least, is a mutant that never ends, and killed.
"""

from __future__ import annotations

import os
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from kvproto.errors import ArgumentError
from kvproto.mutate.operators import CodeMutant
from kvproto.mutate.targets import Targets
from kvproto.mutate.trial import ENDLESS, Trial, begin, end, stop

TICK_S, LEAST_S, TIMES = 0.02, 60.0, 10


class Running(msgspec.Struct):
    """A trial under way."""

    mutant: CodeMutant | None
    file: str
    heard: int
    since: float


def run(
    root: Path, targets: Targets, mutants: Sequence[CodeMutant], jobs: int, tell: Callable[[Trial], None]
) -> list[Trial]:  # fmt: skip
    """Try them all.  ArgumentError: tests fail without any change."""
    before: dict[str, float] = {}
    found: list[Trial] = []

    def told(running: Running, witness: str, seconds: float) -> None:
        if running.mutant is not None:
            found.append(Trial(running.mutant, witness, round(seconds, 2)))
            tell(found[-1])
        elif witness:
            raise ArgumentError(f"the tests of {running.file} fail as it is: {witness}")
        else:
            before[running.file] = seconds

    files = dict.fromkeys(mutant.file for mutant in mutants)
    todo = deque[tuple[str, CodeMutant | None]]([(file, None) for file in files])
    todo += [(mutant.file, mutant) for mutant in mutants]
    _all(root, targets, todo, jobs, before, told)
    return sorted(found, key=lambda trial: trial.mutant)


def _all(
    root: Path, targets: Targets, todo: deque[tuple[str, CodeMutant | None]], jobs: int, before: dict[str, float],
    told: Callable[[Running, str, float], None],
) -> None:  # fmt: skip
    going: dict[int, Running] = {}
    try:
        while todo or going:
            for _ in range(len(todo)):
                file, mutant = todo.popleft()
                if len(going) < jobs and (mutant is None or file in before):
                    child, heard = begin(root, mutant, targets.tests(file))
                    going[child] = Running(mutant, file, heard, time.monotonic())
                else:
                    todo.append((file, mutant))
            time.sleep(TICK_S)
            _ended(going, before, told)
    finally:
        for child in going:
            stop(child)
            os.waitpid(child, 0)


def _ended(
    going: dict[int, Running], before: dict[str, float], told: Callable[[Running, str, float], None]
) -> None:  # fmt: skip
    for child, running in list(going.items()):
        took = time.monotonic() - running.since
        late = took > max(LEAST_S, TIMES * before.get(running.file, LEAST_S))
        if late:
            stop(child)
        ended, code = os.waitpid(child, 0 if late else os.WNOHANG)
        if ended:
            del going[child]
            told(running, ENDLESS if late else end(running.heard, code), took)


def survivors(targets: Targets, found: Sequence[Trial]) -> list[Trial]:
    """Those that nobody killed and nobody has explained."""
    return [trial for trial in found if not trial.witness and not targets.reason(trial.mutant.name)]


def table(targets: Targets, found: Sequence[Trial]) -> str:
    """Two tables in Markdown, by file and by operator: mutants, killed, explained, surviving."""
    parts = []
    for title in ("file", "operator"):
        every: Counter[str] = Counter(getattr(trial.mutant, title) for trial in found)
        killed = Counter(getattr(trial.mutant, title) for trial in found if trial.witness)
        open_ = Counter(getattr(trial.mutant, title) for trial in survivors(targets, found))
        lines = [f"| {title} | mutants | killed | explained | survive |", "|---|---|---|---|---|"]
        lines += [
            f"| {name} | {count} | {killed[name]} | {count - killed[name] - open_[name]} | {open_[name]} |"
            for name, count in sorted(every.items())
        ]
        whole = len(found), sum(killed.values()), sum(open_.values())
        lines.append(f"| all | {whole[0]} | {whole[1]} | {whole[0] - whole[1] - whole[2]} | {whole[2]} |")
        parts.append("\n".join(lines))
    return "\n\n".join(parts)

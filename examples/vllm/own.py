"""Own: vLLM's own connector beside kvproto, with a row for each scenario whatever becomes of it.

It may refuse a configuration at start, end with a process, or never answer.  Each of these is its outcome there, and
stands in its rows with the first error that its processes wrote.  So its run is a process whose output is kept in a
file and which is killed, with all that it has started, when it takes too long.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import re
import signal
import sys
import time
import traceback
from collections.abc import Callable
from multiprocessing.context import ForkProcess
from pathlib import Path
from typing import NoReturn

import msgspec

from examples.engine_runs.build import build
from examples.vllm.judging import Row

OWN = "nixl"
#: of this process, which has imported vLLM
FORKING = multiprocessing.get_context("fork")
#: lines of a run's output between which instances start
ANSWERED, THERE = "the whole model has answered", "all instances are warm"
#: seconds in which the instances have to start and answer once, in which a scenario has to end, and one that replaces
#: an instance; seconds in which blocks come back; seconds between two looks
STARTS_S, ENDS_S, REPLACES_S, FREE_S, LOOK_S = 300.0, 90.0, 180.0, 30.0, 0.5
#: characters of an error that a row has
TOLD = 170
ERROR = re.compile(r"\b\w*(?:Error|Exception): (?P<told>.*\w.*)")
#: errors that only point to another one
POINTERS = "root cause", "background process", "EngineCore encountered", "cancelled"


def run(play: Callable[[], int], pair: str, names: list[str], out: Path) -> list[Row]:
    """Run these scenarios in a process; return their rows, also of those that it has not made.

    Args:
        play: runs them, and keeps the rows it makes.
        pair: the pair.
        names: its scenarios, whose older rows are gone.
        out: where rows are kept; the output is written there, too.

    """
    log, begun = out / f"{pair}-{OWN}.log", time.monotonic()
    log.touch()
    process = FORKING.Process(target=ended, args=(play, log))
    process.start()
    try:
        late = _end(process, log, STARTS_S + len(names) * (REPLACES_S + FREE_S))
    finally:  # an instance may outlive the process that has started it
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.ident or 0, signal.SIGKILL)
        process.kill()  # it may lead no group yet
        process.join()
    said = log.read_text(errors="replace")
    print(said, flush=True)
    file_of_rows = out / f"{pair}-{OWN}.json"
    made = msgspec.json.decode(file_of_rows.read_bytes(), type=list[Row]) if file_of_rows.exists() else []
    return explained(made, pair, names, said, late, time.monotonic() - begun)


def ended(play: Callable[[], int], log: Path | None = None) -> NoReturn:
    """Play in this process, which leads a group and ends with it; its output goes into the log."""
    if log is not None:
        os.setsid()
        sys.stdout = sys.stderr = log.open("w", buffering=1)
        for stream in (1, 2):
            os.dup2(sys.stdout.fileno(), stream)
    try:
        code = play()
    except Exception:  # noqa: BLE001  # with what else has failed it would not get to its end
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    os._exit(code)  # whatever threads the engine has left behind


def _end(process: ForkProcess, log: Path, limit: float) -> str:
    """Wait for its end; return the reason why it has to be killed before; empty: it has ended."""
    answered, begun = 0.0, time.monotonic()
    while process.is_alive():
        now, said = time.monotonic(), log.read_text(errors="replace")
        answered = answered or (now if ANSWERED in said else 0.0)
        if answered and THERE not in said and now - answered > STARTS_S:
            return f"did not start in {STARTS_S:.0f} s"
        if now - (answered or begun) > limit:
            return f"did not end in {limit:.0f} s"
        time.sleep(LOOK_S)
    return ""


def explained(made: list[Row], pair: str, names: list[str], said: str, late: str, seconds: float) -> list[Row]:
    """Return a row for each scenario: those made, with the error written meanwhile, and others."""
    by, before = {row.scenario: row for row in made}, ""
    started = THERE in said
    for name in names:
        error = told(_while(said, pair, name))
        if name in by:
            row = by[name]
            if row.wrong and error and error not in row.note:
                by[name] = msgspec.structs.replace(row, wrong=[*row.wrong, error])
            before = name
            continue
        if not started:
            why = late or f"refused at start: {told(_after(said, ANSWERED)) or 'its process ended'}"
        elif f"{pair} {OWN} {name} ..." in said:
            why = late or f"its process ended: {error or 'without an error'}"
        else:
            why = f"not played: {before or names[0]} had not ended well"
        by[name] = lacking(pair, name, why, seconds)
    return list(by.values())


def lacking(pair: str, scenario: str, why: str, seconds: float) -> Row:
    """Return the row of a scenario that has not come to an end."""
    return Row(
        pair=pair, carrier=OWN, scenario=scenario, equal=0, asked=0, computed=None, back=False, wrong=[why],
        outcomes={}, digests=(0, 0), sums=(0, 0), posts={}, lags=[], seconds=round(seconds, 1), note="", build=build(),
    )  # fmt: skip


def _while(said: str, pair: str, name: str) -> str:
    """Return what was written while this scenario was played."""
    rest = _after(said, f"{pair} {OWN} {name} ...")
    return re.split(f"{re.escape(pair)} (?:[|] )?{OWN} ", rest)[0]


def _after(said: str, mark: str) -> str:
    return said.partition(mark)[2]


def told(said: str) -> str:
    """Return the first error of an output that says something itself, shortened; empty: there is none."""
    for found in ERROR.finditer(said):
        words = found["told"].strip().replace("|", "/")
        if not any(each in words for each in POINTERS):
            return words if len(words) <= TOLD else words[: words.rindex(" ", 0, TOLD)] + " …"
    return ""

"""Found traces: the traces of all ranks that live, written when the first thing is found.

A trace is a ring buffer, so what led to a finding is soon overwritten.  A rank writes its own at its next pass, and the
run goes on meanwhile: only before it ends a rank, or all of them, does it wait.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from kvproto.lab.process_group import ProcessGroup, RankError

WRITTEN_S, TICK_S = 60.0, 0.1


class FoundTraces:
    """Those of one run, in a directory that is made for them."""

    def __init__(self, crew: ProcessGroup, directory: Path) -> None:
        self._crew, self._directory = crew, directory
        self._due = set[str]()
        #: the directory, once there is something in it
        self.where = ""

    def save(self, ranks: Iterable[str], found: str) -> None:
        """Have these ranks write their traces, the first time; `found`: what it was, in words."""
        if not self.where:
            self.where, self._due = str(self._directory), set(ranks)
            self._directory.mkdir(parents=True, exist_ok=True)
            (self._directory / "found.txt").write_text(found + "\n")
            self._crew.tell(ranks, "save", (self.where,))

    def saved(self, rank: str) -> None:
        self._due.discard(rank)

    def wait(self, hear: Callable[[str, str, Any], None]) -> None:
        """Wait until all that live have; `hear` takes every message that comes, and calls `saved`."""
        until = time.monotonic() + WRITTEN_S
        with contextlib.suppress(RankError):  # more than one has died: what there is is there
            while self._due & self._crew.pids.keys() and time.monotonic() < until:
                for name, kind, data in self._crew.listen(TICK_S):
                    hear(name, kind, data)

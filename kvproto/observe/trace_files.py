"""Trace files: the trace of a running rank, rewritten every few seconds for a follower.

The file holds at most `Settings.trace` entries, however long the rank runs.  The trace is copied on the loop (a list of
references) and written on a thread, one file at a time: a slow disk makes the file older, and the loop no slower.  A
reader always gets a complete file, because each new one replaces the old one.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import Any

from kvproto.observe.rank_traces import lines, log_of
from kvproto.rank.base import Rank


class TraceSnapshots:
    """Those of one rank, at one path."""

    def __init__(self, rank: Rank, path: Path, every: float, told: Callable[[str, Exception], None]) -> None:
        """`every`: seconds from one to the next, at least; `told`: what cannot be written and why, once each."""
        self.rank, self.path, self.every = rank, path, every
        #: when the next one is due; what went wrong with the last one (empty: nothing)
        self.next_write, self.fault = 0.0, ""
        self._told = told
        self._writer: Thread | None = None

    def look(self, now: float) -> None:
        """Begin to write if it is time, and the last one is written."""
        if now < self.next_write or (self._writer is not None and self._writer.is_alive()):
            return
        self.next_write = now + self.every
        self._writer = Thread(target=self._write, args=(list(self.rank.trace),), daemon=True)
        self._writer.start()

    def _write(self, kept: list[Any]) -> None:
        new = self.path.with_name(f"{self.path.name}.new")
        try:
            new.write_text("".join(line + "\n" for line in lines(log_of(self.rank, kept))))
            new.replace(self.path)
            self.fault = ""
        except OSError as error:  # a full disk is no reason to stop a rank
            if self.fault != (fault := str(error)):
                self.fault = fault
                self._told(f"the trace is not written to {self.path} (follow_trace)", error)

"""Failure traces: traces of failed rooms, kept in files for later diagnosis.

A trace is a ring buffer, so the entries before a failure are soon overwritten.  It is copied when the room's outcome is
announced, and written on a thread, because the loop does not wait for a disk.  An endpoint writes at most `MAX_TRACES`
of them.  A file that cannot be written is reported with its path.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from threading import Thread

from kvproto.observe.rank_traces import lines, log_of
from kvproto.protocol.events import room_of
from kvproto.rank.base import Rank

MAX_TRACES = 64


class FailureTraces:
    """Those of one rank."""

    def __init__(self, rank: Rank, fault: Callable[[str, Exception], None]) -> None:
        """`fault` is told what could not be written and why, on the writing thread."""
        self.rank, self.left, self._fault = rank, MAX_TRACES, fault

    def save(self, directory: Path, key: int) -> None:
        """Write the trace as it is now, as that of the room of this key."""
        if not self.left:
            return
        self.left -= 1
        rank, kept, (room, gen) = self.rank, list(self.rank.trace), room_of(key)
        path = directory / f"{rank.side}-{rank.index}-room-{room}-{gen}.jsonl"

        def write() -> None:
            try:
                path.write_text("".join(line + "\n" for line in lines(log_of(rank, kept))))
            except OSError as error:
                self._fault(f"the trace of room {room} is not written (endpoint.trace_dir)", error)

        Thread(target=write, daemon=True).start()

"""The conformance monitor: parties that run are judged, behind them.

What a party pays is what it pays anyhow: an entry of its trace is appended.  The trace of a party that is followed
keeps what has not been judged yet, beside its newest entries, and the judge takes it away: on a thread of its own, some
hundred entries at a time (`start`), or when somebody asks (`judge`).  So a step is judged some milliseconds after it
was made, and nobody has waited for that but for the interpreter's lock.

Where nobody judges for long the trace grows: `start` the thread for whatever runs long.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event as Flag
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any, Self

from kvproto.fsm.driver import Driver, Trace
from kvproto.verify.framework.trace.conformance import TraceJudge
from kvproto.verify.framework.trace.coverage import WatchedTrace

if TYPE_CHECKING:
    from kvproto.fsm.telling import Telling

#: entries that are judged in one go, and seconds until the next
BATCH, PAUSE_S = 256, 0.005


class HandedTrace(deque[Any]):
    """A trace that keeps its newest entries, and every one until it was taken away.

    To append is what it is for a deque.  Everything else takes a copy in one go, so that other threads may append.
    """

    def __init__(self, entries: int) -> None:
        super().__init__()
        self.entries = entries
        #: of what is in it, how many were taken, from the left; what was cleared and not taken
        self._taken = 0
        self._left: list[Any] = []

    @property
    def maxlen(self) -> int:
        return self.entries

    def take(self, most: int) -> list[Any]:
        """The next entries that nobody has taken, the oldest first; one thread."""
        if self._left:
            batch, self._left = self._left[:most], self._left[most:]
            return batch
        held = list(self)
        batch = held[self._taken : self._taken + most]
        self._taken += len(batch)
        for _ in range(min(self._taken, len(held) - self.entries)):
            self.popleft()
            self._taken -= 1
        return batch

    def clear(self) -> None:
        """Forget the entries, but for those that nobody has taken; the thread that takes."""
        self._left += list(self)[self._taken :]
        self._taken = 0
        super().clear()


class ConformanceMonitor:
    """Judges drivers of one protocol while they run."""

    def __init__(self, telling: Telling, timing: Any, heard: Callable[[str], None] = lambda _found: None) -> None:
        """Take any `timing` (`TraceJudge`); `heard` gets each breach when it is found, on the judging thread."""
        self.telling, self.machines, self.heard = telling, telling.machines(timing), heard
        self.parties: list[tuple[HandedTrace, TraceJudge]] = []
        self._told = 0
        self._over, self._judging = Flag(), Lock()
        self._thread: Thread | None = None

    @property
    def steps(self) -> int:
        return sum(judge.steps for _, judge in self.parties)

    @property
    def found(self) -> list[str]:
        return [text for _, judge in self.parties for text in judge.found]

    @contextmanager
    def installed(self) -> Iterator[Self]:
        """Follow the drivers that are made while the block runs."""
        plain = Driver.make_trace
        Driver.make_trace = staticmethod(lambda entries: self._follow(plain(entries)))  # type: ignore[method-assign]
        try:
            yield self
        finally:
            Driver.make_trace = staticmethod(plain)  # type: ignore[method-assign]

    def _follow(self, trace: Trace) -> Trace:
        made = HandedTrace(trace.maxlen or 0)
        if isinstance(trace, WatchedTrace):  # somebody notes each entry at once
            noters, append = trace.by, made.append

            def noted(entry: Any) -> None:
                append(entry)
                for noter in noters:
                    noter.note(entry)

            made.append = noted  # type: ignore[method-assign]
        self.parties.append((made, TraceJudge(self.telling, self.machines)))
        return made

    # --------------------------------------------------------------------------------------------- judging
    def some(self, most: int = BATCH) -> int:
        """Judge up to so many entries of each party; how many there were."""
        with self._judging:
            count = 0
            for trace, judge in list(self.parties):
                batch = trace.take(most)
                judge.take(batch)
                count += len(batch)
            found = self.found
            for text in found[self._told :]:
                self.heard(text)
            self._told = len(found)
            return count

    def rest(self) -> list[str]:
        """Judge all that there is; what was found since the beginning."""
        while self.some(1 << 16):
            pass
        return self.found

    def judge(self) -> None:
        """AssertionError with what was found, if anything was, when all is judged."""
        found = self.rest()
        assert not found, "\n".join(found)

    def start(self) -> None:
        """Judge on a thread of its own, until `close`."""
        self._thread = Thread(target=self._behind, name="kvproto-conformance", daemon=True)
        self._thread.start()

    def _behind(self) -> None:
        while not self._over.wait(PAUSE_S):
            while self.some() >= BATCH and not self._over.is_set():
                pass

    def close(self) -> list[str]:
        """Judge the rest, here; what was found."""
        self._over.set()
        if self._thread is not None:
            self._thread.join()
        return self.rest()

"""Forks that try mutants, and what each sends to its parent.

A fork answers through a pipe, a line at a time (`Ending`).  Before each test it sends the test's id, so that the test
that ran is blamed for a fork that dies, hangs or uses up its processor time.  The parent reads while it waits: a pipe
that nobody reads is full after some hundred ids, and the fork would stop there.
"""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import msgspec

FAILS, DIED, SPENT = "fails", "ended its process", "used up its processor time"


class Ending(msgspec.Struct, frozen=True):
    """The test that a fork ran last, and what became of it; `how` is empty while no test has failed."""

    test: str = ""
    how: str = ""

    @property
    def witness(self) -> str:
        """The test that noticed something, or what happened outside of tests; empty: all have passed."""
        return self.how and (self.test or self.how)

    @property
    def sentence(self) -> str:
        return f"{self.test} {self.how}".strip() if self.how else ""


class Cores:
    """Cores that forks of forks share: a pipe with a byte for each that is free."""

    def __init__(self, count: int) -> None:
        self._free, self._back = os.pipe()
        os.write(self._back, bytes(count))

    @contextmanager
    def one(self) -> Iterator[None]:
        """Hold one, and wait for it first."""
        os.read(self._free, 1)
        try:
            yield
        finally:
            os.write(self._back, b"\0")

    def close(self) -> None:
        os.close(self._free)
        os.close(self._back)


class Fork:
    """A fork, in a session of its own, that sends endings."""

    def __init__(self, work: Callable[[int], None]) -> None:
        self._child, self._heard = forked(work, 70)
        self._last, self._part = Ending(), b""
        os.set_blocking(self._heard, False)

    def ended(self) -> Ending | None:
        """Read what it has sent; None: it goes on."""
        self._read()
        child, code = os.waitpid(self._child, os.WNOHANG)
        if not child:
            return None
        spent = os.WIFSIGNALED(code) and os.WTERMSIG(code) in (signal.SIGXCPU, signal.SIGKILL)
        return self._closed(SPENT if spent else DIED if code else "")

    def stop(self, how: str) -> Ending:
        """End it and all that it has started; its ending is `how`, unless it has sent another."""
        os.killpg(self._child, signal.SIGKILL)
        os.waitpid(self._child, 0)
        return self._closed(how)

    def _closed(self, how: str) -> Ending:
        self._read()  # it may have sent a line since the last look
        os.close(self._heard)
        return self._last if self._last.how else Ending(self._last.test, how)

    def _read(self) -> None:
        try:
            while sent := os.read(self._heard, 1 << 16):
                *lines, self._part = (self._part + sent).split(b"\n")
                self._last = msgspec.json.decode(lines[-1], type=Ending) if lines else self._last
        except BlockingIOError:  # nothing more for now; a process that a test has left behind keeps the pipe open
            pass


def send(told: int, ending: Ending) -> None:
    """Send it to the parent, by the descriptor that `forked` gave to `work`."""
    os.write(told, msgspec.json.encode(ending) + b"\n")


def forked(work: Callable[[int], None], code: int) -> tuple[int, int]:
    """Fork a child with a session of its own and a pipe; return its number and the pipe's end. The child
    does `work` and exits with `code`, unless `work` has ended it otherwise.
    """
    heard, told = os.pipe()
    child = os.fork()
    if child:
        os.close(told)
        return child, heard
    os.close(heard)
    os.setsid()
    try:
        work(told)
    finally:
        os._exit(code)
    raise AssertionError


def lines_of(works: Sequence[Callable[[int], None]], jobs: int) -> Iterator[tuple[int, bytes]]:
    """Do each of these in a fork, `jobs` at a time: which of them has told a line, and the line.

    Forks that are still going when nobody listens any more are ended.
    """
    left = list(enumerate(works))[::-1]
    #: by the descriptor by which it tells: its process, which it is, and half a line
    going: dict[int, tuple[int, int, bytes]] = {}
    try:
        while left or going:
            while left and len(going) < jobs:
                which, work = left.pop()
                child, hears = forked(work, 0)
                going[hears] = child, which, b""
            for hears in select.select(list(going), [], [])[0]:
                child, which, part = going[hears]
                said = os.read(hears, 1 << 16)
                *lines, part = (part + said).split(b"\n")
                going[hears] = child, which, part
                if not said:
                    del going[hears]
                    os.close(hears)
                    os.waitpid(child, 0)
                yield from ((which, line) for line in lines)
    finally:
        for child, _, _ in going.values():
            os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)

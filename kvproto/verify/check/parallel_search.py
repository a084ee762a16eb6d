"""Parallel search: searches on several processes, and how they are stopped."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Any, TypeVar

from kvproto.errors import KvprotoError

X = TypeVar("X")
Y = TypeVar("Y")
LOST = "a process of the search was killed, for its memory perhaps: fewer --jobs or a lower --memory take less"


class LostProcessError(KvprotoError, RuntimeError):
    """A process that searched is gone, and with it what it had found."""


def spread(work: Callable[[X], Y], items: Sequence[X], jobs: int) -> Iterator[Y]:
    """Do the work, on `jobs` processes; results come in the order of completion.

    When it is interrupted nothing new begins, and what is running says how far it came.
    """
    if jobs <= 1 or len(items) <= 1:
        yield from map(work, items)
        return
    try:
        yield from _on_processes(work, items, jobs)
    except BrokenProcessPool as error:
        raise LostProcessError(LOST) from error


def _on_processes(work: Callable[[X], Y], items: Sequence[X], jobs: int) -> Iterator[Y]:
    left, unsaid = list(items)[::-1], False
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=spawn, initializer=_interrupt_work_alone) as pool:
        running: set[Future[Y]] = set()
        while left or running:
            try:
                while left and len(running) < jobs:
                    with _not_interrupted():  # a process that begins now inherits it, until it is ready
                        running.add(pool.submit(_worked, work, left.pop()))
                done, running = wait(running, return_when=FIRST_COMPLETED)
            except KeyboardInterrupt:
                left.clear()
                continue
            for future in done:
                if isinstance(future.exception(), KeyboardInterrupt):
                    unsaid = True
                else:
                    yield future.result()
    if unsaid:
        raise KeyboardInterrupt


@contextmanager
def _not_interrupted() -> Iterator[None]:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


# ------------------------------------------------------------------------------------------ in a process of the pool
_working = _over = False


def _interrupt_work_alone() -> None:
    """Let an interrupt end the work only: with a process that waits for work the pool would be lost."""
    signal.signal(signal.SIGINT, _interrupted)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def _interrupted(*_: Any) -> None:
    global _over  # noqa: PLW0603  # a handler has no other place
    _over = True
    if _working:
        raise KeyboardInterrupt


def _worked(work: Callable[[X], Y], item: X) -> Y:
    global _working  # noqa: PLW0603  # as above
    _working = True
    try:
        if _over:
            raise KeyboardInterrupt
        return work(item)
    finally:
        _working = False

"""Parallel search: searches on several processes, and how they are stopped."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from typing import TypeVar

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
    left = list(items)[::-1]
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        running: set[Future[Y]] = set()
        while left or running:
            try:
                while left and len(running) < jobs:
                    running.add(pool.submit(work, left.pop()))
                done, running = wait(running, return_when=FIRST_COMPLETED)
            except KeyboardInterrupt:
                left.clear()
                continue
            for future in done:
                yield future.result()

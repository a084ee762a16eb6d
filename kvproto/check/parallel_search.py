"""Searches on several processes, and how they are stopped."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from typing import TypeVar

X = TypeVar("X")
Y = TypeVar("Y")


def spread(work: Callable[[X], Y], items: Sequence[X], jobs: int) -> Iterator[Y]:
    """Do the work; on several processes if `jobs` asks for them, and then whatever is done first comes first.

    When it is interrupted nothing new begins, and what is running says how far it came.
    """
    if jobs <= 1 or len(items) <= 1:
        yield from map(work, items)
        return
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

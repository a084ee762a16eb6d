"""Zygote: a process that has imported what others run, so that each of those begins with a fork.

An engine is imported for ten seconds of a core, which is longer than most of what an instance is asked takes.
"""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection, wait
from typing import Any

import psutil


@contextlib.contextmanager
def environment(own: dict[str, str]) -> Iterator[None]:
    """Have what is started meanwhile see these variables, too."""
    before = dict(os.environ)
    os.environ.update(own)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


class Zygote:
    """The parent's end; the process ends when this is closed, or its parent is gone."""

    def __init__(self, prepare: Callable[[], None], own: dict[str, str]) -> None:
        """`prepare` imports, in a new interpreter whose environment has these variables from the start."""
        context = multiprocessing.get_context("spawn")
        self._line, other = context.Pipe()
        with environment(own):
            context.Process(target=_fork, args=(prepare, other)).start()
        other.close()

    def start(self, target: Callable[..., None], *args: Any) -> psutil.Process:
        """Run this in a fork, once all is imported; EOFError: it is not.  Connections become its own."""
        self._line.send((target, args))
        return psutil.Process(self._line.recv())

    def close(self) -> None:
        """Fork no more; those that were forked go on."""
        self._line.close()


def _fork(prepare: Callable[[], None], line: Connection) -> None:
    prepare()
    gc.freeze()  # no fork looks again for garbage in what was imported
    context = multiprocessing.get_context("fork")
    with contextlib.suppress(EOFError):
        while True:
            # Whoever waits for one that has ended looks whether there is such a process, so it must not stay a zombie.
            if line not in wait([line, *(each.sentinel for each in multiprocessing.active_children())]):
                continue
            target, args = line.recv()
            process = context.Process(target=_begin, args=(line, target, args))
            process.start()
            for each in args:
                if isinstance(each, Connection):
                    each.close()
            line.send(process.pid)


def _begin(line: Connection, target: Callable[..., None], args: tuple[Any, ...]) -> None:
    line.close()
    target(*args)

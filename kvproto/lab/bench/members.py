"""Ranks in processes of their own: told by name what to do, all of a side at the same time, and what each answers.

Between two commands a rank is idle in a way of its own: it polls its endpoint.  A process that ends before it has
answered takes the others with it: they may wait for it, and there is nothing to be measured without it.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, NoReturn, Protocol

import torch


class BenchMember(Protocol):
    """What is told; every command is a method."""

    def idle(self) -> None:
        """Called again and again while nobody says anything."""

    def end(self) -> None:
        """The last command."""


class Members:
    """The processes, by side ("P" or "D") and index."""

    def __init__(self) -> None:
        self._conns: dict[tuple[str, int], Connection] = {}
        self._processes: dict[tuple[str, int], BaseProcess] = {}

    def start(self, side: str, index: int, make: Callable[..., BenchMember], *args: Any) -> None:
        """One more, made in its process."""
        spawn = multiprocessing.get_context("spawn")
        self._conns[side, index], theirs = spawn.Pipe()
        process = self._processes[side, index] = spawn.Process(target=_serve, args=(theirs, make, args), daemon=True)
        process.start()
        theirs.close()  # so that its end shows here

    def tell(self, sides: str, name: str, *args: Any) -> dict[tuple[str, int], Any]:
        """Have all of these sides do it, at the same time; what each answers.

        RuntimeError: what one could not do, or that its process has ended; then all of them are.
        """
        asked = [key for key in self._conns if key[0] in sides]
        for key in asked:
            try:
                self._conns[key].send((name, args))
            except OSError:
                self._lost(key, name)
        answers: dict[tuple[str, int], tuple[bool, Any]] = {}
        while due := {key: self._conns[key] for key in asked if key not in answers}:
            ready = wait(list(due.values()))
            for key in [key for key, conn in due.items() if conn in ready]:
                try:
                    answers[key] = due[key].recv()
                except (EOFError, OSError):
                    self._lost(key, name)
        for side, index in asked:
            good, answer = answers[side, index]
            if not good:
                raise RuntimeError(f"{side}{index} {name}: {answer}")
        return {key: answers[key][1] for key in asked}

    def _lost(self, key: tuple[str, int], name: str) -> NoReturn:
        process = self._processes[key]
        process.join()
        for each in self._processes.values():
            each.kill()
        self._conns.clear()
        self._processes.clear()
        raise RuntimeError(f"{key[0]}{key[1]} {name}: its process has ended, with exit code {process.exitcode}")


def _serve(conn: Connection, make: Callable[..., BenchMember], args: tuple[Any, ...]) -> None:
    """Do what comes until the parent has had enough."""
    torch.set_num_threads(1)
    member, name = make(*args), ""
    while name != "end":
        while not conn.poll(0):
            member.idle()
        name, given = conn.recv()
        try:
            conn.send((True, getattr(member, name)(*given)))
        except Exception as error:  # noqa: BLE001  # it is the parent's to judge
            conn.send((False, f"{type(error).__name__}: {error}"))

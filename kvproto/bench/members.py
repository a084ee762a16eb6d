"""Ranks in processes of their own: told by name what to do, all of a side at the same time, and what each answers.

Between two commands a rank is idle in a way of its own: it polls its endpoint.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, Protocol

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

    def start(self, side: str, index: int, make: Callable[..., BenchMember], *args: Any) -> None:
        """One more, made in its process."""
        spawn = multiprocessing.get_context("spawn")
        self._conns[side, index], theirs = spawn.Pipe()
        spawn.Process(target=_serve, args=(theirs, make, args), daemon=True).start()

    def tell(self, sides: str, name: str, *args: Any) -> dict[tuple[str, int], Any]:
        """Have all of these sides do it, at the same time; what each answers. RuntimeError: what one could not do."""
        asked = [key for key in self._conns if key[0] in sides]
        for key in asked:
            self._conns[key].send((name, args))
        answers = {key: self._conns[key].recv() for key in asked}
        for (side, index), (good, answer) in answers.items():
            if not good:
                raise RuntimeError(f"{side}{index} {name}: {answer}")
        return {key: answer for key, (_, answer) in answers.items()}


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

"""Members: ranks in processes of their own, told by name what to do, all of a side at the same time.

They are programs of a `ProcessGroup`.  Between two commands a rank is idle in a way of its own: it polls its endpoint.
A process that ends before it has answered takes the others with it: they may wait for it, and there is nothing to be
measured without it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import torch

from kvproto.lab.process_group import ParentPipe, ProcessGroup, Program, RankError

#: seconds: longer than anything that is measured
LONGEST_S = 1e6


class BenchMember(Protocol):
    """A rank that is told; every command is a method."""

    def idle(self) -> None:
        """Called again and again while nobody says anything."""

    def end(self) -> None:
        """The last command."""


class Members:
    """The processes, by side ("P" or "D") and index."""

    def __init__(self) -> None:
        self._group = ProcessGroup(warm="torch")
        self._keys: dict[str, tuple[str, int]] = {}

    def start(self, side: str, index: int, make: Callable[..., BenchMember], *args: Any) -> None:
        self._keys[f"{side}{index}"] = side, index
        self._group.start(Program(f"{side}{index}", f"{__name__}:serve", (make, args)))

    def tell(self, sides: str, name: str, *args: Any) -> dict[tuple[str, int], Any]:
        """Have all of these sides do it, at the same time; what each answers.

        RuntimeError: what one could not do, or that its process has ended; then all of them are.
        """
        asked = [each for each, (side, _) in self._keys.items() if side in sides]
        try:
            self._group.tell(asked, name, args)
            answers = self._group.collect("done", asked, LONGEST_S)
        except RankError:
            self._group.kill()
            self._keys.clear()
            raise
        for each in asked:
            good, answer = answers[each]
            if not good:
                raise RuntimeError(f"{each} {name}: {answer}")
        return {self._keys[each]: answers[each][1] for each in asked}

    def close(self) -> None:
        """Have all end that are left, and wait until they have."""
        if self._keys:
            self.tell("".join({side for side, _ in self._keys.values()}), "end")
            self._group.finish()
            self._keys.clear()


def spent(told: Mapping[tuple[str, int], Any], last: str) -> float:
    """Return the seconds from the first begin at a prefill rank to the last end on the side `last`.

    `told`: answers whose first two values are a begin and an end.
    """
    begin = min(each[0] for (side, _), each in told.items() if side == "P")
    return float(max(each[1] for (side, _), each in told.items() if side == last) - begin)


def serve(line: ParentPipe, make: Callable[..., BenchMember], args: tuple[Any, ...]) -> None:
    torch.set_num_threads(1)
    member, name = make(*args), ""
    while name != "end":
        while not line.waiting():
            member.idle()
        name, given = line.listen()
        try:
            answer = True, getattr(member, name)(*given)
        except Exception as error:  # noqa: BLE001  # it is the parent's to judge
            answer = False, f"{type(error).__name__}: {error}"
        line.tell("done", answer)

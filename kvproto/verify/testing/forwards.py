"""Forwards: KV appears only when its event is waited for; another event leaves other bytes.

Engines on a stage queue a forward and give its event to `produced` at once, as engines on a GPU do.  A kernel that
waits for the event has the forward run; a write over pages, which only asks, finds it over after a few questions.
Forwards of one rank's room run in the order in which they were queued.
"""

from __future__ import annotations

from collections.abc import Callable

#: questions that are answered with no before a forward is over
QUESTIONS = 3


class Forward:
    """The tokens [first, upto) of a room on one rank, and the event of their forward."""

    def __init__(self, queue: list[Forward], first: int, upto: int, write: Callable[[int, int], None]) -> None:
        """Put this forward at the end of the `queue` of its room and rank; `write(first, upto)` puts KV there."""
        self.queue, self.first, self.upto, self.write = queue, first, upto, write
        self._asked, self.passed = 0, False
        queue.append(self)

    def query(self) -> bool:
        """Whether it is over: after so many questions it is."""
        self._asked += 1
        if self._asked > QUESTIONS:
            self.wait()
        return self.passed

    def wait(self, _stream: object = None) -> None:
        """Run it, and those before it; one that the engine has dropped is over and computes nothing."""
        while self.queue and not self.passed:
            each = self.queue.pop(0)
            each.passed = True
            if each.first < each.upto:
                each.write(each.first, each.upto)
        self.passed = True

    def keep(self, upto: int) -> None:
        """Withdraw everything beyond so many tokens: it is not computed any more."""
        self.upto = min(self.upto, upto)

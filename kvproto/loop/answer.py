"""Answer: the result of an action that one thread asks another for; an interrupt leaves no lock held.

`threading.Event` and `Future` take their lock in Python code.  A signal handler that raises in there leaves the lock
held, and the thread that would set them waits for it for ever.  Here waiting is one call of a lock that nobody else
takes, and whether an action begins is settled by one `pop`.
"""

from __future__ import annotations

from _thread import TIMEOUT_MAX, allocate_lock
from collections.abc import Callable
from typing import Any


class Answer:
    """An action, and what it has returned or raised."""

    def __init__(self, action: Callable[[], Any]) -> None:
        """Nobody has begun with the action."""
        #: the action, until a thread carries it out or another one gives it up
        self._left = [action]
        self._result: Any = None
        self._error: BaseException | None = None
        #: whether the action is over
        self.over = False
        self._gate = allocate_lock()
        self._gate.acquire()

    def act(self) -> None:
        """Carry the action out, unless it was given up; it raises nothing.  Any thread, once."""
        if not (left := self._take()):
            return
        try:
            self._result = left[0]()
        except BaseException as error:  # noqa: BLE001  # the caller's, whatever it is
            self._error = error
        self.over = True
        self._gate.release()

    def give_up(self) -> bool:
        """Have the action never begin; false: it has begun.  Any thread."""
        return bool(self._take())

    def wait(self, seconds: float) -> bool:
        """Block until the action is over, so many seconds at most; whether it is.  Any thread."""
        # In this order NaN is 0; a number below 0 would wait for ever.
        if not self.over and self._gate.acquire(timeout=min(max(0.0, seconds), TIMEOUT_MAX)):
            self._gate.release()  # for the next who waits
        return self.over

    def result(self) -> Any:
        """Return, or raise, what the action did; it is over."""
        if self._error is not None:
            raise self._error
        return self._result

    def _take(self) -> list[Callable[[], Any]]:
        try:
            return [self._left.pop()]
        except IndexError:
            return []

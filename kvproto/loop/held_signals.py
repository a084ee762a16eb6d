"""Held signals: handlers that raise are deferred while a pass runs.

A pass takes calls, frames and events out of queues and carries them out.  A KeyboardInterrupt in the middle would lose
the taken entries unnoticed: the engine catches it and goes on, and a room stalls.  So the handlers of
SIGINT and SIGTERM, where they are Python's, are called when the pass is over.  Only the main thread runs handlers: for
all others there is nothing to hold back.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from importlib import import_module
from typing import Any, Self

SIGNALS = int(signal.SIGINT), int(signal.SIGTERM)
_MAIN = threading.main_thread
# What the public module wraps, which turns numbers into names and back: 2 us each time, eight times a pass.
try:
    _signals: Any = import_module("_signal")
except ImportError:  # another interpreter's
    _signals = signal


class HeldHandler:
    """Stands in for a handler, and calls it later; once it is let go of, at once."""

    __slots__ = ("handler", "holds", "kept", "woken")

    def __init__(self, handler: Callable[[int, Any], object], woken: Callable[[], None]) -> None:
        self.handler, self.woken, self.holds = handler, woken, True
        self.kept: tuple[int, Any] | None = None

    def __call__(self, number: int, frame: Any) -> None:
        if not self.holds:  # another block has restored it since
            self.handler(number, frame)
            return
        self.kept = number, frame
        self.woken()


class HeldSignals(list[tuple[int, HeldHandler]]):
    """A block in which signals wait, on the main thread; each with the stand-in for its handler."""

    #: called when a signal comes: it ends a sleep
    woken: Callable[[], None] = staticmethod(lambda: None)

    @classmethod
    def waking(cls, woken: Callable[[], None]) -> Self:
        """A block in which a signal that comes calls this."""
        held = cls()
        held.woken = woken
        return held

    def __enter__(self) -> None:
        if threading.get_ident() != _MAIN().ident:
            return
        try:
            for number in SIGNALS:
                handler = _signals.getsignal(number)
                if callable(handler):
                    ours = HeldHandler(handler, self.woken)
                    self.append((number, ours))
                    _signals.signal(number, ours)
        except BaseException:  # a signal that came before it is held, and whose handler raises
            self.__exit__()
            raise

    def __exit__(self, *_: object) -> None:
        for number, ours in self:
            ours.holds = False
            if _signals.getsignal(number) is ours:  # else other code has set another handler meanwhile
                _signals.signal(number, ours.handler)
        for _number, ended in self:
            if ended.kept is not None:
                ended.handler(*ended.kept)

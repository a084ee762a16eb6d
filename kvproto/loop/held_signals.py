"""Held signals: handlers that raise are deferred while a pass runs.

A pass takes calls, frames and events out of queues and carries them out.  A KeyboardInterrupt in the middle would lose
the taken entries unnoticed: the engine catches it and goes on, and a room stalls.  So the handlers of
SIGINT and SIGTERM, where they are Python's, are called when the pass is over.  Only the main thread runs handlers: for
all others there is nothing to hold back.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)
_MAIN = threading.main_thread


class HeldHandler:
    """Stands in for a handler, and calls it later; once it is let go of, at once."""

    def __init__(self, handler: Callable[[int, Any], object], woken: Callable[[], None]) -> None:
        self.handler, self.woken, self.holds = handler, woken, True
        self.kept: tuple[int, Any] | None = None

    def __call__(self, number: int, frame: Any) -> None:
        """The signal has come."""
        if not self.holds:  # another block has restored it since
            self.handler(number, frame)
            return
        self.kept = number, frame
        self.woken()


def held_signals(woken: Callable[[], None] = lambda: None) -> Any:
    """Hold signals back for a block; `woken` is called when one comes: it ends a sleep."""
    return _held(woken) if threading.get_ident() == _MAIN().ident else _NOTHING


class _Nothing:
    """The block of a thread that runs no handlers."""

    def __enter__(self) -> None: ...
    def __exit__(self, *_: object) -> None: ...


_NOTHING = _Nothing()


@contextmanager
def _held(woken: Callable[[], None]) -> Iterator[None]:
    held: dict[int, HeldHandler] = {}
    try:
        for number in SIGNALS:
            handler = signal.getsignal(number)
            if callable(handler) and not (isinstance(handler, HeldHandler) and handler.holds):
                held[number] = HeldHandler(handler, woken)
                signal.signal(number, held[number])
        yield
    finally:
        for known, ours in held.items():
            ours.holds = False
            there = signal.getsignal(known) is ours
            if there:  # else other code has set another handler meanwhile
                signal.signal(known, ours.handler)
        for ended in held.values():
            if ended.kept is not None:
                ended.handler(*ended.kept)

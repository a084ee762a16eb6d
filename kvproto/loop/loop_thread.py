"""Who polls: one thread at a time, the engine's own or one that is made for it.

The first thread that polls owns the loop, and with it the sockets and the transport under it; another one is refused,
until it adopts the loop from one that has stopped.  With `run` the loop has a thread of its own, until `stop`.

Nothing should end that thread.  If something does, it is kept (`broken`), whoever waits is told, and every call of the
engine says so from then on: an engine must not wait for outcomes that nobody will hand out.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol

from kvproto.errors import EndpointError
from kvproto.io.control.control import Control
from kvproto.loop.own_thread import OwnThread


class Source(Protocol):
    """Something that raises events by itself and has to be polled."""

    def poll(self) -> bool:
        """Raise what has happened; whether there was anything."""

    def busy(self) -> bool:
        """Whether something is in flight, so that the next poll may find something."""

    def close(self) -> None:
        """Let go of everything."""


class LoopThread:
    """What is polled, and by whom."""

    def __init__(self, control: Control) -> None:
        self.control = control
        self.sources: list[Source] = []
        self.closed = False
        #: what ended the loop's own thread
        self.broken: Exception | None = None
        #: called when the loop is closed, or broken
        self.ended: Callable[[], None] = lambda: None
        self._thread: threading.Thread | None = None
        self._owner: int | None = None
        self._stop: bool

    def poll(self) -> bool:
        """One bounded pass; whether anything happened."""
        raise NotImplementedError

    def wait(self) -> None:
        """Sleep until there may be something to do."""
        raise NotImplementedError

    def check(self) -> None:
        """EndpointError if the loop was closed, or has broken."""
        if self.closed:
            raise EndpointError("this endpoint is closed: make a new one")
        if self.broken is not None:
            raise EndpointError(f"the loop has stopped, by {self.broken!r}: close this endpoint") from self.broken

    @property
    def mine(self) -> bool:
        """Whether the calling thread is the one that polls."""
        return self._owner == threading.get_ident()

    def run(self, name: str, asks: OwnThread) -> None:
        """Poll on a thread of its own until `stop`; `asks`: what it has of the process meanwhile."""
        self.check()
        if self._thread is not None:
            raise EndpointError("the loop runs already")
        self._stop = False
        asks.begin()
        self._thread = threading.Thread(target=self._run, args=(asks,), name=name, daemon=True)
        self._thread.start()

    def _run(self, asks: OwnThread) -> None:
        self.adopt()
        try:
            asks.enter()
            while not self._stop:
                if not self.poll():
                    self.wait()
        except Exception as error:
            self.broken = error
            self.ended()
            raise
        finally:
            asks.end()

    def claim(self) -> None:
        """The first thread that polls owns the loop; for another one, which has to adopt it, EndpointError."""
        if self._owner == threading.get_ident():
            return
        self.check()
        if self._owner is not None:
            other = f"thread {self._owner} polls this loop"
            raise EndpointError(f"{other}: another one calls adopt() once that has stopped")
        self.adopt()

    def adopt(self) -> None:
        """Make the calling thread the loop's; the former one must have stopped polling."""
        self._owner = threading.get_ident()
        for source in self.sources:
            adopt = getattr(source, "adopt", None)
            if adopt is not None:
                adopt()

    def stop(self) -> None:
        """End the loop's own thread, if it has one; the calling thread is the loop's then."""
        if self._thread is not None:
            self._stop = True
            self.control.wake()
            self._thread.join()
            self._thread = None
            self.adopt()

    def close(self) -> None:
        """Stop, and let go of sockets, transports and threads; no other thread may be polling."""
        if self.closed:
            return
        self.stop()
        self.adopt()
        self.closed = True
        self.ended()
        for source in self.sources:
            source.close()
        self.control.close(0.1)

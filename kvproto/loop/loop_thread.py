"""The loop thread: one thread at a time polls the loop, the engine's own or one that is made for it.

The first thread that polls owns the loop, with its sockets and its transport.  Another thread is refused until it
adopts the loop from one that has stopped.  With `run` the loop has a thread of its own, until `stop`.

Nothing should end that thread.  If an error does, SystemExit included, it is kept (`broken`) and logged, waiting
threads are woken, and every later call of the engine raises it: an engine must not wait for outcomes that never come.

A child that the process forks has no such thread, and its copy of sockets and transport is the parent's: there every
loop counts as closed, and `close` has no work.

`close` runs every step once, whatever the others raise, and then raises what failed: helper threads first (`helpers`),
then the loop's own thread, the last messages (`farewells`) while everything still works, then sources and sockets.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Protocol
from weakref import WeakSet

from kvproto.errors import EndpointError, Step, failures, raise_exit, run_all
from kvproto.io.control.control import Control
from kvproto.loop.held_signals import HeldSignals
from kvproto.loop.own_thread import OwnThread

#: seconds of a sleep, at most
LONGEST_WAIT = 1.0
#: why a loop cannot be called
CLOSED = "this endpoint is closed: make a new one"
FORKED = "this endpoint is of the process that has forked this one: make one here"
WITHIN = "this endpoint is called by a callback of its own pass (a span, a log handler): do that after the pass"


class Source(Protocol):
    """Something that raises events by itself and has to be polled."""

    def poll(self) -> bool:
        """Raise what has happened; whether there was anything."""

    def busy(self) -> bool:
        """Whether something is in flight, so that the next poll may find something."""

    def alarms(self) -> list[int] | None:
        """Return descriptors that become readable when what is in flight moves; None: it has to be polled.

        An empty list: a frame says when it moves.
        """

    def close(self) -> None:
        """Let go of everything."""


class LoopThread:
    """The inputs of a loop, and the thread that polls them."""

    def __init__(self, control: Control) -> None:
        self.control = control
        #: what is polled, run and closed for this loop: itself, or the loops that it is joined with (`JoinedLoops`)
        self.whole: LoopThread = self
        self.sources: list[Source] = []
        self.closed = self._closing = False
        #: what ended the loop's own thread
        self.broken: BaseException | None = None
        #: first steps of `close`, and its steps once no other thread polls
        self.helpers: list[Step] = []
        self.farewells: list[Step] = []
        #: called when the loop is closed, or broken
        self.ended: Callable[[], None] = lambda: None
        self._thread: threading.Thread | None = None
        self._owner: int | None = None
        self._stop: bool
        #: a pass is being made, by the thread that owns the loop
        self.within = False
        self._why = CLOSED
        _LOOPS.add(self)

    def poll(self) -> bool:
        """One bounded pass; whether anything happened."""
        raise NotImplementedError

    def wait(self, timeout: float = LONGEST_WAIT) -> None:
        """Sleep until there may be something to do, `timeout` seconds at most."""
        raise NotImplementedError

    def watches(self) -> bool:
        """Whether something is in flight that only a pass can see to move."""
        raise NotImplementedError

    @property
    def due(self) -> float:
        """Seconds from the last pass until the next one is due, if nothing arrives before; infinity: never."""
        raise NotImplementedError

    def check(self) -> None:
        """EndpointError if the loop was closed, or has broken."""
        if self.closed:
            raise EndpointError(self._why)
        if self.broken is not None:
            raise EndpointError(self.fate) from self.broken

    @property
    def fate(self) -> str:
        """A sentence about what has ended the loop; empty: nothing."""
        return f"the loop has stopped, by {self.broken!r}: close this endpoint" if self.broken is not None else ""

    @property
    def forked(self) -> bool:
        """Whether this is the copy in the child of a fork: every descriptor here is its parent's, too."""
        return self._why is FORKED

    @property
    def mine(self) -> bool:
        return self._owner == threading.get_ident()

    def run(self, name: str, asks: OwnThread) -> None:
        """Poll on a thread of its own until `stop`; `asks`: what it has of the process meanwhile."""
        self.check()
        if self._thread is not None:
            raise EndpointError("the loop runs already")
        self._stop = False
        # The process's settings are changed under a lock, and put back by the thread: interrupts wait until it runs.
        with HeldSignals():
            asks.begin()
            thread = threading.Thread(target=self._run, args=(asks,), name=name, daemon=True)
            try:
                thread.start()
            except BaseException as error:
                asks.end()
                if isinstance(error, Exception):
                    told = f"the loop gets no thread of its own ({error}): poll it, or start again"
                    raise EndpointError(told) from error
                raise
            self._thread = thread

    def _run(self, asks: OwnThread) -> None:
        try:
            self.adopt()
            asks.enter()
            while not self._stop:
                # With nothing in flight a second pass would find what the sleep looks for anyway.
                if not (self.poll() and self.watches()):
                    self.wait()
        except BaseException as error:  # SystemExit, too: a thread ends by it silently
            self.broken = error
            self.ended()
            self.broke(error)
            raise
        finally:
            asks.end()

    def broke(self, error: BaseException) -> None:
        """Handle the consequences of an error that has ended the loop's own thread."""

    def claim(self) -> None:
        """The first thread that polls owns the loop; for another one, which has to adopt it, EndpointError."""
        if self._owner == threading.get_ident() and self.broken is None:
            if self.within:
                raise EndpointError(WITHIN)
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
            try:
                self.control.wake()
            finally:  # a loop that is not woken wakes by itself in a while
                self._thread.join()
                self._thread = None
            self.adopt()

    def close(self) -> None:
        """Stop, and release sockets, transports and threads; idempotent.  No other thread may be polling.

        EndpointError: all of it was tried, and something failed; or a callback of a pass asks for it, and nothing is
        done.
        """
        with HeldSignals():  # an interrupt once it counts as closed would leave a second `close` nothing to do
            if self._closing:
                return
            if self.within and self.mine:  # the rest of the pass would find everything closed
                raise EndpointError(WITHIN)
            self._closing = True
            failed = run_all([*self.first_steps(), *self.last_steps()])
            self._owner = None  # so that a thread that still polls gets EndpointError: it is closed
            raise_exit(failed)
            if failed:
                raise EndpointError(f"it is closed, but not all went well: {failures(failed)}")

    def first_steps(self) -> list[Step]:
        """List the steps of `close` up to the last messages, which are sent while everything works."""
        return [*self.helpers, ("its thread", self.stop), ("its owner", self.adopt), *self.farewells]

    def last_steps(self) -> list[Step]:
        """List the steps of `close` after which nothing can be called any more."""
        return [
            ("who waits for it", self._shut), *[(type(source).__name__, source.close) for source in self.sources],
            ("the control plane", lambda: self.control.close(0.1)),
        ]  # fmt: skip

    def _shut(self) -> None:
        self.closed = True
        self.ended()

    def left_behind(self) -> None:
        """In the child of a fork: all here is the parent's, its thread is not here, and `close` has no work."""
        self.closed = self._closing = True
        self._thread, self._owner, self._why = None, None, FORKED


_LOOPS: WeakSet[LoopThread] = WeakSet()


def _leave_behind() -> None:
    for loop in [*_LOOPS]:
        loop.left_behind()


os.register_at_fork(after_in_child=_leave_behind)

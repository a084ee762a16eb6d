"""Pool attachment: takes the pool of a running endpoint away, and gives the endpoint another one.

`detach` waits for three things, one after the other (docs/design/memory_that_comes_and_goes.md):

1. every room that the engine has opened is released: by the protocol nothing of it is read any more, or can land;
2. on a decode rank no peer is connected to the transport's instance that has the memory (`PrefillGroups.call_anew`);
3. the transport has closed every region.

Each is looked at once a pass, and nothing blocks.  `attach` blocks its caller as the constructor does, and the loop as
long, whose thread owns the transport.  No room is open then, and peers take the silence for an engine that compiles
(`Timing.silence`).  A second `attach`, and a `detach`, are refused meanwhile: the loop's thread may be the one that
calls them, and would wait for itself.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Literal, get_args

from kvproto.errors import ArgumentError
from kvproto.loop.held_signals import HeldSignals
from kvproto.loop.rank_loop import Loop
from kvproto.observe.logs import named

#: what becomes of rooms that are not over: the engine gives them up, or waits for them
Rooms = Literal["end", "finish"]
#: why an endpoint is neither attached nor detached now
ATTACHES = "another thread is attaching a pool to this endpoint: wait until that call of `attach` has returned"


class PoolAttachment:
    """Whether an endpoint has its pool; a source of its loop while the pool is taken away."""

    def __init__(self, loop: Loop, done: Callable[[], None]) -> None:
        """`done` is called when the pool is the engine's."""
        self._loop, self._done = loop, done
        self._steps: Iterator[str] | None = None
        self._lock = threading.Lock()
        #: the call of `end` that waits for the loop; None: none
        self._attaching: Callable[[], None] | None = None
        #: the endpoint has a pool, and rooms may be opened
        self.attached = True
        #: a sentence about a pool that is not there, or about to go; empty: it is attached
        self.why = ""
        #: a sentence about a pool that stays until the endpoint is closed; empty: it may be detached
        self.stays = ""

    @property
    def detached(self) -> bool:
        """Whether the pool is the engine's again."""
        return not self.attached and self._steps is None

    def need(self) -> None:
        """ArgumentError: there is no pool for what is asked."""
        if not self.attached:
            raise ArgumentError(f"{self.why}: attach a pool first")

    def begin(self, rooms: Rooms, prepare: Callable[[], None], steps: Callable[[bool], Iterator[str]]) -> None:
        """Prepare, and take the pool away by these steps, which yield what they wait for.  Any thread."""
        if rooms not in get_args(Rooms):
            raise ArgumentError(f"rooms={rooms!r}: rooms 'end' or 'finish'")
        if self.stays:
            raise ArgumentError(self.stays)
        # Of two threads one is refused; an interrupt between two of these lines would leave a detach without end.
        with HeldSignals(), self._lock:
            self._need_no_attach()
            if not self.attached:
                raise ArgumentError(f"{self.why}: it can be detached again once another one is attached")
            self._loop.check()
            prepare()
            self._steps, self.why = steps(rooms == "end"), "this endpoint's pool is being detached"
            self.attached = False
            self._loop.call(lambda: self._loop.sources.append(self))

    def end(self, take: Callable[[], None], done: Callable[[], None]) -> None:
        """Have the loop's thread take another pool; `done` is called when rooms may be opened."""

        def act() -> None:
            take()
            self.attached, self.why, self._attaching = True, "", None
            done()

        try:
            with self._lock:
                self._need_no_attach()
                if self.attached:
                    raise ArgumentError(self.stays or "this endpoint has a pool: detach it first")
                if self._steps is not None:
                    raise ArgumentError(f"{self.why}: wait until it is `detached`")
                self._attaching = act
            # Without the lock: the thread that polls may wait for it, and this call waits for that thread.
            self._loop.ask(act)
        finally:
            if self._attaching is act:  # else it may be that of a later call
                self._attaching = None

    def _need_no_attach(self) -> None:
        if self._attaching is not None:
            raise ArgumentError(ATTACHES)

    # ---------------------------------------------------------------------------------------- as a source
    def poll(self) -> bool:
        """Take the steps that wait for nothing."""
        assert self._steps is not None
        try:
            waits = next(self._steps, None)
        except BaseException as error:  # the pool may be in use, and is not given back
            self._loop.sources.remove(self)
            self.why = f"this endpoint's pool could not be detached ({named(error)}): close the endpoint"
            raise
        if waits is not None:
            self.why = f"this endpoint's pool is being detached, which waits for {waits}"
            return False
        self._loop.sources.remove(self)
        self._steps, self.why = None, "this endpoint's pool is detached"
        self._done()
        return True

    def busy(self) -> bool:
        """Something is waited for."""
        return True

    def alarms(self) -> list[int]:
        """Other sources and frames move what is waited for."""
        return []

    def close(self) -> None:
        """Wait for nothing more."""

"""Joined loops: several event loops on one thread, each with its own party, control plane and sources.

A turn is one bounded pass of each loop, so none waits for another's queue.  What one raises is raised when all have had
their pass.  The sleep is as long as the shortest of theirs, and what wakes one of them wakes all.  They run, break and
close together: `close` lets every loop say its last messages before anything of one is released.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from threading import get_ident

from kvproto.errors import Step
from kvproto.loop.event_loop import EventLoop
from kvproto.loop.held_signals import HeldSignals
from kvproto.loop.loop_thread import LONGEST_WAIT, LoopThread


class JoinedLoops(LoopThread):
    """The thread of some loops, which are polled, run and closed by this object alone."""

    def __init__(self, loops: Mapping[str, EventLoop], last: Step) -> None:
        """Join these by their names, the one that listens last; `last` is done when all are closed."""
        self._loops, self._pairs, self._last = [*loops.values()], [*loops.items()], last
        super().__init__(self._loops[-1].control)
        for each in self._loops:
            each.whole = self

    # ---------------------------------------------------------------------------------------- polling
    def poll(self) -> bool:
        """One bounded pass of each loop; whether anything happened."""
        if self._owner != get_ident() or self.broken is not None or self.within:
            self.claim()
        moved, failed = False, list[BaseException]()
        with HeldSignals():
            self.within = True
            for each in self._loops:
                try:
                    moved |= each.turn()
                except BaseException as error:  # noqa: BLE001  # raised below: the others have their pass first
                    failed.append(error)
            self.within = False
        if failed:  # what is held is kept for the next poll
            raise failed[0]
        for each in self._loops:
            each.raise_held()
        return moved

    def wait(self, timeout: float = LONGEST_WAIT) -> None:
        """Sleep until one of the loops may have something to do, `timeout` seconds at most."""
        self.claim()
        rests = [each.rest(timeout) for each in self._loops]
        left = min(seconds for seconds, _ in rests)
        fds = [fd for each in self._loops for fd in each.bells]
        fds += [fd for _, alarms in rests for fd in alarms or ()]
        *others, listens = self._loops
        for each in others:
            found = each.attempt("its descriptors", each.control.descriptors)
            if not found:
                return
            fds += found
        if not left:
            return
        for each in self._loops:
            each.clock.allow(left)
        with HeldSignals.waking(self.control.wake):
            woken = listens.attempt("the control plane's wait", partial(listens.control.wait, left, fds))
        for each, (_, alarms) in zip(self._loops, rests, strict=True):
            if alarms is not None and woken:
                each.rouse()
            each.raise_held()

    def watches(self) -> bool:
        """Whether something of one of the loops is in flight that only a pass can see to move."""
        return any(each.watches() for each in self._loops)

    @property
    def due(self) -> float:
        """Seconds until the next pass of one of the loops is due."""
        return min(each.due for each in self._loops)

    # ------------------------------------------------------------------------------------- the thread
    @property
    def broken(self) -> BaseException | None:
        """The error that ended the thread of all loops."""
        return self._loops[0].broken

    @broken.setter
    def broken(self, error: BaseException | None) -> None:
        for each in self._loops:
            each.broken = error

    def adopt(self) -> None:
        self._owner = get_ident()
        for each in self._loops:
            each.adopt()

    def broke(self, error: BaseException) -> None:
        """Handle the consequences for every loop: nobody polls them any more."""
        for each in self._loops:
            each.ended()
            each.broke(error)

    def first_steps(self) -> list[Step]:
        helpers = [step for name, each in self._pairs for step in _named(name, each.helpers)]
        farewells = [step for name, each in self._pairs for step in _named(name, each.farewells)]
        return [*helpers, *super().first_steps(), *farewells]

    def last_steps(self) -> list[Step]:
        steps = [step for name, each in self._pairs for step in _named(name, each.last_steps())]
        return [("who waits for all", self._shut), *steps, self._last]


def _named(name: str, steps: list[Step]) -> list[Step]:
    return [(f"{name}: {what}", step) for what, step in steps]

"""Own thread: the process-wide settings that a loop on a thread of its own changes and restores.

Two settings belong to the process, not to the thread: the interpreter's switch interval, and whether the collector
visits the objects that exist at the start.  Each is changed while loops run that want it, and restored when the last of
them has stopped, unless other code has changed it meanwhile.  The thread's cores, its timer slack and its current GPU
belong to the thread, and end with it.

A child that the process forks has no such thread.  So both settings are restored there at once.
"""

from __future__ import annotations

import gc
import os
import sys
import threading
from collections.abc import Iterable

from kvproto.errors import ArgumentError
from kvproto.io.control.poller import serve_a_loop

#: A forward is thousands of short calls, each of which gives the interpreter's lock away and takes it back before
#: another thread has woken up; a scheduler that never sleeps gives it away only when it must.  A room waits for that
#: some ten times: beside such a scheduler one of 4 MiB took 2.8 ms after its forward with 200 us, 1.7 with 50.
SWITCH_S = 5e-5

_lock = threading.Lock()
#: what running loops ask for; and the interval: (what was there before, as it was set)
_asked: list[OwnThread] = []
_switch: tuple[float, float] | None = None
#: running loops that ask for a frozen heap
_frozen = 0


class OwnThread:
    """The settings that one loop needs while it runs."""

    def __init__(
        self, switch_interval: float = SWITCH_S, *, freeze: bool = False, cores: Iterable[int] | None = None,
        gpu: int = -1,
    ) -> None:  # fmt: skip
        """`gpu`: the GPU that the thread works on (-1: none).

        ArgumentError: a core that this process may not run on, or none; an interval that is none.
        """
        if not switch_interval > 0.0:  # nan is not
            raise ArgumentError(f"a switch interval of {switch_interval!r}: it is in seconds, more than 0")
        self.switch_interval, self.freeze, self.gpu = switch_interval, freeze, gpu
        self.cores = None if cores is None else {*cores}
        allowed = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set[int]()
        if self.cores is not None and not (self.cores and self.cores <= allowed):
            raise ArgumentError(f"cores {sorted(self.cores)}: this process may run on {sorted(allowed)}")

    def begin(self) -> None:
        """The loop is about to run."""
        global _frozen  # noqa: PLW0603  # the process has one of each
        with _lock:
            _asked.append(self)
            _switch_soon()
            if self.freeze:
                if not _frozen and not gc.get_freeze_count():
                    gc.collect()
                    gc.freeze()
                    _frozen = 1
                elif _frozen:
                    _frozen += 1
                else:
                    self.freeze = False  # other code has frozen the heap, and unfreezes it

    def enter(self) -> None:
        """On the loop's thread, before its first pass."""
        serve_a_loop()
        if self.cores is not None:
            os.sched_setaffinity(0, self.cores)
        if self.gpu >= 0:
            from kvproto.io.kernels.current_device import keep_device  # other protocols' loops need no torch

            keep_device(self.gpu)

    def end(self) -> None:
        global _frozen  # noqa: PLW0603
        with _lock:
            if self not in _asked:  # a pass of the loop has forked, and its thread ends in the child
                return
            _asked.remove(self)
            _switch_soon()
            if self.freeze:
                _frozen -= 1
                if not _frozen:
                    gc.unfreeze()


def _switch_soon() -> None:
    """The interval that is there, or the shortest one asked for; the former one when nobody asks any more."""
    global _switch  # noqa: PLW0603
    now = sys.getswitchinterval()
    if _switch is not None and now != _switch[1]:
        _switch = None  # other code has set it since, and owns it now
    before = _switch[0] if _switch is not None else now
    wanted = min((each.switch_interval for each in _asked), default=before)
    if wanted < before:
        sys.setswitchinterval(wanted)
        _switch = before, sys.getswitchinterval()
    elif _switch is not None:
        sys.setswitchinterval(before)
        _switch = None


def _leave_behind() -> None:
    """In the child of a fork: no loop runs here, and the settings are restored."""
    global _lock, _frozen  # noqa: PLW0603
    _lock = threading.Lock()  # another thread of the parent may have held it
    _asked.clear()
    _switch_soon()
    if _frozen:
        _frozen = 0
        gc.unfreeze()


os.register_at_fork(after_in_child=_leave_behind)

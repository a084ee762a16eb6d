"""Kernel ends: raises events for the ends of gathers or scatters, and logs those that fail."""

from __future__ import annotations

from collections.abc import Callable

from kvproto.fsm.vocabulary import Event
from kvproto.io.kernels.base import Ticket
from kvproto.loop.rank_loop import Loop
from kvproto.observe.logs import named
from kvproto.protocol.states import Cause


class KernelEnds:
    """Ends of kernels of one kind (`what`); `ended` and `failed` make the events of a kernel's key."""

    def __init__(self, loop: Loop, what: str, ended: Callable[..., Event], failed: Callable[..., Event]) -> None:
        self.loop, self.what, self.ended, self.failed = loop, what, ended, failed

    def over(self, key: tuple[int, ...], ticket: Ticket) -> bool:
        """Whether it has ended; if it has, the rank is told."""
        try:
            if not ticket.done():
                return False
        except BaseException as error:  # noqa: BLE001  # a device's fault ends the room, not the loop
            self.fail(key, error)
        else:
            self.loop.raise_event(self.ended(*key))
        return True

    def fail(self, key: tuple[int, ...], error: BaseException) -> None:
        """Tell the rank and the log that it has failed."""
        self.loop.hold(error)
        self.loop.logs.part(self.what, key, Cause.KERNEL_FAILED, named(error))
        self.loop.raise_event(self.failed(*key))

"""Small launches of one moment, as one.

A small gather or scatter costs its launch, and its bytes nothing: so what a pass asks for is made ready one by one, put
aside, and launched together when the pass has asked for all that it may, eight parts a launch.  One event is recorded
and asked for all of them: each has the same ticket.  Each is still a gather or a scatter of its own to its machine, and
ends by itself.  A large one goes when it is asked for, behind those that were asked for before it.

What waits for another forward goes by itself: the one whose KV is there must not wait for the one whose is not.  What
kernels cannot join goes one by one, and so does what fails together, so that who is at fault fails alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from kvproto.data.launches import TOGETHER
from kvproto.data.prepared_launches import ReadyLaunch
from kvproto.io.kernels.base import Kernels, Ticket

T = TypeVar("T")
#: whose it is, what it launches, and the event that it waits for
Asked = tuple[T, ReadyLaunch, Any]
#: told whose it was, what was launched, its ticket or what it has raised, and whether it went alone
Went = Callable[[T, ReadyLaunch, Ticket | BaseException, bool], None]


class JointLaunches(Generic[T]):
    """Where one rank's gathers, or its scatters, are launched."""

    def __init__(self, kernels: Kernels, stream: Any, went: Went[T]) -> None:
        """`stream`: where they go (None: there is no device, and nothing is put aside); `went` is told of each."""
        self.kernels, self._stream, self._went = kernels, stream, went
        #: those that go with others; whether there are some is looked at without a call
        self.aside: list[Asked[T]] = []

    def ask(self, whose: T, made: ReadyLaunch, after: Any, *, small: bool) -> None:
        """Launch this after its event: a small one with the others of its moment, a large one now."""
        if small and self._stream is not None:
            self.aside.append((whose, made, after))
            if len(self.aside) >= TOGETHER:
                self.go()
            return
        if self.aside:
            self.go()
        ticket: Ticket | BaseException
        try:  # as in `_alone`, which would be a call more
            ticket = made.launch(self._stream, after)
        except BaseException as error:  # noqa: BLE001  # a kernel's fault ends the room, not the loop
            ticket = error
        self._went(whose, made, ticket, True)

    def go(self) -> None:
        """Launch what was put aside."""
        asked, self.aside = self.aside, []
        begin = 0
        for end in range(1, len(asked) + 1):
            if end == len(asked) or asked[end][2] is not asked[begin][2]:
                ticket = self._together(asked[begin:end])
                for whose, made, after in asked[begin:end]:
                    self._went(whose, made, ticket or self._alone(made, after), len(asked) == 1)
                begin = end

    def _together(self, asked: list[Asked[T]]) -> Ticket | None:
        """The ticket of all of these, which wait for the same event; None: each is to go by itself."""
        if len(asked) == 1:
            return None
        try:
            joint = self.kernels.join([made.launch for _, made, _ in asked])
            return joint and joint(self._stream, asked[0][2])
        except Exception:  # noqa: BLE001  # one of them is at fault
            return None

    def _alone(self, made: ReadyLaunch, after: Any) -> Ticket | BaseException:
        try:
            return made.launch(self._stream, after)
        except BaseException as error:  # noqa: BLE001  # as above
            return error

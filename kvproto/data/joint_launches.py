"""Joint launches: small gathers or scatters of one pass in one launch.

A small gather or scatter costs its launch, not its bytes.  So the small ones of a pass are prepared one by one, put
aside, and launched together at the end of the pass, eight parts in each launch.  They share one recorded event, and so
one ticket.  To its machine each is still a gather or a scatter of its own.  A large one is launched at once, after
those that were requested before it.

Launches that wait for different forwards are not joined: ready KV must not wait for KV that is not computed yet.
Launches that the kernels cannot join run one by one.  So do launches that fail together: then only the faulty one
fails.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from kvproto.data.launches import TOGETHER
from kvproto.data.prepared_launches import ReadyLaunch
from kvproto.io.kernels.base import Kernels, Ticket

T = TypeVar("T")
#: its owner, the launch, and the event that it waits for
Asked = tuple[T, ReadyLaunch, Any]
#: called with the owner, the launch, its ticket or error, and whether it was launched alone
Went = Callable[[T, ReadyLaunch, Ticket | BaseException, bool], None]


class JointLaunches(Generic[T]):
    """Launches the gathers, or the scatters, of one rank."""

    def __init__(self, kernels: Kernels, stream: Any, went: Went[T]) -> None:
        """`stream` of the launches (None: no device, nothing is put aside); `went` is called for each."""
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

"""Small launches of one moment, as one.

A small gather or scatter costs its launch, and its bytes nothing: so what a pass asks for is made ready one by one, put
aside, and launched together when the pass has asked for all that it may, eight parts a launch.  One event is recorded
and asked for all of them: each has the same ticket.  Each is still a gather or a scatter of its own to its machine, and
ends by itself.

What waits for another forward goes by itself: the one whose KV is there must not wait for the one whose is not.  What
kernels cannot join goes one by one, and so does what fails together, so that who is at fault fails alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Generic, TypeVar

from kvproto.engine.launches import TOGETHER
from kvproto.engine.prepared_launches import ReadyLaunch
from kvproto.io.kernels.base import Kernels, Ticket

T = TypeVar("T")
#: whose it is, what it launches, and the event that it waits for
Asked = tuple[T, ReadyLaunch, Any]
Launched = tuple[T, ReadyLaunch, Ticket | Exception]


class JointLaunches(Generic[T]):
    """What was put aside."""

    def __init__(self) -> None:
        #: there is something or not is looked at without a call
        self.aside: list[Asked[T]] = []

    def put_aside(self, whose: T, made: ReadyLaunch, after: Any) -> bool:
        """It goes with the next; whether there is enough."""
        self.aside.append((whose, made, after))
        return len(self.aside) >= TOGETHER

    def go(self, kernels: Kernels, stream: Any) -> Iterator[Launched[T]]:
        """Launch all of them; of each its ticket, or what it has raised."""
        asked, self.aside = self.aside, []
        begin = 0
        for end in range(1, len(asked) + 1):
            if end == len(asked) or asked[end][2] is not asked[begin][2]:
                yield from self._launch(kernels, stream, asked[begin:end])
                begin = end

    def _launch(self, kernels: Kernels, stream: Any, asked: list[Asked[T]]) -> Iterator[Launched[T]]:
        """Those that wait for the same event."""
        ticket: Ticket | None = None
        if len(asked) > 1:
            try:
                joint = kernels.join([made.launch for _, made, _ in asked])
                ticket = joint and joint(stream, asked[0][2])
            except Exception:  # noqa: BLE001  # one of them is at fault: each alone
                ticket = None
        for whose, made, after in asked:
            yield whose, made, ticket or _alone(made, stream, after)


def _alone(made: ReadyLaunch, stream: Any, after: Any) -> Ticket | Exception:
    try:
        return made.launch(stream, after)
    except Exception as error:  # noqa: BLE001  # a kernel's fault ends the room, not the loop
        return error

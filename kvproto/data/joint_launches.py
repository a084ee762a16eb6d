"""Joint launches: small gathers or scatters of one pass in one launch, and the ends of all.

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
from typing import Any, Generic, NamedTuple, TypeVar

from kvproto.data.launches import TOGETHER
from kvproto.data.prepared_launches import ReadyLaunch
from kvproto.fsm.vocabulary import Event
from kvproto.io.kernels.base import Kernels, Ticket
from kvproto.loop.rank_loop import Loop
from kvproto.observe.logs import named
from kvproto.protocol.states import Cause

T = TypeVar("T")
Key = tuple[int, ...]
#: its owner, the launch, and the event that it waits for
Asked = tuple[T, ReadyLaunch, Any]
#: called with the owner, the launch, its ticket, and whether it was launched alone
Went = Callable[[T, ReadyLaunch, Ticket, bool], None]


class LaunchKind(NamedTuple):
    """Gathers or scatters: the word for one in logs, the key of its owner, and its events of this key."""

    what: str
    key: Callable[[Any], Key]
    ended: Callable[..., Event]
    failed: Callable[..., Event]


class JointLaunches(Generic[T]):
    """Launches the gathers, or the scatters, of one rank, and raises events for their ends."""

    def __init__(self, loop: Loop, kernels: Kernels, stream: Any, kind: LaunchKind, went: Went[T]) -> None:
        """`stream` (None: no device, nothing is put aside); `went` is called for each that was launched."""
        self.loop, self.kernels, self.kind = loop, kernels, kind
        self._stream, self._went = stream, went
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
        self._launch(whose, made, after, alone=True)

    def go(self) -> None:
        asked, self.aside = self.aside, []
        begin = 0
        for end in range(1, len(asked) + 1):
            if end == len(asked) or asked[end][2] is not asked[begin][2]:
                ticket = self._together(asked[begin:end])
                for whose, made, after in asked[begin:end]:
                    if ticket is None:
                        self._launch(whose, made, after, alone=len(asked) == 1)
                    else:
                        self._went(whose, made, ticket, False)
                begin = end

    def over(self, key: Key, ticket: Ticket) -> bool:
        """Whether it has ended; if it has, the rank is told."""
        try:
            if not ticket.done():
                return False
        except BaseException as error:  # noqa: BLE001  # a device's fault ends the room, not the loop
            self.fail(key, error)
        else:
            self.loop.raise_event(self.kind.ended(*key))
        return True

    def fail(self, key: Key, error: BaseException) -> None:
        """Tell the rank and the log that it has failed."""
        self.loop.hold(error)
        self.loop.logs.part(self.kind.what, key, Cause.KERNEL_FAILED, named(error))
        self.loop.raise_event(self.kind.failed(*key))

    def _together(self, asked: list[Asked[T]]) -> Ticket | None:
        """The ticket of all of these, which wait for the same event; None: each is to go by itself."""
        if len(asked) == 1:
            return None
        try:
            joint = self.kernels.join([made.launch for _, made, _ in asked])
            return joint and joint(self._stream, asked[0][2])
        except Exception:  # noqa: BLE001  # one of them is at fault
            return None

    def _launch(self, whose: T, made: ReadyLaunch, after: Any, *, alone: bool) -> None:
        try:
            ticket = made.launch(self._stream, after)
        except BaseException as error:  # noqa: BLE001  # a kernel's fault ends the room, not the loop
            self.fail(self.kind.key(whose), error)
        else:
            self._went(whose, made, ticket, alone)

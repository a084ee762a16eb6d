"""Gathers of a prefill rank: from the pool's pages into staging slots.

All gathers use one stream, so they end in launch order, and only the oldest is polled.  Launches are fair among rooms
(`launches`), large ones one by one and small ones of a device together (`joint_launches`).  After each launch the
oldest gather is polled again, because a launch takes the host as long as a small gather takes the device.  While a
gather runs its write is prepared, unless it is small and not alone: small writes that are ready together are posted as
one (`writes`), which is not known yet.  A device has at most `AHEAD` gathers in flight, or `TOGETHER` small ones; more
would delay the first write until all are launched.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from operator import attrgetter
from typing import Any

from msgspec.structs import replace

from kvproto.data.chunk_launch import bind_chunk
from kvproto.data.joint_launches import JointLaunches, LaunchKind
from kvproto.data.launches import TOGETHER, Launches
from kvproto.data.prepared_launches import PreparedLaunches, ReadyLaunch
from kvproto.data.room_entry import NO_TABLE, RoomEntry
from kvproto.data.staged_writes import SMALL
from kvproto.data.staging_buffers import Staging
from kvproto.io.held_calls import passed
from kvproto.io.kernels.base import Kernels, Pool, Ticket
from kvproto.layout.cut import Part
from kvproto.loop.rank_loop import Loop
from kvproto.protocol import effects as do
from kvproto.protocol import events as ev

Key = tuple[int, int, int]
#: gathers that a device is given before the first of them has ended
AHEAD = 2
GATHER = LaunchKind("gather", attrgetter("room", "chunk", "peer"), ev.Gathered, ev.GatherFailed)


def _anywhere(effect: do.LaunchGather) -> do.LaunchGather:
    """Return the gather without the region of its write, which is granted only when the KV is computed."""
    return replace(effect, offset=0, grant=0)


class Gathers:
    """Gathers of one rank; a source of the loop through its owner, which polls it."""

    def __init__(
        self, loop: Loop, pool: Pool, kernels: Kernels, entries: dict[int, RoomEntry], staging: Staging,
        slot_bytes: int, meanwhile: Callable[[do.LaunchGather], None],
    ) -> None:  # fmt: skip
        """`meanwhile` is called with gathers in flight, and prepares their writes."""
        self.loop, self.pool, self.kernels, self.entries = loop, pool, kernels, entries
        self.staging, self.slot_bytes, self.meanwhile = staging, slot_bytes, meanwhile
        stream = staging.streams.stream
        self.together = JointLaunches[do.LaunchGather](loop, kernels, stream, GATHER, self._went)
        self.launches = Launches(loop, entries, self._hungry if stream is not None else None, self.together.go)
        self.prepared = PreparedLaunches[do.LaunchGather, Part](self._bind)
        self.small, self.ahead = SMALL, AHEAD
        #: told of a gather that had nothing beside it, and its seconds
        self.took: Callable[[do.LaunchGather, float], None] = lambda _effect, _seconds: None
        #: the last gather that has ended, and when
        self.ended: tuple[Key, float] | None = None
        #: when the last launch began; and the last gather that went, with its beginning, if nothing is beside it
        self._began: float = 0.0
        self._alone: tuple[do.LaunchGather, float] | None = None
        self._going: deque[tuple[Key, Ticket, do.LaunchGather, ReadyLaunch]] = deque()
        self._later: deque[Callable[[], None]] = deque()

    def __len__(self) -> int:
        """Those to be launched, those not yet seen to be over, and what is to follow them."""
        return len(self.launches) + len(self._going) + len(self._later)

    def later(self, action: Callable[[], None]) -> None:
        """Call `action` after the next gather in flight has ended, or at the next poll if there is none."""
        self._later.append(action)

    def poll(self) -> bool:
        """Raise events for gathers that have ended, and launch the next ones."""
        ended, fed = bool(self._going) and self._look(), False
        if self.launches.hungry is not None and self.launches:
            self.loop.settle()
            fed = self.launches.feed()
        if self._later and (ended or not (self._going or self.launches) or self._rests()):
            self.loop.settle()
            for _ in range(len(self._later)):
                self._later.popleft()()
            return True
        return ended or fed

    def _rests(self) -> bool:
        """Whether the device waits for a forward before the oldest gather: there is nothing to hold up."""
        event = self.awaits()
        return event is not None and not passed(event)

    def awaits(self) -> Any:
        """Return the event that the oldest gather waits for; None: only a look tells whether it has ended."""
        if not self._going or self.launches:
            return None
        _, _, effect, made = self._going[0]
        return made.entry.after(effect.to.cut.end, made.layers)

    def _hungry(self, large: bool) -> bool:  # noqa: FBT001
        return len(self._going) + len(self.together.aside) < (self.ahead if large else TOGETHER)

    def ask(self, effect: do.LaunchGather) -> None:
        self.launches.ask(effect.room, partial(self._launch, effect), large=effect.to.part.nbytes > self.small)

    def ready(self, effect: do.LaunchGather) -> None:
        """Prepare a gather that is expected, if it is large; its region does not matter."""
        if effect.to.part.nbytes > self.small:
            self.prepared.ready(_anywhere(effect), self.entries.get(effect.room), effect.to.part)

    def _bind(self, effect: do.LaunchGather, entry: RoomEntry, part: Part) -> ReadyLaunch:
        if entry.table is NO_TABLE:
            self.staging.streams.place_all()
        cut, start = effect.to.cut, effect.slot * self.slot_bytes
        launch = bind_chunk(self.kernels, "gather", self.pool, entry, cut, ((part, start),), self.staging.parts)
        depth = self.pool.layers if cut.state else part.share.src_layer + part.share.layers
        return ReadyLaunch(entry, part, launch, start, start + part.nbytes, part.nbytes, depth)

    def _launch(self, effect: do.LaunchGather) -> None:
        self._began = self.loop.clock.real()
        try:
            entry = self.entries[effect.room]
            part, prepared = effect.to.part, self.prepared
            # Small gathers are never prepared: for them no copy of the effect is made to look it up.
            made = prepared.take(_anywhere(effect), entry, part) if prepared.kept else self._bind(effect, entry, part)
            if entry.placed is not None:
                self.staging.streams.await_table(entry)
            cut = effect.to.cut
            after = entry.after(cut.first + cut.tokens, made.layers) if entry.marks else None
        except BaseException as error:  # noqa: BLE001  # a kernel's fault ends the room, not the loop
            self.together.fail(GATHER.key(effect), error)
            return
        self.together.ask(effect, made, after, small=made.end - made.first <= self.small)

    def _went(self, effect: do.LaunchGather, made: ReadyLaunch, ticket: Ticket, alone: bool) -> None:  # noqa: FBT001
        key = effect.room, effect.chunk, effect.peer
        if self.staging.twins:
            try:
                ticket = self.staging.sent_off(made.first, made.end, ticket)
            except BaseException as error:  # noqa: BLE001  # as above
                self.together.fail(key, error)
                return
        # What waits for a forward, or for other gathers, does not tell what a gather takes.
        self._alone = (effect, self._began) if alone and not self._going and not made.entry.marks else None
        if not self._going and self.together.over(key, ticket):
            self._ended(key)
            return
        self._going.append((key, ticket, effect, made))
        large = made.end - made.first > self.small
        if large or (alone and len(self._going) == 1 and not self.launches):
            self.meanwhile(effect)
        if large or not self.launches:
            self._look()

    def _look(self) -> bool:
        moved = False
        while self._going and self.together.over(*self._going[0][:2]):
            self._ended(self._going.popleft()[0])
            moved = True
        return moved

    def _ended(self, key: Key) -> None:
        self.ended = key, self.loop.clock.real()
        if self._alone is not None:
            effect, began = self._alone
            self.took(effect, self.ended[1] - began)

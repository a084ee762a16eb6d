"""Writes as the transport has them: batches that are ready, batches that are in flight.

What becomes of a write is decided by its machine (`prefill_write`); here its batches are kept until they are posted,
and what the transport says of them is said on as events.  A batch is offered (`BatchReady`), and posted when the
machine says so, at once: between the two nothing happens.

Three things make a batch wait, and none decides anything but when: what it reads is not computed yet (a write over
pages reads the pool itself, so no stream orders it after the forward), the transport has no room for it (it is offered
again in the next pass, in order, and a peer that has no room yet is asked once), or the pass has posted enough.  At
most `BUDGET` pieces are posted in one pass, so that a loop with much to slice still beats, hears and fires its timers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kvproto.engine.gathers import Key
from kvproto.engine.logs import named
from kvproto.engine.loop import Loop
from kvproto.io.transports.base import Busy, Completed, Failed, Handle, PeerId, Transport, WriteDraft, WritePart
from kvproto.protocol import effects as do
from kvproto.protocol import events as ev
from kvproto.protocol.states import Cause

#: pieces that one pass posts: some 50 ms
BUDGET = 16384


@dataclass(slots=True)
class UnpostedWrite:
    """What is left of a send's write."""

    peer: PeerId
    batches: deque[WriteDraft | list[WritePart]]
    #: CUDA event after which what they read is there; None: it is
    after: Any = None


class RankWrites:
    """The writes of one rank."""

    def __init__(self, loop: Loop, transport: Transport) -> None:
        self.loop, self.transport = loop, transport
        self.unposted: dict[Key, UnpostedWrite] = {}
        #: by write of the transport, until it is quiescent
        self.flying: dict[Handle, Key] = {}
        #: failed writes whose bytes may still move
        self.doubtful: list[Handle] = []
        self.pieces = self.nbytes = 0
        self._waiting: deque[Key] = deque()
        self._full: set[PeerId] = set()
        self._turn = self._left = 0
        loop.handlers |= {do.PostBatch: self._post, do.DropBatches: self._drop}

    def __bool__(self) -> bool:
        """Whether something is in flight, or waits for room."""
        return bool(self.flying or self._waiting)

    def offer(
        self, key: Key, peer: PeerId, batches: deque[WriteDraft | list[WritePart]], after: Any = None
    ) -> None:  # fmt: skip
        """These batches are ready, to be posted in their order, once this event has passed."""
        self.unposted[key] = UnpostedWrite(peer, batches, after)
        self._offer(key, self.unposted[key])

    def poll(self) -> bool:
        """Offer what waits, in order, and look at what is in doubt; whether something was posted."""
        before = self.pieces
        waiting, self._waiting = self._waiting, deque()
        self._full.clear()
        for key in waiting:
            left = self.unposted.get(key)
            if left is None:
                continue  # given up meanwhile
            if left.peer in self._full or self._spent():
                self._waiting.append(key)
            else:
                self._offer(key, left)
                self.loop.settle()
        if self.doubtful:
            self.doubtful = [handle for handle in self.doubtful if not self._settled(handle)]
        return self.pieces > before

    def hear(self, event: Completed | Failed) -> None:
        """The transport says that a write is over, or has failed."""
        key = self.flying.get(event.handle)
        if key is None:
            return
        if isinstance(event, Completed):
            del self.flying[event.handle]
            self.loop.raise_event(ev.BatchCompleted(*key))
            return
        self.loop.logs.part("write", key, Cause.WRITE_FAILED, str(event.error))
        if event.quiescent:
            del self.flying[event.handle]
        else:
            self.doubtful.append(event.handle)
        self.loop.raise_event(ev.BatchFailed(*key, settled=event.quiescent))

    def _offer(self, key: Key, left: UnpostedWrite) -> None:
        try:
            computed = left.after is None or left.after.query()
        except Exception as error:  # noqa: BLE001  # a device's fault ends the room, not the loop
            del self.unposted[key]
            self.unmade(key, error)
            return
        if self._spent() or not computed:
            self._waiting.append(key)
        else:
            left.after = None
            self.loop.raise_event(ev.BatchReady(*key, last=len(left.batches) == 1))

    def unmade(self, key: Key, error: Exception) -> None:
        """Nothing of this write can be posted, for this reason."""
        self.loop.logs.part("write", key, Cause.WRITE_FAILED, named(error))
        self.loop.raise_event(ev.BatchUnmade(*key))

    def _post(self, effect: do.PostBatch) -> None:
        key = effect.room, effect.chunk, effect.peer
        left = self.unposted[key]
        batch = left.batches[0]
        try:
            if isinstance(batch, WriteDraft):
                parts, handle = batch.parts, self.transport.post(batch)
            else:
                parts, handle = batch, self.transport.write_many(left.peer, batch, b"")
        except Busy:
            self._full.add(left.peer)
            self._waiting.append(key)
            self.loop.raise_event(ev.BatchDeferred(*key))
            return
        except Exception as error:  # noqa: BLE001  # by the contract nothing was posted
            self.loop.logs.part("write", key, Cause.WRITE_FAILED, named(error))
            self.loop.raise_event(ev.BatchRefused(*key))
            return
        self.flying[handle] = key
        self._count(parts)
        left.batches.popleft()
        if left.batches:
            self._offer(key, left)
        else:
            del self.unposted[key]

    def _count(self, parts: Sequence[WritePart]) -> None:
        for part in parts:
            self._left -= len(part.descs)
            self.pieces += len(part.descs)
            self.nbytes += int(part.descs[0, 2] if len(part.descs) == 1 else part.descs[:, 2].sum())

    def _drop(self, effect: do.DropBatches) -> None:
        left = self.unposted.pop((effect.room, effect.chunk, effect.peer), None)
        for batch in left.batches if left is not None else ():
            if isinstance(batch, WriteDraft):
                self.transport.drop(batch)

    def _spent(self) -> bool:
        """Whether this pass has posted enough."""
        if self._turn != self.loop.turns:
            self._turn, self._left = self.loop.turns, BUDGET
        return self._left <= 0

    def _settled(self, handle: Handle) -> bool:
        """Whether a write in doubt can no longer move a byte."""
        if not self.transport.quiescent(handle):
            return False
        self.loop.raise_event(ev.BatchSettled(*self.flying.pop(handle)))
        return True

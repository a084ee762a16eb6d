"""Writes of a rank as the transport sees them: batches that are ready, and batches in flight.

The machine of a write decides its fate (`prefill_write`).  This file keeps its batches until they are posted, and
turns the transport's answers into events.  A staged write is posted as its machine opens, or deferred
(`BatchDeferred`).  A batch that was deferred, or that writes page to page, is offered (`BatchReady`), and posted at
once when the machine says so: nothing happens between the two.

Four conditions delay a batch, and decide nothing else.  Its KV is not computed yet (a page-to-page write reads the pool
itself, so no stream orders it after the forward).  The transport is full (backpressure): the batch is offered again in
the next pass, in order, and a full peer is tried once.  The pass has posted enough.  Or it is small and others are
almost ready (`hold`): then up to `TOGETHER` wait for each other, for at most `HOLD_S`.  At most `BUDGET` pieces are
posted in one pass, so a loop with many pieces still sends heartbeats, receives and fires its timers.

Staged writes to one peer that are ready together, when the last pending event is handled, become one write of the
transport: one request, one post, one status to poll, one tag with all their notifications.  The cost is the same for
one as for many, and more than the bytes of a small one.  Each is still a write of its own to its machine: they end
together, and if they fail, or are in doubt, each machine gets its own event.  If the transport refuses a joint write,
its parts are offered one by one, so only the faulty one fails.  A part that is given up before the post is left out.  A
write that fails after it was accepted fails the rooms whose parts are in it, and no others.  The transport does not say
which part was faulty, and hardly one was: all of them go from one region to one region over one connection.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from kvproto.data.gathers import Key
from kvproto.data.page_writes import PageBatch, PagesBatch, batch_size
from kvproto.data.prepared_pages import PreparedBatch
from kvproto.data.staged_writes import PreparedWrites, StagedWrite
from kvproto.data.write_times import WriteTimes
from kvproto.io.held_calls import passed
from kvproto.io.ticket import Ticket
from kvproto.io.transports.base import Busy, Completed, Failed, Handle, PeerId, Transport
from kvproto.loop.rank_loop import Loop
from kvproto.observe.logs import named
from kvproto.protocol import effects as do
from kvproto.protocol import events as ev
from kvproto.protocol.notification import MAX_NOTES, Note, make_tag
from kvproto.protocol.states import Cause


class KernelBatch(msgspec.Struct, frozen=True):
    """A part that a kernel stores into the peer's pages: its source regions and bytes."""

    launch: Callable[[], Ticket]
    sources: tuple[int, ...]
    nbytes: int


Batch = StagedWrite | KernelBatch | PreparedBatch | PageBatch
#: ways by which bytes reach a peer: its ring, its pages piece by piece, its pages by a kernel's stores
ROUTES = ("staged", "pages", "mapped")
#: pieces that one pass posts: some 50 ms
BUDGET = 16384
#: small writes that wait for one another, and for how many seconds at most
TOGETHER, HOLD_S = 8, 2e-4


@dataclass(slots=True)
class UnpostedWrite:
    """The unposted rest of a send's write."""

    peer: PeerId
    batches: deque[Batch]
    #: CUDA event after which what they read is there; None: it is
    after: Any = None


@dataclass(slots=True)
class LateNote:
    """The notification of a write into pages, and the number of its batches that have not ended."""

    peer: PeerId
    note: Note
    left: int
    #: the room's aux row, which goes with it, and what sends the row by itself
    aux: Note | None = None
    alone: Callable[[], None] | None = None


class RankWrites:
    """The writes of one rank."""

    def __init__(self, loop: Loop, transport: Transport, staged: PreparedWrites, times: WriteTimes) -> None:
        """`staged`: what the staged ones are; `times` learns what each of them takes."""
        self.loop, self.transport, self.staged, self._times = loop, transport, staged, times
        self.unposted: dict[Key, UnpostedWrite] = {}
        #: by write of the transport, until it is quiescent: its parts
        self.flying: dict[Handle, tuple[Key, ...]] = {}
        #: by write of the transport, until it is over: peer, route, pieces, bytes; and the bytes written by each route
        self._sizes: dict[Handle, tuple[PeerId, str, int, int]] = {}
        self.written = dict.fromkeys(ROUTES, 0)
        #: called with the peer of a write that begins, and of one that has ended
        self.nudge: Callable[[PeerId], None] = lambda _peer: None
        #: leaves a note with a peer of this host; false: it cannot
        self.tell: Callable[[PeerId, bytes], bool] = lambda _peer, _tag: False
        #: called with the room of each written batch
        self.arrived: Callable[[int], None] = lambda _room: None
        #: notifications of kernels' writes that the transport has sent since the last poll
        self.told: set[tuple[PeerId, Note]] = set()
        #: for writes into pages: the notification, sent when all batches have succeeded
        self._notes: dict[Key, LateNote] = {}
        #: by peer: staged writes that are posted together when no event is pending
        self._together: dict[PeerId, dict[Key, StagedWrite]] = {}
        #: failed writes whose bytes may still move
        self.doubtful: list[Handle] = []
        self.pieces = self.nbytes = 0
        self._waiting: deque[Key] = deque()
        #: small writes that wait for others, since when (0: not looked at yet), and whether others are almost ready
        self._held: deque[Key] = deque()
        self._since = 0.0
        self.others: Callable[[], bool] = lambda: False
        self._full: set[PeerId] = set()
        self._turn = self._left = 0

    def __bool__(self) -> bool:
        """Whether something is in flight, or waits for room."""
        return bool(self.flying or self._waiting or self._held)

    def awaits(self) -> Any:
        """Return the event that the oldest write waits for; None: some write waits for something else."""
        if self.flying or self._held:
            return None
        waits = [left.after if (left := self.unposted.get(key)) is not None else None for key in self._waiting]
        return None if None in waits else next(iter(waits), None)

    def post_staged(self, key: Key, write: StagedWrite, *, hold: bool) -> None:
        """Post a staged write in this pass, or defer it.

        Args:
            key: room, chunk and peer of the send.
            write: its one piece, and what it tells.
            hold: wait for others that will be ready soon, and post them together.

        """
        self.unposted[key] = UnpostedWrite(write.peer, deque((write,)))
        if hold or self._spent():
            (self._held if hold else self._waiting).append(key)
            self.loop.raise_event(ev.BatchDeferred(*key))
        else:
            self._put_together(key, write)

    def offer(self, key: Key, peer: PeerId, batches: deque[Batch], after: Any, note: Note | None = None) -> None:
        """Have these batches posted, in their order, once the event `after` has passed (None: it has).

        `note` leaves by the transport as soon as all of them have succeeded.
        """
        left = self.unposted[key] = UnpostedWrite(peer, batches, after)
        if note is not None:
            self._notes[key] = LateNote(peer, note, len(batches))
        self._offer(key, left)

    def poll(self) -> bool:
        """Offer what waits, in order, and look at what is in doubt; whether something was posted."""
        before = self.pieces
        if self._held and self._enough():
            self._waiting += self._held
            self._held.clear()
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
                if not isinstance(left.batches[0], StagedWrite):  # those are posted together
                    self.loop.settle()
        if waiting:
            self.loop.settle()
        if self.doubtful:
            self.doubtful = [handle for handle in self.doubtful if not self._settled(handle)]
        return self.pieces > before

    def _enough(self) -> bool:
        """Whether what is held has waited for others as long as it should."""
        if len(self._held) < TOGETHER and self.others():
            now = self.loop.clock.real()
            self._since = self._since or now
            if now - self._since <= HOLD_S:
                return False
        self._since = 0.0
        return True

    def hear(self, event: Completed | Failed) -> None:
        keys = self.flying.get(event.handle)
        if keys is None:
            return
        if isinstance(event, Completed):
            del self.flying[event.handle]
            for key in keys:  # first: what follows may raise
                self.loop.raise_event(ev.BatchCompleted(*key))
            try:
                self._note(keys[0])
            finally:
                self._over(event.handle, ok=True)
            for key in keys:
                self.arrived(key[0])
            return
        if event.quiescent:
            del self.flying[event.handle]
        else:
            self.doubtful.append(event.handle)
        for key in keys:
            self.loop.logs.part("write", key, Cause.WRITE_FAILED, str(event.error))
            self.loop.raise_event(ev.BatchFailed(*key, settled=event.quiescent))
        self._over(event.handle, ok=False)

    def _over(self, handle: Handle, *, ok: bool) -> None:
        """A write takes no more time; its bytes are there, and its peer may not have looked since it began."""
        size = self._sizes.pop(handle, None)
        if size is None:
            return
        peer, route, pieces, nbytes = size
        self._times.over(peer, pieces, nbytes, ok=ok)
        if ok:
            self.written[route] += nbytes
            self.nudge(peer)

    def _note(self, key: Key) -> None:
        """Send the notification of a write into pages, if this was the last of its batches."""
        if (late := self._notes.get(key)) is not None:
            late.left -= 1
            if not late.left:
                del self._notes[key]
                self._tell(late)

    def _tell(self, late: LateNote) -> None:
        """Say by the transport what the write's end will have its rank say: nothing lies between the two."""
        notes = [late.note] if late.aux is None else [late.aux, late.note]
        tag = make_tag(*self.staged.writer, notes)
        if self.tell(late.peer, tag) or self.transport.tell(late.peer, tag):
            self.told.add((late.peer, late.note))
        elif late.alone is not None:
            late.alone()

    def takes_along(self, key: Key, aux: Note, alone: Callable[[], None]) -> bool:
        """Have the aux row go with the note of this write; false: it is to be sent by itself.

        The write has ended then, or has a row: one that comes again was not confirmed.  `alone` sends it where the
        transport does not take the note.
        """
        late = self._notes.get(key)
        if late is None or late.aux is not None:
            return False
        late.aux, late.alone = aux, alone
        return True

    def _offer(self, key: Key, left: UnpostedWrite) -> None:
        try:
            computed = left.after is None or passed(left.after)
        except BaseException as error:  # noqa: BLE001  # a device's fault ends the room, not the loop
            self._give_up(self.unposted.pop(key))
            self.unmade(key, error)
            return
        if self._spent() or not computed:
            self._waiting.append(key)
        else:
            if left.after is not None:  # the peer has slept as long as the forward ran, and takes its time to wake
                left.after = None
                self.nudge(left.peer)
            self.loop.raise_event(ev.BatchReady(*key, last=len(left.batches) == 1))

    def unmade(self, key: Key, error: BaseException) -> None:
        """Nothing of this write can be posted, for this reason."""
        self._notes.pop(key, None)
        self.loop.hold(error)
        self.loop.logs.part("write", key, Cause.WRITE_FAILED, named(error))
        self.loop.raise_event(ev.BatchUnmade(*key))

    def post_batch(self, effect: do.PostBatch) -> None:
        key = effect.room, effect.chunk, effect.peer
        left = self.unposted[key]
        batch = left.batches[0]
        if isinstance(batch, StagedWrite):
            self._put_together(key, batch)
            return
        try:
            if isinstance(batch, KernelBatch):
                handle = self.transport.run(left.peer, batch.launch, batch.sources)
            elif isinstance(batch, PreparedBatch):
                handle = self.transport.post(batch.write)
            elif isinstance(batch, PagesBatch):
                handle = self.transport.write_pages(batch.lists, batch.near, batch.far, b"")
            else:
                handle = self.transport.write_many(left.peer, batch, b"")
        except Busy:
            self._put_off(left.peer, (key,))
            return
        except BaseException as error:  # noqa: BLE001  # by the contract nothing was posted
            self.refuse(key, error)
            return
        route = "mapped" if isinstance(batch, KernelBatch) else "pages"
        self._posted(handle, (key,), left.peer, route, *_size(batch))
        left.batches.popleft()
        if left.batches:
            self._offer(key, left)
        else:
            del self.unposted[key]

    def _put_together(self, key: Key, write: StagedWrite) -> None:
        """Post it at the end of the pass, with the others to its peer."""
        if not self._together:
            self.loop.at_end.append(self._post_together)
        self._together.setdefault(write.peer, {})[key] = write

    def _post_together(self) -> None:
        together, self._together = self._together, {}
        for peer, writes in together.items():
            keys = tuple(writes)
            for at in range(0, len(keys), MAX_NOTES):
                self._post_one(peer, writes, keys[at : at + MAX_NOTES])

    def _post_one(self, peer: PeerId, writes: dict[Key, StagedWrite], keys: tuple[Key, ...]) -> None:
        parts = [writes[key] for key in keys]
        try:
            prepared = parts[0].prepared
            if len(parts) == 1 and prepared is not None:
                handle = self.transport.post(prepared)
            else:
                for part in parts:
                    if part.prepared is not None:
                        self._spare(part)
                handle = self.transport.write_many(peer, self.staged.parts(parts), self.staged.tag(parts))
        except Busy:
            self._put_off(peer, keys)
            return
        except BaseException as error:  # noqa: BLE001  # by the contract nothing was posted
            if len(keys) == 1:
                self.refuse(keys[0], error)
                return
            for key in keys:  # each alone: one of them is at fault
                self._post_one(peer, writes, (key,))
            return
        nbytes = 0
        for key in keys:
            del self.unposted[key]
            nbytes += writes[key].piece[2]
        self._posted(handle, keys, peer, "staged", len(parts), nbytes)

    def _posted(
        self, handle: Handle, keys: tuple[Key, ...], peer: PeerId, route: str, pieces: int, nbytes: int
    ) -> None:  # fmt: skip
        self.flying[handle], self._sizes[handle] = keys, (peer, route, pieces, nbytes)
        self._times.posted(peer, route)
        self.nudge(peer)
        self._left -= pieces
        self.pieces += pieces
        self.nbytes += nbytes

    def _put_off(self, peer: PeerId, keys: tuple[Key, ...]) -> None:
        """The transport has no room for these now."""
        self._full.add(peer)
        self._waiting += keys
        for key in keys:
            self.loop.raise_event(ev.BatchDeferred(*key))

    def refuse(self, key: Key, error: BaseException) -> None:
        """Tell the write that nothing of the batch was posted, for this reason."""
        self.loop.hold(error)
        self.loop.logs.part("write", key, Cause.WRITE_FAILED, named(error))
        self.loop.raise_event(ev.BatchRefused(*key))

    def drop_batches(self, effect: do.DropBatches) -> None:
        key = effect.room, effect.chunk, effect.peer
        self._notes.pop(key, None)  # its rank will say nothing
        left = self.unposted.pop(key, None)
        if left is None:
            return
        self._give_up(left)
        if self._together.get(left.peer, {}).pop(key, None) is not None:  # it was to be posted, and is not
            self.loop.raise_event(ev.BatchRefused(*key))

    def _give_up(self, left: UnpostedWrite) -> None:
        """Let the transport free what it has prepared of these batches."""
        for batch in left.batches:
            if isinstance(batch, StagedWrite):
                self._spare(batch)
            elif isinstance(batch, PreparedBatch):
                self.transport.drop(batch.write)

    def _spare(self, write: StagedWrite) -> None:
        prepared, write.prepared = write.prepared, None
        if prepared is not None:
            self.transport.drop(prepared)

    def _spent(self) -> bool:
        """Whether this pass has posted enough."""
        if self._turn != self.loop.turns:
            self._turn, self._left = self.loop.turns, BUDGET
        return self._left <= 0

    def _settled(self, handle: Handle) -> bool:
        """Whether a write in doubt can no longer move a byte."""
        if not self.transport.quiescent(handle):
            return False
        for key in self.flying.pop(handle):
            self.loop.raise_event(ev.BatchSettled(*key))
        return True


def _size(batch: KernelBatch | PreparedBatch | PageBatch) -> tuple[int, int]:
    if isinstance(batch, KernelBatch):
        return 1, batch.nbytes
    return (batch.pieces, batch.nbytes) if isinstance(batch, PreparedBatch) else batch_size(batch)

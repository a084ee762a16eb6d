"""Prepared pages: writes into a peer's pages that are made before their KV is there.

A send that waits for its KV knows both rows of page numbers: the engine has given its own, and the decode rank has
named the others.  So an idle loop lays the batches out and has the transport prepare their requests, as it prepares
launches (`prepared_launches`).  After the forward one call of the transport is left for each batch.  A room of 64 MiB
in 8 pages takes 0.66 ms so, and 0.96 without: what preceded its post took longer than its bytes do.

A prepared write decides nothing.  It is stored under its send, and used only by the effect that it was made for, while
the room's own pages are the same.  Any other effect drops it, and the write is made then.  Prepared writes are dropped
with their room, and with all else that is kept for their link, because the peer's rows may lie elsewhere.

A prepared request takes memory of the transport's library for each piece, so at most `PIECES` are kept.  Pages that
differ on the two sides are laid out piece by piece, which takes too long for a pass that should be short; they are not
prepared.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from kvproto.data.page_writes import PageBatch, PagesBatch, batch_size
from kvproto.data.room_entry import RoomEntry
from kvproto.io.transports.base import PeerId, PreparedWrite, Transport
from kvproto.protocol import effects as do

#: pieces that are kept, of all rooms
PIECES = 16384


@dataclass(frozen=True, slots=True)
class PreparedBatch:
    """A batch that the transport has prepared; `pieces` are those that it posts."""

    write: PreparedWrite
    pieces: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class PagePart:
    """The batches of one send, and what they were made from."""

    effect: do.PreparePages
    entry: RoomEntry
    #: the room's own pages of the chunk, and of what travels at the end
    pages: bytes
    ends: tuple[tuple[int, ...], ...]
    batches: deque[PreparedBatch]
    #: whether K and V of a page go as they lie (`Plan.direct`)
    direct: bool

    @property
    def pieces(self) -> int:
        return sum(batch.pieces for batch in self.batches)


class PreparedPages:
    """The writes into pages of one prefill rank that are ready."""

    def __init__(self, transport: Transport, page_size: int) -> None:
        """`page_size`: tokens of a page of the rank's own pool."""
        self.transport, self.page_size = transport, page_size
        #: by room, then by (chunk, peer)
        self.kept: dict[int, dict[tuple[int, int], PagePart]] = {}
        self._pieces = 0

    @property
    def left(self) -> int:
        """So many pieces more may be kept."""
        return PIECES - self._pieces

    @property
    def keys(self) -> set[tuple[int, int, int]]:
        """The sends whose writes are ready, as (room, chunk, peer)."""
        return {(room, *key) for room, parts in self.kept.items() for key in parts}

    @property
    def batches(self) -> list[PreparedBatch]:
        """All batches that are ready."""
        return [batch for parts in self.kept.values() for part in parts.values() for batch in part.batches]

    def keep(
        self, effect: do.PreparePages, entry: RoomEntry, peer: PeerId, made: Iterable[PageBatch], *, direct: bool
    ) -> None:  # fmt: skip
        """Have the transport prepare these batches, and keep them unless they are too many.  Raises its error."""
        made, ready = list(made), deque[PreparedBatch]()
        part = PagePart(effect, entry, self._own(effect, entry), entry.ends, ready, direct)
        if sum(batch_size(batch)[0] for batch in made) > self.left:
            return
        try:
            for batch in made:
                ready.append(self._prepared(peer, batch))
        except BaseException:
            self._spare(part)
            raise
        self._pieces += part.pieces
        self.kept.setdefault(effect.room, {})[effect.chunk, effect.peer] = part

    def take(self, effect: do.PreparePages, entry: RoomEntry) -> PagePart | None:
        """Return the batches of this send; None: they are not ready, or were made from something else."""
        parts = self.kept.get(effect.room, {})
        part = parts.pop((effect.chunk, effect.peer), None)
        if part is None:
            return None
        if not parts:
            del self.kept[effect.room]
        self._pieces -= part.pieces
        same = part.entry is entry and part.ends == entry.ends and part.effect == effect
        if same and part.pages == self._own(effect, entry):
            return part
        self._spare(part)
        return None

    def forget(self, room: int) -> None:
        """The room is over."""
        for part in self.kept.pop(room, {}).values():
            self._drop(part)

    def leave(self, link: int) -> None:
        """Drop the writes of this link, whose peer's rows may lie elsewhere."""
        for room, parts in list(self.kept.items()):
            for key, part in list(parts.items()):
                if part.effect.to.link == link:
                    del parts[key]
                    self._drop(part)
            if not parts:
                del self.kept[room]

    def _drop(self, part: PagePart) -> None:
        self._pieces -= part.pieces
        self._spare(part)

    def _spare(self, part: PagePart) -> None:
        for batch in part.batches:
            self.transport.drop(batch.write)

    def _own(self, effect: do.PreparePages, entry: RoomEntry) -> bytes:
        """Return the room's own pages of the effect's tokens, as far as the engine has given them."""
        cut, size = effect.to.cut, self.page_size
        return entry.pages[cut.first // size : min(-(-cut.end // size), entry.given)].tobytes()

    def _prepared(self, peer: PeerId, batch: PageBatch) -> PreparedBatch:
        if isinstance(batch, PagesBatch):
            write = self.transport.prepare_pages(batch.lists, batch.near, batch.far, b"")
        else:
            write = self.transport.prepare(peer, batch, b"")
        return PreparedBatch(write, *batch_size(batch))

"""Blames: the origin of a room's failure and its sentence, on every rank that learns of the failure.

A failure crosses ranks as a cause: prefill rank 1 notifies decode rank 0, which notifies prefill rank 0.  Beside the
cause, ABORT and DRAINED carry the rank where it began and that rank's sentence (`messages.Blame`).  No table reads it:
it is taken off a received message before the rank gets it, and put on a message that is sent.

The first blame of a room counts, and only for its own cause.  A rank keeps as many blames as tombstones, because a
tombstone may have to repeat its answer.
"""

from __future__ import annotations

from msgspec.structs import replace

from kvproto.errors import one_line
from kvproto.protocol.messages import Abort, Blame, Drained, Message
from kvproto.protocol.states import Cause
from kvproto.rank.base import Rank

#: messages that say that a room has failed
BLAMING = frozenset({Abort, Drained})


class Blames:
    """The blames that one rank knows, by room key."""

    def __init__(self, rank: Rank) -> None:
        self.rank = rank
        self._known: dict[int, tuple[Cause, Blame]] = {}

    def find(self, room: int, cause: Cause) -> Blame | None:
        """Return the origin of the room's failure with this cause; None: unknown."""
        known = self._known.get(room)
        return known[1] if known is not None and known[0] is cause else None

    def note(self, room: int, cause: Cause, blame: Blame) -> None:
        """Remember the origin, unless an earlier one is known."""
        if room not in self._known:
            self._known[room] = cause, blame
            if len(self._known) > self.rank.settings.tombstones:
                del self._known[next(iter(self._known))]

    def fail(self, room: int, cause: Cause, why: str) -> None:
        self.note(room, cause, Blame(self.rank.side, self.rank.index, why))

    def take(self, link: int, room: int, body: Message) -> Message:
        """Take the blame off a message that came by this link, and return what the rank is to hear."""
        assert isinstance(body, Abort | Drained)
        peer = self.rank.peers.get(link)
        if peer is not None:
            blame = body.blame or Blame(self.rank.other_side, peer.rank)
            self.note(room, body.cause, replace(blame, why=one_line(blame.why)))
        return replace(body, blame=None) if body.blame is not None else body

    def put(self, room: int, body: Message) -> Message:
        assert isinstance(body, Abort | Drained)
        blame = self.find(room, body.cause)
        return body if blame is None else replace(body, blame=blame)

"""Notifications that nobody sends: what a write carries is heard, and its cause is the write."""

from __future__ import annotations

from kvproto.fsm.trace.merge import Moment
from kvproto.fsm.trace.records import StepEntry
from kvproto.fsm.trace.telling import Key, Message, SenderClues
from kvproto.protocol import effects as do
from kvproto.protocol import events as ev


class CarriedNotifications(SenderClues):
    """Staged writes that carry their STG_NOTIFY: it is heard, and nobody has sent it but the write itself."""

    def __init__(self, telling: set[str]) -> None:
        """`telling`: the ranks whose writes do so."""
        self.telling = telling
        #: the grant of each write; when it was posted
        self.grants: dict[tuple[str, Key], int] = {}
        self.posted: dict[tuple[str, int, object, object], int] = {}

    def note(self, moment: Moment, step: StepEntry) -> None:
        """Look for writes that begin and are posted."""
        if moment.party not in self.telling:
            return
        key = moment.party, step.key
        if isinstance(step.event, ev.WriteBegun):
            self.grants[key] = step.event.grant
        if key in self.grants and any(isinstance(effect, do.PostBatch) for effect in step.effects):
            room, chunk, _ = step.key
            self.posted[moment.party, room, chunk, self.grants[key]] = moment.index

    def cause(self, message: Message) -> int | None:
        """The moment at which the write was posted that carries this notification."""
        if message.name != "STG_NOTIFY":
            return None
        known = dict(message.fields)
        return self.posted.get((message.sender, message.subject, known["chunk"], known["grant"]))

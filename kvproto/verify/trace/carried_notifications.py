"""Carried notifications: heard though nobody sends them, and caused by the write that carries them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kvproto.fsm.records import Log, StepEntry
from kvproto.fsm.telling import Key, Message, Moment, SenderClues
from kvproto.protocol import effects as do
from kvproto.protocol import events as ev

#: rank, room, chunk and grant of a write
Carrier = tuple[str, object, object, object]


class CarriedNotifications(SenderClues):
    """Staged writes that carry their STG_NOTIFY: it is heard, and nobody has sent it but the write itself."""

    def __init__(self, logs: Iterable[tuple[str, Log]]) -> None:
        """`logs`: of the ranks whose writes do so, by their names."""
        #: the grant of each write; when it was posted, and which ones the story has still to tell of
        self._grants: dict[tuple[str, Key], int] = {}
        self._posted: dict[Carrier, int] = {}
        self._later: set[Carrier] = set()
        steps = [(name, entry) for name, log in logs for entry in log.entries if isinstance(entry, StepEntry)]
        self._telling = {name for name, _ in steps}
        for name, step in steps:
            self._later.update(self._posts(name, step))
        self._grants.clear()

    def _posts(self, name: str, step: StepEntry) -> Iterator[Carrier]:
        """The staged write that is posted with this step, if one is: as it opens, or after it was deferred."""
        key = name, step.key
        if isinstance(step.event, ev.WriteBegun):
            self._grants[key] = step.event.grant
        if key in self._grants and any(isinstance(effect, do.PostWrite | do.PostBatch) for effect in step.effects):
            room, chunk, _ = step.key
            yield name, room, chunk, self._grants[key]

    def note(self, moment: Moment, step: StepEntry) -> None:
        """Look for writes that begin and are posted."""
        for carrier in self._posts(moment.party, step) if moment.party in self._telling else ():
            self._posted[carrier] = moment.index
            self._later.discard(carrier)

    def comes_later(self, message: Message) -> bool:
        return _carrier(message) in self._later

    def cause(self, message: Message) -> int | None:
        return self._posted.get(_carrier(message))


def _carrier(message: Message) -> Carrier:
    """The write that carries it; of no write, if it is no notification."""
    known = dict(message.fields) if message.name == "STG_NOTIFY" else {"chunk": None, "grant": None}
    return message.sender, message.subject, known["chunk"], known["grant"]

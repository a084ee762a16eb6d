"""Several parties' logs as one story: merged by cause, not by clock.

Two things order what happened: each log's own order, and that a message is heard after it was sent.  So the logs are
read side by side; a log whose next entry is a message waits until a log that it came from has told of its sending.
Clocks (which differ between machines) only choose among what may come next.

A message that came twice, or whose sending no log has, stops nobody: when all logs wait, the earliest goes on, and is
told as `repeated` or `unseen`.  Messages that were sent and never heard are `lost`.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable
from typing import Literal

import msgspec

from kvproto.fsm.trace.records import HeardEntry, Log, SentEntry, StepEntry, TraceEntry
from kvproto.fsm.trace.telling import Message, Subject, Telling
from kvproto.fsm.vocabulary import Effect

Way = Literal["", "lost", "repeated", "unseen"]


class Moment(msgspec.Struct):
    """One entry of the story; `cause` is the index of the moment that led to it (None: the world did)."""

    index: int
    party: str
    time: float
    entry: TraceEntry
    cause: int | None = None
    source: str = ""
    message: Message | None = None
    way: Way = ""
    #: messages that left with this step and have no entry of their own: the party that each went to
    far: tuple[str, ...] = ()


def merge(logs: list[Log], telling: Telling) -> list[Moment]:
    """The story of these logs."""
    return _Merge(logs, telling).tell()


class _Merge:
    def __init__(self, logs: list[Log], telling: Telling) -> None:
        self.telling = telling
        names = telling.names(log.head for log in logs)
        self.todo: dict[str, deque[TraceEntry]] = defaultdict(deque)
        self.peers: dict[str, dict[int, str]] = defaultdict(dict)
        for log in sorted(logs, key=lambda log: self._first(log.entries)):  # a party's lives follow one another
            name = names[telling.identity(log.head)]
            self.todo[name] += log.entries
            self.peers[name] |= telling.peers(log.head, names)
        self.clues = telling.clues(logs, names)
        self.story: list[Moment] = []
        self.flying: dict[Message, deque[int]] = defaultdict(deque)
        self.landed: dict[Message, int] = {}
        self.last: dict[str, int] = {}
        self.clock = {name: self._first(entries) for name, entries in self.todo.items()}

    def tell(self) -> list[Moment]:
        while any(self.todo.values()):
            ready = [name for name, entries in self.todo.items() if entries]
            free = [name for name in ready if not self._waits(name)]
            self._next_of(min(free or ready, key=lambda name: self.clock[name]))
        for index in (i for left in self.flying.values() for i in left):
            moment = self.story[index]
            if isinstance(moment.entry, SentEntry):
                moment.way = "lost"
        return self.story

    @staticmethod
    def _first(entries: Iterable[TraceEntry]) -> float:
        return next((entry.time for entry in entries if not isinstance(entry, SentEntry)), 0.0)

    def _waits(self, name: str) -> bool:
        entry = self.todo[name][0]
        if not isinstance(entry, HeardEntry):
            return False
        message = self._heard(name, entry)
        return message.sender in self.todo and not self.flying.get(message)

    def _next_of(self, name: str) -> None:
        entry = self.todo[name].popleft()
        if not isinstance(entry, SentEntry):
            self.clock[name] = entry.time
        moment = Moment(len(self.story), name, self.clock[name], entry)
        self.story.append(moment)
        if isinstance(entry, HeardEntry):
            self._received(moment, self._heard(name, entry))
        elif isinstance(entry, SentEntry):
            moment.cause, moment.message = self.last.get(name), self._sent(name, entry.effect)
            self.flying[moment.message].append(moment.index)
        else:
            self._step(moment, entry)
        if not isinstance(entry, SentEntry):
            self.last[name] = moment.index
        following = next((e.time for e in self.todo[name] if not isinstance(e, SentEntry)), None)
        if self.todo[name] and not isinstance(self.todo[name][0], SentEntry) and following is not None:
            self.clock[name] = following

    def _received(self, moment: Moment, message: Message) -> None:
        moment.message = message
        if self.flying.get(message):
            moment.cause = self.landed[message] = self.flying[message].popleft()
        elif message in self.landed:
            moment.cause, moment.way = self.landed[message], "repeated"
        elif (clue := self.clues.cause(message)) is not None:
            moment.cause = self.landed[message] = clue
        else:
            moment.way = "unseen"

    def _step(self, moment: Moment, step: StepEntry) -> None:
        self.clues.note(moment, step)
        telling, before = self.telling, self.last.get(moment.party)
        spoken = before is not None and isinstance(self.story[before].entry, HeardEntry)
        moment.source = next((who for who, kinds in telling.sources.items() if isinstance(step.event, kinds)), "")
        if spoken or (isinstance(step.event, telling.inner) and not moment.source):
            moment.cause = before
        for effect in step.effects:
            if isinstance(effect, Effect) and telling.left_unseen(effect):
                message = self._sent(moment.party, effect)
                moment.far += (message.receiver,)
                self.flying[message].append(moment.index)

    def _heard(self, name: str, entry: HeardEntry) -> Message:
        peer, subject, body = self.telling.heard(entry)
        return Message(self.peers[name].get(peer, "?"), name, subject, *self.telling.spoken(body))

    def _sent(self, name: str, effect: Effect) -> Message:
        left = self.telling.left(effect)
        assert left is not None, effect
        peer, *said = left
        return Message(name, self.peers[name].get(peer, "?"), *said)


def select(story: Iterable[Moment], subjects: Iterable[Subject], telling: Telling) -> list[Moment]:
    """The moments about these subjects, and what they led to that is about none."""
    wanted, chosen = set(subjects), {}
    for moment in story:
        follows = moment.cause in chosen and subject_of(moment, telling) is None and not moment.source
        if follows or subject_of(moment, telling) in wanted:
            chosen[moment.index] = moment
    return list(chosen.values())


def subject_of(moment: Moment, telling: Telling) -> Subject:
    """What the moment is about; None: no subject."""
    if moment.message is not None:
        return moment.message.subject
    return telling.subject_of(moment.entry) if isinstance(moment.entry, StepEntry) else None


def subjects(story: Iterable[Moment], telling: Telling) -> dict[Subject, int]:
    """Each subject of the story with the number of its steps, the most eventful first."""
    counts: dict[Subject, int] = defaultdict(int)
    for moment in story:
        about = telling.subject_of(moment.entry) if isinstance(moment.entry, StepEntry) else None
        if about is not None:
            counts[about] += 1
    return dict(sorted(counts.items(), key=lambda pair: -pair[1]))

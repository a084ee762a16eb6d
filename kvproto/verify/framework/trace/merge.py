"""Several parties' logs as one story: merged by cause, not by clock.

Two things order what happened: each log's own order, and that a message is heard after it was sent. A log whose next
entry is a message waits until a log that it came from has told of its sending; clocks only choose among what may come
next.

Of messages that say the same, word for word, the numbers of the copies tell which one came (`copies_sent`).  A copy
that came twice is `repeated`; one whose sending no log has is `unseen`, and stops nobody.  Copies that were sent and
never heard are `lost` only if the receiver's log proves it: a copy sent later was heard, or the log goes on for longer
than a message may be under way.  Otherwise they are `ended`: the receiver's log ends before they could arrive.  They
are `untold` where the receiver's log is not there, or begins later.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Iterable

from kvproto.fsm.records import HeardEntry, Log, SentEntry, StepEntry, TraceEntry
from kvproto.fsm.telling import Moment, Subject, Telling, Way
from kvproto.verify.framework.trace.copies_sent import CopiesSent, Copy


def merge(logs: list[Log], telling: Telling) -> list[Moment]:
    return _Merge(logs, telling).tell()


class _Merge:
    def __init__(self, logs: list[Log], telling: Telling) -> None:
        self.telling = telling
        names = telling.names(log.head for log in logs)
        self.todo: dict[str, deque[TraceEntry]] = defaultdict(deque)
        self.said: dict[str, deque[Copy]] = defaultdict(deque)
        self.copies = CopiesSent()
        #: whose logs are here, and whether they have all that there was
        self.whole: dict[str, bool] = {}
        #: when each party's log ends, by its own clock, and for how long a message to it may be under way
        self.ends: dict[str, float] = {}
        self.flight: dict[str, float] = {}
        for log in sorted(logs, key=lambda log: self._first(log.entries)):  # a party's lives follow one another
            name, peers = names[telling.identity(log.head)], telling.peers(log.head, names)
            self.todo[name] += log.entries
            self.said[name] += self.copies.life(log.entries, name, peers, telling)
            self.whole[name] = self.whole.get(name, True) and log.head.whole
            self.ends[name] = max(self.ends.get(name, -math.inf), self._first(reversed(log.entries)))
            self.flight[name] = telling.longest_flight(log.head)
        self.copies.compare()
        self.clues = telling.clues(logs, names)
        self.story: list[Moment] = []
        self.last: dict[str, int] = {}
        self.clock = {name: self._first(entries) for name, entries in self.todo.items()}

    def tell(self) -> list[Moment]:
        while any(self.todo.values()):
            ready = [name for name, entries in self.todo.items() if entries]
            free = [name for name in ready if not self._waits(name)]
            self._next_of(min(free or ready, key=lambda name: self.clock[name]))
        for index, copy in self.copies.under_way():
            self.story[index].way = self._fate(index, copy)
        return self.story

    def _fate(self, index: int, copy: Copy) -> Way:
        """Say what became of a copy that was sent at this moment and never heard."""
        receiver = copy.way[1]
        if not (receiver in self.whole and (self.whole[receiver] or self.copies.followed(copy))):
            return "untold"
        after = self.ends.get(receiver, -math.inf) - self.story[index].time - self.flight[receiver]
        return "lost" if self.copies.outlived(copy, index, after) else "ended"

    @staticmethod
    def _first(entries: Iterable[TraceEntry]) -> float:
        return next((entry.time for entry in entries if not isinstance(entry, SentEntry)), 0.0)

    def _waits(self, name: str) -> bool:
        if not isinstance(self.todo[name][0], HeardEntry):
            return False
        copy = self.said[name][0]
        return self.copies.comes_later(copy) or (not copy.number and self.clues.comes_later(copy.message))

    def _next_of(self, name: str) -> None:
        entry = self.todo[name].popleft()
        if not isinstance(entry, SentEntry):
            self.clock[name] = entry.time
        moment = Moment(len(self.story), name, self.clock[name], entry)
        self.story.append(moment)
        if isinstance(entry, StepEntry):
            self._step(moment, entry)
        else:
            self._mail(moment, self.said[name].popleft())
        if not isinstance(entry, SentEntry):
            self.last[name] = moment.index
        following = next((e.time for e in self.todo[name] if not isinstance(e, SentEntry)), None)
        if self.todo[name] and not isinstance(self.todo[name][0], SentEntry) and following is not None:
            self.clock[name] = following

    def _mail(self, moment: Moment, copy: Copy) -> None:
        moment.message = copy.message
        if isinstance(moment.entry, SentEntry):
            moment.cause = self.last.get(moment.party)
            self.copies.leave(copy, moment.index)
            return
        clue = None if copy.number else self.clues.cause(copy.message)
        if clue is not None:
            moment.cause = clue
            return
        moment.cause, moment.way = self.copies.come(copy)
        if moment.cause is not None:
            self.copies.arrive(copy, moment.cause, moment.time - self.story[moment.cause].time)

    def _step(self, moment: Moment, step: StepEntry) -> None:
        self.clues.note(moment, step)
        telling, before = self.telling, self.last.get(moment.party)
        spoken = before is not None and isinstance(self.story[before].entry, HeardEntry)
        moment.source = next((who for who, kinds in telling.sources.items() if isinstance(step.event, kinds)), "")
        if spoken or (isinstance(step.event, telling.inner) and not moment.source):
            moment.cause = before


def select(story: Iterable[Moment], subjects: Iterable[Subject], telling: Telling) -> list[Moment]:
    """The moments about these subjects, and what they led to that is about none."""
    wanted, chosen = set(subjects), {}
    for moment in story:
        follows = moment.cause in chosen and subject_of(moment, telling) is None and not moment.source
        if follows or subject_of(moment, telling) in wanted:
            chosen[moment.index] = moment
    return list(chosen.values())


def subject_of(moment: Moment, telling: Telling) -> Subject:
    """Return the subject of the moment; None: it has no subject."""
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

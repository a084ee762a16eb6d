"""Copies sent: find which of the sent copies of a message is the one that arrived.

A copy is known by what it says, the way that it went, and its number on that way (`kvproto.fsm.copies`).  A party's
lives number anew, so a later life's copies count on from the earlier ones.

Numbers can be wrong only where a network loses or doubles single messages and nobody has told the receiver so.  Then
sender and receiver give one number to different messages, and of such a way no number is believed: its copies go by
their age, the oldest first, as do those that nobody has numbered.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import Literal, NamedTuple

from kvproto.fsm.records import HeardEntry, SentEntry, StepEntry, TraceEntry
from kvproto.fsm.telling import Message, Telling

#: sender, receiver, and whose copies are numbered together of all between the two
CopyWay = tuple[str, str, Hashable]
Said = tuple[Message, CopyWay]


class Copy(NamedTuple):
    """One copy of a message; `number` 0: nobody knows which."""

    message: Message
    way: CopyWay
    number: int


class CopiesSent:
    """All copies of a story: to come, under way, and landed; each by its moment's index."""

    def __init__(self) -> None:
        #: by way: the messages by number, and what was heard under which number
        self._sent: dict[CopyWay, dict[int, Message]] = defaultdict(dict)
        self._heard: set[Copy] = set()
        self._mixed: set[CopyWay] = set()
        #: copies that the story has still to tell of; those under way, by number, the oldest first; those that came
        self._later: dict[Said, Counter[int]] = defaultdict(Counter)
        self._flying: dict[Said, list[tuple[int, int]]] = defaultdict(list)
        self._landed: dict[Copy, int] = {}
        #: by sender and receiver: the moment of the newest copy that came; and the receiver's clock less the sender's,
        #: with the time under way of the quickest copy
        self._newest: dict[tuple[str, str], int] = {}
        self._offset: dict[tuple[str, str], float] = {}

    def life(
        self, entries: Iterable[TraceEntry], name: str, peers: Mapping[int, str], telling: Telling
    ) -> Iterator[Copy]:  # fmt: skip
        """The copies of this life's log, in its order: what left, and what came."""
        before = {way: max(numbers) for way, numbers in self._sent.items()}
        for entry in entries:
            if isinstance(entry, StepEntry):
                continue
            if isinstance(entry, HeardEntry):
                peer, subject, body = telling.heard(entry)
                message = Message(peers.get(peer, "?"), name, subject, *telling.spoken(body))
            else:
                left = telling.left(entry.effect)
                assert left is not None, entry.effect
                message = Message(name, peers.get(left[0], "?"), *left[1:])
            way = message.sender, message.receiver, telling.era(entry)
            copy = Copy(message, way, entry.number)
            if isinstance(entry, SentEntry):
                copy = copy._replace(number=entry.number and entry.number + before.get(way, 0))
                self._sent[way].setdefault(copy.number, message)
                self._later[message, way][copy.number] += 1
            elif copy.number:
                self._heard.add(copy)
            yield copy

    def compare(self) -> None:
        """All logs are read: see whose numbers can be believed."""
        self._mixed = {way for message, way, number in self._heard if self._sent[way].get(number, message) != message}

    def comes_later(self, copy: Copy) -> bool:
        said, number = copy[:2], self._number(copy)
        return self._later[said][number] > 0 if number else not self._flying[said] and self._later[said].total() > 0

    def leave(self, copy: Copy, index: int) -> None:
        self._later[copy[:2]][copy.number] -= 1
        self._flying[copy[:2]].append((copy.number, index))

    def come(self, copy: Copy) -> tuple[int | None, Literal["", "repeated", "unseen"]]:
        """Match an arriving copy: return when it was sent (None: unknown), and what is odd about it."""
        flights, number = self._flying[copy[:2]], self._number(copy)
        known = copy._replace(number=number)
        place = next((i for i, (each, _) in enumerate(flights) if number in (0, each)), None)
        if place is not None:
            self._landed[known] = flights.pop(place)[1]
            return self._landed[known], ""
        return self._landed.get(known), "repeated" if known in self._landed else "unseen"

    def arrive(self, copy: Copy, sent: int, seconds: float) -> None:
        """Record that the copy sent at this moment arrived so many seconds later, by two clocks."""
        pair = copy.way[:2]
        self._newest[pair] = max(sent, self._newest.get(pair, sent))
        self._offset[pair] = min(seconds, self._offset.get(pair, seconds))

    def outlived(self, copy: Copy, sent: int, seconds: float) -> bool:
        """Whether the receiver's log proves that the copy, sent at this moment, should have been heard.

        It does if a copy that the sender sent later has been heard, or if the receiver's log goes on for more than
        `seconds` after the sending.  `seconds` is by the two clocks, so the quickest copy that was heard corrects it.
        """
        pair = copy.way[:2]
        return pair in self._newest and (sent < self._newest[pair] or seconds > self._offset[pair])

    def under_way(self) -> Iterator[tuple[int, Copy]]:
        """Yield the copies that were sent and have not arrived, each with its moment."""
        return ((index, Copy(*said, number)) for said, flights in self._flying.items() for number, index in flights)

    def followed(self, copy: Copy) -> bool:
        """Whether one that left before this one has come, so that this one would have been written down, too."""
        return any(each.way == copy.way and each.number < copy.number for each in self._heard)

    def _number(self, copy: Copy) -> int:
        return 0 if copy.way in self._mixed else copy.number

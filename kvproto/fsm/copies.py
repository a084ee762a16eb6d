"""Copies: a trace numbers the copies of each message that a party sends and receives.

The same message may be sent twice, word for word: a retransmitted request, an answer to each.  If one copy is lost,
the text does not tell which.  So a trace numbers the copies; nothing of it is on the wire.

The sender counts each *way* by itself: the receiver, the *era* (a link's epoch), and the order of delivery.  The
receiver counts the same way.  Both get the same numbers if a way keeps its order and loses nothing but its end, as a
connection does.  A simulated network that loses, duplicates and delays single messages knows each copy, and tells the
receiver its number.  0 means that the number is unknown.
"""

from __future__ import annotations

from collections.abc import Hashable


class CopyNumbers:
    """The numbers of one party's messages; of each way only those of its latest era."""

    __slots__ = ("_ways",)

    def __init__(self) -> None:
        #: by way: its era, and the number that was given last
        self._ways: dict[Hashable, list[int]] = {}

    def count(self, way: Hashable, era: int = 0) -> int:
        """The number of one more message on this way; an era's first is 1."""
        held = self._ways.get(way)
        if held is None or held[0] != era:
            self._ways[way] = [era, 1]
            return 1
        number = held[1] = held[1] + 1
        return number

    def forget(self, *ways: Hashable) -> None:
        """Nothing comes on these ways any more."""
        for way in ways:
            self._ways.pop(way, None)

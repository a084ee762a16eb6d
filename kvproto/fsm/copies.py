"""Which copy of a message it is: numbers that a trace gives to what leaves a party and to what comes.

The same message may leave twice, word for word: a request that is repeated, an answer to each.  If one of the two is
lost, their texts do not say which, so a trace numbers them, and only the trace: nothing of it is on the wire.

The sender numbers what leaves it, each *way* by itself: to whom, in which *era* (a link's epoch), and in which order of
delivery.  The receiver counts the same way, and has the same numbers, wherever a way keeps its order and loses nothing
but its end: a connection does.  Where messages get lost, doubled and late one by one, the network is somebody's that
knows each copy (a stage, a simulation), and tells the receiver its number.  0: nobody knows it.
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

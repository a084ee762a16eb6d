"""Space queue: chunks that wait for a region of the ring, by arrival and by size of their rooms.

Of one room's chunks the first one alone may have a region: a later one that is smaller would use up the room's share of
the ring, and the first one would wait for it.  Whose turn it is depends on the oldest chunk that may have a region, and
on the oldest of a room that is larger than that one's (`room_turns`).  Chunks of rooms that are as small as each other
are kept together, each with its place, so both are found without a look at others than those before them that may not.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from heapq import merge
from operator import itemgetter

from kvproto.rank.room_turns import digits

#: room, chunk
ChunkKey = tuple[int, int]


class SpaceQueue(Mapping[ChunkKey, int]):
    """Maps waiting chunks to bytes; iterates in its `order`, which only methods change."""

    __slots__ = ("_by_digits", "_came", "_of_room", "order")

    def __init__(self) -> None:
        #: bytes, and the size of the room in digits
        self.order: OrderedDict[ChunkKey, tuple[int, int]] = OrderedDict()
        #: by digits: the same chunks, in the same order, each with its place
        self._by_digits: dict[int, OrderedDict[ChunkKey, int]] = {}
        #: by room: its chunks
        self._of_room: dict[int, set[int]] = {}
        self._came = 0

    def __getitem__(self, key: ChunkKey) -> int:
        return self.order[key][0]

    def __iter__(self) -> Iterator[ChunkKey]:
        return iter(self.order)

    def __len__(self) -> int:
        return len(self.order)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SpaceQueue) and list(self.order.items()) == list(other.order.items())

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"SpaceQueue({[*self.items()]})"

    def put(self, key: ChunkKey, size: int, tokens: int) -> None:
        """Have this chunk wait for `size` bytes, if it does not already; `tokens`: of its room."""
        # A repeated request keeps its place: asking again must not cost a writer its turn.
        if key not in self.order:
            wide, self._came = digits(tokens), self._came + 1
            self.order[key] = size, wide
            self._by_digits.setdefault(wide, OrderedDict())[key] = self._came
            self._of_room.setdefault(key[0], set()).add(key[1])

    def leave(self, key: ChunkKey) -> None:
        """This chunk waits no more, if it did."""
        if key in self.order:
            _, wide = self.order.pop(key)
            alike = self._by_digits[wide]
            del alike[key]
            if not alike:
                del self._by_digits[wide]
            mine = self._of_room[key[0]]
            mine.discard(key[1])
            if not mine:
                del self._of_room[key[0]]

    def is_first(self, key: ChunkKey) -> bool:
        """Whether no earlier chunk of its room waits."""
        return min(self._of_room[key[0]]) == key[1]

    def oldest(self, may: Callable[[ChunkKey, int], bool], than: ChunkKey | None = None) -> ChunkKey | None:
        """Return the oldest chunk that may have its bytes, of rooms larger than that chunk's (None: of all)."""
        waiting = self.order if than is None else self._larger(self.order[than][1])
        return next((key for key in waiting if may(key, self.order[key][0])), None)

    def _larger(self, least: int) -> Iterable[ChunkKey]:
        """Chunks of rooms whose size has more digits than that, the oldest first."""
        larger = (alike.items() for wide, alike in self._by_digits.items() if wide > least)
        return (key for key, _ in merge(*larger, key=itemgetter(1)))

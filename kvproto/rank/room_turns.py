"""Room turns: small rooms go first, and yet the large ones are carried.

A small room must not wait for what a large one has asked for before, and a large one must not wait until no small one
comes any more.  So where rooms queue for a region of the ring or for a launch, a smaller room may go before a larger
one that waits, but only `LARGER - 1` times in a row; then it is the larger one's turn.  However many small ones come, a
quarter of what is given out goes to larger rooms, as long as they wait for it.

Rooms are as small as each other if their tokens have as many binary digits (`digits`).  How a queue is ordered else is
its own.
"""

from __future__ import annotations

from typing import Final, TypeVar

Key = TypeVar("Key")

#: of so many turns one is a larger room's, if one waits
LARGER: Final = 4


def digits(tokens: int) -> int:
    """The size of a room of so many tokens, as turns see it."""
    return tokens.bit_length()


class RoomTurns:
    """Remembers the turns of one queue."""

    def __init__(self) -> None:
        #: turns in a row that went before a larger room's
        self.passed = 0

    def whose(self, first: Key, larger: Key | None) -> Key:
        """Return the key whose turn it is: `first` in the queue, or the first `larger` one (None: no larger)."""
        return first if larger is None or self.passed < LARGER - 1 else larger

    def taken(self, *, before_larger: bool) -> None:
        """A turn was taken, while a larger room waited for it or none did."""
        self.passed = self.passed + 1 if before_larger else 0

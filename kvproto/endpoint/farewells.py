"""Farewells: which lives of prefill groups have said goodbye, so that nobody waits for them.

A prefill instance that ends in good order says goodbye on its links.  Requests that name this very life of it can still
come: an engine that drains may take one more over HTTP, and never answers.  Its rooms would wait for a link as long as
those of an instance that is late.  A successor has another incarnation, so a request that names that one waits for it.
"""

from __future__ import annotations

#: bits of an epoch below the incarnation of the rank that gave it
EPOCH_BITS = 16


class Farewells:
    """The groups of one decode endpoint; written by the loop's thread, read by any."""

    def __init__(self) -> None:
        #: by group: the latest incarnation of a rank whose link came up; and that of a group that has said goodbye
        self._lives, self._gone = dict[int, int](), dict[int, int]()

    def came_up(self, group: int, epoch: int) -> None:
        """A link to a rank of the group is up, at this epoch."""
        self._lives[group] = life = max(self._lives.get(group, 0), epoch >> EPOCH_BITS)
        if self._gone.get(group, life) < life:
            del self._gone[group]

    def left(self, group: int) -> None:
        """A rank of the group has said goodbye."""
        self._gone[group] = self._lives.get(group, 0)

    def forget(self, group: int) -> None:
        """The group is not known any more."""
        self._lives.pop(group, None)
        self._gone.pop(group, None)

    def has_left(self, group: int, incarnation: int) -> bool:
        """Whether this life of the group, the latest incarnation of its ranks, has said goodbye."""
        return self._gone.get(group) == incarnation

"""Crossing from pages to pages of a peer's addressable pool: the addresses, and the copy on a host.

On a device it is one launch (`across`); here it is the same, piece by piece, for memory that one process has.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from kvproto.io.ticket import Ticket


class Done:
    """The ticket of work that was over when the call returned."""

    def done(self) -> bool:
        return True


Most = Callable[[], int]
"""How much of the device's multiprocessors a launch may take now, in percent."""


def all_of_them() -> int:
    """Return 100: no forward is to be spared."""
    return 100


Launch = Callable[[Any, Any], Ticket]
"""A call that lacks its launch only: `launch(stream, after)`, as often as wanted."""


@dataclass(frozen=True, slots=True)
class Rows:
    """How the rows of one kind lie on one side, in bytes, and the tokens of its pages."""

    page: int
    token: int
    head: int
    page_size: int


@dataclass(frozen=True, slots=True)
class Crossing:
    """Planes of one kind: bytes of a row, heads of the share, and strides of rows here and there.

    The addresses where each plane begins on both sides include the share's first head.
    """

    row: int
    heads: int
    ours: Rows
    theirs: Rows
    planes: tuple[tuple[int, int], ...]

    @property
    def dense(self) -> bool:
        """Whether the heads of a token are one run of bytes on both sides."""
        return self.heads == 1 or self.ours.head == self.theirs.head == self.row


class PagesCopy(Protocol):
    """A share on its way from this pool's pages into a peer's."""

    def bind(self, table: torch.Tensor, theirs: torch.Tensor, first: int, tokens: int) -> Launch:
        """Return the copy of tokens [first, first + tokens), to be launched.

        `table`: the room's pages here; `theirs`: the bytes of those there, u32 little-endian, from the one with the
        first of these tokens on; both on the device.

        The launch reads `table`, `bind` does not: its pages may come, or be replaced, in between.
        Page numbers are trusted, on both sides."""
        ...


class HostCopy:
    """The copy where both pools are memory of this process."""

    def __init__(self, crossings: Sequence[Crossing]) -> None:
        self._crossings = tuple(crossings)

    def bind(self, table: torch.Tensor, theirs: torch.Tensor, first: int, tokens: int) -> Launch:
        there = theirs.numpy().view("<u4").tolist()

        def launch(_stream: Any, _after: Any) -> Ticket:
            ours = table.tolist()  # not in `bind`: pages may come, or be replaced, before the launch
            for crossing in self._crossings:
                for source, target, size in _pieces(crossing, ours, there, first, tokens):
                    for near, far in crossing.planes:
                        ctypes.memmove(far + target, near + source, size)
            return Done()

        return launch


def _pieces(
    crossing: Crossing, ours: Sequence[int], there: Sequence[int], first: int, tokens: int
) -> Iterator[tuple[int, int, int]]:
    """(offset here, offset there, bytes) in a plane."""
    near, far, begin = crossing.ours, crossing.theirs, first // crossing.theirs.page_size
    heads, size = (1, crossing.heads * crossing.row) if crossing.dense else (crossing.heads, crossing.row)
    for token in range(first, first + tokens):
        (page, slot), (to, there_slot) = divmod(token, near.page_size), divmod(token, far.page_size)
        source = ours[page] * near.page + slot * near.token
        target = there[to - begin] * far.page + there_slot * far.token
        yield from ((source + head * near.head, target + head * far.head, size) for head in range(heads))

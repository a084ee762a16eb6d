"""Crossing from pages to pages of a peer's addressable pool: the addresses, and a copy to launch.

On a device the copy is one launch (`across`), on a host piece by piece (`torch`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from kvproto.io.ticket import Ticket

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

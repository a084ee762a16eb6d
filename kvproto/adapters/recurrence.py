"""Recurrence: the recurrent state of one layer and request, cut into parts as the ranks hold it.

A convolution keeps its last inputs, `[channels, taps]` or `[taps, channels]`, and each head a matrix.  Channels are
segments, each cut over the ranks by its own heads or groups: q, k and v of gated delta nets, x, B and C of Mamba2.  One
interval over all segments would be wrong wherever both sides are cut unlike.  Where taps come first each tap is a part.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import msgspec

#: a part of an item: its name, units of the model, and first byte and bytes of what the rank has
Piece = tuple[str, int, int, int]


class Segment(msgspec.Struct, frozen=True):
    """Channels that are cut by themselves."""

    name: str
    #: heads or groups of the model; 1: every rank has it whole
    units: int
    #: of a unit
    channels: int


class Recurrence(msgspec.Struct, frozen=True):
    """The state of one layer and request."""

    segments: tuple[Segment, ...]
    taps: int
    heads: int
    #: of convolution and matrix
    dtype: str
    #: in memory taps come before channels
    taps_first: bool = False

    def pieces(self, item: int, dim: int, tp: int) -> list[Piece]:
        """Return the parts of an item with `dim` channels or heads on this rank; none: it has another form."""
        channels = [max(1, each.units // tp) * each.channels for each in self.segments]
        width, rest = divmod(item, sum(channels) * self.taps)
        if dim == sum(channels) and not rest:
            return list(self._segments(channels, width))
        return [("ssm", self.heads, 0, item)] if dim == max(1, self.heads // tp) else []

    def _segments(self, channels: list[int], width: int) -> Iterator[Piece]:
        outer, inner = (self.taps, 1) if self.taps_first else (1, self.taps)
        first = 0
        for tap, (segment, held) in product(range(outer), zip(self.segments, channels, strict=True)):
            name = f"{segment.name}{tap}" if self.taps_first else segment.name
            yield name, segment.units, first, held * inner * width
            first += held * inner * width

"""Recurrence: how SGLang's pool of recurrent state is cut, for models whose state is known.

A slot has for each layer the last inputs of a convolution, `[channels, taps]`, and a matrix for each head.  Channels
are segments, each cut over the ranks by its own heads or groups: q, k and v of gated delta nets, x, B and C of Mamba2.
Of one group every rank has B and C whole.  Kimi's delta attention has `[taps, channels]`, so there each tap is a part.

SGLang tells a transfer backend addresses and sizes, and segments of some models only, so the model's class decides.  A
class that is not known is refused: one interval over all segments would be wrong wherever both sides are cut unlike.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import msgspec

#: configurations whose convolution has x, B and C, and their fields with the number of groups
MAMBA2 = {"FalconH1Config": "mamba_n_groups", "GraniteMoeHybridConfig": "mamba_n_groups", "NemotronHConfig": "n_groups"}
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


def recurrence_of(config: Any, tp: int) -> Recurrence | None:
    """Read the state of a model in its SGLang configuration; None: it is not known how it is cut."""
    params, kind = config.mamba2_cache_params, type(config).__name__
    shape, heads = params.shape, params.shape.num_heads
    names, taps_first = ("q", "k", "v"), getattr(shape, "conv_slice_axis", 0) == 1
    if shape.conv_shard_groups is not None:
        keys = shape.num_k_heads_per_tp * tp
        units, sizes = (keys, keys, heads), list(shape.conv_shard_groups)
    elif kind in MAMBA2:
        groups = getattr(config, MAMBA2[kind])
        names, units = ("x", "B", "C"), (heads, groups, groups)
        sizes = [shape.intermediate_size, *[groups * shape.ssm_state_size] * 2]
    else:
        return None
    if any(size % count for size, count in zip(sizes, units, strict=True)):
        return None
    segments = [Segment(name, count, size // count) for name, count, size in zip(names, units, sizes, strict=True)]
    dtype = ", ".join(str(each).removeprefix("torch.") for each in (params.dtype.conv, params.dtype.temporal))
    return Recurrence(tuple(segments), shape.conv_kernel - 1, heads, dtype, taps_first)

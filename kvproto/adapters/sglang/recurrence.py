"""Recurrence: how SGLang's pool of recurrent state is cut, for models whose state is known.

A slot has for each layer the last inputs of a convolution, `[channels, taps]`, and a matrix for each head.  Channels
are segments, each cut over the ranks by its own heads or groups: q, k and v of gated delta nets, x, B and C of Mamba2.
Of one group every rank has B and C whole.  Kimi's delta attention has `[taps, channels]`, so there each tap is a part.

SGLang tells a transfer backend addresses and sizes, and segments of some models only, so the model's class decides.  A
class that is not known is refused: one interval over all segments would be wrong wherever both sides are cut unlike.
"""

from __future__ import annotations

from typing import Any

from kvproto.adapters.recurrence import Recurrence, Segment

#: configurations whose convolution has x, B and C, and their fields with the number of groups
MAMBA2 = {"FalconH1Config": "mamba_n_groups", "GraniteMoeHybridConfig": "mamba_n_groups", "NemotronHConfig": "n_groups"}


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

"""States: vLLM's hybrid models, whose recurrent state is kept in blocks beside the KV of attention.

vLLM divides the layers into groups, each with a block table of its own.  All groups lie over the same bytes: a block
is of one group at a time, and the layers of each group lie in it in the same places.  A group of attention has blocks
of tokens.  A group of gated delta nets has one block a request: the last inputs of the convolution, the matrices of the
heads, and room up to the size of a block of attention.  So a room has a slot for each of these groups, and a slot is a
block.  Which bytes of a block are of which part is read from the group's spec alone.

Only a state in a block of its own (`mamba_cache_mode` none) is carried: with prefix hits it moves from block to block.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod
from typing import Any, NamedTuple

import torch
from vllm.model_executor.layers.mamba.mamba_utils import is_conv_state_dim_first
from vllm.model_executor.models.utils import extract_layer_index

from kvproto.adapters.geometry import Geometry, GeometryError, Shards, named_pool, opaque_blocks, opaque_dtype
from kvproto.adapters.recurrence import Recurrence, Segment
from kvproto.adapters.stage_caches import Join, with_missing
from kvproto.adapters.vllm.rules import tables_of
from kvproto.adapters.vllm.stages import attending_layers, layers_here
from kvproto.layout.caches import END, Cache, CachePart
from kvproto.layout.sharding import Layout

#: of a part of a state: its units in the model, and by layer views [block, unit, byte]
Parts = dict[str, tuple[int, list[torch.Tensor]]]


class _Layer(NamedTuple):
    """A layer with a state: which of a room's slots holds it, its name and spec in vLLM."""

    layer: int
    slot: int
    name: str
    spec: Any


def geometry_of_states(
    tensors: Mapping[str, torch.Tensor], kinds: Any, shards: Shards, *, dtype: str, opaque: str, join: Join = list
) -> Geometry:  # fmt: skip
    """Return the pool and layout of a worker's KV and state; GeometryError names what cannot be moved.

    `kinds`: vLLM's KVCacheConfig; `opaque`: as `adapters.geometry` has it; `join`: as `adapters.stage_caches` does.
    """
    attention, tp = attending_layers(kinds), shards.tp
    views = [tensors[attention[layer]].permute(0, 2, 1, 3) for layer in sorted(attention)]
    unit = views[0].shape[1] if opaque else 1
    dtype = opaque_dtype(dtype, opaque, unit)
    if opaque:
        views = [opaque_blocks(view) for view in views]
    here = {group: held for group in tables_of(kinds)[1] if (held := layers_here(kinds.kv_cache_groups[group]))}
    states = sorted(
        _Layer(extract_layer_index(name), slot, name, spec)
        for slot, held in enumerate(here.values()) for name, spec in held
    )  # fmt: skip
    row = views[0].shape[3] * views[0].element_size()
    caches, parts = [Cache("full", (CachePart("kv", shards.heads, row),), tuple(sorted(attention)), dtype)], Parts()
    if states:
        recurrence = _recurrence_of(states, tp)
        for state in states:
            for part, units, view in _pieces(recurrence, tensors[state.name], state.spec, tp):
                parts.setdefault(part, (units, []))[1].append(view)
        rows = tuple(CachePart(name, units, some[0].shape[2]) for name, (units, some) in parts.items())
        caches.append(Cache("state", rows, tuple(state.layer for state in states), recurrence.dtype, END))
    caches = join(caches)
    layers = 1 + max(layer for cache in caches for layer in cache.layers)
    layout = Layout.of_caches(
        caches, layers=layers, page_size=views[0].shape[1], tp=tp, pp=shards.pp, stages=shards.stages
    )  # fmt: skip
    # what follows a state in its block is of no part, by the spec
    claimed = {state.name: _cut(tensors[state.name], 0, 1, sum(_sizes(state.spec))) for state in states}
    claimed |= {name: tensors[name] for name in attention.values()}
    missing = sorted(set(tensors) - set(claimed))
    if missing:
        raise GeometryError("no-pool", f"tensors {', '.join(missing)} are in no group of vLLM's cache")
    found = {"full.kv": views} | {f"state.{name}": some for name, (_, some) in parts.items()}
    pool = named_pool(layout, shards.rank, with_missing(found, caches), claimed, [state.slot for state in states])
    slots = tuple(slot for slot, group in enumerate(tables_of(kinds)[1]) if group in here)
    return Geometry(pool, layout, unit, slots=slots)


def _recurrence_of(states: list[_Layer], tp: int) -> Recurrence:
    """Read how the state of gated delta nets is cut; GeometryError: the layers differ, or it is none."""
    forms = sorted({f"{state.spec.shapes} of {state.spec.dtypes}" for state in states})
    if len(forms) > 1:
        raise GeometryError("layers-not-alike", f"states of {' and '.join(forms)}: those of all layers must be alike")
    spec, taps_first = states[0].spec, not is_conv_state_dim_first()
    conv, (heads, values, keys) = spec.shapes[0], spec.shapes[1]
    taps, channels = conv if taps_first else conv[::-1]
    pairs, rest = divmod(channels - heads * values, 2 * keys)
    if rest or pairs < 1:
        raise GeometryError("no-pool", f"{channels} channels of a convolution beside {heads} heads: no q, k and v")
    segments = Segment("q", pairs * tp, keys), Segment("k", pairs * tp, keys), Segment("v", heads * tp, values)
    dtype = ", ".join(str(each).removeprefix("torch.") for each in spec.dtypes)
    return Recurrence(segments, taps, heads * tp, dtype, taps_first)


def _pieces(
    recurrence: Recurrence, tensor: torch.Tensor, spec: Any, tp: int
) -> Iterator[tuple[str, int, torch.Tensor]]:  # fmt: skip
    """Yield the parts of a layer's state, which lie in its block one after another: name, units, view."""
    begin, channels = 0, spec.shapes[0][1 if recurrence.taps_first else 0]
    for size, dim in zip(_sizes(spec), (channels, spec.shapes[1][0]), strict=True):
        for name, units, offset, held in recurrence.pieces(size, dim, tp):
            yield name, units, _cut(tensor, begin + offset, max(1, units // tp), held)
        begin += size


def _sizes(spec: Any) -> list[int]:
    """Return the bytes of convolution and matrices of a layer."""
    return [prod(shape) * dtype.itemsize for shape, dtype in zip(spec.shapes, spec.dtypes, strict=True)]


def _cut(tensor: torch.Tensor, offset: int, units: int, size: int) -> torch.Tensor:
    """Return a view of some bytes of each block, [block, unit, byte]."""
    rows = tensor.view(torch.uint8)
    row = size // units
    return rows.as_strided((len(rows), units, row), (rows.stride(0), row, 1), rows.storage_offset() + offset)

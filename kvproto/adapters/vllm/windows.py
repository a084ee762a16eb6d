"""Windows: carries vLLM's models with sliding attention, each group of which has a table of its own.

vLLM divides the layers into groups of equal numbers: of a model with one layer of full attention to five with a window,
one group attends fully and five have a window.  All groups lie over the same bytes, and a block is of one group at a
time.  Groups with a window of one length are one cache here, in as many tables (`CachePool`'s `slot_of`).

vLLM frees the blocks behind a window, and gives decode none for them.  The decode instance computes the prompt's last
token, so what it needs of a window of so many tokens is one less, before that one.  Where blocks are moved whole, that
many tokens lie in up to `blocks_of` of them: one may be a block that neither side has.  Its number is 0 then, that of
vLLM's block which nobody reads.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from vllm.model_executor.models.utils import extract_layer_index

from kvproto.adapters.geometry import Geometry, Shards, named_pool, opaque_blocks, opaque_dtype
from kvproto.adapters.stage_caches import Join, with_missing
from kvproto.adapters.vllm.rules import members, windows_of
from kvproto.adapters.vllm.stages import attending_layers, layers_here
from kvproto.layout.caches import WINDOW, Cache, CachePart
from kvproto.layout.sharding import Layout


class _Layer(NamedTuple):
    """A layer with a window: the table of its cache that its blocks are in, and its name in vLLM."""

    layer: int
    table: int
    name: str


def geometry_of_windows(
    tensors: Mapping[str, torch.Tensor], kinds: Any, shards: Shards, *, dtype: str, opaque: str, join: Join = list
) -> Geometry:  # fmt: skip
    """Return the pool and layout of a worker's KV; GeometryError names what cannot be moved.

    `kinds`: vLLM's KVCacheConfig; `opaque`: as `adapters.geometry` has it; `join`: as `adapters.stage_caches` does.
    """
    attention = attending_layers(kinds)
    block = tensors[next(iter(attention.values()))].shape[2]
    unit = block if opaque else 1
    dtype = opaque_dtype(dtype, opaque, unit)
    views = {"full.kv": [view_of(tensors[attention[layer]], opaque) for layer in sorted(attention)]}
    caches = [Cache("full", (part_of(shards.heads, views["full.kv"]),), tuple(sorted(attention)), dtype)]
    names, windows = list[str](), dict[str, list[_Layer]]()
    lengths = dict[str, int]()
    for group in windows_of(kinds):
        some = layers_here(kinds.kv_cache_groups[group])
        length = next(iter(members(kinds.kv_cache_groups[group])))[1].sliding_window
        cache = f"window{length}"
        lengths[cache] = length
        held = windows.setdefault(cache, [])
        held += [_Layer(extract_layer_index(name), names.count(cache), name) for name, _ in some]
        # of a table none of whose layers is on this stage a room needs nothing here
        names.append(cache if some else "")
    for cache, held in windows.items():
        held.sort()
        mine = views[f"{cache}.kv"] = [view_of(tensors[each.name], opaque) for each in held]
        layers_of, rows = tuple(each.layer for each in held), blocks_of(lengths[cache], unit)
        if held:
            caches.append(Cache(cache, (part_of(shards.heads, mine),), layers_of, dtype, WINDOW, window=rows))
    caches = join(caches)
    layers = 1 + max(layer for cache in caches for layer in cache.layers)
    size = 1 if opaque else block
    layout = Layout.of_caches(caches, layers=layers, page_size=size, tp=shards.tp, pp=shards.pp, stages=shards.stages)
    slot_of = {cache: [each.table for each in held] for cache, held in windows.items() if held}
    pool = named_pool(layout, shards.rank, with_missing(views, caches), tensors, slot_of)
    return Geometry(pool, layout, unit, tuple(names))


def blocks_of(window: int, unit: int) -> int:
    """Return in how many rows of `unit` tokens those lie that a prompt's last token looks back at."""
    return max(1, window - 1) if unit == 1 else (window + unit - 3) // unit + 1


def view_of(tensor: torch.Tensor, opaque: str) -> torch.Tensor:
    """Return a layer's blocks as [block, token, head, content], or each block of a head as one row."""
    rows = tensor.permute(0, 2, 1, 3)
    return opaque_blocks(rows) if opaque else rows


def part_of(heads: int, views: list[torch.Tensor]) -> CachePart:
    """Return the part of a cache whose rows these are; `heads`: of the whole model."""
    return CachePart("kv", heads, views[0].shape[3] * views[0].element_size())

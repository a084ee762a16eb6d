"""Caches: vLLM's latents and index keys as named caches of one page table.

A model with latents (MLA) has one tensor a layer, [blocks, 1, tokens, content], and every rank has all of it.  Sparse
attention (DSA) adds a tensor of 132 bytes a token to each layer that has an index of its own; in a block all keys of
128 bytes come first, then all scales of four.  All are of one group, with one block table.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from msgspec.structs import replace
from vllm.model_executor.models.utils import extract_layer_index

from kvproto.adapters.geometry import INDEX, Geometry, GeometryError, Shards, named_pool, opaque_blocks, opaque_dtype
from kvproto.adapters.stage_caches import Join, with_missing
from kvproto.adapters.vllm.rules import members
from kvproto.layout.caches import Cache, CachePart
from kvproto.layout.sharding import Layout


def indices(config: Any) -> frozenset[str]:
    """Return the layers of a `KVCacheConfig` (None: there is none yet) whose tensor is an index."""
    groups = config.kv_cache_groups if config is not None else ()
    roles = ((name, getattr(spec, "cache_role", None)) for group in groups for name, spec in members(group))
    return frozenset(name for name, role in roles if getattr(role, "name", "") == "INDEXER")


def geometry_of_caches(
    tensors: Mapping[str, torch.Tensor], index: frozenset[str], shards: Shards, *, dtype: str, opaque: str,
    join: Join = list,
) -> Geometry:  # fmt: skip
    """Return the pool of a worker's latents and index keys, and the layout.

    `opaque`: a name of how a block is arranged inside, if it moves as a whole (see `adapters.geometry`); `join`: as
    `adapters.stage_caches` has it.
    """
    latents = sorted((extract_layer_index(name), name) for name in tensors if name not in index)
    keys = sorted((extract_layer_index(name), name) for name in tensors if name in index)
    if not latents:
        raise GeometryError("layers-not-alike", "no latents: a model has one on each of its layers")
    views = {"mla.latent": [tensors[name].permute(0, 2, 1, 3) for _, name in latents]}
    unit = views["mla.latent"][0].shape[1] if opaque else 1
    if opaque and index:
        raise GeometryError("no-pool", "an index in blocks that are rearranged inside: serve on a GPU")
    if opaque:
        views["mla.latent"] = [opaque_blocks(view) for view in views["mla.latent"]]
    caches = [_cache("mla", views, latents, opaque_dtype(dtype, opaque, unit))]
    if keys:
        views |= _of_indices([tensors[name] for _, name in keys])
        caches.append(_cache("index", views, keys, ""))
    caches = join(caches)
    held = caches[0].layers
    if held != tuple(range(len(held))):
        raise GeometryError("layers-not-alike", f"latents on layers {held}: a model has one on each of its layers")
    # a cache on each layer names none
    caches = [replace(cache, layers=() if cache.layers == held else cache.layers) for cache in caches]
    size = views["mla.latent"][0].shape[1]
    layout = Layout.of_caches(
        caches, layers=len(held), page_size=size, tp=shards.tp, pp=shards.pp, stages=shards.stages
    )  # fmt: skip
    return Geometry(named_pool(layout, shards.rank, with_missing(views, caches), tensors), layout, unit)


def _cache(name: str, views: Mapping[str, list[torch.Tensor]], held: list[tuple[int, str]], dtype: str) -> Cache:
    rows = [(part, some[0]) for part, some in views.items() if part.startswith(f"{name}.")]
    parts = [CachePart(part.removeprefix(f"{name}."), 1, row.shape[3] * row.element_size()) for part, row in rows]
    return Cache(name, tuple(parts), tuple(layer for layer, _ in held), dtype)


def _of_indices(tensors: list[torch.Tensor]) -> dict[str, list[torch.Tensor]]:
    """Views [block, token, 1, byte] of all keys, and of all scales."""
    found: dict[str, list[torch.Tensor]] = {}
    for tensor in tensors:
        blocks, heads, tokens, width = tensor.shape
        if (heads, width * tensor.element_size()) != (1, sum(INDEX.values())) or not tensor[0].is_contiguous():
            told = f"an index of {tuple(tensor.shape)} by {tensor.stride()} of {tensor.dtype}"
            raise GeometryError("no-pool", f"{told}: a block is known as 128 bytes of keys and 4 of scales a token")
        rows, offset = tensor.view(torch.uint8), 0
        for part, size in INDEX.items():
            at = rows.storage_offset() + tokens * offset
            view = rows.as_strided((blocks, tokens, 1, size), (rows.stride(0), size, size, 1), at)
            found.setdefault(f"index.{part}", []).append(view)
            offset += size
    return found

"""Stages: joins what the pipeline stages of an instance know of its model's caches.

A worker of vLLM has the tensors of its own stage's layers alone, and a layout names the caches of the whole model.  So
each worker describes the caches of its layers.  The stages exchange the descriptions once, when the KV cache is there,
and each of them joins all to the same caches.  A stage that fails before it has described its own tells the others why:
vLLM waits for the workers in their order, and would wait for ever for one that waits for the exchange.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import torch
from msgspec.structs import replace
from vllm.distributed.parallel_state import get_pp_group
from vllm.model_executor.models.utils import extract_layer_index

from kvproto.adapters.geometry import Geometry, GeometryError
from kvproto.adapters.vllm.rules import members, tables_of
from kvproto.layout.caches import Cache

#: from the caches of a stage's own layers, those of the whole model
Join = Callable[[Sequence[Cache]], list[Cache]]
Views = dict[str, list[torch.Tensor]]


def layers_here(group: Any) -> list[tuple[str, Any]]:
    """Return (layer, spec) of a group's layers on this stage; a group may have none of them here."""
    return [(name, spec) for name, spec in members(group) if name in group.layer_names]


def attending_layers(kinds: Any) -> dict[int, str]:
    """Return the layers of a KVCacheConfig that attend fully and are on this stage, by their numbers.

    GeometryError: this stage has none, so nothing says how many tokens its blocks have.
    """
    found = {extract_layer_index(name): name for name, _ in layers_here(kinds.kv_cache_groups[tables_of(kinds)[0]])}
    if not found:
        raise GeometryError(
            "no-tensor", "a pipeline stage without a layer that attends fully: give each stage one of them "
            "(VLLM_PP_LAYER_PARTITION), or serve with fewer stages",
        )  # fmt: skip
    return found


def with_missing(views: Views, caches: Sequence[Cache]) -> Views:
    """Return a worker's views by part, with none of those parts that other stages have alone."""
    names = [f"{cache.name}.{part.name}" for cache in caches for part in cache.parts]
    return {name: views.get(name, []) for name in names}


def on_all_stages(make: Callable[[Join], Geometry]) -> Geometry:
    """Make a worker's geometry, from the caches of all stages where it names any.

    GeometryError: it cannot be made on this stage, or on another one, whose sentence is in it.
    """
    told = False

    def join(mine: Sequence[Cache]) -> list[Cache]:
        nonlocal told
        told = True
        return joined(exchange(list(mine)))

    try:
        made = make(join)
    except Exception as error:  # whatever it is, the other stages wait for a word
        if not told:
            exchange(str(error))
        raise
    if not told:
        joined(exchange([]))
    return made


def exchange(said: list[Cache] | str) -> list[list[Cache] | str]:
    """Return what each stage says: the caches of its layers, or why it cannot describe them."""
    group = get_pp_group()
    found: list[Any] = [None] * group.world_size
    torch.distributed.all_gather_object(found, msgspec.msgpack.encode(said), group=group.cpu_group)
    return [msgspec.msgpack.decode(each, type=list[Cache] | str) for each in found]


def joined(told: Sequence[Sequence[Cache] | str]) -> list[Cache]:
    """Join the caches of all stages; GeometryError: they differ in more than their layers."""
    found: dict[str, Cache] = {}
    for stage, caches in enumerate(told):
        if isinstance(caches, str):
            raise GeometryError("no-pool", f"stage {stage} of this instance has no pool: {caches}")
        for cache in caches:
            known = found.get(cache.name, cache)
            if replace(known, layers=()) != replace(cache, layers=()):
                raise GeometryError(
                    "layers-not-alike", f"cache {cache.name!r} of stage {stage} is {cache}, of one before it {known}"
                )
            found[cache.name] = replace(cache, layers=tuple(sorted({*known.layers, *cache.layers})))
    return list(found.values())

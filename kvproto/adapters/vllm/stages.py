"""Stages: the pipeline stages of a vLLM instance, each with the layers that it has.

A worker of vLLM has the tensors of its own stage's layers alone.  How the stages come to the same caches of the whole
model stands in `adapters.stage_caches`; here is how vLLM's stages speak to each other, and which layers are whose.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from vllm.distributed.parallel_state import get_pp_group
from vllm.model_executor.models.utils import extract_layer_index

from kvproto.adapters import stage_caches
from kvproto.adapters.geometry import Geometry, GeometryError
from kvproto.adapters.stage_caches import Join, Word
from kvproto.adapters.vllm.rules import members, tables_of


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


def on_all_stages(make: Callable[[Join], Geometry]) -> Geometry:
    """Make a worker's geometry, as `adapters.stage_caches` does."""
    return stage_caches.on_all_stages(make, exchange)


def exchange(said: Word) -> list[Word]:
    """Return what each stage says: the caches of its layers, or why it cannot describe them."""
    group = get_pp_group()
    found: list[Any] = [None] * group.world_size
    torch.distributed.all_gather_object(found, stage_caches.encoded(said), group=group.cpu_group)
    return stage_caches.decoded(found)

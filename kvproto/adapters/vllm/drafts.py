"""Drafts: carries the KV of a draft in vLLM, a model of its own or an EAGLE head, beside the model's.

vLLM keeps a draft's layers in the group of the model's, in the same blocks.  A draft model's names begin anew behind a
prefix; an EAGLE head's layers have numbers behind the model's last.  Here they are a cache of their own, `draft`, whose
heads may be others than the model's.

The prefill instance runs the draft over the prompt, as it does over what it would generate: vLLM finishes a step for a
connector after the draft's forward.  It also has blocks for tokens that the draft looks ahead, which are behind the
prompt and stay there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from vllm.model_executor.models.utils import extract_layer_index

from kvproto.adapters.geometry import Geometry, Shards, named_pool, opaque_dtype
from kvproto.adapters.vllm.windows import part_of, view_of
from kvproto.layout.caches import Cache
from kvproto.layout.sharding import Layout

#: what the names of a draft model's layers begin with
OWN = "draft_model."


def draft_heads(config: Any) -> int:
    """Return the KV heads of the whole draft; 0: there is no draft with KV."""
    draft = getattr(getattr(config, "speculative_config", None), "draft_model_config", None)
    return 0 if draft is None else int(draft.get_total_num_kv_heads())


def draft_layer(name: str, layers: int) -> int | None:
    """Return the number of a draft's layer behind the model's so many; None: the layer is the model's."""
    number = int(extract_layer_index(name))
    if name.startswith(OWN):
        return layers + number
    return number if number >= layers else None


def geometry_of_draft(
    tensors: Mapping[str, torch.Tensor], layers: int, heads: int, shards: Shards, *, dtype: str, opaque: str
) -> Geometry:  # fmt: skip
    """Return the pool and layout of a worker's KV and its draft's; GeometryError: they are no pool.

    `layers`: of the model; `heads`: KV heads of the whole draft; `opaque`: as `adapters.geometry` has it.
    """
    placed = {name: draft_layer(name, layers) for name in tensors}
    model = sorted((extract_layer_index(name), name) for name, at in placed.items() if at is None)
    draft = sorted((at, name) for name, at in placed.items() if at is not None)
    block = next(iter(tensors.values())).shape[2]
    unit = block if opaque else 1
    dtype = opaque_dtype(dtype, opaque, unit)
    views, caches = dict[str, list[torch.Tensor]](), list[Cache]()
    for cache, held, count in (("kv", model, shards.heads), ("draft", draft, heads)):
        mine = views[f"{cache}.kv"] = [view_of(tensors[name], opaque) for _, name in held]
        caches.append(Cache(cache, (part_of(count, mine),), tuple(at for at, _ in held), dtype))
    layout = Layout.of_caches(
        caches, layers=1 + draft[-1][0], page_size=1 if opaque else block, tp=shards.tp, pp=shards.pp
    )
    return Geometry(named_pool(layout, shards.rank, views, tensors), layout, unit)

"""Ranks of vLLM: a worker's endpoint, made from vLLM's configuration when its KV cache exists.

vLLM has one tensor a layer, logically [blocks, heads, tokens, content], where the content of a token in a head is its K
and V side by side; in which order the dimensions lie in memory is the attention backend's choice, and read from the
strides.  Copies are bit copies, and K and V of a token travel together, so the content is one row.  Attention on a CPU
keeps K transposed inside a block, so there a block is moved as it is.  Every block of vLLM is a page.

    chunk_tokens that of a prefill instance's extra configuration, in vLLM's tokens, cut to whole blocks
    group        the engine_id, which vLLM ends with `_dp` and the number of a data-parallel rank; of a decode instance
                 `group` of the extra configuration, if it has one, with the same end
    card_secret, card_networks, card_instances      what cards must show (`adapters.card_trust`)
    index        the worker's place: pipeline stages first, as the layout counts them
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
import torch
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorHandshakeMetadata
from vllm.distributed.parallel_state import get_pp_group, get_tp_group
from vllm.distributed.utils import get_pp_indices
from vllm.model_executor.models.utils import extract_layer_index

from kvproto.adapters.card import group_of
from kvproto.adapters.card_trust import INSTANCES, CardTrust
from kvproto.adapters.decode_worker import DecodeWorker
from kvproto.adapters.geometry import Geometry, Shards, geometry
from kvproto.adapters.judging import judged
from kvproto.adapters.prefill_worker import PrefillWorker
from kvproto.adapters.renamed_options import rename_options
from kvproto.adapters.rules import need_carried, present
from kvproto.adapters.stage_caches import Join
from kvproto.adapters.vllm.caches import geometry_of_caches, indices
from kvproto.adapters.vllm.drafts import draft_heads, geometry_of_draft
from kvproto.adapters.vllm.rules import RULES, tables_of, windows_of
from kvproto.adapters.vllm.stages import attending_layers, on_all_stages
from kvproto.adapters.vllm.states import geometry_of_states
from kvproto.adapters.vllm.windows import geometry_of_windows
from kvproto.adapters.worker import Worker
from kvproto.endpoint.decode_endpoint import DecodeEndpoint
from kvproto.endpoint.prefill_endpoint import PrefillEndpoint
from kvproto.endpoint.validation import new_incarnation
from kvproto.fsm.timing import Timer
from kvproto.io.transports.nixl import NixlTransport
from kvproto.layout.sharding import Layout
from kvproto.protocol.timing import Timing
from kvproto.settings import Settings

#: of a layer's tensor, as `adapters.geometry` names dimensions
FORM = "BHNC"
#: what is taken where the extra configuration says nothing: tokens a chunk, seconds that finished KV is kept and that a
#: request is waited for, bytes
CHUNK_TOKENS, TTL, WAIT, RING = 512, 60.0, 60.0, 1 << 30


@dataclass
class RankCard(KVConnectorHandshakeMetadata):  # type: ignore[misc]  # vLLM's own are untyped here
    """A prefill rank's message to its scheduler: a card with its own address alone."""

    layout: Layout
    chunk_tokens: int
    incarnation: int
    address: str

    def __getstate__(self) -> dict[str, Any]:
        # pickle would look for the layout's UNSET in every imported module, and lazy ones import others when asked
        return {**vars(self), "layout": msgspec.msgpack.encode(self.layout)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, layout=msgspec.msgpack.decode(state["layout"], type=Layout))


def make_worker(config: Any, caches: dict[str, torch.Tensor], kinds: Any = None) -> tuple[Worker[Any], RankCard | None]:
    """This worker's rank, not started, and (of a prefill rank) its part of the card.

    `kinds`: vLLM's KVCacheConfig.
    GeometryError names a cache that cannot be moved, and why.
    """
    transfer = config.kv_transfer_config
    extra = rename_options(transfer.kv_connector_extra_config, "kv_connector_extra_config")
    shards = _shards(config, len(caches))
    latents, dtype = config.model_config.use_mla, config.cache_config.cache_dtype
    drafted = draft_heads(config) > 0
    form = _with_draft(caches, config, kinds) if drafted else _geometry(caches, shards, dtype, kinds, latents=latents)
    timing = Timing(bootstrap=Timer(extra.get("ttl", TTL)), engine=Timer(extra.get("wait", WAIT)))
    settings = Settings(
        ring_bytes=extra.get("ring_bytes", RING), timing=timing, trace=extra.get("trace", 512),
        route=extra.get("route", "cost"), costs=extra.get("costs", ""),
    )  # fmt: skip
    more = {"settings": settings, "keys": extra.get("keys"), "digests": extra.get("digests", False)}
    mine, follow = (form.layout, shards.rank, form.pool, NixlTransport()), bool(extra.get("conformance"))
    if not transfer.is_kv_producer:
        name = extra["group"] + data_parallel_suffix(config) if "group" in extra else transfer.engine_id
        group = group_of(name)
        receiver = judged(lambda: DecodeEndpoint(*mine, group=group, **more), wanted=follow)
        return DecodeWorker(receiver, form, trust_of(extra)), None
    more |= {"bind": extra["bind"]} if "bind" in extra else {}
    page = form.layout.page_size * form.unit
    chunk_tokens = max(1, extra.get("chunk_tokens", CHUNK_TOKENS) // page) * form.layout.page_size
    born = more["incarnation"] = new_incarnation()
    named = group_of(transfer.engine_id)
    sender = judged(lambda: PrefillEndpoint(*mine, chunk_tokens=chunk_tokens, group=named, **more), wanted=follow)
    return PrefillWorker(sender, form), RankCard(form.layout, chunk_tokens, born, sender.address)


def trust_of(extra: dict[str, Any]) -> CardTrust:
    """Return what cards must show, by the extra configuration; ArgumentError names what is wrong with it."""
    networks, most = tuple(extra.get("card_networks", ())), extra.get("card_instances", INSTANCES)
    return CardTrust.read(extra.get("card_secret", ""), networks, most)


def data_parallel_suffix(config: Any) -> str:
    """Return the suffix of a data-parallel rank's engine_id in vLLM; empty if there is one rank."""
    suffix = f"_dp{config.parallel_config.data_parallel_index}"
    return suffix if config.kv_transfer_config.engine_id.endswith(suffix) else ""


def _shards(config: Any, layers: int) -> Shards:
    """How the instance cuts its model; `layers`: those of this worker."""
    model, parallel = config.model_config, config.parallel_config
    tp, pp = parallel.tensor_parallel_size, parallel.pipeline_parallel_size
    index = get_pp_group().rank_in_group * tp + get_tp_group().rank_in_group
    heads = 1 if model.use_mla else model.get_total_num_kv_heads()
    if pp == 1:
        return Shards(heads, layers, tp, rank=index)
    total = model.get_total_num_hidden_layers()
    stages = [get_pp_indices(total, stage, pp) for stage in range(pp)]
    return Shards(heads, total, tp, pp, tuple(end - first for first, end in stages), index)


def _inside(first: torch.Tensor, dtype: str) -> tuple[str, str]:
    """Return the name of how vLLM arranges a block inside (empty: as its shape says), and its type's."""
    return "vllm-cpu" if first.device.type == "cpu" else "", dtype_of(dtype, first)


def _geometry(
    caches: dict[str, torch.Tensor], shards: Shards, dtype: str = "auto", kinds: Any = None, *, latents: bool = False
) -> Geometry:  # fmt: skip
    def made(join: Join) -> Geometry:
        several = geometry_of_states if tables_of(kinds)[1] else geometry_of_windows if windows_of(kinds) else None
        index = indices(kinds)
        first = caches[min(attending_layers(kinds).items())[1]] if several else next(iter(caches.values()))
        opaque, name = _inside(first, dtype)
        if several:
            return several(caches, kinds, shards, dtype=name, opaque=opaque, join=join)
        if latents or index:
            return geometry_of_caches(caches, index, shards, dtype=name, opaque=opaque, join=join)
        tensors = [caches[each] for each in sorted(caches, key=extract_layer_index)]
        return geometry(tensors, FORM, shards, opaque=opaque, dtype=name)

    return on_all_stages(made) if shards.pp > 1 else made(list)


def _with_draft(caches: dict[str, torch.Tensor], config: Any, kinds: Any) -> Geometry:
    """Return the geometry of a model and its draft; ArgumentError: the model has more than KV."""
    if tables_of(kinds)[1] or windows_of(kinds) or indices(kinds):
        need_carried(present(RULES, "draft", ["beside"]))
    layers, first = config.model_config.get_total_num_hidden_layers(), next(iter(caches.values()))
    opaque, dtype = _inside(first, config.cache_config.cache_dtype)
    return geometry_of_draft(caches, layers, draft_heads(config), _shards(config, layers), dtype=dtype, opaque=opaque)


def dtype_of(name: str, cache: torch.Tensor) -> str:
    """Return the name that both sides compare: the tensors' type, or what vLLM packs into its bytes."""
    packed = {"fp8": "fp8_e4m3"}.get(name, name)
    return packed if packed.startswith("fp8") else str(cache.dtype).removeprefix("torch.")

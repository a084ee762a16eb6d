"""Rules of vLLM's configuration: fields that are carried, irrelevant, or refused at start.

`look_at` judges `VllmConfig` with its parts and the model (`config`, `parallel`, `cache`, `transfer`, `speculative`,
`draft`, `model`, `checkpoint`) before vLLM divides the memory, since vLLM fails by itself there for a model of several
kinds of cache. `look_into` judges the cache that vLLM has decided on (`caches`, `group`, `kind`, `spec`, `number`), in
its scheduler and in each worker. Whichever sees a fact first refuses it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import SimpleNamespace
from typing import Any

from kvproto.adapters.rules import (
    CONTEXT,
    DRAFTS,
    ELASTIC,
    FORMS,
    NODES,
    SCALES,
    SLEEP,
    TIERS,
    WINDOWS,
    Lack,
    Rules,
    carried,
    irrelevant,
    need_carried,
    present,
    refusals,
    refused,
)

BOTH = Lack("an instance that is prefill and decode at once", "set kv_role to kv_producer or to kv_consumer")
RAY = Lack(
    "workers that Ray or a launcher of your own places, maybe on several nodes",
    "leave --distributed-executor-backend at mp or uni",
)
GROUPS = Lack(
    "several groups of layers that attend fully, each with a block table, or none",
    "serve a model whose fully attending layers are alike, or use vLLM's own",
)
UNIFIED = Lack(
    "sliding windows in the blocks of full attention",
    "serve without --disable-hybrid-kv-cache-manager, or use vLLM's own connector",
)
MIXED = Lack("recurrent states beside sliding windows", "serve a model with one of the two, or use vLLM's own")
RECURRENT = Lack(
    "recurrent states other than gated delta nets (Mamba, KDA, linear attention)",
    "serve a model without them, or use vLLM's own connector",
)
STATE_HITS = Lack("prefix hits of a recurrent state", "serve with --no-enable-prefix-caching")
REPLAY = Lack("a recurrent state that is rebuilt from kept inputs (ReplaySSM)", "leave it off")
INSIDE = Lack("prefix hits inside a block", "leave --prefix-match-unit out")
ALGORITHMS = Lack(
    "a draft that is neither a model of its own nor an EAGLE head (MTP, DFlash, Medusa, n-grams)",
    "choose the method draft_model, eagle or eagle3, or serve without speculation, on both sides",
)
UNLIKE = Lack(
    "a draft whose cache is of another type, or cut otherwise than the model",
    "serve the draft with the model's tensor parallelism and type of cache",
)
BESIDE = Lack(
    "a draft beside latents, an index, windows, recurrent state or pipeline stages",
    "serve the model without speculation, or use vLLM's own connector",
)
TOKENS = Lack("tokens that are not computed in order (encoder and decoder, diffusion)", "serve a decoder-only model")
NONE = Lack("a model without a KV cache", "serve it without disaggregation")

#: types of a cache whose rows are all there is of it: scales are of a whole tensor, or lie in the row
WHOLE = "auto", "float16", "bfloat16", "fp8", "fp8_e4m3", "fp8_e5m2", "fp8_ds_mla"

#: the part of `VllmConfig` that each section is
PARTS = {
    "parallel": "parallel_config", "cache": "cache_config", "transfer": "kv_transfer_config",
    "speculative": "speculative_config",
}  # fmt: skip
#: the classes whose fields are recorded, by section
RECORDED = {
    "parallel": "vllm.config.parallel:ParallelConfig", "cache": "vllm.config.cache:CacheConfig",
    "transfer": "vllm.config.kv_transfer:KVTransferConfig", "config": "vllm.config.vllm:VllmConfig",
    "spec": "vllm.v1.kv_cache_interface:MLAAttentionSpec", "state": "vllm.v1.kv_cache_interface:MambaSpec",
    "window": "vllm.v1.kv_cache_interface:SlidingWindowSpec", "group": "vllm.v1.kv_cache_interface:KVCacheGroupSpec",
    "speculative": "vllm.config.speculative:SpeculativeConfig",
    "caches": "vllm.v1.kv_cache_interface:KVCacheConfig", "kind": "vllm.v1.kv_cache_interface:KVCacheSpec+",
}  # fmt: skip

# fmt: off
RULES: Rules = {
    # ------------------------------------------------------------------------------------------ parallelism
    **refused("parallel", CONTEXT, "prefill_context_parallel_size decode_context_parallel_size", 1),
    **refused("parallel", NODES, "nnodes", 1),
    **refused("parallel", ELASTIC, "enable_elastic_ep", False),
    **refused("parallel", RAY, "distributed_executor_backend", None, "mp", "uni"),
    **refused("parallel", RAY, "data_parallel_backend", "mp"),
    **carried("parallel", "a rank of a stage is a rank of the protocol",
              "tensor_parallel_size pipeline_parallel_size rank world_size"),
    **carried("parallel", "a data-parallel rank is an engine with an engine_id of its own",
              "data_parallel_size data_parallel_size_local data_parallel_rank data_parallel_rank_local "
              "data_parallel_index data_parallel_external_lb data_parallel_hybrid_lb"),
    **irrelevant("parallel", "where the engine's own processes meet, and how long they wait",
                 "data_parallel_master_ip data_parallel_rpc_port data_parallel_master_port dp_sync_interval "
                 "master_addr master_port node_rank distributed_timeout_seconds cpu_distributed_timeout_seconds "
                 "disable_nccl_for_dp_synchronization enable_shm_tensor_arena enable_fault_tolerance "
                 "fault_tolerance_config"),
    **irrelevant("parallel", "weights, experts and activations are no cache",
                 "is_moe_model enable_hc_sp enable_expert_parallel enable_batch_sharded_sampling "
                 "enable_ep_weight_filter enable_eplb eplb_config expert_placement_strategy all2all_backend "
                 "max_parallel_loading_workers "
                 "disable_custom_all_reduce enable_dbo ubatch_size dbo_decode_token_threshold "
                 "dbo_prefill_token_threshold"),
    **irrelevant("parallel", "where processes run", "worker_cls worker_extension_cls numa_bind numa_bind_nodes "
                 "numa_bind_cpus assigned_physical_gpu_ids"),
    **irrelevant("parallel", "counts only with what is refused",
                 "elastic_ep_max_dp_size ray_workers_use_nsight ray_runtime_env placement_group "
                 "dcp_kv_cache_interleave_size dcp_comm_backend dcp_q_replicate cp_kv_cache_interleave_size"),
    # ------------------------------------------------------------------------------------------------ cache
    **refused("cache", SCALES, "cache_dtype", *WHOLE),
    **refused("cache", TIERS, "kv_offloading_size", None),
    **refused("cache", NONE, "is_attention_free", False),
    **refused("cache", INSIDE, "prefix_match_unit", None),
    **carried("cache", "a block is a page, and the tensors say how many there are",
              "block_size gpu_memory_utilization num_gpu_blocks_override kv_cache_memory_bytes"),
    **carried("cache", "what the decode instance has of a prompt is not sent", "enable_prefix_caching"),
    **carried("cache", "the specs say which layers have a window", "sliding_window"),
    **irrelevant("cache", "how prefixes are found, and how long they are kept",
                 "prefix_caching_hash_algo prefix_cache_retention_interval"),
    **irrelevant("cache", "which tokens a layer computes; what it stores is the same", "kv_sharing_fast_prefill"),
    **carried("cache", "layers that are not alike are refused by their form", "kv_cache_dtype_skip_layers"),
    **refused("cache", STATE_HITS, "mamba_cache_mode", "none"),
    **refused("cache", REPLAY, "use_replayssm", False),
    **carried("cache", "the specs say how a state lies in its block",
              "mamba_page_size_padded mamba_block_size mamba_cache_dtype mamba_ssm_cache_dtype"),
    **irrelevant("cache", "counts only with what is refused",
                 "skip_page_size_padded enable_mamba_shared_prefix_checkpoint replayssm_buffer_len swa_bounded_replay "
                 "kv_offloading_backend"),
    # --------------------------------------------------------------------------------------------- transfer
    **refused("transfer", BOTH, "kv_role", "kv_producer", "kv_consumer"),
    **carried("transfer", "kvproto's own", "kv_connector kv_connector_module_path kv_connector_extra_config engine_id "
              "kv_load_failure_policy"),
    **irrelevant("transfer", "kvproto has buffers, ports and layouts of its own",
                 "kv_buffer_device kv_port enable_permute_local_kv"),
    # ----------------------------------------------------------------------------------------------- config
    **refused("config", TOKENS, "diffusion_config", None),
    **carried("config", "has rules of its own",
              "model_config cache_config parallel_config kv_transfer_config speculative_config"),
    **carried("config", "both sides must serve the same weights, adapters and quantization",
              "lora_config quant_config load_config"),
    **irrelevant("config", "changes nothing of the KV that moves",
                 "scheduler_config device_config offload_config attention_config aux_output_config engram_config "
                 "kernel_config watermark_config structured_outputs_config observability_config logging_config "
                 "compilation_config profiler_config kv_events_config ec_transfer_config ec_manager_config "
                 "reasoning_config additional_config instance_id optimization_level performance_mode "
                 "weight_transfer_config shutdown_timeout"),
    **irrelevant("config", "which operators compute a state", "mamba_config"),
    # ------------------------------------------------------------------------------------------ speculation
    **refused("speculative", ALGORITHMS, "method", None, "draft_model", "eagle", "eagle3"),
    **refused("speculative", ALGORITHMS, "parallel_drafting", False),
    **refused("speculative", UNLIKE, "kv_cache_dtype", None, "auto"),
    **refused("draft", UNLIKE, "cut_otherwise", False),
    **refused("draft", BESIDE, "beside", False),
    **carried("speculative", "the draft's layers are a cache of their own, with the model's block table",
              "model draft_model_config draft_tensor_parallel_size draft_parallel_config"),
    **irrelevant("speculative", "how tokens are drafted and accepted",
                 "num_speculative_tokens num_speculative_tokens_per_batch_size quantization moe_backend "
                 "attention_backend max_model_len revision code_revision index_share_for_mtp_iteration enforce_eager "
                 "tensor_parallel_size disable_padded_drafter_batch disable_eagle_block_drop "
                 "use_local_argmax_reduction use_heterogeneous_vocab target_model_config target_parallel_config "
                 "draft_load_config rejection_sample_method synthetic_acceptance_rates synthetic_acceptance_length "
                 "enable_adaptive_verification draft_sample_method"),
    **irrelevant("speculative", "counts only with what is refused",
                 "prompt_lookup_max prompt_lookup_min suffix_decoding_max_tree_depth dspark_draft_topk "
                 "suffix_decoding_max_cached_requests suffix_decoding_max_spec_factor suffix_decoding_min_token_prob"),
    # ------------------------------------------------------------------------------------------------ model
    **carried("model", "its states are judged by their specs", "is_hybrid"),
    **refused("model", TOKENS, "is_encoder_decoder is_diffusion", False),
    # vLLM sleeps wherever this allocator is on, also without the mode
    **refused("model", SLEEP, "enable_sleep_mode enable_cumem_allocator", False),
    **carried("checkpoint", "an index is a cache of its own, with the block table of the latents", "index_topk"),
    # -------------------------------------------------------------------------------------- the cache itself
    **carried("kind", "a page table and rows that are alike", "FullAttentionSpec MLAAttentionSpec"),
    **carried("kind", "its members are judged one by one", "UniformTypeKVCacheSpecs"),
    **carried("kind", "a window at the end, of which the rules of `window` say more", "SlidingWindowSpec"),
    **refused("kind", WINDOWS, "SlidingWindowMLASpec ChunkedLocalAttentionSpec CircularBufferSpec RSWASpec", False),
    **carried("kind", "a state at the end, of which the rules of `state` say more", "MambaSpec"),
    **refused("kind", TIERS, "HiSparseHotSpec HiSparseResidentSpec", False),
    **refused("kind", TOKENS, "EncoderOnlyAttentionSpec CrossAttentionSpec", False),
    **refused("kind", FORMS, "AttentionSpec HiddenStateCacheSpec SinkFullAttentionSpec", False),
    **refused("spec", UNIFIED, "sliding_window", None),
    **refused("spec", WINDOWS, "attention_chunk_size", None),
    **refused("spec", SCALES, "kv_quant_mode", "NONE", "FP8_PER_TENSOR"),
    **refused("spec", SCALES, "state_content_bytes num_head_slots", None),
    **refused("spec", SCALES, "cache_dtype_str", None, *WHOLE),
    **carried("spec", "an index is a cache of its own, with the block table of the latents", "cache_role"),
    **refused("spec", FORMS, "tokens_per_state", 1),
    **refused("spec", FORMS, "alignment model_version", None),
    **carried("spec", "read from the tensors, their strides included",
              "block_size block_stride_alignment page_size_padded num_kv_heads head_size head_size_v dtype"),
    **irrelevant("spec", "how rows are attended to, or counted where context parallelism cuts them",
                 "non_causal non_causal_multi_token_decode dcp_sharded max_tp_shards is_index_group_leader"),
    **carried("window", "the last so many tokens travel when all are computed", "sliding_window"),
    **refused("window", DRAFTS, "extra_retained_tokens", 0),
    **refused("window", SCALES, "kv_quant_mode", "NONE", "FP8_PER_TENSOR"),
    **refused("window", SCALES, "state_content_bytes num_head_slots", None),
    **refused("window", FORMS, "tokens_per_state", 1),
    **carried("window", "read from the tensors, their strides included",
              "block_size block_stride_alignment page_size_padded num_kv_heads head_size head_size_v dtype"),
    **irrelevant("window", "counts where context parallelism cuts a cache", "dcp_sharded max_tp_shards"),
    **refused("state", RECURRENT, "mamba_type", "GDN_ATTN"),
    **refused("state", STATE_HITS, "mamba_cache_mode", "none"),
    **refused("state", STATE_HITS, "num_prefill_checkpoint_blocks", 0),
    **refused("state", DRAFTS, "num_speculative_blocks", 0),
    **refused("state", FORMS, "tp_replicated", False),
    **carried("state", "say how a state lies in its block", "shapes dtypes page_size_padded block_stride_alignment"),
    **irrelevant("state", "one state is one block, however many tokens it stands for",
                 "block_size tokens_per_state num_heads prefill_checkpoint_alignment"),
    **irrelevant("state", "counts where context parallelism cuts a cache", "dcp_sharded"),
    **refused("group", DRAFTS, "is_eagle_group", False),
    **refused("group", TIERS, "host_resident", False),
    **refused("group", TIERS, "role", "DEFAULT"),
    **refused("group", FORMS, "enable_kv_transfer", True),
    **carried("group", "judged by its kind and fields", "layer_names kv_cache_spec"),
    **refused("number", GROUPS, "groups", 1),
    **refused("number", MIXED, "states_and_windows", False),
    **refused("caches", TIERS, "hisparse_host_num_blocks hisparse_host_block_stride", None),
    **refused("caches", TIERS, "hisparse_shared_host_pool", False),
    **carried("caches", "read from the tensors, their strides included",
              "num_blocks kv_cache_tensors kv_cache_groups kv_cache_layout kv_tp_replicas"),
    **irrelevant("caches", "how prefixes are found, and how long they are kept",
                 "prefix_cache_retention_interval hash_block_size cache_hit_alignment_tokens"),
}
# fmt: on


def look_at(config: Any) -> None:
    """Refuse what a `VllmConfig` says that cannot be carried; ArgumentError has a sentence for each fact."""
    need_carried(
        [
            *(
                said
                for section, part in PARTS.items()
                if getattr(config, part, None) is not None
                for said in refusals(RULES, section, getattr(config, part))
            ),
            *_of_draft(config),
            *refusals(RULES, "config", config),
            *refusals(RULES, "model", config.model_config, {}),
            *refusals(RULES, "checkpoint", getattr(config.model_config, "hf_text_config", None), {}),
        ]
    )


def _of_draft(config: Any) -> list[str]:
    """Judge what the options of a draft and of the model say together."""
    if getattr(config, "speculative_config", None) is None:
        return []
    own, parallel = config.speculative_config.draft_parallel_config, config.parallel_config
    tp = parallel.tensor_parallel_size if own is None else own.tensor_parallel_size
    facts = {
        "cut_otherwise": tp != parallel.tensor_parallel_size,
        "beside": parallel.pipeline_parallel_size > 1 or getattr(config.model_config, "use_mla", False),
    }  # fmt: skip
    return present(RULES, "draft", [name for name, is_so in facts.items() if is_so])


def look_into(caches: Any) -> None:
    """Refuse a `KVCacheConfig` with unsupported facts; ArgumentError has a sentence for each fact."""
    need_carried([*refusals(RULES, "caches", caches), *_in_groups(caches.kv_cache_groups)])


def members(group: Any) -> Iterable[tuple[str, Any]]:
    """Return (layer, spec) of a group; one whose layers differ in size alone has a spec a layer."""
    alike = dict.fromkeys(group.layer_names or ("",), group.kv_cache_spec)
    specs: dict[str, Any] = getattr(group.kv_cache_spec, "kv_cache_specs", alike)
    return specs.items()


def _in_groups(groups: Any) -> Iterator[str]:
    for group in groups:
        yield from refusals(RULES, "group", group)
        for _, spec in members(group):
            # the fields of a kind that is refused say nothing more
            fields = "state" if is_state(spec) else "window" if _is_window(spec) else "spec"
            yield from present(RULES, "kind", [type(spec).__name__]) or refusals(RULES, fields, spec)
    states, windows = (sum(map(keeps, groups)) for keeps in (_keeps_state, _keeps_window))
    counted = SimpleNamespace(groups=len(groups) - states - windows, states_and_windows=bool(states and windows))
    yield from refusals(RULES, "number", counted, {})


def is_state(spec: Any) -> bool:
    """Whether a layer of this spec keeps a recurrent state."""
    return type(spec).__name__ == "MambaSpec"


def tables_of(caches: Any) -> tuple[int, tuple[int, ...]]:
    """Return the number of full attention's group, and those of the state's, each with a block table.

    `caches`: vLLM's KVCacheConfig; None: there is none yet, and one group.
    """
    groups = list(enumerate(caches.kv_cache_groups)) if caches is not None else []
    states = tuple(at for at, group in groups if _keeps_state(group))
    return next((at for at, group in groups if at not in states and not _keeps_window(group)), 0), states


def windows_of(caches: Any) -> tuple[int, ...]:
    """Return the numbers of the groups whose layers have a window, each of which has a block table."""
    groups = caches.kv_cache_groups if caches is not None else ()
    return tuple(at for at, group in enumerate(groups) if _keeps_window(group))


def _keeps_state(group: Any) -> bool:
    return any(is_state(spec) for _, spec in members(group))


def _keeps_window(group: Any) -> bool:
    return any(_is_window(spec) for _, spec in members(group))


def _is_window(spec: Any) -> bool:
    return type(spec).__name__ == "SlidingWindowSpec"

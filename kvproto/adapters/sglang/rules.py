"""Rules of SGLang's configuration: fields that are carried, irrelevant, or refused at start.

`parallel`, `disagg`, `memory` and `spec` are SGLang's own sections of its options, as it has resolved them.
`environment` has the variables that change what kvproto relies on, and the options of other sections that do. `args` is
what SGLang hands to a transfer backend (`KVArgs`), `state` has the kinds of state beside the KV, and `model` what
kvproto knows of the model.
"""

from __future__ import annotations

from kvproto.adapters.rules import (
    CONTEXT,
    DRAFTS,
    ELASTIC,
    FORMS,
    NODES,
    SCALES,
    SLEEP,
    SPARSE,
    TIERS,
    WINDOWS,
    Lack,
    Rules,
    carried,
    irrelevant,
    refused,
)

REPLICAS = Lack("replicas behind one bootstrap server", "serve with --dp-size 1, and start more instances")
SHARDED = Lack("KV that is sharded by pages or by layers", "serve without sharding of the KV cache")
ORDER = Lack(
    "a prefill that begins before its decode instance is known, or an allocation after prefill",
    "set --disaggregation-decode-allocation-policy early and --optimistic-prefill-attempts 0",
)
ALGORITHMS = Lack("a speculative algorithm that may keep more than a draft's KV", "choose EAGLE or EAGLE3, or none")
UNLIKE = Lack("a draft of another form than the model's own KV", "serve the draft with one layer kind and dtype")
SWITCH = Lack("instances that change or mix their roles", "start an instance for prefill and one for decode")
PACKED = Lack("pages that hold several layers or kinds of cache", "serve with SGLang's default, a pool a layer")
ARRANGED = Lack("rows that are rearranged inside a page", "unset SGLANG_AITER_KV_CACHE_LAYOUT")
STAGING = Lack("SGLang's own staging", "unset SGLANG_DISAGG_STAGING_BUFFER")
OWN_POOL = Lack("metadata in a memory pool of its own", "unset SGLANG_MOONCAKE_CUSTOM_MEM_POOL")
UNKNOWN_STATE = Lack(
    "recurrent states that are cut in a way it does not know, or rearranged for AMX",
    "serve a model with gated delta nets (Qwen3-Next, Qwen3.5), Mamba2 (Falcon-H1, Nemotron-H, Granite 4) or Kimi's "
    "delta attention, or use SGLang's own Mooncake backend",
)
UNKNOWN_WINDOW = Lack(
    "windows whose length or layers it does not know, or chunked local attention",
    "serve a model with sliding windows on some layers and full attention on others (gpt-oss, MiMo-V2, Gemma 4), or "
    "use SGLang's own Mooncake backend",
)
BESIDE = Lack(
    "a window beside recurrent state, or beside a draft",
    "serve the model without speculation, or one that has no such state, or use SGLang's own Mooncake backend",
)
STAGES = Lack("a draft beside pipeline stages", "serve the model with one stage, or without speculation")
AT_DECODE = Lack(
    "pipeline stages at decode, where SGLang's stages came to wait for each other for ever after requests were aborted",
    "serve decode with one stage; prefill may have several",
)
EARLY = Lack(
    "release of pages in which something may still land",
    "unset SGLANG_DISAGGREGATION_DEFERRED_DECODE_KV_RELEASE and its _TIMEOUT",
)

#: the classes whose fields are recorded, by section
RECORDED = {
    "parallel": "sglang.srt.arg_groups.fields.parallel:Parallel",
    "disagg": "sglang.srt.arg_groups.fields.disagg:Disagg",
    "memory": "sglang.srt.arg_groups.fields.memory:Memory", "spec": "sglang.srt.arg_groups.fields.spec:Spec",
    "args": "sglang.srt.disaggregation.base.conn:KVArgs", "state": "sglang.srt.disaggregation.base.conn:StateType",
}  # fmt: skip

# fmt: off
RULES: Rules = {
    # ------------------------------------------------------------------------------------------ parallelism
    **refused("parallel", CONTEXT, "attn_cp_size dcp_size", 1),
    **refused("parallel", CONTEXT, "enable_prefill_cp enable_cp_tp_group_sharing", False),
    **refused("parallel", REPLICAS, "dp_size", 1),
    **refused("parallel", SHARDED, "enable_kv_cache_sharding enable_dsa_cache_layer_split", False),
    **refused("parallel", NODES, "nnodes", 1),
    **refused("parallel", ELASTIC, "ep_join_rank_offset", 0),
    **refused("parallel", ELASTIC, "max_ep_size elastic_ep_initial_size", None),
    **carried("parallel", "a rank of the attention's tensor parallelism, on each stage, is a rank of the protocol",
              "tp_size pp_size"),
    **carried("parallel", "each group of ranks of data-parallel attention is an instance of the protocol",
              "attn_dp_size enable_dp_attention load_balance_method"),
    **irrelevant("parallel", "where the engine's own processes meet, and how long they wait",
                 "nccl_port dist_timeout dist_init_addr gated_launch_port node_rank enable_p2p_check "
                 "enable_dp_attention_local_control_broadcast"),
    **irrelevant("parallel", "weights, experts and activations are no cache",
                 "moe_dp_size dwdp_size ep_size moe_dense_tp_size enable_attn_tp_input_scattered "
                 "enable_shared_experts_attn_tp shared_experts_tp_size enable_dense_mlp_attn_tp enable_layernorm_sp "
                 "enable_megamoe_for_layernorm_sp disable_attn_tp_gather enable_dp_lm_head "
                 "enable_tp_lm_head_all_to_all"),
    **irrelevant("parallel", "how many batches the stages have under way",
                 "pp_max_micro_batch_size pp_async_batch_depth"),
    **irrelevant("parallel", "counts only with what is refused",
                 "dcp_comm_backend dcp_replicate_q_proj cp_strategy "
                 "enable_cp_decode_attn_tp"),
    # --------------------------------------------------------------------------------------- disaggregation
    **refused("disagg", ORDER, "disaggregation_decode_allocation_policy", "early"),
    **refused("disagg", ORDER, "optimistic_prefill_attempts", 0),
    **refused("disagg", SWITCH, "enable_pd_role_switch enable_pdmux", False),
    **refused("disagg", TIERS, "disaggregation_decode_enable_offload_kvcache", False),
    **refused("disagg", TIERS, "disaggregation_decode_host_receive_threshold", 1.0),
    **refused("disagg", DRAFTS, "decoupled_spec_role", "null"),
    **carried("disagg", "kvproto's own", "disaggregation_mode disaggregation_transfer_backend "
              "disaggregation_bootstrap_port"),
    **carried("disagg", "what the decode instance has of a prompt is not sent",
              "disaggregation_decode_enable_radix_cache"),
    **carried("disagg", "compared where both sides are cut alike", "disaggregation_enable_kv_checksum"),
    **irrelevant("disagg", "kvproto's transport chooses its own devices", "disaggregation_ib_device"),
    **irrelevant("disagg", "how the decode instance keeps, queues and asks for its requests",
                 "disaggregation_decode_retraction_backup num_reserved_decode_tokens disaggregation_decode_extra_slots "
                 "disaggregation_decode_polling_interval"),
    **irrelevant("disagg", "inputs of a model are no cache",
                 "encoder_only language_only language_model_only encoder_transfer_backend encoder_urls "
                 "encoder_bootstrap_port encoder_register_urls enable_adaptive_dispatch_to_encoder"),
    **irrelevant("disagg", "counts only with what is refused",
                 "decoupled_spec_bind_endpoint decoupled_spec_connect_endpoints decoupled_spec_rank pdmux_config_path "
                 "sm_group_num"),
    # ----------------------------------------------------------------------------------------------- memory
    **refused("memory", TIERS, "enable_hierarchical_cache enable_unified_cache_external_linker enable_hisparse "
              "enable_lmcache enable_flexkv", False),
    **refused("memory", PACKED, "enable_page_major_kv_layout enable_unified_memory", False),
    **carried("memory", "what the decode instance has of a prompt is not sent", "disable_radix_cache"),
    **irrelevant("memory", "how prefixes are found, and how long they are kept",
                 "radix_eviction_policy radix_eviction_policy_config enable_session_radix_cache radix_cache_backend"),
    **irrelevant("memory", "counts only with what is refused",
                 "hicache_host_memory_mode hicache_ratio hicache_size hicache_host_memory_fraction "
                 "hicache_write_policy hicache_io_backend hicache_mem_layout hicache_storage_backend "
                 "hicache_storage_prefetch_policy "
                 "hicache_storage_backend_extra_config hicache_storage_prefetch_retry_poll_interval "
                 "hicache_storage_prefetch_retry_max_attempts unified_cache_external_linker_backend "
                 "unified_cache_external_linker_config enable_linker_mla_dedup hisparse_config lmcache_config_file "
                 "flexkv_config_file"),
    # ------------------------------------------------------------------------------------------ speculation
    **refused("spec", ALGORITHMS, "speculative_algorithm", None, "EAGLE", "EAGLE3", "NEXTN"),
    **refused("spec", UNLIKE, "speculative_draft_kv_cache_dtype speculative_draft_window_size", None),
    **refused("spec", UNLIKE, "enable_multi_layer_eagle", False),
    **irrelevant("spec", "how tokens are drafted and accepted; the draft's KV is a cache of its own",
                 "uno_lora_path speculative_draft_model_path speculative_boundary_reduction "
                 "speculative_draft_model_revision speculative_draft_load_format speculative_num_steps "
                 "speculative_eagle_topk speculative_num_draft_tokens speculative_dflash_block_size "
                 "speculative_domino_candidate_pool_size speculative_dspark_block_size "
                 "speculative_dspark_sps_table_path speculative_dspark_confidence_sts_path "
                 "speculative_dspark_align_verify_tokens_to_graph_tier speculative_accept_threshold_single "
                 "speculative_accept_threshold_acc speculative_use_rejection_sampling "
                 "speculative_use_block_verification speculative_token_map speculative_attention_mode "
                 "speculative_draft_attention_backend speculative_dsa_topk_backend speculative_draft_sink_size "
                 "speculative_moe_runner_backend speculative_moe_a2a_backend speculative_enable_w4a4_mxfp4_megamoe "
                 "speculative_draft_model_quantization speculative_adaptive "
                 "speculative_adaptive_config spec_trace_dir speculative_ngram_min_bfs_breadth "
                 "speculative_ngram_max_bfs_breadth speculative_ngram_match_type speculative_ngram_max_trie_depth "
                 "speculative_ngram_capacity speculative_ngram_external_corpus_path "
                 "speculative_ngram_external_sam_budget speculative_ngram_external_corpus_max_tokens"),
    # ------------------------------------------------------------------------------------------ environment
    **refused("environment", STAGING, "SGLANG_DISAGG_STAGING_BUFFER", False),
    **refused("environment", EARLY, "SGLANG_DISAGGREGATION_DEFERRED_DECODE_KV_RELEASE", True),
    **refused("environment", EARLY, "SGLANG_DISAGGREGATION_DEFERRED_DECODE_KV_RELEASE_TIMEOUT", "an hour or more"),
    **refused("environment", AT_DECODE, "stages_at_decode", 1),
    **refused("environment", SLEEP, "enable_memory_saver", False),
    **refused("environment", OWN_POOL, "SGLANG_MOONCAKE_CUSTOM_MEM_POOL", ""),
    **refused("environment", ARRANGED, "SGLANG_AITER_KV_CACHE_LAYOUT", "nhd", "NHD"),
    # ------------------------------------------------------------------------------------ what is handed over
    **refused("args", SCALES, "kv_cache_dtype_str", "auto", "bf16", "bfloat16", "float16", "float32", "fp8_e5m2",
              "fp8_e4m3"),
    **refused("args", FORMS, "kv_layout mla_compression_ratios", None),
    **refused("args", ARRANGED, "swa_kv_cache_layout", None, "nhd"),
    **refused("args", TIERS, "host_kv_data_ptrs", None),
    **carried("args", "the pools, their pages and the metadata of requests",
              "kv_data_ptrs kv_data_lens kv_item_lens page_size kv_head_num total_kv_head_num aux_data_ptrs "
              "aux_data_lens aux_item_lens gpu_id"),
    **carried("args", "a draft's tensors come after the model's, with the same page numbers", "num_draft_entries"),
    **carried("args", "the tensors of states: those of an index are a cache, and recurrent ones, and windows",
              "state_data_ptrs state_data_lens state_item_lens state_dim_per_tensor"),
    **carried("args", "the layers of a hybrid model that have KV, and those that have state",
              "kv_layer_ids state_layer_ids"),
    **irrelevant("args", "the model's own configuration has all segments of a state",
                 "state_slice_outer_counts state_conv_shard_groups is_hybrid_mla_backend"),
    **carried("args", "each kind of state has a rule of its own", "state_types"),
    **irrelevant("args", "kvproto asks SGLang where a rank stands, and has devices and ports of its own",
                 "engine_rank system_dp_rank ib_device rust_http_port pp_rank prefill_start_layer prefill_end_layer"),
    **irrelevant("args", "counts only with what is refused",
                 "host_kv_data_lens host_kv_item_lens host_state_data_ptrs host_state_data_lens host_state_item_lens "
                 "draft_kv_layers"),
    **irrelevant("args", "counts only on other devices than GPUs and CPUs", "kv_buf_groups hidden_kv_layers"),
    **carried("state", "a slot a request: segments of the convolution and heads of the matrix", "mamba"),
    **refused("model", UNKNOWN_STATE, "unknown_recurrence", False),
    **refused("model", UNKNOWN_WINDOW, "unknown_window", False),
    **refused("model", BESIDE, "state_and_window window_and_draft", False),
    **refused("model", STAGES, "stages_and_draft", False),
    **carried("state", "the last window, in pages of a pool of its own", "swa"),
    **refused("state", WINDOWS, "swa_ring", False),
    **carried("state", "keys and scales with the target's page numbers", "dsa"),
    **refused("state", SPARSE, "dsa_tail qsa_pending qsa_compressed minimax_index_k minimax_dense_kv", False),
    **refused("state", SCALES, "block_scale block_scale_swa", False),
    **refused("state", FORMS, "c128_state request_row", False),
}
# fmt: on

"""What SGLang knows of its own instance, asked where it says so: the one file that reads its objects."""

from __future__ import annotations

import os
from typing import Any

from sglang.srt.arg_groups.model_override_base import model_config_of
from sglang.srt.environ import envs
from sglang.srt.runtime_context import get_device, get_disagg, get_parallel, get_schedule, get_serving
from sglang.srt.utils.network import get_local_ip_auto

from kvproto.adapters.sglang.install import HELD
from kvproto.adapters.sglang.pools import Instance


def look(server_args: Any, *, mla: bool) -> Instance:
    """This rank, and what it does that cannot be carried."""
    parallel, serving, disagg, host = get_parallel(), get_serving(), get_disagg(), get_local_ip_auto()
    unusual = {
        "pipeline stages": parallel.pp_size > 1,
        "context parallelism": parallel.attn_cp_size > 1 or parallel.attn_dcp_size > 1,
        "data-parallel attention (several groups of ranks behind one bootstrap server)": (parallel.dp_size or 1) > 1,
        "sharded KV": parallel.enable_kv_cache_sharding,
        "allocation after prefill": disagg.disaggregation_decode_allocation_policy == "prefill_complete",
        "several nodes": bool(parallel.dist_init_addr),
        "metadata in a memory pool of its own": bool(os.environ.get("SGLANG_MOONCAKE_CUSTOM_MEM_POOL")),
        "SGLang's own staging (unset SGLANG_DISAGG_STAGING_BUFFER)": envs.SGLANG_DISAGG_STAGING_BUFFER.get(),
        "release of pages in which something may land (unset SGLANG_DISAGGREGATION_DEFERRED_DECODE_KV_RELEASE)": (
            not envs.SGLANG_DISAGGREGATION_DEFERRED_DECODE_KV_RELEASE.get()
        ),
        f"release of pages after a while (unset {HELD})": float(os.environ.get(HELD, "0")) < 3600.0,  # noqa: PLR2004
    }
    device = get_device()
    server = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(serving.host, serving.host)  # noqa: S104
    return Instance(
        name=f"{disagg.disaggregation_mode} {host}:{serving.port}", host=host,
        tp=parallel.attn_tp_size, rank=parallel.attn_tp_rank,
        heads=1 if mla else model_config_of(server_args).get_total_num_kv_heads(),
        bootstrap_server=f"{server}:{disagg.disaggregation_bootstrap_port}",
        device=device.device if device.device == "cpu" else f"{device.device}:{device.gpu_id}",
        chunk=get_schedule().chunked_prefill_size or 0,
        bootstrap=float(envs.SGLANG_DISAGGREGATION_BOOTSTRAP_TIMEOUT.get()),
        waiting=float(envs.SGLANG_DISAGGREGATION_WAITING_TIMEOUT.get()),
        foreign=tuple(what for what, here in unusual.items() if here),
    )  # fmt: skip

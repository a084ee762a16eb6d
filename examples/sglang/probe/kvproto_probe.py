"""What a run of SGLang is looked at with: a plug-in of its own, whichever backend carries the KV.

Lines of JSON, one file a process, in the folder PROBE:

    sent       a prefill rank has handed over the last chunk of a room; when
    committed  a decode rank has taken a room over; when
    step       a decode rank begins a room's first step; when
    posts      what a prefill rank's transport was asked to do so far

and a fault on purpose: of a room whose number is `CONTROL` or higher, a decode rank swaps two heads of one layer (of a
hybrid model: of its state; of a model with windows: of a layer that has one), or turns its latents round, once it is
there.  A comparison of tokens that does not notice
it is worth nothing.

A clock of the host orders the lines of all processes.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

CONTROL = 900_000
PLACES = "sglang.srt.disaggregation.prefill.SchedulerDisaggregationPrefillMixin"
counts = {"posts": 0, "descriptors": 0, "bytes": 0}
#: rooms that are taken over, and have not begun a step
waiting = set[int]()


def note(what: str, **more: Any) -> None:
    """A line."""
    line = json.dumps({"what": what, "at": time.monotonic(), "pid": os.getpid(), **more})
    with (Path(os.environ["PROBE"]) / f"{os.getpid()}.jsonl").open("a") as file:
        file.write(line + "\n")


def sent(_scheduler: Any, req: Any, last_chunk: bool = False, *_: Any, **__: Any) -> None:
    """Before `send_kv_chunk`."""
    if last_chunk:
        note("sent", room=req.bootstrap_room)


def posted(done: Any, _scheduler: Any, *_: Any, **__: Any) -> None:
    """After `process_disagg_prefill_inflight_queue`."""
    for req in done or ():
        endpoint = getattr(req.disagg_kv_sender.kv_mgr, "endpoint", None)
        note("posts", room=req.bootstrap_room, counts=endpoint.metrics() if endpoint is not None else dict(counts))


def transferred(_engine: Any, _session: Any, buffers: Any, _addresses: Any, lengths: Any, *_: Any, **__: Any) -> None:
    """Before Mooncake's `batch_transfer_sync`."""
    counts["posts"] += 1
    counts["descriptors"] += len(buffers)
    counts["bytes"] += int(sum(lengths))


def committed(queue: Any, decode_req: Any, *_: Any, **__: Any) -> None:
    """Before `_commit_transfer_to_req`."""
    req = decode_req.req
    note("committed", room=req.bootstrap_room)
    waiting.add(req.bootstrap_room)
    if req.bootstrap_room >= CONTROL:
        pool = queue.scheduler.token_to_kv_pool_allocator.get_kvcache()
        slots = queue.scheduler.req_to_token_pool.req_to_token[req.kv.req_pool_idx, : len(req.origin_input_ids)]
        if hasattr(pool, "mamba_pool"):
            slot = queue.scheduler.req_to_token_pool.req_index_to_mamba_index_mapping[req.kv.req_pool_idx]
            heads = pool.mamba_pool.mamba_cache.temporal[1, slot]
            heads.copy_(heads[[1, 0, *range(2, len(heads))]])
            return
        if hasattr(pool, "swa_kv_pool"):
            pool, slots = pool.swa_kv_pool, pool.translate_loc_from_full_to_swa(slots)
        latent = hasattr(pool, "kv_buffer")
        for cache in [pool.kv_buffer[1]] if latent else [pool.k_buffer[1], pool.v_buffer[1]]:
            rows = cache[slots.long()]
            cache[slots.long()] = rows.flip(-1) if latent else rows[:, [1, 0, *range(2, rows.shape[1])]]


def stepped(_scheduler: Any, batch: Any, *_: Any, **__: Any) -> None:
    """Before `run_batch`: requests whose KV was taken over begin their first step."""
    if waiting and batch.forward_mode.is_decode():
        for room in waiting & {req.bootstrap_room for req in batch.reqs}:
            waiting.discard(room)
            note("step", room=room)


def plugin() -> None:
    """Look."""
    if "PROBE" not in os.environ:
        return
    from sglang.srt.disaggregation.utils import KVClassType, TransferBackend, get_kv_class  # noqa: F401
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    if os.environ.get("PROBE_SIDE") == "prefill":
        HookRegistry.register(f"{PLACES}.send_kv_chunk", sent, HookType.BEFORE)
        HookRegistry.register(f"{PLACES}.process_disagg_prefill_inflight_queue", posted, HookType.AFTER)
        engine = "sglang.srt.distributed.device_communicators.mooncake_transfer_engine.MooncakeTransferEngine"
        HookRegistry.register(f"{engine}.batch_transfer_sync", transferred, HookType.BEFORE)
    else:
        queue = "sglang.srt.disaggregation.decode.DecodeTransferQueue"
        HookRegistry.register(f"{queue}._commit_transfer_to_req", committed, HookType.BEFORE)
        HookRegistry.register("sglang.srt.managers.scheduler.Scheduler.run_batch", stepped, HookType.BEFORE)

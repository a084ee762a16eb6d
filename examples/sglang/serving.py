"""Serving: the child's end of an instance of SGLang.

The child runs SGLang's own loop, in which the pipe is one more thing to read.  Requests are under way at once, and each
may be aborted.  On a CPU schedulers without any request sleep until there is one, where they would take a core each.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import sys
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from examples.engine_runs.hosts import Host
from examples.sglang.messages import WHOLE, Answer, Request, Start

#: kvproto's backend, and the one of an instance that does both
OURS = "kvproto", ""
#: of both sides: nothing that the runs do not need
OPTIONS: dict[str, Any] = {
    "attention_backend": "torch_native", "sampling_backend": "pytorch", "skip_tokenizer_init": True,
    "disable_cuda_graph": True, "disable_overlap_schedule": True, "disable_custom_all_reduce": True,
    "mem_fraction_static": 0.3, "skip_server_warmup": True, "disable_radix_cache": True,
}  # fmt: skip
#: where an EAGLE head drafts a token at a time
DRAFTING: dict[str, Any] = {
    "speculative_algorithm": "EAGLE", "speculative_num_steps": 1, "speculative_eagle_topk": 1,
    "speculative_num_draft_tokens": 2,
}  # fmt: skip
#: in tokens: what a rank has place for, what a request may have, what a forward computes of it
TOKENS = {"max_total_tokens": 8192, "context_length": 1024, "chunked_prefill_size": 64}


def prepare() -> None:
    """Import what instances run.  What they start has their path, and the parent's is not PYTHONPATH's."""
    sys.path[:0] = os.environ["PYTHONPATH"].split(os.pathsep)
    for name in ("entrypoints.engine", *importlib.import_module("forking").IMPORTED):
        importlib.import_module(f"sglang.srt.{name}")


def serve(start: Start, environment: dict[str, str], host: Host | None, line: Connection) -> None:
    """The child, with this environment, on this host if there are several."""
    os.environ.update(environment)
    if start.device != "cpu":
        sys.path[:0] = os.environ["PYTHONPATH"].split(os.pathsep)
    if host:
        host.enter()
    if start.backend not in OURS:  # why another backend refuses a pair stands in its log alone
        log = os.open(Path(start.folder, f"{start.side}.log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        for stream in (1, 2):
            os.dup2(log, stream)
    import sglang

    options = OPTIONS | {name: number * start.scale for name, number in TOKENS.items()} | {
        "model_path": start.model, "host": start.address, "tp_size": start.tp * start.data_parallel, "port": start.port,
        "page_size": start.page_size, "attn_dp_size": start.data_parallel, "pp_size": start.stages,
        "device": start.device, "base_gpu_id": start.first_gpu, "dtype": start.dtype,
        "max_running_requests": start.running, "log_level": os.environ.get("LEVEL", "warning"),
        # data-parallel ranks step together: one that slept would keep the others waiting
        "sleep_on_idle": start.device == "cpu" and start.data_parallel == 1,
    }  # fmt: skip
    if start.crowded:  # of data-parallel attention; it takes NCCL
        options |= {"enable_tp_lm_head_all_to_all": False}
    if start.draft:
        options |= DRAFTING | {"speculative_draft_model_path": start.draft}
    if start.side != WHOLE:
        options |= {
            "disaggregation_mode": start.side, "disaggregation_transfer_backend": start.backend,
            "disaggregation_bootstrap_port": start.bootstrap, "disaggregation_decode_retraction_backup": "none",
        }  # fmt: skip
    engine = sglang.Engine(**options)
    line.send("ready")
    engine.loop.run_until_complete(_answer(engine, line))
    engine.shutdown()


async def _answer(engine: Any, line: Connection) -> None:
    loop, tasks = asyncio.get_running_loop(), set()
    while True:
        asked = await loop.run_in_executor(None, line.recv)
        if asked is None:
            return
        if isinstance(asked, Request):
            task = loop.create_task(_generate(engine, asked, line))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
        elif asked == "flush":
            done = await engine.tokenizer_manager.flush_cache()
            line.send(Answer("flush", error="" if done.success else f"not flushed: {done}"))
        else:
            engine.tokenizer_manager.abort_request(asked)


async def _generate(engine: Any, asked: Request, line: Connection) -> None:
    start, answer = time.monotonic(), Answer(asked.rid)
    weighed = {"return_logprob": True, "top_logprobs_num": 2} if asked.weighed else {}
    rooms = {
        "bootstrap_host": asked.address, "bootstrap_port": asked.bootstrap, "bootstrap_room": asked.room,
        "disagg_prefill_dp_rank": asked.told,
    }  # fmt: skip
    try:
        parts = await engine.async_generate(
            input_ids=asked.prompt, rid=asked.rid, stream=True, **weighed, **rooms if asked.room else {},
            sampling_params={"max_new_tokens": asked.tokens, "temperature": 0, "ignore_eos": True},
        )  # fmt: skip
        async for said in parts:  # each has all tokens so far
            answer.first_s = answer.first_s or time.monotonic() - start
            answer.tokens, reason = list(said["output_ids"]), said["meta_info"].get("finish_reason") or {}
            answer.verified = said["meta_info"].get("spec_verify_ct", 0)
            if reason.get("type") == "abort":
                answer.error = reason.get("message") or "aborted"
            if asked.weighed and not answer.error:
                best = said["meta_info"]["output_top_logprobs"]
                answer.lead = [first[0] - second[0] for first, second in best]
                answer.logs = [log for log, *_ in said["meta_info"]["output_token_logprobs"]]
    except Exception as error:  # noqa: BLE001  # SGLang raises what it likes; the parent wants to read it
        answer.error = f"{type(error).__name__}: {error}"
    answer.seconds = time.monotonic() - start
    line.send(answer)

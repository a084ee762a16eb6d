"""An instance of SGLang in processes of its own, asked through a pipe.

What is asked is answered in any order: many requests are under way at a time, and any of them may be aborted.  The
child runs SGLang's own loop, in which the pipe is one more thing to read.
"""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import os
import sys
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import msgspec

HERE = Path(__file__).parent
#: seconds within which an instance serves, and answers
START_S, ANSWER_S = {"cpu": 1200.0, "cuda": 240.0}, {"cpu": 300.0, "cuda": 90.0}
#: seconds for an end of its own, after which it is killed; on GPUs others wait for their turn
END_S = {"cpu": 8.0, "cuda": 0.1}
#: of both sides: nothing that the runs do not need
OPTIONS: dict[str, Any] = {
    "attention_backend": "torch_native", "sampling_backend": "pytorch", "skip_tokenizer_init": True,
    "disable_cuda_graph": True, "disable_overlap_schedule": True, "disable_custom_all_reduce": True,
    "host": "127.0.0.1", "mem_fraction_static": 0.3, "skip_server_warmup": True, "disable_radix_cache": True,
}  # fmt: skip
#: where an EAGLE head drafts a token at a time
DRAFTING: dict[str, Any] = {
    "speculative_algorithm": "EAGLE", "speculative_num_steps": 1, "speculative_eagle_topk": 1,
    "speculative_num_draft_tokens": 2,
}  # fmt: skip
#: in tokens: what a rank has place for, what a request may have, what a forward computes of it
TOKENS = {"max_total_tokens": 8192, "context_length": 1024, "chunked_prefill_size": 64}
RING_BYTES = 1 << 26
#: the side of an instance that does both
WHOLE = "whole"


class Start(msgspec.Struct):
    """How one is started."""

    side: str
    tp: int
    port: int
    backend: str
    bootstrap: int
    model: str
    folder: str
    page_size: int = 16
    environment: dict[str, str] = {}
    digests: bool = False
    #: ranks of data-parallel attention, each of `tp` ranks
    data_parallel: int = 1
    #: pipeline stages, each of `tp` ranks
    stages: int = 1
    #: "cpu" or "cuda", and the GPU of its first rank
    device: str = "cpu"
    first_gpu: int = 0
    #: how much longer prompts are than on a CPU
    scale: int = 1
    #: of weights, activations and KV
    dtype: str = "float32"
    #: the folder of an EAGLE head that drafts
    draft: str = ""
    #: how many requests are computed at once
    running: int = 16

    @property
    def ranks(self) -> int:
        """Processes that it has."""
        return self.tp * self.data_parallel * self.stages


class Request(msgspec.Struct):
    """What is asked: a prompt to be continued."""

    rid: str
    prompt: list[int]
    tokens: int
    room: int
    bootstrap: int
    #: the data-parallel rank of the prefill instance, as a router tells it to the decode instance
    told: int | None = None
    #: whether the log probabilities of its tokens are asked for
    weighed: bool = False


class Answer(msgspec.Struct):
    """`error`: why there are not all tokens; `first_s`: seconds from the asking to the first token.

    `logs`: the log probability of each token, and `lead` by how much each is ahead of the next best, if weighed.
    """

    rid: str
    tokens: list[int] = []
    error: str = ""
    seconds: float = 0.0
    first_s: float = 0.0
    logs: list[float] = []
    lead: list[float] = []
    #: forwards in which drafts were verified
    verified: int = 0


def serve(start: Start, line: Connection) -> None:
    """The child.  What it starts has its path, and that of the parent is not PYTHONPATH's."""
    sys.path[:0] = os.environ["PYTHONPATH"].split(os.pathsep)
    import sglang

    options = OPTIONS | {name: number * start.scale for name, number in TOKENS.items()} | {
        "model_path": start.model, "tp_size": start.tp * start.data_parallel, "port": start.port,
        "page_size": start.page_size, "attn_dp_size": start.data_parallel, "pp_size": start.stages,
        "device": start.device, "base_gpu_id": start.first_gpu, "dtype": start.dtype,
        "max_running_requests": start.running, "log_level": os.environ.get("LEVEL", "warning"),
    }  # fmt: skip
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
        "bootstrap_host": "127.0.0.1", "bootstrap_port": asked.bootstrap, "bootstrap_room": asked.room,
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


class Instance:
    """The parent's end."""

    def __init__(self, start: Start) -> None:
        self.start, self.answers = start, {}  # type: Start, dict[str, Answer]
        self._serves = False
        context = multiprocessing.get_context("spawn")
        self._line, other = context.Pipe()
        before = dict(os.environ)
        os.environ.update(_environment(start))
        try:
            self.process = context.Process(target=serve, args=(start, other), daemon=False)
            self.process.start()
        finally:
            os.environ.clear()
            os.environ.update(before)
        other.close()

    def ready(self) -> None:
        """Wait until it serves; RuntimeError, EOFError: it does not."""
        if self._serves:
            return
        if not self._line.poll(limit := START_S[self.start.device]) or self._line.recv() != "ready":
            raise RuntimeError(f"{self.start.side} did not start within {limit} s")
        self._serves = True

    def ask(self, request: Request) -> None:
        """Have a prompt continued."""
        self._line.send(request)

    def abort(self, rid: str) -> None:
        """Abort it."""
        self._line.send(rid)

    def wait(self, *rids: str, seconds: float | None = None) -> list[Answer]:
        """The answers; one that does not come is an error that says so."""
        seconds = ANSWER_S[self.start.device] if seconds is None else seconds
        end = time.monotonic() + seconds
        while any(rid not in self.answers for rid in rids) and (left := end - time.monotonic()) > 0:
            if self._line.poll(left):
                answer = self._line.recv()
                self.answers[answer.rid] = answer
        return [self.answers.pop(rid, Answer(rid, error=f"no answer within {seconds} s")) for rid in rids]

    def flush(self) -> str:
        """Empty its caches: only an instance of which nothing holds pages can; why it cannot."""
        why = ""
        for _ in range(40):
            self._line.send("flush")
            (answer,) = self.wait("flush")
            if not (why := answer.error):
                return ""
            time.sleep(1.0)
        return why

    def _each(self, action: str) -> None:
        import psutil

        with contextlib.suppress(psutil.NoSuchProcess):
            first = psutil.Process(self.process.pid)
            for one in [first, *first.children(recursive=True)]:
                with contextlib.suppress(psutil.NoSuchProcess):
                    getattr(one, action)()

    def pause(self) -> None:
        """Stop all of its processes: an idle scheduler takes a core."""
        self._each("suspend")

    def go_on(self) -> None:
        """End the pause."""
        self._each("resume")

    def kill(self) -> None:
        """All of its processes die at once."""
        self._each("kill")
        self.process.join()

    def close(self) -> None:
        """End it, and all that it has started."""
        import psutil

        with contextlib.suppress(psutil.NoSuchProcess):
            family = psutil.Process(self.process.pid).children(recursive=True)
            with contextlib.suppress(OSError):
                self._line.send(None)
            self.process.join(END_S[self.start.device])
            for one in [*family, psutil.Process(self.process.pid)]:
                with contextlib.suppress(psutil.NoSuchProcess):
                    one.kill()


def _environment(start: Start) -> dict[str, str]:
    folder = Path(start.folder)
    cores, on_cpu = os.cpu_count() or 1, start.device == "cpu"
    folders = [*[HERE / "gpu"] * (not on_cpu), HERE / "cpu", HERE / "probe"]
    folders += [HERE / "kernels"] * ("SGLANG_USE_CPU_ENGINE" in start.environment)
    folders += map(Path, filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)))
    own = {
        "HF_HUB_OFFLINE": "1", "PYTHONPATH": ":".join(map(str, folders)), "OMP_NUM_THREADS": "1",
        "MOONCAKE_PROTOCOL": "tcp", "MC_LOG_LEVEL": "ERROR", "SGLANG_HOST_IP": "127.0.0.1",
        "SGLANG_LOCAL_IP_NIC": "lo", "PROBE": str(folder), "PROBE_SIDE": start.side, "PYTHONWARNINGS": "ignore",
        "KVPROTO_SGLANG": msgspec.json.encode(
            {"digests": str(folder) if start.digests else "", "ring_bytes": RING_BYTES * start.scale}
        ).decode(),
    }  # fmt: skip
    if not on_cpu:  # instances share GPUs, so that their memory is never balanced; nothing of a forward is compiled
        own |= {"SGLANG_ENABLE_TP_MEMORY_INBALANCE_CHECK": "0", "TORCHDYNAMO_DISABLE": "1"}
    elif start.ranks > 1:
        own["SGLANG_CPU_OMP_THREADS_BIND"] = "|".join(str(rank % cores) for rank in range(start.ranks))
    return own | start.environment

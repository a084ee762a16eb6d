"""Instances of vLLM in processes of their own, and how they are asked; this process is the router.

Their processes are forked of this one, which has imported what they run (`examples.vllm.cpu.forking`).
"""

from __future__ import annotations

import asyncio
import itertools
import os
import socket
import time
from contextlib import ExitStack, suppress
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec
import psutil

from examples.engine_runs.hosts import Host
from examples.vllm.cpu import forking
from examples.vllm.model import CACHE_BYTES, Kind, drafting
from kvproto.adapters.vllm.router_requests import Params, params_for

Carrier = Literal["kvproto", "plain", "nixl"]
"""kvproto with digests and checksums, of which instances that are cut alike go by the cheaper route and others by the
ring; by the cheaper route and without either, which cost time; vLLM's own NixlConnector."""
BLOCK = 32
#: tokens that the prefill instance computes a step
CHUNK = 64
SMALL = {"chunk_tokens": 4 * BLOCK, "ring_bytes": 8 << 20}
FLOAT = {"dtype": "float32", "block_size": BLOCK, "enable_prefix_caching": True}
BFLOAT = {"dtype": "bfloat16", "enable_prefix_caching": False}
#: by kind of model: what the connector is told, and how the engine serves it
RING: dict[Kind, dict[str, Any]] = {
    "dense": SMALL, "hybrid": {"ring_bytes": 64 << 20}, "alternating": {"ring_bytes": 64 << 20}, "windows": SMALL,
    "sinks": SMALL, "latents": SMALL, "drafted": SMALL, "eagle": SMALL,
}  # fmt: skip
DENSE = FLOAT | {"disable_hybrid_kv_cache_manager": True}
SERVED: dict[Kind, dict[str, Any]] = {
    "dense": DENSE, "drafted": DENSE, "eagle": DENSE, "hybrid": BFLOAT, "alternating": BFLOAT,
    "windows": FLOAT, "sinks": FLOAT, "latents": FLOAT | {"enable_prefix_caching": False},
}  # fmt: skip
#: how forwards run. In eager mode the CPU build leaves out the warm-up, in which later stages make the buffers of what
#: they are sent, and their first forward fails: so forwards of stages are traced, and then run eagerly
EAGER: dict[str, Any] = {"enforce_eager": True}
TRACED: dict[str, Any] = {"compilation_config": {"mode": 2, "backend": "eager"}}
#: where NixlConnector listens: ports for each instance, one a data-parallel rank, out of these
PORTS, SIDE_CHANNELS = 8, range(20_000, 30_000)
ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1", "UCX_TLS": "tcp,self,sm",
    "UCX_LOG_LEVEL": "error", "NIXL_LOG_LEVEL": "ERROR", "VLLM_HOST_IP": "127.0.0.1", "TORCH_NUM_THREADS": "1",
}  # fmt: skip


class Cut(NamedTuple):
    """How an instance cuts its model: ranks of tensor parallelism, pipeline stages, and data-parallel ranks."""

    tp: int
    pp: int = 1
    dp: int = 1

    @classmethod
    def of(cls, said: str) -> Cut:
        """Read "2" (ranks of tensor parallelism), "2 stages", or "1x2" (two data-parallel ranks of one each)."""
        count, _, stages = said.partition(" ")
        if stages:
            return cls(1, int(count))
        tp, _, dp = count.partition("x")
        return cls(int(tp), dp=int(dp or 1))


@cache
def side_channel(name: str) -> int:
    """Return the first of this instance's ports, which are free, and the same when it is replaced."""
    bases = SIDE_CHANNELS[::PORTS]
    for turn in range(len(bases)):  # other runs on this machine begin elsewhere
        base = bases[(os.getpid() + sum(name.encode()) + turn) % len(bases)]
        with ExitStack() as held, suppress(OSError):
            for port in range(base, base + PORTS):
                held.enter_context(socket.create_server(("127.0.0.1", port)))
            return base
    raise RuntimeError("no port is free for NixlConnector")


def prepare() -> None:
    """Import what an instance and its processes run."""
    os.environ.update(ENVIRONMENT)
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    os.environ["PYTHONPATH"] = str(Path(__file__).parents[2])
    forking.install()
    for name in ("vllm.v1.engine.async_llm", *forking.IMPORTED):
        import_module(name)


class Answer(msgspec.Struct):
    """Tokens, how many of the prompt were not computed there, when the first one came, and when it was over."""

    tokens: list[int]
    cached: int
    first: float
    over: float
    params: dict[str, Any]


class Instance:
    """A prefill or a decode instance."""

    serial = itertools.count()

    def __init__(
        self, name: str, cut: Cut, model: Path, out: Path, carrier: Carrier, *, ttl: float = 60.0, wait: float = 60.0,
        route: str = "cost", kind: Kind = "dense", host: Host | None = None,
    ) -> None:  # fmt: skip
        """`name`: begins with P or D; `ttl`, `wait`, `route`: as the connector has them; `kind`: of the model.

        `host`: the one on which its processes are; None: this one.
        """
        prepare()
        os.environ.update(host.environment if host else {})
        if drafting(model, kind):  # what judges drafts is compiled in eager mode, too, which takes minutes
            os.environ["TORCHDYNAMO_DISABLE"] = "1"
        from vllm.config import KVTransferConfig
        from vllm.engine.arg_utils import AsyncEngineArgs
        from vllm.v1.engine.async_llm import AsyncLLM

        self.name, self.cut, self.carrier, self.out, produces = name, cut, carrier, out, name.startswith("P")
        #: the data-parallel rank of the next request (an idle vLLM gives all to its first), and those of rooms
        self.turns, self.rooms = itertools.cycle(range(cut.dp)), dict[int, int]()
        mine = {child.pid for child in psutil.Process().children(recursive=True)}
        if carrier == "nixl":
            os.environ["VLLM_NIXL_SIDE_CHANNEL_PORT"] = str(side_channel(name))
            how = {"kv_connector": "NixlConnector"}
            extra: dict[str, Any] = {"kv_lease_duration": int(ttl)}
        else:
            how = {
                "kv_connector": "RecordingConnector", "kv_connector_module_path": "examples.vllm.recording",
            }  # fmt: skip
            extra = {
                "record": str(out), "name": name, "digests": carrier == "kvproto", "ttl": ttl, "wait": wait,
                "route": route, "card": str(self._card), **RING[kind], **(host.extra if host else {}),
            }  # fmt: skip
        transfer = KVTransferConfig(
            engine_id=name, kv_load_failure_policy="recompute", kv_connector_extra_config=extra,
            kv_role="kv_producer" if produces else "kv_consumer", kv_buffer_device="cpu", **how,
        )  # fmt: skip
        args = AsyncEngineArgs(
            model=str(model), skip_tokenizer_init=True, max_model_len=512, max_num_seqs=8, seed=0,
            tensor_parallel_size=cut.tp, pipeline_parallel_size=cut.pp, data_parallel_size=cut.dp,
            disable_custom_all_reduce=True, kv_cache_memory_bytes=CACHE_BYTES,
            enable_chunked_prefill=True, max_num_batched_tokens=CHUNK if produces else 512,
            kv_transfer_config=transfer, speculative_config=drafting(model, kind),
            **SERVED[kind], **(EAGER if cut.pp == 1 else TRACED),
        )  # fmt: skip
        made = partial(AsyncLLM.from_engine_args, args)
        self.engine = host.make(made) if host else made()
        found = psutil.Process().children(recursive=True)
        self.processes = [child for child in found if child.pid not in mine]

    @property
    def _card(self) -> Path:
        return self.out / f"{self.name}.card"

    def _ends(self) -> list[str]:
        """Return the ends that vLLM gives to the names of its data-parallel ranks."""
        return [f"_dp{rank}" for rank in range(self.cut.dp)] if self.cut.dp > 1 else [""]

    def hand_over(self) -> tuple[Params, Params]:
        """Draw a room at the next data-parallel rank of this prefill instance; a request's parameters, by side."""
        rank = next(self.turns)
        ours, theirs = params_for(Path(f"{self._card}{self._ends()[rank]}").read_text())
        self.rooms[ours["room"]] = rank
        return ours, theirs

    def recorded(self, event: str) -> int:
        """How often its schedulers, or their first ranks, have noted this."""
        files = (self.out / f"{self.name}{end}-{each}.jsonl" for end in self._ends() for each in ("scheduler", "0"))
        return sum(file.read_text().count(f'"event": "{event}"') for file in files if file.exists())

    async def until(self, event: str, before: int) -> None:
        """Wait until it has noted this once more than `before`."""
        while self.recorded(event) <= before:  # noqa: ASYNC110  # another process writes it
            await asyncio.sleep(5e-3)

    async def ask(self, prompt: list[int], count: int, params: dict[str, Any] | None = None, name: str = "") -> Answer:
        """Greedy tokens."""
        from vllm import SamplingParams

        more = {"kv_transfer_params": params} if params else None
        sampling = SamplingParams(max_tokens=count, temperature=0, ignore_eos=True, detokenize=False, extra_args=more)
        name, first, last = name or f"r{next(self.serial)}", 0.0, None
        room = (params or {}).get("room")
        rank = self.rooms.pop(room) if room in self.rooms else next(self.turns)
        asked = self.engine.generate({"prompt_token_ids": prompt}, sampling, name, data_parallel_rank=rank)
        async for said in asked:
            first, last = first or time.perf_counter(), said
        assert last is not None
        tokens = list(last.outputs[0].token_ids)
        return Answer(tokens, last.num_cached_tokens or 0, first, time.perf_counter(), last.kv_transfer_params or {})

    async def free(self, limit: float = 20.0) -> float:
        """Seconds until no block is held by any request; TimeoutError: some are."""
        begun = time.perf_counter()
        while not await self.engine.reset_prefix_cache():
            if time.perf_counter() - begun > limit:
                raise TimeoutError(f"{self.name} holds blocks {limit} s after everything has ended")
            await asyncio.sleep(0.1)
        return time.perf_counter() - begun

    def kill(self) -> None:
        """Its processes die at once."""
        for process in self.processes:
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue

    def close(self) -> None:
        """Shut down, by force where it does not."""
        try:
            self.engine.shutdown()
        finally:
            _, alive = psutil.wait_procs(self.processes, timeout=10)
            for process in alive:
                process.kill()

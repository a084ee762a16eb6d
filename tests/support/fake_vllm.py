"""A fake vLLM: the parts that the connector touches, with a scheduler and workers.

`install` puts the modules in place; none of vLLM is needed.  `FakeEngine` is one instance: requests with blocks, steps
with hooks in vLLM's order, results of ranks added up.  With pipeline stages as many steps are under way: a turn gives
the first stage a new step, and each later stage that which the stage before it had in the turn before.  What would end
a real engine ends a test here: a report of a request that is not known, a report twice by a rank, a block used by two.
"""

from __future__ import annotations

import contextlib
import enum
import sys
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from types import ModuleType, SimpleNamespace
from typing import Any

import torch

BASE = "vllm.distributed.kv_transfer.kv_connector.v1.base"
METRICS = "vllm.distributed.kv_transfer.kv_connector.v1.metrics"
BLOCK = 4


class Role(enum.Enum):
    SCHEDULER = 0
    WORKER = 1


class Status(enum.Enum):
    FINISHED_STOPPED = 1
    FINISHED_LENGTH_CAPPED = 2
    FINISHED_ABORTED = 3


@dataclass
class Results:
    finished_sending: set[str] = field(default_factory=set)
    finished_recving: set[str] = field(default_factory=set)
    failed_recving: set[str] = field(default_factory=set)


@dataclass
class Stats:
    data: dict[str, Any] = field(default_factory=dict)


class Connector:
    def __init__(self, vllm_config: Any, role: Role, kv_cache_config: Any) -> None:
        self._vllm_config, self.role, self._kv_cache_config = vllm_config, role, kv_cache_config
        self._metadata: Any = None

    def bind_connector_metadata(self, connector_metadata: Any) -> None:
        self._metadata = connector_metadata

    def _get_connector_metadata(self) -> Any:
        return self._metadata


class PromMetrics:
    pass


class HMA:
    pass


#: whether a convolution's state has its channels before its taps
CHANNELS_FIRST = [False]
#: the tensor-parallel rank and the stage of a worker that is being made: for all files, whichever was imported last
PLACE, STAGE = [0], [0]


class Asked(Exception):  # noqa: N818  # no error: it ends a worker that is made to be asked alone
    pass


class Exchange:
    """The exchange between the stages of workers that are made one by one: all are asked, and then made."""

    def __init__(self) -> None:
        self.said: list[Any] = []
        self.asking = False

    def __call__(self, said: Any) -> list[Any]:
        if self.asking:
            self.said.append(said)
            raise Asked
        return self.said

    def ask(self, make: Callable[[Role, int], Any], tp: int, pp: int) -> None:
        """Keep what the first rank of each stage says; where there is one stage nobody is asked."""
        self.said, self.asking = [], True
        for stage in range(pp) if pp > 1 else ():
            with contextlib.suppress(Asked):
                make(Role.WORKER, stage * tp)
        self.asking = False


def install() -> None:
    """Put the modules where imports find them."""
    group = SimpleNamespace
    modules: dict[str, dict[str, Any]] = {
        BASE: {
            "KVConnectorBase_V1": Connector, "KVConnectorHandshakeMetadata": object, "KVConnectorMetadata": object,
            "KVConnectorRole": Role, "KVConnectorTransferResults": Results, "SupportsHMA": HMA,
        },
        METRICS: {"KVConnectorStats": Stats, "KVConnectorPromMetrics": PromMetrics},
        "vllm.v1.metrics.utils": {"create_metric_per_engine": lambda metric, values: metric},
        "vllm.distributed.utils": {"get_pp_indices": None},
        "vllm.model_executor.layers.mamba.mamba_utils": {"is_conv_state_dim_first": lambda: CHANNELS_FIRST[0]},
        "vllm.logger": {"init_logger": __import__("logging").getLogger},
        "vllm.model_executor.models.utils": {"extract_layer_index": lambda name: int(name.split(".")[1])},
        "vllm.v1.request": {"RequestStatus": Status},
        "vllm.distributed.parallel_state": {
            "get_pp_group": lambda: group(rank_in_group=STAGE[0]),
            "get_tp_group": lambda: group(rank_in_group=PLACE[0]),
        },
    }  # fmt: skip
    for name, values in modules.items():
        parts = name.split(".")
        for end in range(1, len(parts) + 1):
            sys.modules.setdefault(".".join(parts[:end]), ModuleType(".".join(parts[:end])))
        vars(sys.modules[name]).update(values)


@dataclass
class Request:
    request_id: str
    num_prompt_tokens: int
    kv_transfer_params: dict[str, Any] | None
    status: Status | None = None
    blocks: list[int] = field(default_factory=list)
    computed: int = 0
    #: waits for remote KV, computes, is over and keeps its blocks, is over
    at: str = "waits"
    again: bool = False
    #: a block in each of the groups that keep state
    slots: list[int] = field(default_factory=list)
    #: the blocks in each of the groups with a window, 0 for those that it has no more
    windows: list[list[int]] = field(default_factory=list)
    max_tokens: int = 16

    def __post_init__(self) -> None:
        self.prompt_token_ids = [*range(self.num_prompt_tokens)]
        self._all_token_ids = [*self.prompt_token_ids]

    @property
    def groups(self) -> tuple[list[int], ...]:
        """Its blocks by group, those of attention after the first state's."""
        states = [[slot] for slot in self.slots]
        return *states[:1], list(self.blocks), *states[1:], *map(list, self.windows)


@dataclass
class Step:
    """A step under way: its orders, what is computed of each request, and what ranks have reported."""

    orders: Any
    finished: set[str]
    #: (request, first token, behind the last one, blocks)
    forward: list[tuple[str, int, int, list[int]]]
    #: requests that were preempted meanwhile: what the forward says of them is dropped
    stale: set[str] = field(default_factory=set)
    results: list[tuple[int, Results]] = field(default_factory=list)


class FakeEngine:
    """One instance; `make` makes a connector of a role, in a worker's place."""

    def __init__(
        self, make: Callable[[Role, int], Any], ranks: int, blocks: int, *, chunk: int, states: int = 0,
        windows: tuple[int, ...] = (), stages: int = 1, ahead: int = 0, lookahead: int = 0,
    ) -> None:  # fmt: skip
        """`states`: groups that keep state, each with a block of a request; `windows`: of each further group.

        `ahead`: steps that are scheduled before the first stage has them, as vLLM does asynchronously; `lookahead`:
        tokens behind those that are computed, for which a request has blocks.
        """
        self.connector = make(Role.SCHEDULER, 0)
        self.workers = [make(Role.WORKER, rank) for rank in range(ranks)]
        self.lookahead = lookahead
        #: pipeline stages, that whose forward is running, and the steps under way, the newest first
        self.stages, self.stage, self.ahead, self.under_way = stages, 0, ahead, deque[Step]()
        self.free, self.chunk, self.states, self.windows = list(range(bool(windows), blocks)), chunk, states, windows
        self.requests: dict[str, Request] = {}
        self.preempted: set[str] = set()
        self.finished: set[str] = set()
        self.reports: Counter[tuple[str, int]] = Counter()
        self.counts: Counter[str] = Counter()
        self.failing: set[str] = set()
        self.answers: dict[str, dict[str, Any] | None] = {}
        #: how requests that awaited KV went on: computed here, or not
        self.resumed: dict[str, bool] = {}
        #: tokens of a request that its prefix cache has; told when its blocks are there, and when its load has landed
        self.hits: dict[str, int] = {}
        self.cached: Callable[[str, int, list[int]], None] = lambda name, tokens, blocks: None
        self.landed: Callable[[str, list[int]], None] = lambda name, blocks: None

    # ------------------------------------------------------------------------------------- what is asked of it
    def add(self, name: str, tokens: int, params: dict[str, Any] | None) -> None:
        self.requests[name] = request = Request(name, tokens, params)
        self.connector.on_new_request(request)

    def abort(self, name: str) -> None:
        request = self.requests.get(name)
        if request is not None and request.status is None:
            self._finish(request, Status.FINISHED_ABORTED)

    def preempt(self, name: str) -> None:
        request = self.requests.get(name)
        if request is not None and request.at == "computes" and request.blocks:
            self._return(request)
            request.computed, request.at = 0, "waits"
            request.again = True
            self.preempted.add(name)
            for step in self.under_way:
                step.stale.add(name)

    # --------------------------------------------------------------------------------------------------- a step
    def step(self, write: Callable[[str, int, int, list[int]], None] = lambda *_: None) -> None:
        """Schedule, run the workers' hooks, take their results; `write` is the forward."""
        scheduled = self._schedule()
        cached = SimpleNamespace(req_ids=[], num_computed_tokens=[])
        new = [SimpleNamespace(req_id=name, num_computed_tokens=self.requests[name].computed) for name in scheduled]
        state = SimpleNamespace(get_block_ids=lambda name: self.requests[name].groups)
        output = SimpleNamespace(
            scheduled_new_reqs=new, scheduled_cached_reqs=cached, num_scheduled_tokens=scheduled,
            preempted_req_ids=self.preempted, finished_req_ids=self.finished, kv_connector_block_state=state,
        )  # fmt: skip
        meta = self.connector.build_connector_meta(output)
        step = Step(meta, self.finished, [])
        self.preempted, self.finished = set(), set()
        for name, count in scheduled.items():
            request = self.requests[name]
            step.forward.append((name, request.computed, request.computed + count, list(request.blocks)))
            request.computed += count
        self.under_way.appendleft(step)
        for stage, passing in enumerate(list(self.under_way)[self.ahead :]):
            self.stage = stage
            self._run(passing, write)
        if len(self.under_way) == self.stages + self.ahead:
            self._end(self.under_way.pop())

    def _run(self, step: Step, write: Callable[[str, int, int, list[int]], None]) -> None:
        """Have the stage's workers do their part of a step."""
        for part in step.forward:
            write(*part)
        each = len(self.workers) // self.stages
        for rank in range(self.stage * each, (self.stage + 1) * each):
            worker = self.workers[rank]
            worker.handle_preemptions(step.orders)
            worker.bind_connector_metadata(step.orders)
            worker.wait_for_save()
            step.results.append((rank, worker.get_transfer_results(step.finished)))

    def _end(self, step: Step) -> None:
        """Take what all stages have made of a step."""
        for rank, results in step.results:
            self._take(rank, results)
        for name, _, upto, _ in step.forward:
            request = self.requests.get(name)
            over = request is None or request.status is not None or name in step.stale
            if request is not None and not over and upto >= request.num_prompt_tokens:
                self._finish(request, Status.FINISHED_LENGTH_CAPPED)

    def _schedule(self) -> dict[str, int]:
        scheduled = {}
        for request in list(self.requests.values()):
            if request.status is not None or request.at == "remote":
                continue
            if request.at == "waits" and not self._admit(request):
                continue
            count = min(self.chunk, request.num_prompt_tokens - request.computed)
            need = max(0, -(-(request.computed + count + self.lookahead) // BLOCK) - len(request.blocks))
            slots = self.states - len(request.slots)
            if count > 0 and need * (1 + len(self.windows)) + slots <= len(self.free):
                self._slide(request, request.computed, request.computed + count)
                request.slots += self._take_blocks(slots)
                request.blocks += self._take_blocks(need)
                scheduled[request.request_id] = count
        return scheduled

    def _admit(self, request: Request) -> bool:
        hit = self.hits.get(request.request_id, 0)
        external, later = self.connector.get_num_new_matched_tokens(request, hit)
        need = -(-(hit + external) // BLOCK) if external else 0
        if need * (1 + len(self.windows)) + self.states > len(self.free):
            return False
        request.blocks, request.slots = self._take_blocks(need), self._take_blocks(self.states)
        self._slide(request, hit + external, hit + external)
        self.cached(request.request_id, hit, request.blocks)
        blocks = SimpleNamespace(get_block_ids=lambda: request.groups)
        self.connector.update_state_after_alloc(request, blocks, external)
        request.at = "remote" if later else "computes"
        return not later

    def _take(self, rank: int, results: Results) -> None:
        assert results.failed_recving <= results.finished_recving
        self.failing |= results.failed_recving
        done: dict[str, set[str]] = {"sent": set(), "received": set()}
        for kind, names in (("sent", results.finished_sending), ("received", results.finished_recving)):
            for name in names:
                assert name in self.requests, f"{name} is reported, and not known: this ends an engine"
                self.reports[name, rank] += 1
                assert self.reports[name, rank] == 1, f"rank {rank} reports {name} twice"
                self.counts[name] += 1
                if self.counts[name] == len(self.workers):
                    done[kind].add(name)
        failed = done["received"] & self.failing
        if done["sent"] or done["received"]:
            output = SimpleNamespace(
                finished_sending=done["sent"], finished_recving=done["received"], failed_recving=failed
            )  # fmt: skip
            self.connector.update_connector_output(output)
        for name in done["sent"] | done["received"]:
            request = self.requests[name]
            if request.status is not None:
                self._free(request)
            else:
                assert name in done["received"]
                request.at, self.resumed[name] = "computes", name in failed
                if name not in failed:
                    self.landed(name, request.blocks)
                request.computed = 0 if name in failed else request.num_prompt_tokens - 1

    def _finish(self, request: Request, status: Status) -> None:
        delayed = request.at == "remote"
        request.status = status
        stays, answer = self.connector.request_finished_all_groups(request, request.groups)
        self.finished.add(request.request_id)
        self.answers[request.request_id] = answer
        if not (delayed or stays):
            self._free(request)

    def _free(self, request: Request) -> None:
        self._return(request)
        del self.requests[request.request_id]

    def _slide(self, request: Request, computed: int, upto: int) -> None:
        """Free the blocks of windows that the next token does not look back at, and give those of the tokens."""
        request.windows = request.windows or [[] for _ in self.windows]
        for table, window in zip(request.windows, self.windows, strict=True):
            behind = max(0, computed - window + 1) // BLOCK
            self.free += [block for block in table[:behind] if block]
            table[:behind] = [0] * behind
            table.extend(self._take_blocks(-(-upto // BLOCK) - len(table)))

    def _take_blocks(self, count: int) -> list[int]:
        return [self.free.pop(0) for _ in range(count)]

    def _return(self, request: Request) -> None:
        held = [*request.blocks, *request.slots, *(block for table in request.windows for block in table if block)]
        assert not set(self.free) & set(held) and len(set(held)) == len(held)
        self.free += held
        request.blocks, request.slots, request.windows = [], [], []

    def close(self) -> None:
        for worker in self.workers:
            worker.shutdown()


def config(role: str, tp: int, extra: dict[str, Any], engine_id: str, *, pp: int = 1, layers: int = 2) -> Any:
    """Return the parts of vLLM's configuration that a connector reads."""
    transfer = SimpleNamespace(
        kv_role=role, kv_connector_extra_config=extra, engine_id=engine_id, is_kv_producer=role == "kv_producer"
    )
    parallel = SimpleNamespace(tensor_parallel_size=tp, pipeline_parallel_size=pp, data_parallel_index=0)
    model = SimpleNamespace(
        use_mla=False, get_total_num_kv_heads=lambda: 4, get_total_num_hidden_layers=lambda: layers
    )
    cache = SimpleNamespace(block_size=BLOCK, cache_dtype="auto")
    return SimpleNamespace(
        kv_transfer_config=transfer, parallel_config=parallel, model_config=model, cache_config=cache
    )  # fmt: skip


def caches(tp: int, blocks: int) -> dict[str, torch.Tensor]:
    """A worker's KV cache: two layers, [blocks, heads, tokens, content]."""
    return {f"layers.{layer}": torch.zeros(blocks, 4 // tp, BLOCK, 16) for layer in range(2)}

"""The connector of vLLM: translates between its hooks and a request's events and orders.

    KVTransferConfig(kv_connector="KVProtoConnector", kv_connector_module_path="kvproto.adapters.vllm.connector",
                     kv_role="kv_producer" or "kv_consumer", engine_id=..., kv_connector_extra_config={...},
                     kv_load_failure_policy="recompute")

vLLM makes one connector in its scheduler and one in each worker.  The scheduler's feeds the request's table, the orders
travel with its steps; a worker's carries them out and reports.  vLLM aggregates the ranks' reports itself, so the table
sees one rank.

`kv_transfer_params` of a request, to a prefill instance: `do_remote_decode`; `room` (u64, unique among the requests of
all instances that share a prefill instance; none: one is drawn), `decode_group` (the `group` or `engine_id` of the one
decode instance that may have it; none: the first that asks), `secret` (hex).  It is answered with those for the decode
instance: `do_remote_prefill`, `room`, `secret`, `card`.  A router that chooses the room and has the
card can ask both at once.

`kv_connector_extra_config`: `group` (of a decode instance: its name, default `engine_id`; a data-parallel rank adds
`_dp` and its number to it, and to the name of its `card`, as vLLM does to `engine_id`), `chunk_tokens`, `ttl` (seconds
that finished KV is kept for a decode instance that does not come), `wait` (of a prefill instance: seconds that
a decode instance may wait for a request of which no forward has begun here), `ring_bytes`, `route`, `costs` and `trace`
(as `Settings` has them), `bind` (where a prefill rank listens), `keys` (a secret file), `card` (a file in which a
prefill instance leaves its card), `conformance` (whether ranks are judged as they run: `kvproto.adapters.judging`).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorMetadata,
    KVConnectorRole,
    KVConnectorTransferResults,
    SupportsHMA,
)
from vllm.logger import init_logger
from vllm.v1.request import RequestStatus

from kvproto.adapters.card import Card, group_of
from kvproto.adapters.request_events import Allocated, Arrived, Finished, FreeBlocks, HandOver, Preempted, Scheduled
from kvproto.adapters.request_parties import ALL, everyone, scheduler
from kvproto.adapters.request_words import D, Order, P, Received, Sent
from kvproto.adapters.vllm.last_token import carried_tokens, leave_last_token
from kvproto.adapters.vllm.logs import show_logs
from kvproto.adapters.vllm.params import answer_of, ticket_of
from kvproto.adapters.vllm.ranks import RankCard, data_parallel_suffix, make_worker, trust_of
from kvproto.adapters.vllm.rules import look_at, look_into, tables_of, windows_of
from kvproto.adapters.vllm.stats import Counts, TransferPromMetrics, TransferStats
from kvproto.adapters.vllm.versions import check
from kvproto.fsm.vocabulary import Effect, Event, Report, Transmit

LOG = init_logger("vllm.kvproto")
ENDED_WELL = (RequestStatus.FINISHED_STOPPED, RequestStatus.FINISHED_LENGTH_CAPPED)
TO_COMPUTE = (P.ADMITTED, P.OPEN, P.PREEMPTED)
#: rooms that a decode instance's scheduler knows the first request of: as many as an endpoint keeps
ROOMS = 4096


@dataclass
class Step(KVConnectorMetadata):  # type: ignore[misc]  # vLLM's own are untyped here
    """The scheduler's message to the workers, one for each step."""

    orders: list[Order]


class KVProtoConnector(KVConnectorBase_V1, SupportsHMA):  # type: ignore[misc]  # vLLM's own are untyped here
    """Either half, by `role`."""

    def __init__(self, vllm_config: Any, role: Any, kv_cache_config: Any) -> None:
        show_logs()
        check()
        look_at(vllm_config)
        if kv_cache_config is not None:
            look_into(kv_cache_config)
        super().__init__(vllm_config, role, kv_cache_config)
        transfer = vllm_config.kv_transfer_config
        self.extra, self.engine_id = transfer.kv_connector_extra_config, transfer.engine_id
        self.produces: bool = transfer.is_kv_producer
        #: the groups of layers whose blocks are pages, whose block is a slot of state, and which have a window
        self.paged, self.states = tables_of(kv_cache_config)
        self.windows = windows_of(kv_cache_config)
        if role is KVConnectorRole.SCHEDULER:
            self.requests = scheduler("prefill" if self.produces else "decode")
            self.orders: list[Order] = []
            self.card, self.trust = "", trust_of(self.extra)
            #: by room: the request that loads it; by each other request with that room (a sample): the former
            self.loads: OrderedDict[int, str] = OrderedDict()
            self.samples: dict[str, str] = {}
            self.finds_prefixes: bool = getattr(vllm_config.cache_config, "enable_prefix_caching", False)
        else:
            self.counts = Counts()

    @classmethod
    def get_required_kvcache_layout(cls, vllm_config: Any) -> str | None:
        """Require no layout; refuse unsupported features before vLLM itself fails for several kinds of cache.

        vLLM asks while it resolves the cache's layout, before it divides the memory and makes a connector.
        """
        check()
        look_at(vllm_config)
        return None

    # ----------------------------------------------------------------------------------------- scheduler
    def set_xfer_handshake_metadata_pp_aware(self, metadata: dict[tuple[int, int], RankCard]) -> None:
        """Take the addresses of all prefill ranks, by stage and place; decode ranks have none."""
        if not metadata:
            return
        ranks = [metadata[place] for place in sorted(metadata)]
        layout, incarnation = ranks[0].layout, max(rank.incarnation for rank in ranks)
        group, addresses = group_of(self.engine_id), tuple(rank.address for rank in ranks)
        self.card = self.trust.sign(Card(group, incarnation, layout, ranks[0].chunk_tokens, addresses)).encode()
        if "card" in self.extra:
            Path(self.extra["card"] + data_parallel_suffix(self._vllm_config)).write_text(self.card)

    def on_new_request(self, request: Any) -> None:
        """A request that hands KV over, or awaits it, is accepted."""
        params, what = request.kv_transfer_params, "do_remote_decode" if self.produces else "do_remote_prefill"
        if not isinstance(params, dict) or not params.get(what):
            return
        tokens = carried_tokens(request.num_prompt_tokens, state=self._ends)
        if not tokens:
            return  # the decode instance computes the one token
        try:
            ticket = ticket_of(params, tokens, self.trust, produces=self.produces)
            if self.produces and self._ends:
                leave_last_token(request)
        except ValueError as error:
            LOG.warning("request %s: kv_transfer_params that cannot be used: %s", request.request_id, error)
            return
        if self.produces or not self._samples_another(request.request_id, ticket.room):
            self._hear(Arrived(request.request_id, ticket, everyone()))

    def _samples_another(self, name: str, room: int) -> bool:
        """Whether another request loads this room: vLLM samples a prompt n times by n requests with one room."""
        first = self.loads.setdefault(room, name)
        if len(self.loads) > ROOMS:
            self.loads.popitem(last=False)
        if first != name:
            self.samples[name] = first
        return first != name

    def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> tuple[int | None, bool]:
        """Return the tokens to be loaded: all that are carried and not here; None: vLLM asks again later.

        A sample waits for the load of the request whose room it names, and then finds the prompt in the prefix cache.
        That request is known only until its load has ended, well or not, or it is aborted, and a waiting sample holds
        no blocks that it may need.  So no sample waits longer than a load, and no cycle of waits can close.
        """
        if first := self._known.get(self.samples.get(request.request_id, "")):
            return (None if self.finds_prefixes and first.state in (D.ADMITTED, D.OPEN) else 0), False
        if self.produces or request.request_id not in self._known:
            return 0, False
        lacking = self._known[request.request_id].ticket.tokens - num_computed_tokens
        return max(lacking, 0), lacking > 0

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        """A request of a decode instance has its blocks."""
        if not self.produces and request.request_id in self._known:
            prefix = self._known[request.request_id].ticket.tokens - num_external_tokens
            pages, slots, windows = self._divided(blocks.get_block_ids())
            self._hear(Allocated(request.request_id, pages, prefix, slots, windows))

    def get_loaded_kv_cache_group_ids(self, request: Any) -> tuple[int, ...]:
        """Return all groups: vLLM zeroes the new blocks of others, also after a load has come into them."""
        del request
        return tuple(sorted((self.paged, *self.states, *self.windows)))

    @property
    def _ends(self) -> bool:
        """Whether something of a prompt travels at its end: then all but its last token is carried."""
        return bool(self.states or self.windows)

    def _divided(
        self, ids: Sequence[Sequence[int]]
    ) -> tuple[tuple[int, ...], tuple[int, ...], tuple[tuple[int, ...], ...]]:  # fmt: skip
        """Divide a request's block ids, by group, into pages, slots of state and tables of windows."""
        slots = tuple(ids[group][0] for group in self.states)
        return tuple(ids[self.paged]), slots, tuple(tuple(ids[group]) for group in self.windows)

    def build_connector_meta(self, scheduler_output: Any) -> Step:
        for name in scheduler_output.preempted_req_ids or ():
            if self.produces and name in self._known:
                self._hear(Preempted(name))
        if self.produces and self._known:
            self._schedule(scheduler_output)
        step, self.orders = Step(self.orders), []
        return step

    def _schedule(self, step: Any) -> None:
        cached = step.scheduled_cached_reqs
        computed = dict(zip(cached.req_ids, cached.num_computed_tokens, strict=True))
        computed |= {new.req_id: new.num_computed_tokens for new in step.scheduled_new_reqs}
        for name in step.num_scheduled_tokens.keys() & self._known.keys():
            if self._known[name].state in TO_COMPUTE:
                pages, slots, windows = self._divided(step.kv_connector_block_state.get_block_ids(name))
                upto = computed[name] + step.num_scheduled_tokens[name]
                self._hear(Scheduled(name, pages, upto, slots, windows))

    def request_finished_all_groups(
        self, request: Any, block_ids: tuple[list[int], ...]
    ) -> tuple[bool, dict[str, Any] | None]:
        """Whether its blocks have to stay, and what the decode instance needs."""
        del block_ids
        self.samples.pop(request.request_id, None)
        effects = self._hear(Finished(request.request_id, request.status in ENDED_WELL))
        stays = not any(isinstance(effect, FreeBlocks) for effect in effects)
        tickets = [effect.ticket for effect in effects if isinstance(effect, HandOver)]
        return stays, answer_of(tickets[0], self.card) if tickets else None

    def reset_cache(self) -> bool:
        """Give up the open rooms of prompts that are computed here: vLLM drops caches when the weights change.

        The next forwards have the new weights, and a decode instance that had chunks of both would answer wrong.  It
        computes the prompt itself instead.
        """
        for name in list(self._known) if self.produces else ():
            if self._known[name].state in (P.OPEN, P.COMPUTED):
                self._hear(Preempted(name))  # vLLM reports it with the next step, when the request is known no more
            if self._known[name].state is P.PREEMPTED:
                self._hear(Finished(name, well=False))
        return True

    def has_pending_push_work(self) -> bool:
        """Orders that no step has taken along: an engine without requests would not step for them."""
        return bool(self.orders)

    def update_connector_output(self, connector_output: Any) -> None:
        """All ranks have reported these."""
        for name in connector_output.finished_sending or ():
            self._settle(self.requests.receive(ALL, Sent(name), 0.0))
        for name in connector_output.finished_recving or ():
            failed = name in (connector_output.failed_recving or ())
            self._settle(self.requests.receive(ALL, Received(name, failed), 0.0))

    @property
    def _known(self) -> dict[str, Any]:
        known: dict[str, Any] = self.requests.requests  # type: ignore[attr-defined]  # the store of this name
        return known

    def _hear(self, event: Event) -> list[Effect]:
        return self._settle(self.requests.handle(event, 0.0))

    def _settle(self, effects: list[Effect]) -> list[Effect]:
        for effect in effects:
            if isinstance(effect, Transmit):
                self.orders.append(effect.body)
            elif isinstance(effect, Report):
                LOG.warning("%s: %s", effect.what, effect.why)
        return effects

    # -------------------------------------------------------------------------------------------- worker
    def register_kv_caches(self, kv_caches: dict[str, torch.Tensor]) -> None:
        """The endpoint of this rank, on its thread."""
        self.worker, self.rank_card = make_worker(self._vllm_config, kv_caches, self._kv_cache_config)
        well = "sent" if self.produces else "received"
        self.worker.on_outcome = lambda _, outcome: self.counts.outcome(outcome, well)
        self.worker.start()

    def get_handshake_metadata(self) -> RankCard | None:
        """Return a prefill rank's address."""
        return self.rank_card

    def handle_preemptions(self, kv_connector_metadata: Step) -> None:
        """The first hook of a step: whatever comes before its forward."""
        self.worker.before(kv_connector_metadata.orders)

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        """Loads were begun before the forward, and no forward waits for them."""

    def wait_for_layer_load(self, layer_name: str) -> None:
        """A request is not scheduled until its load is over."""

    def save_kv_layer(self, layer_name: str, kv_layer: torch.Tensor, attn_metadata: Any, **kwargs: Any) -> None:
        """KV leaves by chunks of tokens, not by layers."""

    def wait_for_save(self) -> None:
        """The forward is queued: what it computes is there after an event."""
        orders, after = self._get_connector_metadata().orders, None
        if orders and self.worker.endpoint.pool.device.type == "cuda":
            after = torch.cuda.Event()  # type: ignore[no-untyped-call]
            after.record(torch.cuda.current_stream(self.worker.endpoint.pool.device))
        self.worker.after(orders, after)

    def get_transfer_results(self, finished_req_ids: set[str]) -> KVConnectorTransferResults:
        """Return the requests that ended at this rank."""
        del finished_req_ids
        found = self.worker.results()
        return KVConnectorTransferResults(found.sent, found.received, found.failed)

    def get_kv_connector_stats(self) -> TransferStats | None:
        """Return the counts since the last call."""
        return self.counts.take(self.worker.endpoint.metrics()) if self.role is KVConnectorRole.WORKER else None

    @classmethod
    def build_kv_connector_stats(cls, data: dict[str, Any] | None = None) -> TransferStats:
        """As `get_kv_connector_stats` gave it, come from another process."""
        return TransferStats(data=data or {})

    @classmethod
    def build_prom_metrics(
        cls, vllm_config: Any, metric_types: Any, labelnames: list[str], per_engine_labelvalues: dict[int, list[object]]
    ) -> TransferPromMetrics:  # fmt: skip
        return TransferPromMetrics(vllm_config, metric_types, labelnames, per_engine_labelvalues)

    def shutdown(self) -> None:
        if self.role is KVConnectorRole.WORKER and hasattr(self, "worker"):
            self.worker.close()

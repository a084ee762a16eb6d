"""vLLM's hooks, one call at a time: what the scheduler hears and answers, and what is counted."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from support import fake_vllm
from support.fake_vllm import BLOCK, Request, Role

fake_vllm.install()

from kvproto.adapters.card import Card
from kvproto.adapters.card_trust import INSTANCES
from kvproto.adapters.geometry import Geometry, Shards
from kvproto.adapters.request_words import Announce, D, GiveUp, OpenRoom, P, Skip, Withdraw
from kvproto.adapters.vllm import connector, logs, ranks, stats
from kvproto.adapters.vllm.stats import NAMES, Counts, TransferStats
from kvproto.errors import ArgumentError
from kvproto.layout.sharding import Layout
from kvproto.protocol.states import Cause
from kvproto.room import Outcome, Room
from kvproto.settings import Settings

CARD = {"do_remote_prefill": True, "room": 5, "secret": "00"}


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Keeps which checks of vLLM were made."""
    made = list[Any]()
    monkeypatch.setattr(connector, "check", lambda: made.append("version"))
    monkeypatch.setattr(connector, "look_at", lambda config: made.append(config.kv_transfer_config.engine_id))
    return made


def scheduler(role: str, kinds: Any = None) -> connector.KVProtoConnector:
    return connector.KVProtoConnector(fake_vllm.config(role, 1, {}, "one"), Role.SCHEDULER, kinds)


def prefill(*names: str) -> connector.KVProtoConnector:
    made = scheduler("kv_producer")
    for name in names:
        made.on_new_request(Request(name, 6 * BLOCK, {"do_remote_decode": True}))
    return made


def decode(tokens: int = 6 * BLOCK) -> connector.KVProtoConnector:
    layout = Layout(layers=2, heads=4, k_dim=4, v_dim=4, itemsize=2, dtype="float16", page_size=BLOCK, tp=1)
    card = Card(7, 1, layout, 8, ("tcp://10.0.0.1:5",)).encode()
    made = scheduler("kv_consumer")
    made.on_new_request(Request("one", tokens, {**CARD, "card": card}))
    assert [type(order) for order in made.orders] == [Announce]
    return made


def step(made: connector.KVProtoConnector, counts: dict[str, int], preempted: Any = None) -> list[Any]:
    """A step that computes so many tokens of each request from its beginning; returns its orders."""
    cached = SimpleNamespace(req_ids=[], num_computed_tokens=[])
    new = [SimpleNamespace(req_id=name, num_computed_tokens=0) for name in counts]
    state = SimpleNamespace(get_block_ids=lambda _: ([1, 2, 3, 4, 5, 70_006],))
    output = SimpleNamespace(
        scheduled_new_reqs=new, scheduled_cached_reqs=cached, num_scheduled_tokens=counts,
        preempted_req_ids=preempted, kv_connector_block_state=state,
    )  # fmt: skip
    orders: list[Any] = made.build_connector_meta(output).orders
    return orders


def output(**names: set[str] | None) -> Any:
    fields = ("finished_sending", "finished_recving", "failed_recving")
    return SimpleNamespace(**{name: names.get(name) for name in fields})


@pytest.mark.usefixtures("checks")
def test_a_request_that_is_preempted_is_withdrawn_and_of_others_nothing_is_said() -> None:
    made = prefill("one", "two")
    assert [type(order) for order in step(made, {"one": BLOCK})][:1] == [OpenRoom]
    orders = step(made, {}, {"one", "nobody"})
    assert [(type(order), order.request) for order in orders] == [(Withdraw, "one")]
    assert made._known["one"].state is P.PREEMPTED
    assert step(made, {}, {"nobody"}) == [] and not made.has_pending_push_work()


@pytest.mark.usefixtures("checks")
def test_what_was_sent_frees_its_blocks_once_and_what_came_resumes_as_it_came(monkeypatch: pytest.MonkeyPatch) -> None:
    made = prefill("one")
    step(made, {"one": 6 * BLOCK})
    ended = Request("one", 6 * BLOCK, None, fake_vllm.Status.FINISHED_STOPPED)
    assert made.request_finished_all_groups(ended, ([1],))[0] and made.has_pending_push_work()
    made.update_connector_output(output())
    assert made._known["one"].state is P.PROMISED
    made.update_connector_output(output(finished_sending={"one"}))
    assert not made._known
    for failed in (None, {"one"}):
        theirs, heard = decode(), list[Any]()
        blocks = SimpleNamespace(get_block_ids=lambda: ([1, 2, 3, 4, 5, 70_006],))
        theirs.update_state_after_alloc(Request("one", 6 * BLOCK, None), blocks, 6 * BLOCK)
        assert cast("Any", theirs.orders[-1]).blocks == (1, 2, 3, 4, 5, 70_006)
        monkeypatch.setattr(theirs, "_settle", heard.extend)
        theirs.update_connector_output(output(finished_recving={"one"}, failed_recving=failed))
        assert [each.recompute for each in heard] == [bool(failed)] and not theirs._known


@pytest.mark.usefixtures("checks")
def test_the_tokens_to_load_are_those_that_are_not_here() -> None:
    made = decode()
    for name, here, told in [("one", 0, (24, True)), ("one", 20, (4, True)), ("one", 24, (0, False)),
                             ("one", 30, (0, False)), ("nobody", 0, (0, False))]:  # fmt: skip
        assert made.get_num_new_matched_tokens(Request(name, 24, None), here) == told
    assert prefill("one").get_num_new_matched_tokens(Request("one", 24, None), 0) == (0, False)
    blocks = SimpleNamespace(get_block_ids=lambda: ([1, 2, 3, 4, 5, 70_006],))
    made.update_state_after_alloc(Request("one", 24, None), blocks, 0)
    assert type(made.orders[-1]) is Skip


def samples(*, caching: bool) -> connector.KVProtoConnector:
    """A decode instance with a request and a sample of its prompt."""
    made = decode()
    made.finds_prefixes = caching
    made.on_new_request(Request("two", 24, {**CARD, "card": made._known["one"].ticket.peer}))
    assert [type(order) for order in made.orders] == [Announce] and [*made._known] == ["one"]
    return made


@pytest.mark.usefixtures("checks")
@pytest.mark.parametrize(("caching", "told"), [(True, (None, False)), (False, (0, False))])
def test_a_sample_waits_for_the_load_of_its_prompt_if_there_is_a_prefix_cache(*, caching: bool, told: Any) -> None:
    made, two = samples(caching=caching), Request("two", 24, None)
    blocks = SimpleNamespace(get_block_ids=lambda: ([1, 2, 3, 4, 5, 6],))
    assert made.get_num_new_matched_tokens(two, 0) == told, "the load waits for blocks"
    made.update_state_after_alloc(Request("one", 24, None), blocks, 24)
    assert made.get_num_new_matched_tokens(two, 0) == told, "it is under way"
    made.update_connector_output(output(finished_recving={"one"}))
    assert made.get_num_new_matched_tokens(two, 20) == (0, False), "what the cache lacks is computed"
    made.update_state_after_alloc(two, blocks, 0)
    assert len(made.orders) == 2 and made.request_finished_all_groups(two, ()) == (False, None)
    assert made.samples == {}


@pytest.mark.usefixtures("checks")
def test_a_sample_does_not_wait_for_a_load_that_was_given_up() -> None:
    made, two = samples(caching=True), Request("two", 24, None)
    made.update_state_after_alloc(Request("one", 24, None), SimpleNamespace(get_block_ids=lambda: ([1],)), 24)
    ended = Request("one", 24, None, fake_vllm.Status.FINISHED_ABORTED)
    assert made.request_finished_all_groups(ended, ())[0] and made._known["one"].state is D.ABORTED
    assert made.get_num_new_matched_tokens(two, 0) == (0, False)


@pytest.mark.usefixtures("checks")
def test_a_room_s_first_request_is_known_for_as_many_rooms_as_an_endpoint_keeps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert Settings().tombstones <= connector.ROOMS
    monkeypatch.setattr(connector, "ROOMS", 2)
    made = decode()
    assert [made._samples_another(*each) for each in (("a", 1), ("b", 1), ("c", 2), ("d", 5), ("a", 1))] == [
        False, True, False, False, False,
    ]  # fmt: skip
    assert [*made.loads] == [5, 1] and made.samples == {"b": "a"}


@pytest.mark.usefixtures("checks")
def test_prompts_that_are_being_computed_are_given_up_when_the_caches_are_reset() -> None:
    """Those of which nothing is computed, or all, go on, and nothing is reported of a request that runs."""
    made = prefill("none", "some", "last", "lost", "all")
    step(made, {"some": BLOCK, "last": 6 * BLOCK, "lost": BLOCK, "all": 6 * BLOCK})
    step(made, {}, {"lost"})
    ended = Request("all", 6 * BLOCK, None, fake_vllm.Status.FINISHED_STOPPED)
    assert made.request_finished_all_groups(ended, ([1],))[0]
    made.orders.clear()
    assert made.reset_cache() and made.has_pending_push_work()
    assert {name: value.state for name, value in made._known.items()} == {"none": P.ADMITTED, "all": P.PROMISED}
    orders = step(made, {}, {"some", "last"})
    assert [(type(order), order.request) for order in orders] == [
        (Withdraw, "some"), (GiveUp, "some"), (Withdraw, "last"), (GiveUp, "last"), (GiveUp, "lost")
    ]  # fmt: skip
    assert not any(order.report for order in orders if isinstance(order, GiveUp))
    later = Request("some", 6 * BLOCK, None, fake_vllm.Status.FINISHED_STOPPED)
    assert made.request_finished_all_groups(later, ([1],)) == (False, None), "its answer hands nothing over"
    loading = decode()
    assert loading.reset_cache() and [type(order) for order in loading.orders] == [Announce]


@pytest.mark.usefixtures("checks")
@pytest.mark.parametrize("params", [None, "text", [], {}, {"do_remote_prefill": True}, {"do_remote_decode": False}])
def test_a_request_without_parameters_of_this_side_hands_nothing_over(params: Any) -> None:
    made = scheduler("kv_producer")
    made.on_new_request(Request("one", 24, params))
    assert not made._known
    stays, answer = made.request_finished_all_groups(Request("one", 24, None, fake_vllm.Status.FINISHED_STOPPED), ())
    assert (stays, answer) == (False, None)


@pytest.mark.usefixtures("checks")
def test_a_request_that_ends_before_it_was_scheduled_is_refused_and_holds_no_blocks() -> None:
    made = prefill("one")
    ended = Request("one", 24, None, fake_vllm.Status.FINISHED_ABORTED)
    assert made.request_finished_all_groups(ended, ()) == (False, None)
    assert [type(order) for order in made.orders] == [GiveUp]


def test_vllm_is_looked_at_before_it_fails_for_a_cache_and_again_by_each_connector(checks: list[Any]) -> None:
    config = fake_vllm.config("kv_producer", 1, {}, "an engine")
    assert connector.KVProtoConnector.get_required_kvcache_layout(config) is None
    assert checks == ["version", "an engine"]
    connector.KVProtoConnector(config, Role.SCHEDULER, None)
    assert checks == ["version", "an engine"] * 2


@pytest.mark.usefixtures("checks")
def test_a_worker_tells_its_counts_and_a_scheduler_has_none() -> None:
    made = connector.KVProtoConnector(fake_vllm.config("kv_producer", 1, {}, "one"), Role.WORKER, None)
    worker: Any = SimpleNamespace(endpoint=SimpleNamespace(metrics=lambda: {"bytes": 4}))
    made.worker = worker
    told = made.get_kv_connector_stats()
    assert told is not None and told.data == {"bytes": 4} and made.get_kv_connector_stats() is None
    assert scheduler("kv_producer").get_kv_connector_stats() is None
    build = connector.KVProtoConnector.build_kv_connector_stats
    assert build().data == {} == build(None).data and build({"sent": 3}).data == {"sent": 3}


@pytest.mark.usefixtures("checks")
@pytest.mark.parametrize(("role", "well"), [("kv_producer", "sent"), ("kv_consumer", "received")])
def test_a_worker_is_started_counts_its_rooms_and_is_closed(
    monkeypatch: pytest.MonkeyPatch, role: str, well: str
) -> None:
    told = list[str]()
    worker: Any = SimpleNamespace(start=lambda: told.append("start"), close=lambda: told.append("close"))
    monkeypatch.setattr(connector, "show_logs", lambda: told.append("logs"))
    monkeypatch.setattr(connector, "make_worker", lambda *_: (worker, "card"))
    made = connector.KVProtoConnector(fake_vllm.config(role, 1, {}, "one"), Role.WORKER, None)
    made.shutdown()
    assert told == ["logs"], "it has no rank yet"
    made.register_kv_caches({})
    worker.on_outcome(None, Outcome(Room(1), Cause.NONE))
    counted = made.counts.take({})
    assert counted is not None and counted.data == {well: 1} and made.rank_card == "card"
    made.shutdown()
    assert told == ["logs", "start", "close"]
    half: Any = scheduler(role)
    half.worker = worker
    half.shutdown()
    assert told[3:] == ["logs"], "a scheduler has no rank to let go of"


class Rank:
    """Keeps what an endpoint is made of."""

    address = "tcp://10.0.0.1:5"

    def __init__(self, *mine: Any, **more: Any) -> None:
        self.mine, self.more = mine, more


def made_of(monkeypatch: pytest.MonkeyPatch, extra: dict[str, Any], role: str = "kv_producer") -> Any:
    for name in ("PrefillEndpoint", "DecodeEndpoint"):
        monkeypatch.setattr(ranks, name, Rank)
    for name in ("PrefillWorker", "DecodeWorker"):
        monkeypatch.setattr(ranks, name, lambda endpoint, *_: SimpleNamespace(endpoint=endpoint))
    monkeypatch.setattr(ranks, "NixlTransport", lambda: "transport")
    fake_vllm.PLACE[0] = 0
    return ranks.make_worker(fake_vllm.config(role, 1, extra, "one"), fake_vllm.caches(1, 8))


def test_a_rank_is_made_of_the_extra_configuration_or_of_what_is_usual(monkeypatch: pytest.MonkeyPatch) -> None:
    worker, card = made_of(monkeypatch, {})
    more = worker.endpoint.more
    assert (more["settings"].ring_bytes, more["settings"].trace, more["settings"].route) == (ranks.RING, 512, "cost")
    assert (more["keys"], more["digests"], "bind" in more) == (None, False, False)
    assert worker.endpoint.mine[3] == "transport" and card.address == Rank.address
    assert more["chunk_tokens"] * BLOCK == ranks.CHUNK_TOKENS, "on a CPU a block is moved as it is"
    extra = {"ring_bytes": 1 << 20, "trace": 7, "route": "pages", "keys": "some", "digests": True, "bind": "tcp://h:7",
             "chunk_tokens": 1}  # fmt: skip
    more = made_of(monkeypatch, extra)[0].endpoint.more
    assert (more["settings"].ring_bytes, more["settings"].trace, more["settings"].route) == (1 << 20, 7, "pages")
    assert (more["keys"], more["digests"], more["bind"], more["chunk_tokens"]) == ("some", True, "tcp://h:7", 1)
    more = made_of(monkeypatch, extra, "kv_consumer")[0].endpoint.more
    assert (more["keys"], more["digests"], set(more)) == ("some", True, {"keys", "digests", "settings", "group"})


def test_what_a_worker_holds_is_read_by_what_the_model_has(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_vllm.PLACE[0] = 0
    config, memory, told = fake_vllm.config("kv_producer", 1, {}, "one"), fake_vllm.caches(1, 8), list[Any]()
    monkeypatch.setattr(ranks, "geometry_of_caches", lambda *_, **more: told.append("caches"))
    monkeypatch.setattr(ranks, "geometry", lambda *_, **more: told.append("kv"))
    shards = ranks._shards(config, 2)
    for latents, index in ((False, {}), (True, {}), (False, {"k": 1}), (True, {"k": 1})):
        monkeypatch.setattr(ranks, "indices", lambda _, index=index: index)
        ranks._geometry(memory, shards, latents=latents)
    assert told == ["kv", "caches", "caches", "caches"]
    with pytest.raises(ArgumentError, match="a draft beside latents, an index"):
        ranks._with_draft(memory, config, None)
    monkeypatch.setattr(ranks, "indices", lambda _: {})
    monkeypatch.setattr(ranks, "draft_heads", lambda _: 1)
    monkeypatch.setattr(ranks, "geometry_of_draft", lambda *given, **more: told.append(given[1:3]))
    config.model_config.use_mla = True
    assert ranks._shards(config, 2).heads == 1
    config.model_config.get_total_num_hidden_layers = lambda: 3
    ranks._with_draft(memory, config, None)
    assert told[-1] == (3, 1)
    monkeypatch.setattr(ranks, "_with_draft", lambda *_: Geometry(None, Layout(1, 1, 1, 0, 1, "x", 1, 1)))  # type: ignore[arg-type]
    made_of(monkeypatch, {})


def test_the_counts_of_ranks_and_intervals_are_added_up_and_shown_by_name() -> None:
    one, two = TransferStats(data={"sent": 1, "bytes": 5}), TransferStats(data={"bytes": 2, "failed": 1})
    assert one.aggregate(two) is one and one.data == {"sent": 1, "bytes": 7, "failed": 1}
    assert one.reduce() == {"kvproto sent": 1, "kvproto received": 0, "kvproto aborted": 0, "kvproto failed": 1,
                            "kvproto bytes": 7, "kvproto posts": 0}  # fmt: skip
    assert not one.is_empty() and TransferStats(data={"sent": 0}).is_empty() is True
    assert TransferStats(data={"sent": 0, "bytes": 1}).is_empty() is False
    one.reset()
    assert one.data == {} and one.is_empty()


@pytest.mark.parametrize(
    ("cause", "name"),
    [(Cause.NONE, "sent"), (Cause.PREFILL_ABORTED, "aborted"), (Cause.DECODE_ABORTED, "aborted"),
     (Cause.LINK_LOST, "failed")],
)  # fmt: skip
def test_a_room_counts_by_how_it_ended(cause: Cause, name: str) -> None:
    counts = Counts()
    counts.outcome(Outcome(Room(1), cause), "sent")
    told = counts.take({})
    assert told is not None and told.data == {name: 1}


def test_prometheus_has_a_counter_for_every_name_by_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    made, given = list[Any](), list[Any]()

    def counter(*, name: str, documentation: str, labelnames: list[str]) -> str:
        assert documentation and labelnames == ["engine"]
        return name

    def by_engine(metric: str, values: Any) -> str:
        made.append((metric, values))
        return metric

    monkeypatch.setattr(fake_vllm.PromMetrics, "__init__", lambda _, *told: given.extend(told))
    monkeypatch.setattr(fake_vllm.PromMetrics, "_counter_cls", staticmethod(counter), raising=False)
    monkeypatch.setattr(stats, "create_metric_per_engine", by_engine)
    shown: Any = connector.KVProtoConnector.build_prom_metrics("config", "kinds", ["engine"], {0: ["a"]})
    assert given == ["config", "kinds", ["engine"], {0: ["a"]}]
    assert made == [(f"vllm:kvproto_{name}", {0: ["a"]}) for name in NAMES]
    assert shown._counters == {name: f"vllm:kvproto_{name}" for name in NAMES}


@pytest.mark.parametrize(("theirs", "shown"), [(logging.INFO, logging.WARNING), (logging.DEBUG, logging.NOTSET)])
def test_rooms_that_went_well_are_logged_where_vllm_logs_more_than_usual(
    monkeypatch: pytest.MonkeyPatch, theirs: int, shown: int
) -> None:
    manager = logging.Manager(logging.RootLogger(logging.WARNING))
    known = {name: manager.getLogger(name) for name in ("root", "vllm", "kvproto", "kvproto.rooms")}
    known["vllm"].setLevel(theirs)
    stand_in = SimpleNamespace(**vars(logging) | {"getLogger": lambda name="root": known[name]})
    monkeypatch.setattr(logs, "logging", stand_in)
    logs.show_logs()
    assert known["kvproto"].level == theirs and known["kvproto.rooms"].level == shown
    known["kvproto"].setLevel(logging.NOTSET)
    known["kvproto.rooms"].setLevel(logging.ERROR)
    logs.show_logs()
    assert known["kvproto.rooms"].level == logging.ERROR, "it is the operator's own"


def test_latents_and_indices_have_a_geometry_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[Any]()

    def made(*given: Any, **more: Any) -> str:
        asked.append((*given, more))
        return "made"

    monkeypatch.setattr(ranks, "geometry_of_caches", made)
    monkeypatch.setattr(ranks, "indices", lambda _: frozenset({"layers.0"}))
    caches, shards = {"layers.0": torch.zeros(2, 1, 4, 8)}, Shards(1, 1, 2, rank=1)
    told: Any = ranks._geometry(caches, shards, latents=True)
    assert told == "made"
    assert asked == [
        (caches, frozenset({"layers.0"}), shards, {"dtype": "float32", "opaque": "vllm-cpu", "join": list})
    ]


def test_the_trust_of_an_extra_configuration_is_its_file_networks_and_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranks, "CardTrust", SimpleNamespace(read=lambda *given: given))
    extra = {"card_secret": "a file", "card_networks": ["10.0.0.0/8"], "card_instances": 3}
    told: list[Any] = [ranks.trust_of(extra), ranks.trust_of({})]
    assert told == [("a file", ("10.0.0.0/8",), 3), ("", (), INSTANCES)]


@pytest.mark.usefixtures("checks")
def test_a_decode_instance_says_nothing_of_steps_and_of_what_is_preempted() -> None:
    made = decode()
    made.orders = []
    assert step(made, {"one": BLOCK}, {"one"}) == []


def test_a_forward_on_a_gpu_is_awaited_by_an_event_where_there_are_orders(monkeypatch: pytest.MonkeyPatch) -> None:
    recorded, after = list[Any](), list[Any]()
    monkeypatch.setattr(torch.cuda, "Event", lambda: SimpleNamespace(record=recorded.append))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: ("stream of", device))
    device, made = SimpleNamespace(type="cuda"), SimpleNamespace(orders=["some"])
    worker = SimpleNamespace(endpoint=SimpleNamespace(pool=SimpleNamespace(device=device)),
                             after=lambda *given: after.append(given))  # fmt: skip
    of: Any = SimpleNamespace(_get_connector_metadata=lambda: made, worker=worker)
    connector.KVProtoConnector.wait_for_save(of)
    assert recorded == [("stream of", device)] and after[0][0] == ["some"] and after[0][1] is not None
    made.orders = []
    connector.KVProtoConnector.wait_for_save(of)
    assert len(recorded) == 1 and after[1] == ([], None)

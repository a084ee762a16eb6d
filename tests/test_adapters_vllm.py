"""vLLM's connector between two scripted instances of different tensor parallelism, over a fabric.

The instances keep vLLM's side of the contract (`support.fake_vllm`), so that what would end a real engine fails here.
"""

from __future__ import annotations

import inspect
import itertools
import json
import logging
import pickle
import secrets
import time
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from support import fake_vllm
from support.engine_pair import STEPS, EnginePair, happen
from support.fake_vllm import BLOCK, PLACE, FakeEngine, Role
from support.vllm_pair import EXTRA, NAMES, TTL, on_a_fabric

from kvproto.adapters.card import Card
from kvproto.adapters.geometry import Shards
from kvproto.adapters.request_words import D, GiveBlocks
from kvproto.layout.sharding import Layout
from kvproto.protocol.states import Cause
from kvproto.room import Outcome, Room

fake_vllm.install()

from kvproto.adapters.vllm import connector, ranks, stages, stats, versions
from kvproto.adapters.vllm.versions import RECORD, VersionError

BLOCKS = 24


def row(name: str, layer: int, head: int, token: int) -> float:
    """The value that the forward computes for a token, in a head of a layer."""
    return float(hash((name.split("/", maxsplit=1)[0], layer, head, token)) % 8191)


class PrefixEngine(FakeEngine):
    """An engine that asks the connector again in its next step if there is no answer yet."""

    def _admit(self, request: Any) -> bool:
        hit = self.hits.get(request.request_id, 0)
        return self.connector.get_num_new_matched_tokens(request, hit)[0] is not None and super()._admit(request)


class Instances(EnginePair):
    """A prefill instance of one rank, a decode instance of two, and a router."""

    def __init__(self) -> None:
        self.caches: dict[tuple[str, int], dict[str, torch.Tensor]] = {}
        self.prefill, self.decode = self.engine("kv_producer", 1), self.engine("kv_consumer", 2)
        cards = {(0, rank): worker.get_handshake_metadata() for rank, worker in enumerate(self.prefill.workers)}
        self.tokens: dict[str, int] = {}
        self.rooms: dict[str, int] = {}
        self.decode.cached, self.decode.landed = self.cached, self.landed
        self.prefill.connector.set_xfer_handshake_metadata_pp_aware(cards)
        self.decode.connector.set_xfer_handshake_metadata_pp_aware({})

    def engine(self, role: str, tp: int, name: str = "", **extra: Any) -> FakeEngine:
        """An instance whose engine_id is `name` (default: its role), with more of the extra configuration."""
        name = name or role

        def make(kind: Role, rank: int) -> Any:
            PLACE[0] = rank
            config = fake_vllm.config(role, tp, EXTRA | extra, name)
            config.cache_config.enable_prefix_caching = True
            made = connector.KVProtoConnector(config, kind, None)
            if kind is Role.WORKER:
                self.caches[name, rank] = fake_vllm.caches(tp, BLOCKS)
                made.register_kv_caches(self.caches[name, rank])
            return made

        return PrefixEngine(make, tp, BLOCKS, chunk=2 * BLOCK)

    def close(self) -> None:
        self.prefill.close()
        self.decode.close()

    # --------------------------------------------------------------------------------------------- the router
    def both(self, tokens: int, *, prefill: bool = True, decode: bool = True, hit: int = 0) -> str:
        """A request at both instances, or at one of them; the decode instance has `hit` blocks of it cached."""
        name, room, secret = next(NAMES), secrets.randbits(63), secrets.token_hex(8)
        self.rooms[name] = room
        self.tokens[name], self.decode.hits[f"{name}/D"] = tokens, hit * BLOCK
        if decode:
            theirs = {"do_remote_prefill": True, "room": room, "secret": secret, "card": self.prefill.connector.card}
            self.decode.add(f"{name}/D", tokens, theirs)
        if prefill:
            self.prefill.add(f"{name}/P", tokens, {"do_remote_decode": True, "room": room, "secret": secret})
        return name

    def explain(self) -> list[str]:
        found = []
        for engine in (self.prefill, self.decode):
            for worker in engine.workers:
                inner = worker.worker
                found += [inner.endpoint.explain(room) for room in inner._requests] + inner.endpoint.reports()[-5:]
        return found

    def quiet(self) -> bool:
        """All requests are over, all blocks are free, and no rank keeps anything."""
        engines = (self.prefill, self.decode)
        workers = [worker.worker for engine in engines for worker in engine.workers]
        kept = [worker for worker in workers if worker._requests or worker._tickets or worker.rank.requests]
        return not kept and all(not engine.requests and len(engine.free) == BLOCKS for engine in engines)

    def compute(self, name: str, first: int, upto: int, blocks: list[int]) -> None:
        for layer in range(2):
            cache = self.caches["kv_producer", 0][f"layers.{layer}"]
            for token in range(first, upto):
                for head in range(4):
                    cache[blocks[token // BLOCK], head, token % BLOCK] = row(name, layer, head, token)

    def places(self, tokens: int, blocks: list[int]) -> Iterator[tuple[torch.Tensor, tuple[int, int, int]]]:
        """Each row of a prompt's cache at the decode instance, with (layer, head of the model, token)."""
        for rank, layer, head, token in itertools.product(range(2), range(2), range(2), range(tokens)):
            cache = self.caches["kv_consumer", rank][f"layers.{layer}"]
            yield cache[blocks[token // BLOCK], head, token % BLOCK], (layer, 2 * rank + head, token)

    def cached(self, name: str, tokens: int, blocks: list[int]) -> None:
        """The prefix cache has these tokens; whatever else lies in the blocks is somebody else's."""
        for part, place in self.places(len(blocks) * BLOCK, blocks):
            part.fill_(row(name, *place) if place[2] < tokens else -1.0)

    def landed(self, name: str, blocks: list[int]) -> None:
        """The bytes that have landed are the computed ones."""
        for part, place in self.places(self.tokens[name.split("/", maxsplit=1)[0]], blocks):
            assert bool((part == row(name, *place)).all()), (name, place)


@pytest.fixture(scope="module")
def instances() -> Iterator[Instances]:
    with on_a_fabric():
        made = Instances()
        yield made
        made.close()


def carried(instances: Instances, name: str) -> None:
    """The request comes to run at the decode instance, with the KV that the other instance computed."""
    instances.until(lambda: f"{name}/D" in instances.decode.resumed)
    assert instances.decode.resumed[f"{name}/D"] is False


@pytest.mark.parametrize("tokens", [1, BLOCK, 2 * BLOCK, 5 * BLOCK + 1, 37])
def test_a_prompt_is_carried(instances: Instances, tokens: int) -> None:
    carried(instances, instances.both(tokens))
    instances.until(instances.quiet)


@pytest.mark.parametrize("hit", [1, 3, 9])
def test_what_the_decode_instance_has_is_not_carried(instances: Instances, hit: int) -> None:
    carried(instances, instances.both(9 * BLOCK + 2, hit=hit))
    instances.until(instances.quiet)


def test_one_after_another(instances: Instances) -> None:
    name = instances.both(30, decode=False)
    instances.until(lambda: f"{name}/P" in instances.prefill.answers)
    params = instances.prefill.answers[f"{name}/P"]
    assert params is not None and params["do_remote_prefill"]
    instances.decode.add(f"{name}/D", 30, json.loads(json.dumps(params)))
    carried(instances, name)
    instances.until(instances.quiet)


def test_given_up_before_it_has_blocks_and_the_decode_instance_is_told_at_once(instances: Instances) -> None:
    begun = time.monotonic()
    name = instances.both(20)
    for _ in range(5):
        instances.decode.step()
    instances.prefill.abort(f"{name}/P")
    instances.until(lambda: f"{name}/D" in instances.decode.resumed)
    assert instances.decode.resumed[f"{name}/D"] is True
    assert time.monotonic() - begun < TTL
    instances.until(instances.quiet)


def test_blocks_that_are_taken_away_half_way(instances: Instances) -> None:
    name = instances.both(40)
    instances.turn()
    instances.prefill.preempt(f"{name}/P")
    carried(instances, name)
    instances.until(instances.quiet)


@pytest.mark.parametrize("given_up", [False, True])
def test_a_room_that_is_taken_is_the_second_requests_trouble_alone(instances: Instances, given_up: bool) -> None:
    name = instances.both(40)
    instances.turn()
    taken = {"do_remote_decode": True, "do_remote_prefill": True, "room": instances.rooms[name]}
    second = next(NAMES)
    instances.prefill.add(f"{second}/P", 40, taken)
    if given_up:
        instances.prefill.abort(f"{second}/P")
    instances.decode.add(f"{second}/D", 40, {**taken, "card": instances.prefill.connector.card})
    carried(instances, name)
    instances.until(instances.quiet)
    assert f"{second}/D" not in instances.decode.resumed, "it loads nothing: it is computed"


@pytest.mark.parametrize("first", ["loads", "fails", "is aborted", "is aborted without blocks"])
def test_samples_of_a_prompt_wait_for_its_one_load_and_no_longer(
    instances: Instances, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, first: str
) -> None:
    """vLLM's `n` makes requests with the same parameters; after the first one's load there are hits."""
    tokens, decode, hits = 5 * BLOCK + 1, instances.decode, dict[str, int]()
    held, decode.free = decode.free, [] if first == "is aborted without blocks" else decode.free
    name = instances.both(tokens, prefill=first == "loads")
    one, samples = f"{name}/D", [f"{at}_{name}/D" for at in (1, 2, 3)]

    def admitted(name: str, hit: int, _: Any) -> None:
        loading = decode.connector._known.get(one)
        assert name == one or loading is None or loading.state is D.ABORTED
        hits[name] = hit

    monkeypatch.setattr(decode, "cached", admitted)
    monkeypatch.setattr(decode, "landed", lambda *_: decode.hits.update(dict.fromkeys(samples, 5 * BLOCK)))
    for sample in samples:
        decode.add(sample, tokens, decode.requests[one].kv_transfer_params)
    instances.turn()
    decode.free = held
    if first == "fails":
        instances.prefill.add(f"{name}/P", tokens, {"do_remote_decode": True, "room": instances.rooms[name]})
        instances.prefill.abort(f"{name}/P")
    elif first != "loads":
        decode.abort(one)
    instances.until(instances.quiet)
    assert {sample: hits[sample] for sample in samples} == dict.fromkeys(samples, 5 * BLOCK * (first == "loads"))
    assert not {*samples} & decode.resumed.keys() and "Announce" not in caplog.text
    assert decode.connector.samples == {}


@pytest.mark.parametrize("first", [0, 4 * BLOCK])
def test_no_prompt_is_carried_that_was_computed_with_old_and_with_new_weights(instances: Instances, first: int) -> None:
    """vLLM preempts what runs, resets the caches and loads other weights.

    `first`: tokens that are computed before.
    """
    name = instances.both(10 * BLOCK)
    while first and instances.prefill.requests[f"{name}/P"].computed < first:
        instances.turn()
    instances.prefill.preempt(f"{name}/P")
    assert instances.prefill.connector.reset_cache() and instances.decode.connector.reset_cache()
    instances.until(lambda: f"{name}/D" in instances.decode.resumed)
    assert instances.decode.resumed[f"{name}/D"] is bool(first), "the decode instance computes the prompt itself"
    instances.until(instances.quiet)


def test_a_request_that_waits_for_blocks_is_waited_for(instances: Instances) -> None:
    held, instances.decode.free = instances.decode.free, []
    name = instances.both(40)
    end = time.monotonic() + 1.7 * TTL
    instances.until(lambda: time.monotonic() > end)
    instances.decode.free = held
    carried(instances, name)
    instances.until(instances.quiet)


def test_nobody_fetches(instances: Instances) -> None:
    instances.both(20, decode=False)
    instances.until(instances.quiet)


def test_a_request_that_hands_nothing_over(instances: Instances) -> None:
    instances.prefill.add("alone", 20, None)
    instances.decode.add("alone too", 20, {})
    instances.until(instances.quiet)
    assert instances.prefill.answers["alone"] is None


@pytest.mark.parametrize(
    "params",
    [{"room": 1}, {"room": 1, "card": "{}"}, {"card": "x", "room": "y"}, {"room": -1, "card": "x"}, {"card": {}},
     {"room": 1, "card": 7}, {"room": 1 << 64, "card": "x"}, {"secret": 5}, {"secret": "00" * 65}, {"secret": "x"}],
)  # fmt: skip
def test_parameters_that_cannot_be_used_are_said_and_the_prompt_is_computed(
    instances: Instances, params: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        instances.decode.add(name := next(NAMES), 10, {"do_remote_prefill": True, **params})
        instances.prefill.add(next(NAMES), 10, {"do_remote_decode": True, "room": 1, "decode_group": 5, **params})
    assert caplog.text.count("cannot be used") == 2
    instances.until(instances.quiet)
    assert name not in instances.decode.resumed


@given(STEPS)
@settings(
    max_examples=12, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
)  # fmt: skip
def test_whatever_happens_every_block_comes_back_and_each_report_once(instances: Instances, steps: Any) -> None:

    def ask(number: int) -> str:
        return instances.both(number + 1, hit=number % 3 if number > 3 * BLOCK else 0)

    happen(instances, ask, steps)
    instances.until(instances.quiet)


# ---------------------------------------------------------------------------------------------- signatures
def test_the_record_is_of_all_that_is_relied_on() -> None:
    recorded = json.loads(RECORD.read_text())
    assert set(recorded) == {f"{module}:{name}" for module, names in versions.NAMES.items() for name in names}
    assert "missing" not in recorded.values()


def test_what_is_overridden_has_the_recorded_parameters() -> None:
    recorded = json.loads(RECORD.read_text())
    for place, parameters in recorded.items():
        owner, _, name = place.split(":")[1].partition(".")
        kinds = {
            "KVConnectorBase_V1": connector.KVProtoConnector, "KVConnectorStats": stats.TransferStats,
            "KVConnectorPromMetrics": stats.TransferPromMetrics,
        }  # fmt: skip
        if owner in kinds and name in vars(kinds[owner]) and name != "__init__":
            assert ", ".join(inspect.signature(getattr(kinds[owner], name)).parameters) == parameters, place


def test_an_option_s_former_name_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connector, "check", lambda: None)
    PLACE[0] = 0
    former = EXTRA | {"grid": EXTRA["chunk_tokens"]}
    del former["chunk_tokens"]
    made = connector.KVProtoConnector(fake_vllm.config("kv_producer", 1, former, "one"), Role.WORKER, None)
    made.register_kv_caches(fake_vllm.caches(1, BLOCKS))
    card = made.get_handshake_metadata()
    made.shutdown()
    assert card is not None and card.chunk_tokens == 2, "in pages: on a CPU a block is moved as it is"


def test_another_release_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "installed", lambda: "0.9.1")
    with pytest.raises(VersionError, match=r"vLLM 0\.9\.1 is installed; this connector is for 0\.32.*pip install"):
        versions.check.__wrapped__()


def test_a_release_whose_interface_has_changed_is_refused_by_what_has_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "installed", lambda: "0.32.7")
    recorded = json.loads(RECORD.read_text())
    for count, more in ((1, ""), (2, " (and 1 more)"), (3, " (and 2 more)")):
        now = {**recorded, **dict.fromkeys(list(recorded)[:count], "self, less")}
        monkeypatch.setattr(versions, "signatures", lambda now=now: now)
        with pytest.raises(VersionError, match=r"0\.32\.7 is not as it was recorded: .* has \(self, less\)") as caught:
            versions.check.__wrapped__()
        place, was = next(iter(recorded.items()))
        assert f"{place} has (self, less), recorded is ({was}){more}: pip install" in str(caught.value)


def test_signatures_are_of_what_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "NAMES", {"bisect": ("insort", "none"), "no.such.module": ("it",)})
    found = versions.signatures()
    assert found == {"bisect:insort": "a, x, lo, hi, key", "bisect:none": "missing", "no.such.module:it": "missing"}


def test_no_vllm_at_all_is_told_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr("importlib.metadata.version", missing)
    with pytest.raises(VersionError, match="not installed: pip install"):
        versions.check.__wrapped__()


# --------------------------------------------------------------------------------------------- a scheduler's half alone
@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> Callable[..., connector.KVProtoConnector]:
    """Makes the scheduler's half of a prefill instance."""
    monkeypatch.setattr(connector, "check", lambda: None)

    def make(**extra: Any) -> connector.KVProtoConnector:
        config = fake_vllm.config("kv_producer", 1, extra, "abc_dp1")
        config.parallel_config.data_parallel_index = 1
        return connector.KVProtoConnector(config, Role.SCHEDULER, None)

    return make


def test_a_card_has_ranks_by_stage_and_place_and_the_latest_incarnation(alone: Any, tmp_path: Path) -> None:
    """The dictionary has no order, and each data-parallel rank has a file of its own."""
    made = alone(card=str(tmp_path / "card"))
    layout = Layout(layers=2, heads=4, k_dim=4, v_dim=4, itemsize=2, dtype="float16", page_size=BLOCK, tp=2, pp=2)
    places = {(1, 0): 3, (0, 1): 9, (1, 1): 5, (0, 0): 4}
    told = {place: ranks.RankCard(layout, BLOCK, at, f"tcp://here:{at}") for place, at in places.items()}
    made.set_xfer_handshake_metadata_pp_aware(told)
    card = Card.decode((tmp_path / "card_dp1").read_text())
    assert card.addresses == tuple(f"tcp://here:{at}" for at in (4, 9, 3, 5)) and card.incarnation == 9
    assert card.encode() == made.card


def test_a_rank_s_pickled_card_names_nothing_that_pickle_must_search_for() -> None:
    """Pickle asks every imported module for the layout's UNSET, and lazy ones import others or fail."""
    layout = Layout(layers=2, heads=4, k_dim=4, v_dim=4, itemsize=2, dtype="float16", page_size=BLOCK, tp=2)
    card = ranks.RankCard(layout, BLOCK, 7, "tcp://here:1")
    told = pickle.dumps(card)
    assert b"UNSET" not in told and pickle.loads(told) == card  # noqa: S301  # our own bytes


def test_a_step_gives_each_request_its_own_tokens_and_an_abort_no_answer(alone: Any) -> None:
    made, names = alone(), ("new", "begun")
    for name in names:
        made.on_new_request(fake_vllm.Request(name, 6 * BLOCK, {"do_remote_decode": True}))

    def step(computed: dict[str, int], counts: dict[str, int]) -> list[Any]:
        cached = SimpleNamespace(req_ids=[*computed], num_computed_tokens=[*computed.values()])
        new = [SimpleNamespace(req_id=name, num_computed_tokens=0) for name in counts if name not in computed]
        state = SimpleNamespace(get_block_ids=lambda _: ([1, 2, 3, 4],))
        told: list[Any] = made.build_connector_meta(SimpleNamespace(
            scheduled_new_reqs=new, scheduled_cached_reqs=cached, num_scheduled_tokens=counts,
            preempted_req_ids=None, kv_connector_block_state=state,
        )).orders  # fmt: skip
        return told

    step({}, {"begun": 2 * BLOCK})
    given = [order for order in step({"begun": 2 * BLOCK}, {"begun": BLOCK, "new": 2 * BLOCK})
             if isinstance(order, GiveBlocks)]  # fmt: skip
    assert {order.request: order.upto for order in given} == {"begun": 3 * BLOCK, "new": 2 * BLOCK}
    step({"begun": 3 * BLOCK}, {"begun": 3 * BLOCK})
    aborted = fake_vllm.Request("begun", 6 * BLOCK, None, fake_vllm.Status.FINISHED_ABORTED)
    assert made.request_finished_all_groups(aborted, ([1, 2, 3, 4],)) == (True, None), "its blocks are still read"
    step({"new": 2 * BLOCK}, {"new": 4 * BLOCK})
    ended = fake_vllm.Request("new", 6 * BLOCK, None, fake_vllm.Status.FINISHED_STOPPED)
    stays, answer = made.request_finished_all_groups(ended, ([1, 2, 3, 4],))
    assert stays and answer is not None and answer["do_remote_prefill"] is True


def test_stats_are_of_an_interval_by_how_rooms_ended_and_of_the_engine_that_is_asked_for() -> None:
    counts = stats.Counts()
    for cause in (Cause.NONE, Cause.NONE, Cause.DECODE_ABORTED, Cause.LINK_LOST):
        counts.outcome(Outcome(Room(1), cause), "sent")
    first, second = counts.take({"bytes": 9, "writes": 2, "mapped": 1}), counts.take({"bytes": 9, "writes": 4})
    assert first is not None and first.data == {"sent": 2, "aborted": 1, "failed": 1, "bytes": 9, "posts": 3}
    assert second is not None and second.data == {"posts": 1}
    told = list[tuple[int, int]]()
    shown: Any = stats.TransferPromMetrics.__new__(stats.TransferPromMetrics)
    shown._counters = {"sent": [SimpleNamespace(inc=lambda n, at=at: told.append((at, n))) for at in range(2)]}
    shown.observe({"sent": 3}, engine_idx=1)
    assert told == [(1, 3)]


def test_a_worker_has_its_place_among_stages_and_its_layers_in_the_model_s_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The second of two places in the second of two stages, whose layers begin at 4."""
    monkeypatch.setattr(ranks, "get_pp_group", lambda: SimpleNamespace(rank_in_group=1))
    monkeypatch.setattr(ranks, "get_tp_group", lambda: SimpleNamespace(rank_in_group=1))
    monkeypatch.setattr(ranks, "get_pp_indices", lambda layers, stage, _stages: ((0, 4), (4, layers))[stage])
    monkeypatch.setattr(stages, "exchange", lambda said: [said])
    config = fake_vllm.config("kv_producer", 2, {}, "one")
    config.parallel_config.pipeline_parallel_size = 2
    config.parallel_config.data_parallel_index = 5
    config.model_config.get_total_num_hidden_layers = lambda: 12
    caches = {f"layers.{layer}": torch.zeros(BLOCKS, 2, BLOCK, 16) for layer in (10, 11, *range(4, 10))}
    shards = ranks._shards(config, len(caches))
    assert shards == Shards(4, 12, 2, 2, (4, 8), 3)
    held = ranks._geometry(caches, shards).pool.k
    assert [each.data_ptr() for each in held] == [caches[f"layers.{layer}"].data_ptr() for layer in range(4, 12)]
    config.parallel_config.tensor_parallel_size = 4
    assert ranks._shards(config, len(caches)) == Shards(4, 12, 4, 2, (4, 8), 5)

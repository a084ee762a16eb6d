"""vLLM's pipeline stages: each stage's rank carries its own layers, and reports with the others.

The scripted instances have as many steps under way as stages (`support.fake_vllm`), as vLLM has.
"""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from support import fake_vllm
from support.engine_pair import STEPS, EnginePair, happen
from support.fake_vllm import BLOCK, PLACE, STAGE, Exchange, FakeEngine, Role

from kvproto.adapters import request_parties
from kvproto.adapters.card import Card
from kvproto.adapters.request_events import Timing
from kvproto.fsm.timing import Timer
from kvproto.io.transports.fabric import Fabric
from kvproto.io.transports.memory import MemoryTransport

fake_vllm.install()

from kvproto.adapters.vllm import connector, ranks
from kvproto.adapters.vllm import stages as stages_module

BLOCKS, TTL, LAYERS, HEADS, ROW = 24, 3.0, 5, 4, 16
EXTRA = {"chunk_tokens": 2 * BLOCK, "ttl": TTL, "ring_bytes": 1 << 20}
NAMES, EXCHANGE = map(str, itertools.count()), Exchange()
#: (ranks of tensor parallelism, stages) of the prefill and of the decode instance; steps that are scheduled ahead
CUTS = {
    "2 stages to 1": ((1, 2), (1, 1), 0), "1 to 2 stages": ((1, 1), (1, 2), 0), "1 to 1, ahead": ((1, 1), (1, 1), 1),
    "2 stages to 2, ahead": ((1, 2), (2, 1), 1), "2 x 2 stages to 3 stages": ((2, 2), (1, 3), 0),
}  # fmt: skip


def held(stage: int, stages: int) -> tuple[int, int]:
    """Layers (first, end) of a stage, as vLLM cuts five: the last of two has the smaller part."""
    return {1: [(0, 5)], 2: [(0, 3), (3, 5)], 3: [(0, 1), (1, 3), (3, 5)]}[stages][stage]


def row(name: str, layer: int, head: int, token: int) -> float:
    """The value that the forward computes for a token, in a head of a layer."""
    return float(hash((name.split("/", maxsplit=1)[0], layer, head, token)) % 8191)


class Stages(EnginePair):
    """A prefill and a decode instance, and a router."""

    def __init__(self, prefill: tuple[int, int], decode: tuple[int, int], ahead: int) -> None:
        self.ahead = ahead
        self.cut = {"kv_producer": prefill, "kv_consumer": decode}
        self.caches: dict[tuple[str, int], dict[int, torch.Tensor]] = {}
        self.prefill, self.decode = self.engine("kv_producer"), self.engine("kv_consumer")
        self.decode.landed = self.landed
        tp = prefill[0]
        told = [(divmod(rank, tp), each.get_handshake_metadata()) for rank, each in enumerate(self.prefill.workers)]
        self.prefill.connector.set_xfer_handshake_metadata_pp_aware(dict(reversed(told)))

    def engine(self, role: str) -> FakeEngine:
        tp, pp = self.cut[role]

        def make(kind: Role, rank: int) -> Any:
            STAGE[0], PLACE[0] = divmod(rank, tp)
            config = fake_vllm.config(role, tp, EXTRA, role, pp=pp, layers=LAYERS)
            made = connector.KVProtoConnector(config, kind, None)
            if kind is Role.WORKER:
                mine = range(*held(STAGE[0], pp))
                self.caches[role, rank] = {at: torch.zeros(BLOCKS, HEADS // tp, BLOCK, ROW) for at in mine}
                made.register_kv_caches({f"layers.{at}": cache for at, cache in self.caches[role, rank].items()})
            return made

        EXCHANGE.ask(make, tp, pp)
        return FakeEngine(make, tp * pp, BLOCKS, chunk=2 * BLOCK, stages=pp, ahead=self.ahead)

    def close(self) -> None:
        STAGE[0] = PLACE[0] = 0
        self.prefill.close()
        self.decode.close()

    def ask(self, tokens: int, hit: int = 0) -> str:
        """A request at both instances; the decode instance has `hit` blocks of it cached."""
        name, room = next(NAMES), secrets.randbits(63)
        theirs = {"do_remote_prefill": True, "room": room, "card": self.prefill.connector.card}
        self.decode.hits[f"{name}/D"] = hit * BLOCK
        self.decode.add(f"{name}/D", tokens, theirs)
        self.prefill.add(f"{name}/P", tokens, {"do_remote_decode": True, "room": room})
        return name

    def rows(self, role: str, stage: int, first: int, upto: int, blocks: list[int]) -> Iterator[Any]:
        """Yield (row, layer, head of the model, token) of a stage's ranks for these tokens."""
        tp = self.cut[role][0]
        for place, token, head in itertools.product(range(tp), range(first, upto), range(HEADS // tp)):
            for layer, cache in self.caches[role, stage * tp + place].items():
                yield cache[blocks[token // BLOCK], head, token % BLOCK], layer, place * HEADS // tp + head, token

    def compute(self, name: str, first: int, upto: int, blocks: list[int]) -> None:
        """The forward of a stage of the prefill instance."""
        for part, *place in self.rows("kv_producer", self.prefill.stage, first, upto, blocks):
            part.fill_(row(name, *place))

    def landed(self, name: str, blocks: list[int]) -> None:
        """On every stage, what was not cached is what the prefill instance has computed."""
        tokens, hit = self.decode.requests[name].num_prompt_tokens, self.decode.hits[name]
        for stage in range(self.decode.stages):
            for part, *place in self.rows("kv_consumer", stage, hit, tokens, blocks):
                assert bool((part == row(name, *place)).all()), (name, place)

    def quiet(self) -> bool:
        """All requests are over, all blocks are free, and no rank keeps anything."""
        engines = (self.prefill, self.decode)
        workers = [each.worker for engine in engines for each in engine.workers]
        kept = [each for each in workers if each._requests or each._tickets or each.rank.requests]
        return not kept and all(not engine.requests and len(engine.free) == BLOCKS for engine in engines)


@pytest.fixture(scope="module", params=CUTS.values(), ids=list(CUTS))
def stages(request: Any) -> Iterator[Stages]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(connector, "check", lambda: None)
        patch.setattr(request_parties, "Timing", lambda: Timing(renew=Timer(TTL / 6)))
        patch.setattr(ranks, "get_pp_indices", lambda _, stage, stages: held(stage, stages))
        patch.setattr(stages_module, "exchange", EXCHANGE)
        fabric = Fabric(auto=True)
        patch.setattr(ranks, "NixlTransport", lambda: MemoryTransport(fabric))
        made = Stages(*request.param)
        yield made
        made.close()


@pytest.mark.parametrize("tokens", [1, BLOCK, 5 * BLOCK + 1, 37])
def test_each_stage_s_layers_are_carried(stages: Stages, tokens: int) -> None:
    stages.carried(stages.ask(tokens))
    stages.until(stages.quiet)


@pytest.mark.parametrize("hit", [1, 3, 9])
def test_what_a_stage_of_the_decode_instance_has_is_not_carried(stages: Stages, hit: int) -> None:
    stages.carried(stages.ask(9 * BLOCK + 2, hit))
    stages.until(stages.quiet)


def test_the_card_has_the_ranks_by_stage_and_the_layers_of_each_stage(stages: Stages) -> None:
    (tp, pp), card = stages.cut["kv_producer"], Card.decode(stages.prefill.connector.card)
    cut = tuple(end - first for first, end in (held(stage, pp) for stage in range(pp)))
    assert (card.layout.tp, card.layout.pp, card.layout.layers) == (tp, pp, LAYERS)
    assert card.layout.stages == (cut if pp > 1 else ())
    assert list(card.addresses) == [each.worker.endpoint.address for each in stages.prefill.workers]


def test_blocks_are_taken_away_while_a_later_stage_computes_on_them(stages: Stages) -> None:
    names = [stages.ask(tokens) for tokens in (40, 13)]
    for _ in range(3):
        stages.turn()
    stages.prefill.preempt(f"{names[0]}/P")
    for name in names:
        stages.carried(name)
    stages.until(stages.quiet)


def test_a_request_is_over_when_the_last_rank_of_all_stages_has_reported(stages: Stages) -> None:
    before = {engine: sum(engine.reports.values()) for engine in (stages.prefill, stages.decode)}
    stages.carried(stages.ask(30))
    stages.until(stages.quiet)
    for engine, reported in before.items():
        assert sum(engine.reports.values()) - reported == len(engine.workers)


@given(STEPS)
@settings(
    max_examples=6, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
)  # fmt: skip
def test_whatever_happens_every_block_comes_back_and_each_report_once(stages: Stages, steps: Any) -> None:
    happen(stages, lambda number: stages.ask(number + 1), steps)
    stages.until(stages.quiet)

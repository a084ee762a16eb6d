"""vLLM's pipeline stages: each stage's rank carries its own layers, and reports with the others.

The scripted instances have as many steps under way as stages (`support.fake_vllm`), as vLLM has.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from support.engine_pair import STEPS, happen
from support.fake_vllm import BLOCK
from support.vllm_pair import Shape, VllmPair, on_a_fabric

from kvproto.adapters.card import Card

BLOCKS, LAYERS, HEADS, ROW = 24, 5, 4, 16
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


class Stages(VllmPair):
    """A prefill and a decode instance, and a router."""

    blocks, layers = BLOCKS, LAYERS

    def __init__(self, prefill: Shape, decode: Shape, ahead: int) -> None:
        self.scripted = {"ahead": ahead}  # type: ignore[misc]  # of this pair
        super().__init__(prefill, decode)

    def memory(self, tp: int, stage: int, stages: int) -> dict[str, torch.Tensor]:
        mine = range(*held(stage, stages))
        return {f"layers.{at}": torch.zeros(BLOCKS, HEADS // tp, BLOCK, ROW) for at in mine}

    def rows(self, role: str, stage: int, first: int, upto: int, blocks: list[int]) -> Iterator[Any]:
        """Yield (row, layer, head of the model, token) of a stage's ranks for these tokens."""
        tp, pp = self.cut[role]
        for place, token, head in itertools.product(range(tp), range(first, upto), range(HEADS // tp)):
            for layer in range(*held(stage, pp)):
                cache = self.caches[role, stage * tp + place][f"layers.{layer}"]
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
    with on_a_fabric(held):
        made = Stages(*request.param)
        yield made
        made.close()


@pytest.mark.parametrize("tokens", [1, BLOCK, 5 * BLOCK + 1, 37])
def test_each_stage_s_layers_are_carried(stages: Stages, tokens: int) -> None:
    stages.carried(stages.ask(tokens))
    stages.until(stages.quiet)


@pytest.mark.parametrize("hit", [1, 3, 9])
def test_what_a_stage_of_the_decode_instance_has_is_not_carried(stages: Stages, hit: int) -> None:
    stages.carried(stages.ask(9 * BLOCK + 2, hit=hit * BLOCK))
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

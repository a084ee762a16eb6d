"""Several vLLM decode instances without names, one prefill instance, and a router that names none.

The router of this file is the plainest that there is: it sends a request to the prefill instance, and what that
answers to any decode instance.  Neither the router nor the prefill instance knows beforehand which one it will be.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from support import fake_vllm
from support.fake_vllm import BLOCK, FakeEngine
from support.vllm_pair import NAMES
from test_adapters_vllm import BLOCKS, Instances, row

from kvproto.adapters.card import group_of
from kvproto.adapters.vllm import connector, ranks
from kvproto.io.transports.fabric import Fabric
from kvproto.io.transports.memory import MemoryTransport

#: as vLLM draws an engine_id where nobody names one
DRAWN = ("5b1f", "c07d", "91ae")


class Fleet(Instances):
    """A prefill instance, and decode instances of one rank each."""

    def __init__(self, names: tuple[str, ...], **extra: Any) -> None:
        self.caches, self.tokens, self.rooms = {}, {}, {}
        self.prefill = self.engine("kv_producer", 1)
        cards = {(0, 0): self.prefill.workers[0].get_handshake_metadata()}
        self.prefill.connector.set_xfer_handshake_metadata_pp_aware(cards)
        self.decodes = {name: self.engine("kv_consumer", 1, name, **extra) for name in names}
        for name, decode in self.decodes.items():
            decode.landed = self.landed_at(name)

    def landed_at(self, instance: str) -> Callable[[str, list[int]], None]:
        """Compare what has landed at this instance with what was computed."""

        def landed(name: str, blocks: list[int]) -> None:
            for layer, head, token in itertools.product(range(2), range(4), range(self.tokens[name])):
                part = self.caches[instance, 0][f"layers.{layer}"][blocks[token // BLOCK], head, token % BLOCK]
                assert bool((part == row(name, layer, head, token)).all()), (name, layer, head, token)

        return landed

    def engines(self) -> list[FakeEngine]:
        return [self.prefill, *self.decodes.values()]

    def turn(self) -> None:
        self.prefill.step(self.compute)
        for decode in self.decodes.values():
            decode.step()

    def close(self) -> None:
        for engine in self.engines():
            engine.close()

    def explain(self) -> list[str]:
        """Tell what a rank says of its rooms and links."""
        found = []
        for engine in self.engines():
            inner = engine.workers[0].worker
            found += [inner.endpoint.explain(room) for room in inner._requests] + inner.endpoint.links()
        return found

    def prefilled(self, tokens: int) -> tuple[str, dict[str, Any]]:
        """A request that the prefill instance has computed, and what it answers."""
        name = next(NAMES)
        self.tokens[name] = tokens
        self.prefill.add(name, tokens, {"do_remote_decode": True})
        self.until(lambda: name in self.prefill.answers)
        params = self.prefill.answers[name]
        assert params is not None
        return name, json.loads(json.dumps(params))

    def over(self, instance: str, name: str) -> bool:
        """Whether the request has come to run at that instance."""
        return name in self.decodes[instance].resumed


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """One machine's memory for a transport."""
    fabric = Fabric(auto=True)
    monkeypatch.setattr(connector, "check", lambda: None)
    monkeypatch.setattr(ranks, "NixlTransport", lambda: MemoryTransport(fabric))


@pytest.fixture
def fleet(memory: None) -> Iterator[Fleet]:
    """Three decode instances with nothing but vLLM's defaults."""
    made = Fleet(DRAWN)
    yield made
    made.close()


def test_every_request_reaches_whichever_default_instance_the_router_takes(fleet: Fleet) -> None:
    sent = []
    for number, instance in enumerate(DRAWN * 4):
        name, params = fleet.prefilled(3 * BLOCK + number)
        fleet.decodes[instance].add(name, fleet.tokens[name], params)
        sent.append((instance, name))
    fleet.until(lambda: all(fleet.over(*each) for each in sent))
    assert [fleet.decodes[instance].resumed[name] for instance, name in sent] == [False] * len(sent)
    assert len({decode.workers[0].worker.endpoint._rank.group for decode in fleet.decodes.values()}) == len(DRAWN)


def test_a_second_instance_that_asks_for_a_request_computes_it_itself(fleet: Fleet) -> None:
    name, params = fleet.prefilled(4 * BLOCK)
    first, second, _ = DRAWN
    fleet.decodes[first].add(name, 4 * BLOCK, params)
    fleet.until(lambda: fleet.over(first, name))
    fleet.decodes[second].add(name, 4 * BLOCK, params)
    fleet.until(lambda: fleet.over(second, name))
    assert [fleet.decodes[each].resumed[name] for each in (first, second)] == [False, True]


def test_a_decode_group_that_the_router_names_is_the_only_one_that_has_the_room(fleet: Fleet) -> None:
    named, other, _ = DRAWN
    name, room = next(NAMES), 1 << 40
    fleet.tokens[name] = 2 * BLOCK
    params = {"do_remote_prefill": True, "room": room, "card": fleet.prefill.connector.card}
    for instance in (other, named):
        fleet.decodes[instance].add(name, 2 * BLOCK, params)
    fleet.prefill.add(name, 2 * BLOCK, {"do_remote_decode": True, "room": room, "decode_group": named})
    fleet.until(lambda: fleet.over(named, name) and fleet.over(other, name))
    assert [fleet.decodes[each].resumed[name] for each in (named, other)] == [False, True]


def test_two_live_instances_that_were_given_one_name_are_told_so_by_it(memory: None) -> None:
    fleet = Fleet(DRAWN[:2], group="everybody")
    try:
        for instance in DRAWN[:2]:
            name, params = fleet.prefilled(2 * BLOCK)
            fleet.decodes[instance].add(name, 2 * BLOCK, params)
            if instance == DRAWN[0]:
                fleet.until(lambda name=name: fleet.over(DRAWN[0], name))  # type: ignore[misc]
        refused = fleet.decodes[DRAWN[1]].workers[0].worker.endpoint
        said = f"decode rank 0 of group {group_of('everybody')} is connected already"
        fleet.until(lambda: any(said in each for each in refused.links()))
        assert "give each instance a group of its own" in refused.links()[0]
    finally:
        fleet.close()


@pytest.mark.parametrize(("extra", "named"), [({}, "abc_dp1"), ({"group": "mine"}, "mine_dp1")])
def test_a_data_parallel_rank_s_name_ends_as_vllm_ends_it(memory: None, extra: dict[str, Any], named: str) -> None:
    config = fake_vllm.config("kv_consumer", 1, extra, "abc_dp1")
    config.parallel_config.data_parallel_index = 1
    worker, _ = ranks.make_worker(config, fake_vllm.caches(1, BLOCKS))
    assert worker.endpoint._rank.group == group_of(named)
    worker.close()



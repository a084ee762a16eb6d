"""vLLM's hybrid models between two scripted instances: KV and state come into blocks of their own.

Of N tokens it is the state after N - 1.  The layers of all groups lie over the same bytes, as vLLM has them, and what
a rank holds is counted here by hand.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from support import fake_vllm
from support.fake_vllm import BLOCK, Request, Role
from support.vllm_pair import EXTRA, NAMES, Shape, VllmPair, on_a_fabric, row_of_bytes

from kvproto.adapters.geometry import GeometryError, Shards
from kvproto.adapters.vllm import connector, states
from kvproto.errors import ArgumentError
from kvproto.io.kernels.pool import KernelError

BLOCKS, TAPS = 40, 3
#: attention's layers, and those of two groups with state; all lie over each other in two regions
FULL, STATES = (2, 5), ((0, 3), (1, 4))
#: heads of q and k, of v, of attention; channels of a head, and bytes of a token's row
KEYS, VALUES, HEADS, WIDE, ROW = 2, 4, 4, 4, 64
#: layers of each stage, by their number: of two, the last has no layer of the first group with state
CUTS = {1: (range(6),), 2: (range(4), range(4, 6))}


class FullAttentionSpec(SimpleNamespace): ...


class MambaSpec(SimpleNamespace): ...


def kinds(tp: int, *, first: bool, held: range = range(9), **other: Any) -> Any:
    """vLLM's KVCacheConfig; `first`: a convolution's channels come before its taps."""
    channels = (2 * KEYS + VALUES) * WIDE // tp
    spec = {
        "shapes": ((channels, TAPS) if first else (TAPS, channels), (VALUES // tp, WIDE, WIDE)),
        "dtypes": (torch.bfloat16, torch.float32), "mamba_type": "GDN_ATTN", "mamba_cache_mode": "none",
    } | other  # fmt: skip
    groups = [(FULL, FullAttentionSpec()), *((layers, MambaSpec(**spec)) for layers in STATES)]
    groups[0], groups[1] = groups[1], groups[0]
    return SimpleNamespace(kv_cache_groups=[
        SimpleNamespace(layer_names=[f"layers.{layer}.of" for layer in layers if layer in held], kv_cache_spec=spec)
        for layers, spec in groups
    ])  # fmt: skip


def memory(tp: int, held: range = range(9)) -> dict[str, torch.Tensor]:
    """A worker's cache: one buffer of two regions, in which the layers of all groups that it has lie."""
    page = HEADS // tp * BLOCK * ROW
    buffer = torch.randint(0, 256, (2, BLOCKS, page), dtype=torch.uint8)
    state = ((2 * KEYS + VALUES) * WIDE * TAPS * 2 + VALUES * WIDE * WIDE * 4) // tp
    found = {f"layers.{layer}.of": buffer[at].view(BLOCKS, HEADS // tp, BLOCK, ROW) for at, layer in enumerate(FULL)}
    for layers in STATES:
        for at, layer in enumerate(layers):
            found[f"layers.{layer}.of"] = buffer[at, :, :state].view(torch.int8).view(BLOCKS, 1, 1, state)
    return {name: tensor for name, tensor in found.items() if int(name.split(".")[1]) in held}


def state_of(name: str, layer: int, tokens: int) -> tuple[torch.Tensor, torch.Tensor]:
    """A request's whole state after so many tokens: [q k v, channel, byte] by heads, and [head, byte]."""
    bits = torch.Generator().manual_seed(hash((name, layer, tokens)) % (1 << 40))
    conv = torch.randint(0, 256, (2 * KEYS + VALUES, WIDE, TAPS, 2), dtype=torch.uint8, generator=bits)
    return conv, torch.randint(0, 256, (VALUES, WIDE * WIDE * 4), dtype=torch.uint8, generator=bits)


def held_state(name: str, layer: int, tokens: int, tp: int, rank: int, *, first: bool) -> torch.Tensor:
    """The bytes of it in a rank's block."""
    conv, matrix = state_of(name, layer, tokens)
    per_k, per_v = KEYS // tp, VALUES // tp
    heads = [begin + rank * count + at for begin, count in ((0, per_k), (KEYS, per_k), (2 * KEYS, per_v))
             for at in range(count)]  # fmt: skip
    mine = conv[heads].reshape(-1, TAPS, 2)
    mine = mine if first else mine.transpose(0, 1)
    return torch.cat([mine.flatten(), matrix[rank * per_v : (rank + 1) * per_v].flatten()])


class Hybrids(VllmPair):
    """A prefill and a decode instance of a hybrid model, and a router."""

    blocks, layers, scripted, patience = BLOCKS, 6, {"states": len(STATES)}, 30.0

    def __init__(self, prefill: Shape, decode: Shape, *, first: bool) -> None:
        fake_vllm.CHANNELS_FIRST[0] = self.first = first
        super().__init__(prefill, decode)

    def kinds(self, tp: int, stage: int, stages: int) -> Any:
        return kinds(tp, first=self.first, held=CUTS[stages][stage])

    def memory(self, tp: int, stage: int, stages: int) -> dict[str, torch.Tensor]:
        return memory(tp, CUTS[stages][stage])

    def rows(self, role: str, stage: int, span: range, blocks: list[int]) -> Iterator[Any]:
        """Yield (row, layer, head of the model, token) of a stage's ranks for these tokens."""
        tp, pp = self.cut[role]
        held = [layer for layer in FULL if layer in CUTS[pp][stage]]
        for place, layer, token, head in itertools.product(range(tp), held, span, range(HEADS // tp)):
            cache = self.caches[role, stage * tp + place][f"layers.{layer}.of"]
            yield cache[blocks[token // BLOCK], head, token % BLOCK], layer, place * HEADS // tp + head, token

    def states(self, role: str, stage: int, slots: list[int]) -> Iterator[Any]:
        """Yield (state in its block, layer, place) of a stage's ranks."""
        tp, pp = self.cut[role]
        for place, (slot, layers) in itertools.product(range(tp), list(zip(slots, STATES, strict=True))):
            for layer in (layer for layer in layers if layer in CUTS[pp][stage]):
                cache = self.caches[role, stage * tp + place][f"layers.{layer}.of"]
                yield cache.view(torch.uint8)[slot, 0, 0], layer, place

    def compute(self, name: str, first: int, upto: int, blocks: list[int]) -> None:
        """The forward of a stage: rows of KV, and the state after the last token of the step."""
        request, plain, stage = self.prefill.requests.get(name), name.split("/", maxsplit=1)[0], self.prefill.stage
        for part, *place in self.rows("kv_producer", stage, range(first, upto), blocks):
            part.copy_(row_of_bytes(plain, *place, size=ROW))
        if request is None or not request.slots:
            return
        tp = self.cut["kv_producer"][0]
        for part, layer, place in self.states("kv_producer", stage, request.slots):
            part.copy_(held_state(plain, layer, upto, tp, place, first=self.first))

    def landed(self, name: str, blocks: list[int]) -> None:
        """Every byte is what the prefill ranks had after all tokens but the last one."""
        request, plain, tp = self.decode.requests[name], name.split("/", maxsplit=1)[0], self.cut["kv_consumer"][0]
        tokens = request.num_prompt_tokens - 1
        for stage in range(self.decode.stages):
            for part, *place in self.rows("kv_consumer", stage, range(tokens), blocks):
                assert torch.equal(part, row_of_bytes(plain, *place, size=ROW)), place
            for part, layer, place in self.states("kv_consumer", stage, request.slots):
                assert torch.equal(part, held_state(plain, layer, tokens, tp, place, first=self.first)), layer

    def quiet(self) -> bool:
        return all(not engine.requests and len(engine.free) == BLOCKS for engine in (self.prefill, self.decode))


@pytest.fixture(scope="module", autouse=True)
def _fabric() -> Iterator[None]:
    with on_a_fabric(lambda stage, stages: (CUTS[stages][stage].start, CUTS[stages][stage].stop)):
        yield


SIDES = {"1 to 2": ((1, 1), (2, 1), False), "2 to 1, channels first": ((2, 1), (1, 1), True),
         "2 stages to 2": ((1, 2), (2, 1), True), "1 to 2 stages": ((1, 1), (1, 2), False)}  # fmt: skip


@pytest.fixture(scope="module", params=SIDES.values(), ids=list(SIDES))
def hybrids(request: Any) -> Iterator[Hybrids]:
    prefill, decode, first = request.param
    made = Hybrids(prefill, decode, first=first)
    yield made
    made.close()


@pytest.mark.parametrize("tokens", [2, BLOCK, BLOCK + 1, 2 * BLOCK + 1, 37])
def test_kv_and_state_after_all_tokens_but_the_last_are_carried(hybrids: Hybrids, tokens: int) -> None:
    hybrids.carried(hybrids.ask(tokens))
    hybrids.until(hybrids.quiet)


def test_several_requests_have_blocks_and_slots_of_their_own(hybrids: Hybrids) -> None:
    for name in [hybrids.ask(tokens) for tokens in (9, 14, 21)]:
        hybrids.carried(name)
    hybrids.until(hybrids.quiet)


def test_a_state_whose_blocks_are_taken_away_comes_from_others(hybrids: Hybrids) -> None:
    name = hybrids.ask(31)
    hybrids.prefill.step(hybrids.compute)
    before = hybrids.prefill.requests[f"{name}/P"].slots[:]
    hybrids.prefill.preempt(f"{name}/P")
    hybrids.prefill.step(hybrids.compute)
    assert hybrids.prefill.requests[f"{name}/P"].slots != before
    hybrids.carried(name)
    hybrids.until(hybrids.quiet)


@pytest.mark.parametrize("side", "PD")
def test_a_request_that_is_given_up_gives_its_slots_back(hybrids: Hybrids, side: str) -> None:
    name = hybrids.ask(30)
    hybrids.prefill.step(hybrids.compute)
    hybrids.decode.step()
    (hybrids.prefill if side == "P" else hybrids.decode).abort(f"{name}/{side}")
    hybrids.until(hybrids.quiet)


def test_a_prompt_of_one_token_is_computed_where_it_is_decoded(hybrids: Hybrids) -> None:
    name = hybrids.ask(1)
    hybrids.until(hybrids.quiet)
    assert f"{name}/D" not in hybrids.decode.resumed and hybrids.prefill.answers[f"{name}/P"] is None


def test_a_prompt_of_which_nothing_is_loaded_is_told_to_the_prefill_instance(
    hybrids: Hybrids, caplog: pytest.LogCaptureFixture
) -> None:
    """A request that does not read the prefix cache gets blocks for what it computes itself."""
    decode = hybrids.decode.connector
    load, decode.get_num_new_matched_tokens = decode.get_num_new_matched_tokens, lambda *_: (0, False)
    try:
        name = hybrids.ask(20)
        hybrids.until(hybrids.quiet)
        assert f"{name}/D" not in hybrids.decode.resumed and "Skip" not in caplog.text
    finally:
        decode.get_num_new_matched_tokens = load


def test_the_prefill_instance_stops_before_the_last_token_and_samples_once(hybrids: Hybrids) -> None:
    request = Request(next(NAMES), 9, {"do_remote_decode": True})
    hybrids.prefill.connector.on_new_request(request)
    assert (request.num_prompt_tokens, request.prompt_token_ids, request.max_tokens) == (8, [*range(8)], 1)
    assert request._all_token_ids == request.prompt_token_ids
    plain = Request(next(NAMES), 9, None)
    hybrids.prefill.connector.on_new_request(plain)
    assert (plain.num_prompt_tokens, plain.max_tokens) == (9, 16)
    request.status = fake_vllm.Status.FINISHED_ABORTED
    hybrids.prefill.connector.request_finished_all_groups(request, ([], [], []))


def test_a_prompt_of_embeddings_is_not_carried(hybrids: Hybrids, caplog: pytest.LogCaptureFixture) -> None:
    request: Any = Request(next(NAMES), 9, {"do_remote_decode": True})
    request.prompt_token_ids = None
    hybrids.prefill.connector.on_new_request(request)
    assert request.num_prompt_tokens == 9 and "its last token cannot be left out" in caplog.text


def test_vllm_zeroes_no_block_that_a_load_comes_into(hybrids: Hybrids) -> None:
    assert hybrids.decode.connector.get_loaded_kv_cache_group_ids(None) == (0, 1, 2)


def geometry(tp: int = 1, tensors: dict[str, torch.Tensor] | None = None, **other: Any) -> Any:
    given = memory(tp) if tensors is None else tensors
    return states.geometry_of_states(
        given, kinds(tp, first=fake_vllm.CHANNELS_FIRST[0], **other), Shards(HEADS, 0, tp), dtype="uint8",
        opaque="vllm-cpu",
    )  # fmt: skip


def test_the_two_orders_of_a_convolution_are_refused_by_name() -> None:
    layouts = []
    for fake_vllm.CHANNELS_FIRST[0] in (False, True):
        layouts.append(geometry().layout)
    taps, channels = ({part.name for part in layout.named[1].parts} for layout in layouts)
    assert taps == {f"{name}{tap}" for name in "qkv" for tap in range(TAPS)} | {"ssm"}
    assert channels == {"q", "k", "v", "ssm"}
    assert layouts[0].named[0].dtype == f"uint8/vllm-cpu{BLOCK}"


def test_a_model_may_have_one_layer_of_each_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "FULL", (1,))
    monkeypatch.setitem(globals(), "STATES", ((0,),))
    layout = geometry().layout
    assert layout.layers == 2 and [cache.layers for cache in layout.named] == [(1,), (0,)]
    monkeypatch.setitem(globals(), "FULL", (2, 5))
    monkeypatch.setitem(globals(), "STATES", ((0, 3), (1, 6)))
    assert geometry().layout.layers == 7


@pytest.mark.parametrize("pp", [1, 2])
def test_layers_are_those_of_the_caches_and_blocks_are_divided_where_they_may_be(
    monkeypatch: pytest.MonkeyPatch, pp: int
) -> None:
    fake_vllm.CHANNELS_FIRST[0] = True
    monkeypatch.setattr(states, "named_pool", lambda *_: None)
    made = states.geometry_of_states(memory(1), kinds(1, first=True), Shards(HEADS, 7, 1, pp), dtype="uint8", opaque="")
    assert (made.layout.layers, made.layout.page_size, made.unit) == (6, BLOCK, 1)


def test_a_layer_that_is_in_no_group_is_refused_by_name() -> None:
    tensors = memory(1) | {"layers.7.of": torch.zeros(BLOCKS, 1, 1, 8)}
    with pytest.raises(GeometryError, match=re.escape("tensors layers.7.of are in no group of vLLM's cache")):
        geometry(tensors=tensors)


def test_a_convolution_that_is_no_q_k_and_v_is_refused() -> None:
    fake_vllm.CHANNELS_FIRST[0] = True
    for channels in (33, VALUES * WIDE, 2 * WIDE):
        with pytest.raises(GeometryError, match=f"{channels} channels of a convolution beside 4 heads: no q, k and v"):
            geometry(shapes=((channels, TAPS), (VALUES, WIDE, WIDE)))


@pytest.mark.parametrize(("other", "why"), [
    ({"mamba_type": "MAMBA2"}, "recurrent states other than gated delta nets (Mamba, KDA, linear attention)"),
    ({"mamba_cache_mode": "align"}, "prefix hits of a recurrent state"),
    ({"num_speculative_blocks": 2}, "a draft that needs tokens, states or an instance beyond its own KV"),
])  # fmt: skip
@pytest.mark.parametrize("role", list(Role))
def test_another_state_is_refused_by_our_own_sentence(other: dict[str, Any], why: str, role: Role) -> None:
    made = fake_vllm.config("kv_producer", 1, EXTRA, "one")
    with pytest.raises(ArgumentError, match=f"^kvproto does not carry {re.escape(why)}"):
        connector.KVProtoConnector(made, role, kinds(1, first=True, **other))


def test_states_of_unlike_layers_and_a_pool_that_cannot_be_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def state(channels: int) -> Any:
        spec = SimpleNamespace(shapes=((TAPS, channels), (4, 16, 4)), dtypes=(torch.bfloat16, torch.float32))
        return states._Layer(0, 0, "one", spec)

    fake_vllm.CHANNELS_FIRST[0] = False
    (q, k, v) = states._recurrence_of([state(2 * 3 * 4 + 4 * 16)], 2).segments
    assert [(each.name, each.units, each.channels) for each in (q, k, v)] == [("q", 6, 4), ("k", 6, 4), ("v", 8, 16)]
    with pytest.raises(GeometryError, match="those of all layers must be alike"):
        states._recurrence_of([state(56), state(64)], 2)

    def refuse(*_: Any, **__: Any) -> None:
        raise KernelError("no such pool")

    monkeypatch.setattr("kvproto.adapters.geometry.CachePool", refuse)
    with pytest.raises(GeometryError, match="no-pool: no such pool"):
        geometry()

"""The parts of SGLang's backend, without SGLang: tables, signatures, pools, cards, options, plug-in."""

from __future__ import annotations

import enum
import http.client
import inspect
import json
import logging
import os
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import msgspec
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from kvproto.adapters.card import Card, data_parallel_group, group_of
from kvproto.adapters.recurrence import Recurrence, Segment
from kvproto.adapters.sglang import install, manager, planes, requests, tables
from kvproto.adapters.sglang.bootstrap import Cards, KVProtoBootstrapServer, announce
from kvproto.adapters.sglang.bootstrap_ranks import LIVES_S, Rank, TakenError
from kvproto.adapters.sglang.options import NAME, Options
from kvproto.adapters.sglang.pools import AuxRows, Instance, layout_of, pool_of
from kvproto.adapters.sglang.receiver import Receiver
from kvproto.adapters.sglang.recurrence import recurrence_of
from kvproto.adapters.sglang.sender import Sender
from kvproto.adapters.sglang.windows import Window, window_of
from kvproto.adapters.stage_caches import joined
from kvproto.errors import ArgumentError, LinkError
from kvproto.fsm.machine import Machine
from kvproto.fsm.table import Table
from kvproto.io.clock import ManualClock
from kvproto.io.kernels.pool import KernelError
from kvproto.layout.sharding import Layout
from kvproto.protocol.states import Cause
from kvproto.room import Caller, Outcome, Room
from kvproto.settings import DECODE_GROUP, Settings
from kvproto.verify.framework.lint import lint
from kvproto.verify.testing.pair import Pair

SIDES = [(tables.sender, tables.POLL), (tables.receiver, tables.POLL_RECEIVER)]


# --------------------------------------------------------------------------------------------- tables
@pytest.mark.parametrize("table", tables.TABLES, ids=lambda table: table.name)
def test_nothing_is_left_undecided(table: Table[Any]) -> None:
    assert lint(table, tables.Timing()) == []


def steps(table: Table[Any]) -> Iterator[tuple[Any, Any, Any, tuple[Any, ...]]]:
    """Every step that any order of calls leads to: value, event, new value, effects."""
    machine: Machine[Any] = Machine(table, tables.Timing())
    events = [
        tables.Made(), tables.Met(), tables.Started(2), tables.Scheduled(), tables.Given((1,), last=False),
        tables.Given((2,)), tables.GivenUp(), tables.Unmet(), tables.Ended(well=True), tables.Ended(well=False),
        tables.Released(), tables.TimerFired(),
    ]  # fmt: skip
    known, new = {machine.initial}, [machine.initial]
    while new:
        value = new.pop()
        for event in events:
            if type(event) not in table.events or (type(event) is tables.TimerFired and value.due == float("inf")):
                continue
            after, effects = machine.step(value, event, 0.0)
            yield value, event, after, effects
            after = msgspec.structs.replace(after, given=min(after.given, 2))
            if after not in known:
                known.add(after)
                new.append(after)


@pytest.mark.parametrize(("table", "poll"), SIDES, ids=["sender", "receiver"])
def test_in_every_order_of_calls_the_answers_are_what_sglang_relies_on(table: Table[Any], poll: dict[Any, int]) -> None:
    seen = set()
    for value, event, after, effects in steps(table):
        before, now = poll[value.state], poll[after.state]
        seen.add(after.state)
        assert now >= before or now == 0, f"{value} {event} goes back"
        assert before not in {0, 4} or now == before, f"{value} {event}: an end is an end"
        opened = value.state.name in {"OPEN", "SENT"}
        if table is tables.sender and now in {0, 4} and now != before and value.state.name in {"LANDED", "STOPPED"}:
            assert type(event) is tables.Released, "the pages are SGLang's again only when they are read no more"
        assert not (table is tables.sender and opened and now in {0, 4}), "an open room ends by its release"
        told = {type(effect) for effect in effects} & {tables.Refuse, tables.Decline, tables.Abort}
        if (
            type(event) is tables.GivenUp
            and before not in {0, 4}
            and value.state.name not in {"LANDED", "STOPPED", "NEW"}
        ):
            assert told or value.state is tables.R.AWAIT_LINKS, f"{value}: nobody is told that it is given up"
    assert seen == set(table.states)


# ----------------------------------------------------------------------------------------- signatures
RECORDED: dict[str, dict[str, str]] = json.loads(install.RECORDED.read_text())
OURS = {"BaseKVManager": manager.Manager, "BaseKVSender": Sender, "BaseKVReceiver": Receiver,
        "BaseKVBootstrapServer": KVProtoBootstrapServer}  # fmt: skip


def test_every_version_that_is_declared_was_recorded() -> None:
    names = {f"{module}.{name}" for module, group in install.USED.items() for name in group}
    assert set(RECORDED) == set(install.VERSIONS)
    assert all(set(found) == names and "missing" not in found.values() for found in RECORDED.values())


@pytest.mark.parametrize("name", [name for name in RECORDED["0.5.23"] if ".BaseKV" in name])
def test_ours_can_be_called_as_sglang_declares_it(name: str) -> None:
    _, base, method = name.rsplit(".", 2)
    names = RECORDED["0.5.23"][name].split(", ")
    ours = inspect.signature(getattr(OURS[base], method))
    ours.bind(*names)
    ours.bind("self", **dict.fromkeys(names[1:]))


def test_another_sglang_is_refused_with_what_to_install() -> None:
    good = RECORDED["0.5.23"]
    assert install.differing("0.5.23", good) == ""
    assert "sglang==0.5.23" in install.differing("0.5.24", good)
    name = "sglang.srt.disaggregation.base.conn.BaseKVSender.send"
    changed = install.differing("0.5.23", good | {name: "self, everything"})
    assert name in changed and "everything" in changed and "pip install" in changed
    assert "missing" in install.differing("0.5.23", {k: v for k, v in good.items() if k != name})


# ---------------------------------------------------------------------------------------------- pools
def args_of(pools: list[torch.Tensor], **other: Any) -> Any:
    known = {
        "kv_data_ptrs": [p.data_ptr() for p in pools], "kv_data_lens": [p.nbytes for p in pools], "page_size": 4,
        "kv_item_lens": [p[0].nbytes for p in pools], "state_types": [], "kv_cache_dtype_str": "bfloat16",
        "num_draft_entries": 0,
    }  # fmt: skip
    return SimpleNamespace(**known | other)


def test_a_pool_is_a_view_of_sglangs_memory() -> None:
    pools = [torch.zeros((5, 4, 2, dim), dtype=torch.bfloat16) for dim in (6, 6, 4, 4)]
    args, instance = args_of(pools), Instance("one", tp=2, rank=1, heads=4)
    layout = layout_of(args, instance, mla=False)
    assert (layout.layers, layout.heads, layout.k_dim, layout.v_dim, layout.tp) == (2, 4, 12, 8, 2)
    pool = pool_of(args, layout, instance, mla=False)
    pool.v[1][3, 2, 1, :2] = torch.tensor([0x80, 0x3F], dtype=torch.uint8)
    assert pools[3][3, 2, 1, 0] == 1.0


@pytest.mark.parametrize(
    ("other", "what"),
    [
        ({"state_types": [SimpleNamespace(value="mamba")]}, "model.unknown_recurrence=True"),
        ({"state_types": [SimpleNamespace(value="swa")]}, "model.unknown_window=True"),
        ({"state_types": [SimpleNamespace(value="swa")], "num_draft_entries": 2}, "model.window_and_draft=True"),
        ({"state_types": [SimpleNamespace(value="swa")] * 2}, "model.window_and_draft=True"),
        ({"state_types": [SimpleNamespace(value=each) for each in ("mamba", "swa")]}, "model.state_and_window=True"),
        ({"num_draft_entries": 2, "stages": (3, 1)}, "a draft beside pipeline stages (model.stages_and_draft=True)"),
        ({"stages": (3, 1)}, "tensors of 2 layers on stage 0 of (3, 1) layers"),
        ({"state_types": [SimpleNamespace(value="dsa")], "stages": (3, 1), "state_data_ptrs": [[]],
          "state_data_lens": [[]], "state_item_lens": [[]]}, "2 layers that attend fully, where the model has 3"),
        ({"state_types": [SimpleNamespace(value="dsa")], "stages": (2, 2), "kv_data_ptrs": [], "kv_data_lens": [],
          "kv_item_lens": [], "state_data_ptrs": [[]], "state_data_lens": [[]], "state_item_lens": [[]]},
         "stage 0 has no layer that attends fully, so nothing says how many tokens"),
        ({"swa_kv_cache_layout": "hnd"}, "rows that are rearranged inside a page"),
        ({"num_draft_entries": 1}, "3 tensors of a model and 1 of its draft"),
        ({"num_draft_entries": 2, "kv_item_lens": [96, 96, 48, 48]}, "rows of draft that are unlike the model's"),
        ({"state_types": [SimpleNamespace(value="dsa")], "state_data_ptrs": [[64]], "state_data_lens": [[1024]],
          "state_item_lens": [[512]]}, "an index of 512 bytes in a page of 4 tokens"),
        ({"num_draft_entries": 2, "kv_item_lens": [100] * 4}, "not whole heads"),
        ({"kv_item_lens": [96, 96, 96, 48]}, "not alike"),
        ({"kv_item_lens": [100, 100, 96, 96]}, "of another form"),
    ],
)
def test_what_cannot_be_carried_is_refused_by_name(other: dict[str, Any], what: str) -> None:
    pools, stages = [torch.zeros((5, 4, 2, 6), dtype=torch.bfloat16) for _ in range(4)], other.pop("stages", ())
    with pytest.raises(ArgumentError, match=re.escape(what)):
        layout_of(args_of(pools, **other), Instance("one", tp=3, rank=0, heads=21, stages=stages), mla=False)


def test_a_pipeline_stage_has_a_pool_of_its_own_layers_in_the_layout_of_the_model() -> None:
    pools = [torch.zeros((5, 4, 2, 6), dtype=torch.bfloat16) for _ in range(4)]
    args, instance = args_of(pools), Instance("one", tp=2, rank=3, heads=4, stages=(3, 2))
    layout = layout_of(args, instance, mla=False)
    assert (layout.layers, layout.tp, layout.pp, layout.stages) == (5, 2, 2, (3, 2))
    assert layout.layers_of(instance.rank) == (3, 2)
    pool = pool_of(args, layout, instance, mla=False)
    assert (len(pool.k), len(pool.v)) == (2, 2)
    assert [each.data_ptr() for each in (*pool.k, *pool.v)] == args.kv_data_ptrs


def test_latents_and_an_index_of_a_stage_have_the_numbers_of_its_layers() -> None:
    pools, index = [torch.zeros((5, 4, 1, 6), dtype=torch.uint8) for _ in range(2)], torch.zeros((5, 528))
    state = {"state_data_ptrs": [[index.data_ptr(), 0]], "state_data_lens": [[2640, 0]], "state_item_lens": [[528, 0]]}
    args = args_of(pools, state_types=[SimpleNamespace(value="dsa")], **state)
    instance = Instance("one", tp=1, rank=1, heads=1, stages=(1, 2))

    def join(mine: Any) -> Any:
        return joined([[replace(cache, layers=(0,)) for cache in mine if cache.name == "mla"], mine])

    layout = layout_of(args, instance, mla=True, join=join)
    assert {cache.name: cache.layers for cache in layout.named} == {"mla": (), "index": (1,)}
    pool = pool_of(args, layout, instance, mla=True)
    held = {kind.name: len(views) for kind, views in zip(layout.kinds, pool.kinds, strict=True)}
    assert held == {"mla.latent": 2, "index.key": 1, "index.scale": 1}


def test_what_an_instance_says_of_itself_is_refused_with_a_remedy() -> None:
    pools = [torch.zeros((5, 4, 2, 6), dtype=torch.bfloat16) for _ in range(4)]
    instance = Instance("one", 1, 0, 2, foreign=("stages: serve without",))
    states = [SimpleNamespace(value="mamba")]
    with pytest.raises(ArgumentError, match=r"does not carry stages: serve without; recurrent .*: serve a model"):
        layout_of(args_of(pools, state_types=states), instance, mla=False)


def configured(kind: str, tp: int, **fields: Any) -> Any:
    """Make a configuration with the fields that `Mamba2StateShape` and Kimi's have."""
    shape = {"num_heads": 32, "conv_kernel": 4, "conv_shard_groups": None, "num_k_heads_per_tp": 16 // tp}
    own = {name: fields.pop(name) for name in list(fields) if name not in ("n_groups", "mamba_n_groups")}
    dtypes = SimpleNamespace(conv=torch.bfloat16, temporal=torch.float32)
    params = SimpleNamespace(shape=SimpleNamespace(**shape | own), dtype=dtypes)
    return type(kind, (), {"mamba2_cache_params": params, **fields})()


@pytest.mark.parametrize("tp", [1, 2, 8])
def test_the_state_of_a_model_is_cut_as_its_configuration_says(tp: int) -> None:
    nets = recurrence_of(configured("Qwen3NextConfig", tp, conv_shard_groups=[2048, 2048, 4096]), tp)
    found = [Segment("q", 16, 128), Segment("k", 16, 128), Segment("v", 32, 128)]
    assert nets == Recurrence(tuple(found), 3, 32, "bfloat16, float32")
    sizes = {"intermediate_size": 4096, "ssm_state_size": 128}
    for kind, field, groups in (("NemotronHConfig", "n_groups", 8), ("FalconH1Config", "mamba_n_groups", 1),
                                ("GraniteMoeHybridConfig", "mamba_n_groups", 8)):  # fmt: skip
        mamba2 = recurrence_of(configured(kind, tp, **sizes, **{field: groups}), tp)
        found = [Segment("x", 32, 128), Segment("B", groups, 128), Segment("C", groups, 128)]
        assert mamba2 == Recurrence(tuple(found), 3, 32, "bfloat16, float32")
    other = {"conv_slice_axis": 1, "num_k_heads_per_tp": 32 // tp}
    kimi = configured("KimiLinearConfig", tp, conv_shard_groups=[4096] * 3, **other)
    found = [Segment(name, 32, 128) for name in "qkv"]
    assert recurrence_of(kimi, tp) == Recurrence(tuple(found), 3, 32, "bfloat16, float32", taps_first=True)


def test_the_state_of_a_model_that_is_not_known_is_not_guessed() -> None:
    """Some models with q, k and v say nothing of their segments: they would be taken for x, B and C."""
    sizes = {"intermediate_size": 4096, "ssm_state_size": 128, "n_groups": 8}
    assert recurrence_of(configured("JetNemotronConfig", 1, **sizes), 1) is None
    assert recurrence_of(configured("Qwen3NextConfig", 1, conv_shard_groups=[2048, 2048, 4001]), 1) is None


@pytest.mark.parametrize(("form", "what"), [
    ({"state_item_lens": [[97]]}, r"97 bytes a slot, 16 of its channels or heads here \(mamba 0\)"),
    ({"state_dim_per_tensor": [[0]]}, r"96 bytes a slot, 0 of its channels or heads here"),
])  # fmt: skip
def test_state_of_another_form_than_the_model_says_is_refused_by_name(form: dict[str, Any], what: str) -> None:
    pools, slots = [torch.zeros((5, 4, 2, 6), dtype=torch.bfloat16) for _ in range(2)], torch.zeros((7, 16, 3))
    known = {
        "state_types": [SimpleNamespace(value="mamba")], "state_data_ptrs": [[slots.data_ptr()]],
        "state_data_lens": [[7 * 96]], "state_item_lens": [[96]], "state_dim_per_tensor": [[16]],
        "state_layer_ids": [[0]], "kv_layer_ids": [1, 1],
    }  # fmt: skip
    of = Recurrence((Segment("q", 2, 4), Segment("k", 2, 4), Segment("v", 2, 8)), 3, 4, "bfloat16")
    instance = Instance("one", tp=2, rank=0, heads=4, recurrence=of)
    assert [kind.name for kind in layout_of(args_of(pools, **known), instance, mla=False).kinds] == ["kv.k", "kv.v"]
    with pytest.raises(ArgumentError, match=what):
        layout_of(args_of(pools, **known | form), instance, mla=False)


def windowed(**fields: Any) -> Any:
    """Make a model's configuration as SGLang has resolved it."""
    known = {
        "is_hybrid_swa": True, "swa_attention_layer_ids": [0, 2], "full_attention_layer_ids": [1, 3],
        "sliding_window_size": 128, "attention_chunk_size": None, "get_swa_num_kv_heads": lambda tp: 8 // tp,
    }  # fmt: skip
    return SimpleNamespace(**known | fields)


def test_the_window_of_a_model_is_as_its_configuration_says() -> None:
    assert window_of(windowed(), mla=False) == Window(128, (0, 2), (1, 3), 8)
    assert window_of(windowed(), mla=True) == Window(128, (0, 2), (1, 3), 1)
    others: list[dict[str, Any]] = [
        {"is_hybrid_swa": False}, {"swa_attention_layer_ids": None}, {"full_attention_layer_ids": []},
        {"sliding_window_size": None}, {"attention_chunk_size": 8192},
    ]  # fmt: skip
    for other in others:
        assert window_of(windowed(**other), mla=False) is None


@given(st.integers(1, 400), st.integers(2, 150), st.booleans(), st.sampled_from([1, 8, 16, 64]), st.integers(0, 400),
       st.sampled_from([1, 16, 64]))  # fmt: skip
def test_every_page_that_sglang_names_has_its_place_in_the_rooms_window(
    prompt: int, window: int, inclusive: bool, page: int, before: int, theirs: int
) -> None:
    """The list has as many pages as the endpoint asks for, and SGLang's own where their tokens are."""
    known, prefix = Window(window, (0,), (1,), 8), min(before, prompt - 1) // page * page
    first = max(prefix, prompt - window + inclusive) // page
    named = list(range(first + 1, -(-prompt // page) + 1))  # page n has number n + 1
    tokens = requests.padded(prompt, page, theirs)
    end = requests.padded(prompt, page)
    found = known.pages(named, prefix, end, tokens, page)
    begin = max(0, tokens - known.span(page)) // page
    assert len(found) == -(-tokens // page) - begin
    assert [number for number in found if number] == named
    assert all(number in (0, begin + at + 1) for at, number in enumerate(found))
    with pytest.raises(ArgumentError, match=f"SGLang names {len(named) + 9999} pages of"):
        known.pages([1] * (len(named) + 9999), prefix, end, tokens, page)
    if prefix < prompt - window:
        with pytest.raises(ArgumentError, match="SGLang names 0 pages"):
            known.pages([], prefix, end, tokens, page)


@pytest.mark.parametrize(("form", "what"), [
    ({"state_data_ptrs": [[64] * 3], "state_data_lens": [[960] * 3], "state_item_lens": [[192] * 3]},
     "3 tensors of a window, which 2 layers have"),
    ({"state_item_lens": [[193] * 4]}, "a window of 193 bytes in a page of 4 tokens"),
    ({"state_item_lens": [[192, 192, 192, 96]]}, "layers of window.v that are not alike"),
    ({"kv_data_ptrs": [64] * 2, "kv_data_lens": [960] * 2, "kv_item_lens": [192] * 2},
     "1 layers that attend fully, where the model has 2"),
])  # fmt: skip
def test_windows_of_another_form_than_the_model_says_are_refused_by_name(form: dict[str, Any], what: str) -> None:
    pools = [torch.zeros((5, 4, 4, 6), dtype=torch.bfloat16) for _ in range(8)]
    known = {
        "state_types": [SimpleNamespace(value="swa")], "state_data_ptrs": [[p.data_ptr() for p in pools[4:]]],
        "state_data_lens": [[960] * 4], "state_item_lens": [[192] * 4], "swa_kv_cache_layout": "nhd",
    }  # fmt: skip
    instance = Instance("one", tp=2, rank=0, heads=4, window=Window(128, (0, 2), (1, 3), 8))
    layout = layout_of(args_of(pools[:4], **known), instance, mla=False)
    assert (layout.layers, [cache.window for cache in layout.named]) == (4, [0, 128 + 63])
    with pytest.raises(ArgumentError, match=what):
        layout_of(args_of(pools[:4], **known | form), instance, mla=False)


def test_a_tensor_of_sglang_in_no_cache_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    pools, index = [torch.zeros((5, 4, 1, 6), dtype=torch.uint8) for _ in range(3)], torch.zeros((5, 528))
    state = {"state_data_ptrs": [[index.data_ptr()]], "state_data_lens": [[2640]], "state_item_lens": [[528]]}
    args = args_of(pools, state_types=[SimpleNamespace(value="dsa")], **state)
    instance = Instance("one", tp=1, rank=0, heads=1)
    assert len(pool_of(args, layout_of(args, instance, mla=True), instance, mla=True).kinds) == 3
    every = planes.planes_of
    monkeypatch.setattr(planes, "planes_of", lambda *a, **b: (each for each in every(*a, **b) if each.cache == "mla"))
    with pytest.raises(KernelError, match="'dsa 0' is in no cache"):
        pool_of(args, layout_of(args, instance, mla=True), instance, mla=True)


def test_metadata_travels_as_one_row() -> None:
    here, there = ([torch.zeros((3, size), dtype=torch.uint8) for size in (8, 24)] for _ in range(2))
    rows = [AuxRows(SimpleNamespace(aux_data_ptrs=[b.data_ptr() for b in buffers], aux_item_lens=[8, 24]), 64)
            for buffers in (here, there)]  # fmt: skip
    here[0][2], here[1][2] = 7, 9
    rows[1].write(1, rows[0].read(2))
    assert there[0][1].tolist() == [7] * 8 and there[1][1].tolist() == [9] * 24 and not there[0][[0, 2]].any()
    with pytest.raises(ArgumentError, match="the same model"):
        rows[1].write(1, b"short")
    with pytest.raises(ArgumentError, match="more than"):
        AuxRows(SimpleNamespace(aux_data_ptrs=[0], aux_item_lens=[65]), 64)


# ---------------------------------------------------------------------------------------------- cards
LAYOUT = Layout(layers=2, heads=4, k_dim=8, v_dim=8, itemsize=1, dtype="bf16", page_size=16, tp=2)


@pytest.fixture
def server() -> Iterator[KVProtoBootstrapServer]:
    made = KVProtoBootstrapServer("127.0.0.1", 0)
    yield made
    made.close()


def rank(index: int, incarnation: int = 1, chunk_tokens: int = 64) -> Rank:
    return Rank(index, f"tcp://127.0.0.1:{5000 + index + incarnation}", 77, incarnation, LAYOUT, chunk_tokens)


def found(cards: Cards, address: str, wanted: type) -> Any:
    end = time.monotonic() + 10.0
    while not isinstance(card := cards.get(address, again=True), wanted):
        assert time.monotonic() < end, card
        time.sleep(0.02)
    return card


def test_a_card_is_there_when_every_rank_has_announced_itself(server: KVProtoBootstrapServer) -> None:
    address, cards, log = f"127.0.0.1:{server.port}", Cards(), logging.getLogger("test.announce")
    announcers = [announce(address, rank(1), log)]
    assert "has not announced itself" in found(cards, address, str)
    announcers.append(announce(address, rank(0), log))
    card = found(cards, address, Card)
    assert card.addresses == ("tcp://127.0.0.1:5001", "tcp://127.0.0.1:5002") and card.group == 77
    for each in announcers:
        each.stop()
        each.join(10.0)
    server.ranks._known.clear()
    announcers = [announce(address, rank(index, incarnation=9), log) for index in (0, 1)]
    end = time.monotonic() + 10.0
    while found(cards, address, Card).incarnation != 9:
        assert time.monotonic() < end
        time.sleep(0.02)
    for each in announcers:
        each.stop()


def test_an_instance_with_other_options_replaces_the_one_before(server: KVProtoBootstrapServer) -> None:
    clock = ManualClock()
    server.ranks._clock = clock.now
    for each in (rank(0), rank(1)):
        server.ranks.put(msgspec.json.encode(each))
    with pytest.raises(TakenError, match="lives"):
        server.ranks.put(msgspec.json.encode(rank(0, 2, chunk_tokens=128)))
    clock.advance(LIVES_S)
    server.ranks.put(msgspec.json.encode(rank(0, 2, chunk_tokens=128)))
    assert server.ranks.card() is None
    server.ranks.put(msgspec.json.encode(rank(1, 2, chunk_tokens=128)))
    card = server.ranks.card()
    assert card is not None and card.chunk_tokens == 128


@pytest.mark.parametrize(
    "body", [b"", b"{", b'{"rank": 1}', b'{"more": ' + b"[" * 100_000, msgspec.json.encode(rank(2))]
)
def test_what_is_no_rank_is_refused(server: KVProtoBootstrapServer, body: bytes) -> None:
    line = http.client.HTTPConnection("127.0.0.1", server.port, timeout=5.0)
    line.request("PUT", "/rank", body)
    assert line.getresponse().status == 400
    assert server.ranks.card() is None


@pytest.mark.parametrize("address", ["127.0.0.1:9", "x" * 64 + ".com:80", "a..b:80", "127.0.0.1:none", "a b:80"])
def test_nobody_at_an_address_is_told_in_words(address: str) -> None:
    assert address in found(Cards(), address, str)


# ------------------------------------------------------------------------------- options, the plug-in
def test_options_are_json_and_their_mistakes_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(NAME, '{"chunk_tokens": 128, "ring_bytes": 4096}')
    read, default = Options.read(), Options().chunk_tokens_of
    assert read.chunk_tokens_of(16, 64) == 128 and read.settings(Settings().timing).ring_bytes == 4096
    assert default(16, 100) == 96 and default(16, -1) == 8192 and default(64, 16) == 64
    for wrong in ("{", '{"girth": 1}', '{"transport": "pigeon"}'):
        monkeypatch.setenv(NAME, wrong)
        with pytest.raises(ArgumentError, match="it is JSON with any of transport"):
            Options.read()


def test_an_option_s_former_name_is_taken_and_logged_and_refused_beside_the_new_one(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(NAME, '{"grid": 128}')
    with caplog.at_level(logging.WARNING):
        assert Options.read().chunk_tokens == 128
    assert [each.message for each in caplog.records] == [
        f"{NAME}: option grid is now called chunk_tokens; the old name will go"
    ]
    monkeypatch.setenv(NAME, '{"grid": 128, "chunk_tokens": 128}')
    with pytest.raises(ArgumentError, match="grid is the former name of chunk_tokens"):
        Options.read()


def test_digests_of_rooms_that_succeed_are_kept_by_rank_if_they_are_wanted(tmp_path: Path) -> None:
    kept = Options(digests=str(tmp_path))
    for room in (7, 8):
        moved = SimpleNamespace(digests=lambda asked: {(0, "k"): asked.id, (1, "v"): 5})
        kept.keep_digests(moved, Outcome(Room(room), Cause.NONE), "P1")
        kept.keep_digests(moved, Outcome(Room(room), Cause.STALLED), "D0")
        Options().keep_digests(moved, Outcome(Room(room), Cause.NONE), "D0")
    assert [file.name for file in tmp_path.iterdir()] == ["P1.jsonl"]
    lines = [json.loads(line) for line in (tmp_path / "P1.jsonl").read_text().splitlines()]
    assert lines == [{"room": room, "digests": [[0, "k", room], [1, "v", 5]]} for room in (7, 8)]


def test_a_manager_s_endpoint_has_the_options_and_sglang_s_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manager, "pool_of", lambda *_, **__: None)
    monkeypatch.setattr(manager, "DecodeEndpoint", lambda *_, **choices: choices)

    def made(data_parallel: int = 1, **options: Any) -> Any:
        mine = Instance("decode here:1", 2, 1, 4, bootstrap=5.0, waiting=6.0, data_parallel=data_parallel, dp_rank=1)
        of: Any = SimpleNamespace(
            instance=mine, options=Options(**options), layout=None, kv_args=None, prefill=False, make_transport=dict,
            mla=False,
        )  # fmt: skip
        return manager.Manager._make(of, 9)

    plain, named = made(), made(name="d", keys="a file", insecure=True, digests="a folder")
    told = [[each[name] for name in ("group", "keys", "insecure", "digests", "incarnation")] for each in (plain, named)]
    assert told == [[group_of("decode here:1"), None, False, False, 9], [group_of("d"), "a file", True, True, 9]]
    times = plain["settings"].timing
    assert (times.engine.period, times.bootstrap.period, times.stall.period) == (5.0, 5.0, 6.0)
    assert made(data_parallel=2)["group"] == data_parallel_group(group_of("decode here:1"), 1, 2)


class ReachedInstance:
    """A decode rank's manager whose links do as they are told, and the cards that it has called."""

    def __init__(self, card: Card) -> None:
        self.cards, self.card, self.up = self, card, list[Any]()
        self.called, self.calls = dict[Any, Card](), list[Card]()
        self.known, self.endpoint = SimpleNamespace(call=self.calls.append), self
        self.prefill_info_table = {"here:9": manager.Prefill(1, follow_bootstrap_room=True)}

    def try_ensure_parallel_info(self, _address: str) -> bool:
        return True

    def get(self, _address: str, dp_rank: int, *, again: bool) -> Card:
        assert dp_rank == 0
        assert again, "an instance that restarts listens elsewhere"
        return self.card

    def gone(self, _address: str, _dp_rank: int) -> str:
        return ""

    def leads_to(self, addresses: Any, _group: int) -> bool:
        return bool(self.calls) and addresses == self.calls[-1].addresses

    def ready(self, _group: int, _addresses: Any) -> bool:
        if isinstance(told := self.up.pop(0), Exception):
            raise told
        return bool(told)

    def reached(self) -> Card | None:
        return manager.Manager.reached(self, "here:9", 0)  # type: ignore[arg-type]


def test_an_instance_is_called_once_for_each_card_and_anew_after_its_link_was_refused() -> None:
    first = Card(77, 1, LAYOUT, 64, ("tcp://here:1", "tcp://here:2"))
    of = ReachedInstance(first)
    of.up = [False, True, True, LinkError("refused"), True]
    assert (of.reached(), of.reached()) == (None, first) and of.calls == [first]
    of.card = second = replace(first, incarnation=2)
    assert of.reached() == second and of.calls == [first, second], "it listens where it did, and has started anew"
    with pytest.raises(LinkError):
        of.reached()
    assert of.reached() == second and of.calls == [first, second, second]


def test_a_prefill_rank_is_announced_for_as_long_as_its_endpoint_is_open(monkeypatch: pytest.MonkeyPatch) -> None:
    told, endpoint = list[Any](), SimpleNamespace(address="tcp://here:1", closed=False)
    monkeypatch.setattr(manager, "pool_of", lambda *_, **__: None)
    monkeypatch.setattr(manager, "PrefillEndpoint", lambda *_, **__: endpoint)
    monkeypatch.setattr(manager, "announce", lambda *asked: told.append(asked))
    mine = Instance("prefill here", 2, 1, 4, host="here", bootstrap_server="here:9", chunk=32)
    of: Any = SimpleNamespace(
        instance=mine, options=Options(), layout=LAYOUT, kv_args=None, prefill=True, make_transport=dict, mla=False
    )
    manager.Manager._make(of, 9)
    server, rank, *_, lives = told[0]
    assert (server, rank) == ("here:9", Rank(1, "tcp://here:1", group_of("prefill here"), 9, LAYOUT, 32))
    assert lives()
    endpoint.closed = True
    assert not lives()


@pytest.mark.parametrize(("prefill", "seconds"), [(True, 5.0), (False, 6.0)])
def test_a_request_waits_for_the_other_side_as_long_as_sglang_says(prefill: bool, seconds: float) -> None:
    of: Any = SimpleNamespace(prefill=prefill, instance=SimpleNamespace(bootstrap=5.0, waiting=6.0))
    made: Any = manager.Manager.machine
    machine = made.func(of)
    due = machine.step(machine.initial, tables.Made(), 100.0)[0].due
    assert due == pytest.approx(100.0 + seconds, abs=0.1)


@pytest.mark.parametrize(
    ("prefill", "dp_rank", "file"), [(True, 0, "P1.jsonl"), (False, 0, "D1.jsonl"), (False, 1, "D3.jsonl")]
)
def test_a_manager_keeps_them_under_its_side_and_rank(tmp_path: Path, prefill: bool, dp_rank: int, file: str) -> None:
    ended: list[Outcome] = []
    outcome = Outcome(Room(7), Cause.NONE)
    made: Any = SimpleNamespace(
        endpoint=SimpleNamespace(finished=lambda: [outcome], released=list, digests=lambda _: {(0, "k"): 1}),
        options=Options(digests=str(tmp_path)), prefill=prefill,
        instance=Instance("one", tp=2, rank=1, heads=4, data_parallel=2, dp_rank=dp_rank),
        tasks={Room(7): SimpleNamespace(end=ended.append)},
    )  # fmt: skip
    manager.Manager.advance(made)
    assert ended == [outcome] and (tmp_path / file).read_text() == '{"room":7,"digests":[[0,"k",1]]}\n'


def test_the_plugin_makes_a_backend_of_this_name(monkeypatch: pytest.MonkeyPatch) -> None:
    class TransferBackend(enum.Enum):
        NIXL = "nixl"

    hooks: dict[str, Any] = {}
    choices: list[str] = []
    stand_ins: dict[str, dict[str, Any]] = {
        "sglang.srt.arg_groups.choices": {"add_disagg_transfer_backend_choices": choices.extend},
        "sglang.srt.disaggregation.utils": {"TransferBackend": TransferBackend},
        "sglang.srt.plugins.hook_registry": {
            "HookRegistry": SimpleNamespace(register=lambda target, hook, kind: hooks.update({target: (hook, kind)})),
            "HookType": SimpleNamespace(AROUND="around", BEFORE="before"),
        },
    }  # fmt: skip
    for name, members in stand_ins.items():
        module = ModuleType(name)
        vars(module).update(members)
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setenv(install.HELD, "")
    monkeypatch.delenv(install.HELD)
    install.plugin()
    install.plugin()
    assert os.environ[install.HELD] == install.FOR_EVER
    assert choices == ["kvproto"] and TransferBackend("kvproto").name == "KVPROTO"
    hook, kind = hooks["sglang.srt.disaggregation.utils.get_kv_class"]
    assert kind == "around"
    assert hook(lambda backend, kind: (backend, kind), TransferBackend.NIXL, "sender") == (
        TransferBackend.NIXL,
        "sender",
    )
    monkeypatch.setattr(install, "classes", lambda: {"manager": Card})
    assert hook(None, TransferBackend("kvproto"), SimpleNamespace(value="manager")) is Card


def test_sglang_itself_where_it_is_installed() -> None:
    pytest.importorskip("sglang", reason="no SGLang here: the engines' own environment has it")
    assert set(install.classes()) == {"manager", "sender", "receiver", "bootstrap_server", "kvargs"}


# ------------------------------------------------------------------------------ who waits for a room
def test_who_waits_for_a_room_is_named_when_all_of_it_does_and_when_it_has_given_up() -> None:
    prefill, decode = (msgspec.structs.replace(LAYOUT, tp=tp, page_size=page) for tp, page in ((1, 16), (2, 32)))
    with Pair(prefill, decode, chunk_tokens=64) as pair:
        (asked,), room = pair.prefills, Room(5)
        assert asked.caller(room) is None
        pair.decodes[0].open(room, 96, [1, 2, 3], prefix=32)
        pair.pump(lambda: asked.rooms().get("AWAIT_ENGINE") == [room])
        assert asked.caller(room) is None
        pair.decodes[1].open(room, 96, [1, 2, 3], prefix=32)
        pair.pump(lambda: asked.caller(room) is not None)
        assert asked.caller(room) == Caller(DECODE_GROUP, tokens=96, prefix=32, page_size=32)
        pair.decodes[0].abort(room)
        pair.pump(lambda: (caller := asked.caller(room)) is not None and caller.cause is Cause.DECODE_ABORTED)

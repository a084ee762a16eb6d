"""The rules of both engines' configurations: complete for each release, each refusal by its sentence.

No engine is needed: configurations are stand-ins with the recorded fields.
"""

from __future__ import annotations

import enum
import importlib
import json
import re
import sys
from dataclasses import MISSING, dataclass, field, make_dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import msgspec
import pytest
from support import fake_vllm

from examples.engine_runs import refusals as page
from examples.engine_runs.table import PAGE, placed
from kvproto.adapters import judging, rules
from kvproto.adapters.rules import (
    Lack,
    Rule,
    carried,
    fields_of,
    installed_fields,
    irrelevant,
    need_carried,
    refusals,
    refused,
)
from kvproto.adapters.sglang import install
from kvproto.adapters.sglang import rules as sglang
from kvproto.errors import ArgumentError

fake_vllm.install()

from kvproto.adapters.vllm import connector, versions
from kvproto.adapters.vllm import rules as vllm
from kvproto.adapters.vllm.ranks import data_parallel_suffix

TABLES = {"vllm": vllm, "sglang": sglang}
#: sections whose facts are no fields of the engine's classes
OWN = {"model", "checkpoint", "number", "environment", "draft"}


def recorded(engine: str) -> dict[str, list[str]]:
    """By release: its fields."""
    place = Path(rules.__file__).with_name(engine) / "fields.json"
    found: dict[str, list[str]] = json.loads(place.read_text())
    return found


def without_rule(engine: str, fields: list[str]) -> list[str]:
    return [name for name in fields if name not in TABLES[engine].RULES]


# -------------------------------------------------------------------------------------------- complete
@pytest.mark.parametrize("engine", TABLES)
def test_every_field_of_every_supported_release_has_a_rule_and_no_rule_is_left_over(engine: str) -> None:
    releases = recorded(engine)
    assert set(releases) == set({"vllm": versions.SUPPORTED, "sglang": install.VERSIONS}[engine])
    assert {name for fields in releases.values() for name in without_rule(engine, fields)} == set()
    known = {name for fields in releases.values() for name in fields}
    assert {name for name in TABLES[engine].RULES if name.split(".")[0] not in OWN} == known
    assert {name.split(".")[0] for name in known} == TABLES[engine].RECORDED.keys()


def test_a_field_that_a_release_adds_is_found() -> None:
    assert without_rule("vllm", [*recorded("vllm")["0.32"], "parallel.new"]) == ["parallel.new"]


@pytest.mark.parametrize("engine", TABLES)
def test_the_installed_engine_has_no_field_without_a_rule(engine: str) -> None:
    pytest.importorskip(next(iter(TABLES[engine].RECORDED.values())).split(":")[0], reason="not installed here")
    assert without_rule(engine, installed_fields(TABLES[engine].RECORDED)) == []


def test_a_rule_that_is_not_a_refusal_says_why() -> None:
    for table in TABLES.values():
        assert [name for name, rule in table.RULES.items() if not rule.lack and not rule.why] == []


# ------------------------------------------------------------------------------------------ the judging
EVERY = [(engine, name) for engine, table in TABLES.items() for name, rule in table.RULES.items() if rule.lack]


@pytest.mark.parametrize(("engine", "name"), EVERY)
def test_every_refusal_has_its_sentence_and_what_is_off_is_not_refused(engine: str, name: str) -> None:
    rule: Rule = TABLES[engine].RULES[name]
    section, one = name.split(".")
    assert rule.lack is not None
    said = refusals(TABLES[engine].RULES, section, SimpleNamespace(**{one: "on"}))
    assert said == [f"{rule.lack.what} ({name}=on): {rule.lack.remedy}"]
    for off in rule.off:
        assert refusals(TABLES[engine].RULES, section, SimpleNamespace(**{one: off})) == []


@dataclass
class Plain:
    tensor_parallel_size: int = 1
    new: int = 3
    made: list[int] = field(default_factory=list)
    derived: int = field(default=1, init=False)


class Struct(msgspec.Struct):
    tensor_parallel_size: int
    new: int = 3
    made: list[int] = []


def defaults_of(kind: type) -> dict[str, Any]:
    return {name: make() for name, make in fields_of(kind).items()}


class Annotated:
    tensor_parallel_size: int
    new: int = 3
    made = None


@pytest.mark.parametrize("kind", [Plain, Struct])
def test_a_field_without_a_rule_is_refused_by_its_name_if_it_is_set(kind: Any) -> None:
    assert refusals(vllm.RULES, "parallel", kind(tensor_parallel_size=2)) == []
    (said,) = refusals(vllm.RULES, "parallel", kind(tensor_parallel_size=2, new=4))
    assert said.startswith("parallel.new=4, which no rule of this kvproto mentions: leave it at its default, 3")
    assert defaults_of(kind)["made"] == []


def test_fields_of_a_class_with_annotations_alone_and_of_facts() -> None:
    assert defaults_of(Annotated) == {"tensor_parallel_size": None, "new": 3}
    assert defaults_of(Role) == {"sparse": False, "indexer": False}


def test_pydantics_own_description_of_a_field_is_not_its_default() -> None:
    pydantic = pytest.importorskip("pydantic")
    fields = [("a", int, pydantic.Field(default=3)), ("b", list, pydantic.Field(default_factory=list))]
    kind = pydantic.dataclasses.dataclass(make_dataclass("Kind", fields))
    assert defaults_of(kind) == {"a": 3, "b": []}


def test_no_default_is_made_for_a_field_that_has_a_rule() -> None:
    def fails() -> int:
        raise AssertionError("an engine's factory was called")

    kind = make_dataclass("Kind", [("tensor_parallel_size", int, field(default_factory=fails))])
    assert refusals(vllm.RULES, "parallel", kind(2)) == []


def test_the_names_of_an_installed_engine_are_those_of_its_classes() -> None:
    here = {"plain": f"{__name__}:Plain", "kind": f"{__name__}:Spec+"}
    assert installed_fields(here) == [
        "plain.tensor_parallel_size", "plain.new", "plain.made", "kind.FullAttentionSpec", "kind.MLAAttentionSpec",
        "kind.MambaSpec", "kind.SlidingWindowSpec", "kind.NewSpec",
    ]  # fmt: skip


def test_each_sentence_is_said_once() -> None:
    with pytest.raises(ArgumentError, match=r"^kvproto does not carry a: b; c: d$"):
        need_carried(["a: b", "c: d", "a: b"])
    need_carried([])


# --------------------------------------------------------------------------------------------- vLLM
class Mode(enum.IntEnum):
    NONE = 0
    FP8_PER_TENSOR = 1
    INT8_PER_TOKEN_HEAD = 2


class Role(enum.Enum):
    SPARSE = "sparse"
    INDEXER = "indexer"


class Spec:
    """A stand-in for vLLM's specs, which differ by their class and fields."""

    def __init__(self, **fields: Any) -> None:
        vars(self).update({"kv_quant_mode": Mode.NONE} | fields)


class FullAttentionSpec(Spec): ...


class MLAAttentionSpec(Spec): ...


class MambaSpec(Spec): ...


class SlidingWindowSpec(Spec): ...


class NewSpec(Spec): ...


def section(name: str, **other: Any) -> Any:
    """A part of vLLM's configuration, with all recorded fields and what is given."""
    names = [each.split(".")[1] for each in recorded("vllm")["0.32"] if each.startswith(f"{name}.")]
    off = {each: vllm.RULES[f"{name}.{each}"].off for each in names}
    kind = make_dataclass(name, [(each, Any, field(default=off[each][0] if off[each] else None)) for each in names])
    return kind(**other)


def config(
    role: str = "kv_producer", model: dict[str, Any] | None = None, later: int | None = None,
    drafted: dict[str, Any] | None = None, ranks: int = 1, **parts: dict[str, Any],
) -> Any:  # fmt: skip
    """A vLLM configuration that is carried, with changes.

    `later`: the value of a field without a rule; `drafted`: there is a draft of one rank, and what differs in it;
    `ranks`: of the model.
    """
    transfer = section("transfer", kv_role=role, engine_id="one", kv_connector_extra_config={})
    transfer.is_kv_producer = role == "kv_producer"
    made = {
        "parallel_config": section("parallel", data_parallel_index=0, **{
            "tensor_parallel_size": ranks, "pipeline_parallel_size": 1, **parts.get("parallel", {}),
        }),
        "cache_config": section("cache", **parts.get("cache", {})), "kv_transfer_config": transfer,
        "model_config": SimpleNamespace(**{"is_hybrid": False, "hf_text_config": SimpleNamespace()} | (model or {})),
    }  # fmt: skip
    if later is not None:
        kind = make_dataclass("later", [("later", int, field(default=0))], bases=(type(made["parallel_config"]),))
        made["parallel_config"] = kind(**vars(made["parallel_config"]), later=later)
    if drafted is not None:
        one = SimpleNamespace(tensor_parallel_size=1)
        made["speculative_config"] = section("speculative", **{"draft_parallel_config": one, **drafted})
    return section("config", **made, **parts.get("config", {}))


def caches(*specs: Any, shared_host_pool: bool = False, **group: Any) -> Any:
    """The cache that vLLM has decided on: a group a spec."""
    groups = [section("group", kv_cache_spec=spec, **group) for spec in specs]
    return section("caches", kv_cache_groups=groups, hisparse_shared_host_pool=shared_host_pool)


def uniform(*specs: Any) -> Any:
    """A spec of layers that differ in size."""
    return SimpleNamespace(kv_cache_specs={str(at): spec for at, spec in enumerate(specs)})


FULL = FullAttentionSpec(block_size=16)
AT_FIRST: dict[str, Any] = {
    "context parallelism (parallel.decode_context_parallel_size=2)": {"parallel": {"decode_context_parallel_size": 2}},
    "context parallelism (parallel.prefill_context_parallel_size": {"parallel": {"prefill_context_parallel_size": 4}},
    "an instance on several nodes": {"parallel": {"nnodes": 2}},
    "nor an EAGLE head (MTP, DFlash, Medusa, n-grams) (speculative.method=mtp)": {"drafted": {"method": "mtp"}},
    "is of another type, or cut otherwise than the model (draft.cut_otherwise": {"drafted": {}, "ranks": 2},
    "another type, or cut otherwise than the model (speculative.kv_cache_dtype=fp8": {
        "drafted": {"method": "eagle", "kv_cache_dtype": "fp8"}
    },
    "a draft beside latents": {"drafted": {"method": "eagle"}, "model": {"use_mla": True}},
    "recurrent state or pipeline stages (draft.beside": {
        "drafted": {"method": "eagle"}, "parallel": {"pipeline_parallel_size": 2}
    },
    "a quantized cache": {"cache": {"cache_dtype": "nvfp4"}},
    "prefix hits of a recurrent state (cache.mamba_cache_mode=align)": {"cache": {"mamba_cache_mode": "align"}},
    "an instance that is prefill and decode at once": {"role": "kv_both"},
    "gives away (sleep mode, the memory saver) (model.enable_sleep_mode=True)": {"model": {"enable_sleep_mode": True}},
    "gives away (sleep mode, the memory saver) (model.enable_cumem_allocator=True)": {
        "model": {"enable_cumem_allocator": True}
    },
    "parallel.later=1, which no rule": {"later": 1},
}  # fmt: skip
AFTERWARDS = {
    "sliding windows in the blocks of full attention": caches(FullAttentionSpec(sliding_window=128)),
    "or chunked local attention (spec.attention_chunk_size": caches(
        uniform(FULL, FullAttentionSpec(attention_chunk_size=8192))
    ),
    "beyond its own KV (window.extra_retained_tokens=2)": caches(FULL, SlidingWindowSpec(extra_retained_tokens=2)),
    "recurrent states beside sliding windows": caches(FULL, MambaSpec(), SlidingWindowSpec()),
    "recurrent states other than gated delta nets": caches(FULL, MambaSpec(mamba_type="MAMBA2")),
    "prefix hits of a recurrent state (state.mamba_cache_mode=all)": caches(FULL, MambaSpec(mamba_cache_mode="all")),
    "several groups of layers that attend fully": caches(FULL, MambaSpec(), FULL),
    "a quantized cache whose scales": caches(FullAttentionSpec(kv_quant_mode=Mode.INT8_PER_TOKEN_HEAD)),
    "beside its rows (spec.cache_dtype_str=nvfp4_ds_mla)": caches(MLAAttentionSpec(cache_dtype_str="nvfp4_ds_mla")),
    "a form of cache that no pool expresses": caches(MLAAttentionSpec(model_version="deepseek_v4")),
    "beyond its own KV (group.is_eagle_group=True)": caches(FULL, is_eagle_group=True),
    "a second tier of the KV cache": caches(FULL, host_resident=True),
    "storage) (caches.hisparse_shared_host_pool=True)": caches(FULL, shared_host_pool=True),
    "kind.NewSpec=True, which no rule": caches(NewSpec()),
}


@pytest.fixture(autouse=True)
def _no_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connector, "check", lambda: None)


@pytest.mark.parametrize("what", AT_FIRST)
@pytest.mark.parametrize("role", list(fake_vllm.Role))
def test_vllm_is_refused_by_its_configuration_in_scheduler_and_workers_and_before(what: str, role: Any) -> None:
    made = config(**AT_FIRST[what])
    with pytest.raises(ArgumentError, match=f"^kvproto does not carry .*{re.escape(what)}"):
        connector.KVProtoConnector.get_required_kvcache_layout(made)
    with pytest.raises(ArgumentError, match=f"^kvproto does not carry .*{re.escape(what)}"):
        connector.KVProtoConnector(made, role, None)


@pytest.mark.parametrize("what", AFTERWARDS)
@pytest.mark.parametrize("role", list(fake_vllm.Role))
def test_vllm_is_refused_by_its_cache_in_scheduler_and_workers(what: str, role: Any) -> None:
    with pytest.raises(ArgumentError, match=f"^kvproto does not carry .*{re.escape(what)}"):
        connector.KVProtoConnector(config(), role, AFTERWARDS[what])


def pairs(engine: str) -> set[int]:
    """The numbers of ranks of the instances that docs/engines.md says were run."""
    rows = re.findall(rf"^\| {engine} \| ([^|]+) \|", PAGE.read_text().split("## Every row")[0], re.MULTILINE)
    found = {int(number) for row in rows for number in re.findall(r"\d+", row.split("pages")[0])}
    assert found
    return found


@pytest.mark.parametrize("beside", [MambaSpec(), SlidingWindowSpec(), uniform(*[SlidingWindowSpec()] * 2)])
def test_states_or_windows_beside_layers_that_attend_fully_are_carried_in_vllm(beside: Any) -> None:
    for role in fake_vllm.Role:
        connector.KVProtoConnector(config(), role, caches(FULL, beside, beside))


@pytest.mark.parametrize("method", ["draft_model", "eagle", "eagle3"])
def test_a_model_s_draft_is_carried_in_vllm(method: str) -> None:
    for role in fake_vllm.Role:
        connector.KVProtoConnector(config(drafted={"method": method}), role, caches(uniform(FULL, FULL)))


@pytest.mark.parametrize("ranks", pairs("vLLM"))
@pytest.mark.parametrize("side", ["kv_producer", "kv_consumer"])
@pytest.mark.parametrize(
    "spec",
    [
        FULL, MLAAttentionSpec(cache_role=Role.SPARSE), uniform(FULL, FULL),
        uniform(
            MLAAttentionSpec(cache_role=Role.SPARSE, cache_dtype_str="fp8_ds_mla"),
            MLAAttentionSpec(cache_role=Role.INDEXER),
        ),
        FullAttentionSpec(kv_quant_mode=Mode.FP8_PER_TENSOR),
    ],
)  # fmt: skip
def test_what_a_pool_expresses_is_carried_in_vllm(ranks: int, side: str, spec: Any) -> None:
    parallel = {
        "tensor_parallel_size": ranks, "pipeline_parallel_size": 2, "data_parallel_size": 2,
        "distributed_executor_backend": "mp", "world_size": 2 * ranks, "enable_expert_parallel": True,
    }  # fmt: skip
    cache = {"block_size": 32, "enable_prefix_caching": True, "cache_dtype": "auto"}
    made = config(side, parallel=parallel, cache=cache)
    assert connector.KVProtoConnector.get_required_kvcache_layout(made) is None
    for role in fake_vllm.Role:
        connector.KVProtoConnector(made, role, caches(spec))


def test_data_parallel_ranks_have_names_of_their_own() -> None:
    made = config()
    assert data_parallel_suffix(made) == ""
    made.kv_transfer_config.engine_id, made.parallel_config.data_parallel_index = "one_dp1", 1
    assert data_parallel_suffix(made) == "_dp1"


# ------------------------------------------------------------------------------------------- SGLang
WINDOWS = {
    "is_hybrid_swa": True, "swa_attention_layer_ids": [0], "full_attention_layer_ids": [1], "sliding_window_size": 128,
    "attention_chunk_size": None, "get_swa_num_kv_heads": lambda tp: 8 // tp,
}  # fmt: skip


#: by layers and stages: the first layer and the end of each stage, as SGLang cuts them
INDICES = {(5, 2): [(0, 2), (2, 5)]}


def stand_in(monkeypatch: pytest.MonkeyPatch, **other: Any) -> Any:
    """The module that reads SGLang's objects, on a stand-in of one rank with what is given."""
    bags: dict[str, Any] = {}
    modules: dict[str, dict[str, Any]] = {}
    for name in ("parallel", "disagg", "memory", "spec"):
        fields = [each.split(".")[1] for each in recorded("sglang")["0.5.23"] if each.startswith(f"{name}.")]
        off = {each: rule.off[0] for each in fields if (rule := sglang.RULES[f"{name}.{each}"]).off}
        defaults = dict.fromkeys(fields) | off | ({"later": 0} if name == "parallel" else {})
        modules[f"sglang.srt.arg_groups.fields.{name}"] = {
            name.capitalize(): msgspec.defstruct(name, [(each, Any, value) for each, value in defaults.items()])
        }
        bags[name] = SimpleNamespace(**defaults)
    vars(bags["parallel"]).update(attn_tp_size=2, attn_tp_rank=1, attn_dp_rank=0, pp_size=1, pp_rank=0, pp_group=None)
    vars(bags["disagg"]).update(disaggregation_mode="decode", disaggregation_bootstrap_port=8998)
    for name, value in other.items():
        if name in {"forced", "enable_memory_saver"}:
            continue
        part = next((bag for bag in bags.values() if hasattr(bag, name)), None)
        if part is None:
            monkeypatch.setenv(name, value)
        else:
            setattr(part, name, value)
    features = SimpleNamespace(enable_memory_saver=other.get("enable_memory_saver", False))
    held = install.HELD
    if held not in other:
        monkeypatch.setenv(held, install.FOR_EVER)
    envs = SimpleNamespace(**{
        name: SimpleNamespace(get=lambda value=value: value)
        for name, value in {
            "SGLANG_DISAGG_STAGING_BUFFER": other.get("SGLANG_DISAGG_STAGING_BUFFER") == "1",
            "SGLANG_DISAGGREGATION_DEFERRED_DECODE_KV_RELEASE": True, "SGLANG_AITER_KV_CACHE_LAYOUT": "nhd",
            "SGLANG_DISAGGREGATION_BOOTSTRAP_TIMEOUT": 300, "SGLANG_DISAGGREGATION_WAITING_TIMEOUT": 300,
            "SGLANG_DISAGGREGATION_FORCE_QUERY_PREFILL_DP_RANK": other.get("forced", False),
        }.items()
    })  # fmt: skip
    more = {
        "get_device": SimpleNamespace(device="cpu"), "get_exec": SimpleNamespace(features=features),
        "get_schedule": SimpleNamespace(chunked_prefill_size=64),
        "get_serving": SimpleNamespace(host="127.0.0.1", port=30000),
    } | {f"get_{name}": bag for name, bag in bags.items()}  # fmt: skip
    modules |= {
        "sglang.srt.arg_groups.model_override_base": {
            "model_config_of": lambda _: SimpleNamespace(
                get_total_num_kv_heads=lambda: 4, num_hidden_layers=5, **WINDOWS
            )
        },
        "sglang.srt.disaggregation.pp_consensus_store": {"PPConsensusStore": lambda *of: of},
        "sglang.srt.distributed.utils": {"get_pp_indices": lambda layers, at, stages: INDICES[layers, stages][at]},
        "sglang.srt.configs.hybrid_arch": {"mambaish_config": lambda _: None},
        "sglang.srt.environ": {"envs": envs},
        "sglang.srt.runtime_context": {name: (lambda bag=bag: bag) for name, bag in more.items()},
        "sglang.srt.utils.common": {"cpu_has_amx_support": lambda: False},
        "sglang.srt.utils.network": {"get_local_ip_auto": lambda: "127.0.0.1"},
    }
    for name, members in modules.items():
        parts = name.split(".")
        for end in range(1, len(parts) + 1):
            if ".".join(parts[:end]) not in sys.modules:
                monkeypatch.setitem(sys.modules, ".".join(parts[:end]), ModuleType(".".join(parts[:end])))
        module = ModuleType(name)
        vars(module).update(members)
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.delitem(sys.modules, "kvproto.adapters.sglang.facts", raising=False)
    return importlib.import_module("kvproto.adapters.sglang.facts")


@pytest.mark.parametrize(
    ("other", "what"),
    [
        ({"dp_size": 2}, "replicas behind one bootstrap server (parallel.dp_size=2)"),
        ({"pp_size": 2}, "pipeline stages at decode, where SGLang's stages came to wait for each other for ever"),
        ({"attn_cp_size": 2}, "context parallelism"),
        ({"dcp_size": 2}, "context parallelism"),
        ({"nnodes": 2}, "an instance on several nodes"),
        ({"speculative_algorithm": "NGRAM"}, "a speculative algorithm that may keep more"),
        ({"speculative_algorithm": "EAGLE", "enable_multi_layer_eagle": True}, "a draft of another form"),
        ({"speculative_algorithm": "EAGLE3", "speculative_draft_window_size": 64}, "a draft of another form"),
        ({"enable_hierarchical_cache": True}, "a second tier of the KV cache"),
        ({"optimistic_prefill_attempts": 1}, "a prefill that begins before"),
        ({"enable_memory_saver": True}, "a KV pool whose memory a running engine gives away"),
        ({"later": 5}, "parallel.later=5, which no rule"),
        ({"SGLANG_DISAGG_STAGING_BUFFER": "1"}, "SGLang's own staging (environment.SGLANG_DISAGG_STAGING_BUFFER=True)"),
        ({install.HELD: "30"}, "release of pages in which something may still land"),
    ],
)
def test_sglang_is_refused_by_its_options(monkeypatch: pytest.MonkeyPatch, other: dict[str, Any], what: str) -> None:
    found = stand_in(monkeypatch, **other).look(None, mla=False).foreign
    assert len(found) == 1 and re.match(re.escape(what).replace(re.escape(".*"), ".*"), found[0]), found


@pytest.mark.parametrize("ranks", pairs("SGLang"))
@pytest.mark.parametrize("mla", [False, True])
def test_what_was_run_in_sglang_is_carried(monkeypatch: pytest.MonkeyPatch, ranks: int, mla: bool) -> None:
    draft = {"speculative_algorithm": "EAGLE"} if mla else {}
    facts = stand_in(monkeypatch, tp_size=ranks, disaggregation_decode_enable_radix_cache=True, **draft)
    instance = facts.look(None, mla=mla)
    assert (instance.foreign, instance.heads) == ((), 1 if mla else 4)


def test_a_rank_finds_its_place_device_and_chunk_in_sglang(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = stand_in(monkeypatch)
    instance = facts.look(None, mla=False)
    assert (instance.name, instance.bootstrap_server) == ("decode 127.0.0.1:30000", "127.0.0.1:8998")
    assert (instance.tp, instance.rank, instance.device, instance.chunk) == (2, 1, "cpu", 64)
    monkeypatch.setattr(facts, "get_device", lambda: SimpleNamespace(device="cuda", gpu_id=3))
    monkeypatch.setattr(facts, "get_schedule", lambda: SimpleNamespace(chunked_prefill_size=None))
    for host, server in (("0.0.0.0", "127.0.0.1:8998"), ("::", "[::1]:8998")):  # noqa: S104
        serving = SimpleNamespace(host=host, port=1)
        monkeypatch.setattr(facts, "get_serving", lambda serving=serving: serving)
        instance = facts.look(None, mla=False)
        assert (instance.device, instance.chunk, instance.bootstrap_server) == ("cuda:3", 0, server)


def test_a_rank_of_a_pipeline_stage_finds_its_place_and_the_layers_of_all_stages(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    group = SimpleNamespace(all_gather_object=lambda word: [word, word])
    facts = stand_in(monkeypatch, pp_size=2, pp_rank=1, pp_group=group, disaggregation_mode="prefill")
    instance = facts.look(None, mla=False)
    assert (instance.foreign, instance.stages, instance.tp, instance.rank) == ((), (2, 3), 2, 3)
    assert (instance.stage, instance.first, instance.ranks) == (1, 2, 4)
    assert instance.here(range(5)) == [2, 3, 4] and instance.here([0, 4]) == [4]
    assert facts.exchange("why not") == ["why not"] * 2 and facts.exchange([]) == [[], []]
    assert facts.board() == (2, 1, group)
    one = stand_in(monkeypatch).look(None, mla=False)
    assert (one.stages, one.rank, one.stage, one.first, one.ranks) == ((), 1, 0, 0, 2)
    assert one.here(range(5)) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("method", "forced", "by_room"),
    [("follow_bootstrap_room", False, True), ("follow_bootstrap_room", True, False), ("round_robin", False, False)],
)
def test_a_rank_of_data_parallel_attention_finds_its_group_in_sglang(
    monkeypatch: pytest.MonkeyPatch, method: str, forced: bool, by_room: bool
) -> None:
    facts = stand_in(
        monkeypatch, enable_dp_attention=True, attn_dp_size=2, attn_dp_rank=1, load_balance_method=method, forced=forced
    )
    instance = facts.look(None, mla=False)
    assert (instance.foreign, instance.data_parallel, instance.dp_rank, instance.by_room) == ((), 2, 1, by_room)


def test_a_rank_knows_how_the_recurrent_state_of_its_model_is_cut_unless_it_is_rearranged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    facts = stand_in(monkeypatch)
    monkeypatch.setattr(facts, "mambaish_config", lambda _: "a hybrid model")
    monkeypatch.setattr(facts, "recurrence_of", lambda *asked: asked)
    assert facts.look(None, mla=False).recurrence == ("a hybrid model", 2)
    monkeypatch.setattr(facts, "cpu_has_amx_support", lambda: True)
    assert facts.look(None, mla=False).recurrence is None
    monkeypatch.setattr(facts, "get_device", lambda: SimpleNamespace(device="cuda", gpu_id=3))
    assert facts.look(None, mla=False).recurrence == ("a hybrid model", 2)


def test_a_rank_knows_the_window_of_its_model(monkeypatch: pytest.MonkeyPatch) -> None:
    window = stand_in(monkeypatch).look(None, mla=False).window
    assert (window.tokens, window.layers, window.full, window.heads) == (128, (0,), (1,), 8)


def test_every_state_of_sglang_but_an_index_a_recurrent_one_and_a_window_is_refused_by_a_word_of_its_own() -> None:
    states = [name.split(".")[1] for name in recorded("sglang")["0.5.23"] if name.startswith("state.")]
    assert rules.present(sglang.RULES, "state", ["dsa", "mamba", "swa"]) == []
    for state in {*states} - {"dsa", "mamba", "swa"}:
        (said,) = rules.present(sglang.RULES, "state", [state])
        assert f"(state.{state}=True)" in said


# --------------------------------------------------------------------------------------------- the page
def test_the_page_lists_every_refusal_with_its_words() -> None:
    text = PAGE.read_text()
    assert placed(text, page.told(), page.BEGIN, page.END) == text, "write it anew: make engines-table"


def test_rules_are_made_for_each_field_of_a_section() -> None:
    lack = Lack("something", "do without")
    assert carried("cache", "why", "a b") == {f"cache.{name}": Rule("carried", "why") for name in "ab"}
    assert irrelevant("cache", "why", "a") == {"cache.a": Rule("irrelevant", "why")}
    assert refused("cache", lack, "a b", 1, None) == {
        f"cache.{name}": Rule("refused", lack=lack, off=(1, None)) for name in "ab"
    }  # fmt: skip
    assert refused("cache", lack, "a") == {"cache.a": Rule("refused", lack=lack, off=())}


def test_a_rank_is_judged_where_it_is_wanted_and_nowhere_else(monkeypatch: pytest.MonkeyPatch) -> None:
    judge = SimpleNamespace(judged=lambda make: ("judged", make()))
    monkeypatch.setattr(importlib, "import_module", {judging.JUDGE: judge}.__getitem__)
    found: list[object] = [judging.judged(lambda: "an endpoint", wanted=wanted) for wanted in (True, False)]
    assert found == [("judged", "an endpoint"), "an endpoint"]


def test_sglang_s_environment_is_read_as_it_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = stand_in(monkeypatch)
    many = "an hour or more"
    for held, told in (("3599", 3599.0), ("3600", many), ("300", 300.0), (install.FOR_EVER, many)):
        monkeypatch.setenv(install.HELD, held)
        monkeypatch.setenv("SGLANG_MOONCAKE_CUSTOM_MEM_POOL", "NVLINK")
        found = facts.environment()
        assert getattr(found, install.HELD) == told and found.SGLANG_MOONCAKE_CUSTOM_MEM_POOL == "NVLINK"


def test_a_default_that_pydantic_describes_by_a_factory_is_made() -> None:
    description = SimpleNamespace(get_default=lambda *, call_default_factory: call_default_factory)
    described: Any = SimpleNamespace(default_factory=MISSING, default=description)
    assert rules._default(described) is True

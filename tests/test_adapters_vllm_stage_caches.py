"""Pipeline stages of vLLM exchange what they know of the caches, and all of them name the model's."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from msgspec.structs import replace
from support import fake_vllm
from support.fake_vllm import Asked

from kvproto.adapters import stage_caches
from kvproto.adapters.geometry import Geometry, GeometryError, Shards
from kvproto.layout.caches import WINDOW, Cache, CachePart

fake_vllm.install()

from kvproto.adapters.vllm import stages
from kvproto.adapters.vllm.caches import geometry_of_caches

FULL = Cache("full", (CachePart("kv", 4, 64),), (1,), "float32")


def test_the_caches_of_all_stages_are_joined_in_the_stages_order() -> None:
    window = Cache("window9", (CachePart("kv", 4, 64),), (4, 6), "float32", WINDOW, window=8)
    told = [[FULL], [window, replace(FULL, layers=(3, 5))], []]
    assert stage_caches.joined(told) == [replace(FULL, layers=(1, 3, 5)), window]


@pytest.mark.parametrize(
    ("other", "what"),
    [(replace(FULL, dtype="bfloat16"), "cache 'full' of stage 1 is .*bfloat16.*, of one before it"),
     (replace(FULL, parts=(CachePart("kv", 4, 32),)), "row_bytes=32")],
)  # fmt: skip
def test_stages_whose_caches_differ_are_refused(other: Cache, what: str) -> None:
    with pytest.raises(GeometryError, match=what):
        stage_caches.joined([[FULL], [other]])


def test_a_stage_that_fails_tells_the_others_and_each_tells_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stage that did not would leave the others to wait for it."""
    said = list[Any]()
    made: Any = "made"
    other: list[Any] = [[]]

    def exchange(mine: Any) -> list[Any]:
        said.append(mine)
        return [mine, *other]

    def joins(join: Any) -> Any:
        assert join([FULL])
        return made

    def fails(_: Any) -> Any:
        raise GeometryError("no-pool", "a tensor of another form")

    monkeypatch.setattr(stages, "exchange", exchange)
    with pytest.raises(GeometryError, match=r"^no-pool: a tensor of another form$"):
        stages.on_all_stages(fails)
    with pytest.raises(KeyError):
        stages.on_all_stages(lambda _: dict[str, Geometry]()["none"])
    assert [stages.on_all_stages(make) for make in (lambda _: made, joins)] == [made, made]
    with pytest.raises(GeometryError, match="another form"):
        stages.on_all_stages(lambda join: fails(join([FULL])))
    assert said == ["no-pool: a tensor of another form", "'none'", [], [FULL], [FULL]]
    other[:] = ["no-tensor: here"]
    for make in (lambda _: made, joins):
        with pytest.raises(GeometryError, match="stage 1 of this instance has no pool: no-tensor: here"):
            stages.on_all_stages(make)


def test_what_stages_exchange_comes_as_it_was_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def gather(found: list[Any], said: Any, group: str) -> None:
        assert group == "of the host"
        found[:] = [said] * len(found)

    monkeypatch.setattr(
        stages, "get_pp_group", lambda: SimpleNamespace(world_size=3, cpu_group="of the host")
    )  # fmt: skip
    monkeypatch.setattr(torch.distributed, "all_gather_object", gather)
    assert stages.exchange([FULL]) == [[FULL]] * 3
    assert stages.exchange("why not") == ["why not"] * 3


def test_a_stage_without_a_layer_that_attends_fully_is_refused_with_what_to_do() -> None:
    some = [SimpleNamespace(layer_names=["layers.5", "layers.2"], kv_cache_spec=SimpleNamespace())]
    found = stages.attending_layers(SimpleNamespace(kv_cache_groups=some))
    assert found == {2: "layers.2", 5: "layers.5"}
    groups = [SimpleNamespace(layer_names=[], kv_cache_spec=SimpleNamespace())]
    with pytest.raises(GeometryError, match=r"a pipeline stage without a layer that attends fully.*fewer stages"):
        stages.attending_layers(SimpleNamespace(kv_cache_groups=groups))


def test_layers_of_other_stages_are_left_out_of_a_group_whose_spec_has_them() -> None:
    """vLLM gives a stage without any of a group's layers the specs of all."""
    specs = SimpleNamespace(kv_cache_specs={"layers.1": "one", "layers.2": "two"})
    assert stages.layers_here(SimpleNamespace(layer_names=[], kv_cache_spec=specs)) == []
    held = SimpleNamespace(layer_names=["layers.2"], kv_cache_spec=specs)
    assert stages.layers_here(held) == [("layers.2", "two")]


def test_latents_and_an_index_that_one_stage_has_alone() -> None:
    """Each stage has the caches of the whole model, and its own tensors in them."""
    def on(stage: int, join: Any = list) -> Geometry:
        names = [["layers.0.attn", "layers.1.attn", "layers.1.indexer"], ["layers.2.attn"]][stage]
        sizes = {name: 132 if "indexer" in name else 656 for name in names}
        tensors = {name: torch.zeros(5, 1, 16, size, dtype=torch.uint8) for name, size in sizes.items()}
        shards = Shards(1, 3, 1, 2, (2, 1), stage)
        index = frozenset({"layers.1.indexer"})
        return geometry_of_caches(tensors, index, shards, dtype="fp8_ds_mla", opaque="", join=join)

    told = list[Any]()

    def keep(mine: Any) -> Any:
        told.append(mine)
        raise Asked

    for stage in range(2):
        with pytest.raises(Asked):
            on(stage, keep)
    first, last = (on(stage, lambda _: stage_caches.joined(told)) for stage in range(2))
    assert first.layout == last.layout
    assert (first.layout.layers, first.layout.pp, first.layout.stages) == (3, 2, (2, 1))
    assert [each.layers for each in first.layout.named] == [(), (1,)]
    assert sorted(map(len, first.pool.kinds)) == [1, 1, 2] and sorted(map(len, last.pool.kinds)) == [0, 0, 1]


def test_a_stage_without_windows_or_states_takes_none_of_a_room_s_tables_and_slots() -> None:
    pool: Any = SimpleNamespace(ends=(), page_size=4)
    layout: Any = None
    geometry = Geometry(pool, layout, 4, ("", ""), slots=())
    assert geometry.window([[1, 2], [3, 4]], 8) is None and geometry.slot((5, 6)) is None
    some = Geometry(pool, layout, 4, (), slots=(1, 2))
    assert some.slot((5, 6, 7)) == (6, 7) and Geometry(pool, layout).slot((5, 6)) == (5, 6)

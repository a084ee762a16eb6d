"""vLLM's latents and index keys as named caches: every row is where vLLM keeps it."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from support import fake_vllm

from kvproto.adapters.geometry import Geometry, GeometryError, Shards

fake_vllm.install()

from kvproto.adapters.vllm import caches, ranks

BLOCKS, TOKENS, LAYERS = 5, 16, 3
INDICES = frozenset({"layers.0.indexer.k_cache", "layers.2.indexer.k_cache"})


def tensors(width: int = 656, *, packed: bool = False) -> dict[str, torch.Tensor]:
    """A worker's cache as vLLM gives it; `packed`: all tensors of a block lie side by side."""
    sizes = {f"layers.{at}.attn": width for at in range(LAYERS)} | dict.fromkeys(sorted(INDICES), 132)
    block = torch.randint(0, 256, (BLOCKS, TOKENS * sum(sizes.values())), dtype=torch.uint8)
    found, begin = {}, 0
    for name, size in sizes.items():
        view = block[:, begin : begin + TOKENS * size].view(BLOCKS, 1, TOKENS, size)
        found[name] = view if packed else view.clone()
        begin += TOKENS * size
    return found


def made(given: dict[str, torch.Tensor], index: frozenset[str] = INDICES, opaque: str = "") -> Geometry:
    return caches.geometry_of_caches(given, index, Shards(1, LAYERS, 2, rank=1), dtype="fp8_ds_mla", opaque=opaque)


@pytest.mark.parametrize("packed", [False, True])
def test_rows_of_all_parts_are_where_vllm_keeps_them(packed: bool) -> None:
    given = tensors(packed=packed)
    form = made(given)
    names = [kind.name for kind in form.layout.kinds]
    found = dict(zip(names, form.pool.kinds, strict=True))
    assert sorted(names) == ["index.key", "index.scale", "mla.latent"]
    assert (form.unit, form.layout.page_size, form.layout.layers, form.layout.tp) == (1, TOKENS, LAYERS, 2)
    assert [kind.layers for kind in form.layout.kinds if kind.cache == "index"] == [(0, 2)] * 2
    for layer, name in enumerate(name for name in given if name not in INDICES):
        assert torch.equal(found["mla.latent"][layer][3, 7, 0], given[name][3, 0, 7])
    for at, name in enumerate(sorted(INDICES)):
        block = given[name][3].flatten()
        assert torch.equal(found["index.key"][at][3, 7, 0], block[7 * 128 : 8 * 128])
        assert torch.equal(found["index.scale"][at][3, 7, 0], block[TOKENS * 128 + 28 :][:4])


def test_blocks_that_are_rearranged_inside_move_as_a_whole() -> None:
    given = {name: tensor for name, tensor in tensors(576).items() if name not in INDICES}
    form = made(given, frozenset(), "vllm-cpu")
    assert (form.unit, form.layout.page_size, form.layout.kinds[0].row) == (TOKENS, 1, TOKENS * 576)
    assert form.layout.named[0].dtype == f"fp8_ds_mla/vllm-cpu{TOKENS}"
    with pytest.raises(GeometryError, match="an index in blocks that are rearranged inside: serve on a GPU"):
        made(tensors(), opaque="vllm-cpu")


@pytest.mark.parametrize(("change", "why"), [
    ({"layers.1.attn": None}, "latents on layers"),
    ({"layers.0.indexer.k_cache": torch.zeros((BLOCKS, 1, TOKENS, 68), dtype=torch.uint8)},
     "an index of (5, 1, 16, 68)"),
    ({"layers.1.attn": torch.zeros((BLOCKS, 1, TOKENS, 576), dtype=torch.uint8)}, "(16, 1, 656) in a page, it has"),
])  # fmt: skip
def test_another_form_is_refused_by_name(change: dict[str, Any], why: str) -> None:
    given = {name: tensor for name, tensor in (tensors() | change).items() if tensor is not None}
    with pytest.raises(GeometryError, match=re.escape(why)):
        made(given)


def test_an_index_is_known_by_its_spec() -> None:
    spec = SimpleNamespace(cache_role=SimpleNamespace(name="INDEXER"))
    plain = SimpleNamespace(layer_names=["layers.0.attn"], kv_cache_spec=SimpleNamespace())
    group = SimpleNamespace(layer_names=["a", "b"], kv_cache_spec=SimpleNamespace(
        kv_cache_specs={"a": spec, "b": SimpleNamespace(cache_role=SimpleNamespace(name="SPARSE"))}))  # fmt: skip
    assert caches.indices(SimpleNamespace(kv_cache_groups=[plain, group])) == {"a"}
    assert caches.indices(None) == frozenset()


def test_both_sides_compare_what_is_packed_into_bytes() -> None:
    cache = torch.zeros(1, dtype=torch.uint8)
    assert [ranks.dtype_of(name, cache) for name in ("fp8", "fp8_e5m2", "fp8_ds_mla")] == [
        "fp8_e4m3", "fp8_e5m2", "fp8_ds_mla"]  # fmt: skip
    assert ranks.dtype_of("auto", cache.bfloat16()) == "bfloat16"


def test_every_rank_has_all_of_a_latent_and_a_pool_that_cannot_be_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [kind.units for kind in made(tensors()).layout.kinds] == [1, 1, 1]
    with pytest.raises(GeometryError, match="a model has one on each of its layers"):
        made({name: tensor for name, tensor in tensors().items() if name in INDICES})
    apart = tensors()
    for name in INDICES:
        apart[name] = torch.zeros(BLOCKS, 1, TOKENS, 140, dtype=torch.uint8)[..., :132]
    with pytest.raises(GeometryError, match="a block is known as 128 bytes of keys"):
        made(apart)

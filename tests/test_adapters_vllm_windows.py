"""vLLM's models with sliding attention between scripted instances: windows come into their blocks.

The layers of all groups lie over the same bytes, as vLLM has them; what a rank holds is counted here by hand.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from support import fake_vllm, vllm_pair
from support.fake_vllm import BLOCK, Role
from support.vllm_pair import VllmPair, on_a_fabric, row_of_bytes

from kvproto.adapters.geometry import GeometryError, Shards
from kvproto.adapters.vllm import connector, windows
from kvproto.errors import ArgumentError

BLOCKS, HEADS, ROW = 120, 4, 64
#: layers that attend fully, and by group those with a window, and how long it is; layer 6 has no neighbour in its group
FULL, LOCAL = (2, 5), (((0, 3), 9), ((1, 4), 9), ((6,), 14))
EXTRA = vllm_pair.EXTRA | {"digests": True}
#: layers of each stage, by their number: of two, the first has no layer with the longer window
CUTS = {1: (range(7),), 2: (range(3), range(3, 7))}


class FullAttentionSpec(SimpleNamespace): ...


class SlidingWindowSpec(SimpleNamespace): ...


class MambaSpec(SimpleNamespace): ...


def kinds(*more: Any, local: Any = LOCAL, held: range = range(9)) -> Any:
    windowed = ((layers, SlidingWindowSpec(sliding_window=n)) for layers, n in local)
    groups = [(FULL, FullAttentionSpec()), *windowed, *more]
    return SimpleNamespace(kv_cache_groups=[
        SimpleNamespace(layer_names=[f"layers.{layer}.of" for layer in layers if layer in held], kv_cache_spec=spec)
        for layers, spec in groups
    ])  # fmt: skip


def memory(tp: int, held: range = range(9)) -> dict[str, torch.Tensor]:
    """A worker's cache: one buffer of two regions, in which the layers of all groups that it has lie."""
    buffer = torch.randint(0, 256, (2, BLOCKS, HEADS // tp * BLOCK * ROW), dtype=torch.uint8)
    groups = [[layer for layer in layers if layer in held] for layers in (FULL, *(layers for layers, _ in LOCAL))]
    return {
        f"layers.{layer}.of": buffer[at].view(BLOCKS, HEADS // tp, BLOCK, ROW)
        for layers in groups for at, layer in enumerate(layers)
    }  # fmt: skip


class Windows(VllmPair):
    blocks, layers, extra, scripted = BLOCKS, 7, EXTRA, {"windows": tuple(window for _, window in LOCAL)}

    def kinds(self, tp: int, stage: int, stages: int) -> Any:
        return kinds(held=CUTS[stages][stage])

    def memory(self, tp: int, stage: int, stages: int) -> dict[str, torch.Tensor]:
        return memory(tp, CUTS[stages][stage])

    def places(self, tables: Any, blocks: list[int], first: int, upto: int, *, seen: bool) -> Iterator[Any]:
        """Yield (layer, token, block) of these tokens; `seen`: only those that the next token looks back at."""
        for layer, token in itertools.product(FULL, range(first, upto)):
            yield layer, token, blocks[token // BLOCK]
        for (layers, window), table in zip(LOCAL, tables, strict=True):
            begin = max(first, upto - window + 1) if seen else first
            for layer, token in itertools.product(layers, range(begin, upto)):
                yield layer, token, table[token // BLOCK]

    def rows(self, role: str, stage: int, places: Iterator[Any]) -> Iterator[Any]:
        """Yield (row, layer, head of the model, token) of a stage's ranks at these places."""
        tp, pp = self.cut[role]
        found = [each for each in places if each[0] in CUTS[pp][stage]]
        for place, (layer, token, block), head in itertools.product(range(tp), found, range(HEADS // tp)):
            assert block, (layer, token)
            cache = self.caches[role, stage * tp + place][f"layers.{layer}.of"]
            yield cache[block, head, token % BLOCK], layer, place * HEADS // tp + head, token

    def compute(self, name: str, first: int, upto: int, blocks: list[int]) -> None:
        """The forward of a stage; what lies behind a window by now is no block of the request's any more."""
        request = self.prefill.requests.get(name)
        if request is None or not request.windows:
            return
        places = (each for each in self.places(request.windows, blocks, first, upto, seen=False) if each[2])
        for part, *place in self.rows("kv_producer", self.prefill.stage, places):
            part.copy_(row_of_bytes(name, *place, size=ROW))

    def landed(self, name: str, blocks: list[int]) -> None:
        """Every row that the last token looks back at is what the prefill ranks computed."""
        request = self.decode.requests[name]
        for stage in range(self.decode.stages):
            places = self.places(request.windows, blocks, 0, request.num_prompt_tokens - 1, seen=True)
            for part, *place in self.rows("kv_consumer", stage, places):
                assert torch.equal(part, row_of_bytes(name, *place, size=ROW)), place

    def quiet(self) -> bool:
        return all(not engine.requests and len(engine.free) == BLOCKS - 1 for engine in (self.prefill, self.decode))


@pytest.fixture(scope="module", autouse=True)
def _fabric() -> Iterator[None]:
    with on_a_fabric(lambda stage, stages: (CUTS[stages][stage].start, CUTS[stages][stage].stop)):
        yield


SIDES = {"1 to 2": ((1, 1), (2, 1)), "2 to 1": ((2, 1), (1, 1)), "2 stages to 1": ((1, 2), (1, 1)),
         "1 to 2 stages": ((1, 1), (1, 2)), "2 stages to 2": ((1, 2), (2, 1))}  # fmt: skip


@pytest.fixture(scope="module", params=SIDES.values(), ids=list(SIDES))
def both(request: Any) -> Iterator[Windows]:
    made = Windows(*request.param)
    yield made
    made.close()


@pytest.mark.parametrize("tokens", [2, BLOCK, BLOCK + 1, 2 * BLOCK + 1, 29, 37, 38, 39, 40])
def test_kv_and_the_windows_that_the_last_token_looks_back_at_are_carried(both: Windows, tokens: int) -> None:
    both.carried(both.ask(tokens))
    both.until(both.quiet)


def test_several_requests_and_one_whose_blocks_are_taken_away(both: Windows) -> None:
    names = [both.ask(tokens) for tokens in (29, 14, 21)]
    both.prefill.step(both.compute)
    both.prefill.preempt(f"{names[0]}/P")
    for name in names:
        both.carried(name)
    both.until(both.quiet)


def test_a_prompt_that_the_decode_instance_has_leaves_no_room_on_any_rank(both: Windows) -> None:
    """A rank with windows gives its room up, a stage without one opens it with nothing to come."""
    name = both.ask(29, hit=28)
    both.until(lambda: f"{name}/P" not in both.prefill.requests)
    assert f"{name}/D" not in both.decode.resumed
    both.until(both.quiet)
    workers = [each.worker for engine in (both.prefill, both.decode) for each in engine.workers]
    both.until(lambda: not any(each._requests or each._tickets or each.rank.requests for each in workers))


def test_what_the_decode_instance_has_of_a_window_is_not_written_again(both: Windows) -> None:
    """The blocks of a prefix are others', too."""
    geometry = both.decode.workers[0].worker.geometry
    tables = (0, 0, 13, 14, 15, 16), (0, 0, 23, 24, 25, 26), (0, 32, 33, 34, 35, 36)
    short, long = geometry.windows[0], geometry.windows[2]
    assert bool(long) is (both.decode.stages == 1), "no layer of the first of two stages has the longer window"
    spans = {end.end.name: end.end.window for end in geometry.pool.ends}
    found, whole = geometry.window(tables, 6, have=5), geometry.window(tables, 6)
    assert found is not None and whole is not None
    assert found[short] == [([0] * 9 + table)[-spans[short] :] for table in ([16], [26])]
    assert whole[short] == [list(table)[-spans[short] :] for table in tables[:2]]
    assert found.get(long) == (([0] * 9 + [36])[-spans[long] :] if long else None)
    assert whole.get(long) == (list(tables[2])[-spans[long] :] if long else None)


@pytest.mark.parametrize(("window", "unit", "rows"), [
    (9, 1, 8), (1, 1, 1), (9, 8, 2), (10, 8, 2), (11, 8, 3), (2, 8, 1), (1, 8, 1), (16, 16, 2), (128, 16, 9),
])  # fmt: skip
def test_a_window_is_so_many_blocks_as_it_may_lie_in(window: int, unit: int, rows: int) -> None:
    assert windows.blocks_of(window, unit) == rows
    lies_in = {(n - 2) // unit - (n - window) // unit + 1 for n in range(window + 2, window + 99)}
    assert rows == max(1, *lies_in) or unit == 1


def test_states_beside_windows_and_no_layer_that_attends_fully_are_refused() -> None:
    made = fake_vllm.config("kv_producer", 1, EXTRA, "one")
    state = MambaSpec(mamba_type="GDN_ATTN", mamba_cache_mode="none")
    with pytest.raises(ArgumentError, match="recurrent states beside sliding windows"):
        connector.KVProtoConnector(made, Role.WORKER, kinds(((7,), state)))
    alone = kinds()
    alone.kv_cache_groups = alone.kv_cache_groups[1:]
    with pytest.raises(ArgumentError, match="several groups of layers that attend fully, each with a block table, or"):
        connector.KVProtoConnector(made, Role.WORKER, alone)


@pytest.mark.parametrize(
    ("opaque", "unit", "size", "dtype"), [("vllm-cpu", BLOCK, 1, f"uint8/vllm-cpu{BLOCK}"), ("", 1, BLOCK, "uint8")]
)
def test_a_block_that_cannot_be_read_is_a_row_of_its_own(opaque: str, unit: int, size: int, dtype: str) -> None:
    held = memory(2)
    made = windows.geometry_of_windows(held, kinds(), Shards(HEADS, 0, 2, rank=1), dtype="uint8", opaque=opaque)
    layout = made.layout
    assert (made.unit, layout.page_size, layout.layers, layout.tp) == (unit, size, 7, 2)
    assert {each.dtype for each in layout.named} == {dtype}
    rows = {f"window{window}": windows.blocks_of(window, unit) for window in (9, 14)}
    assert {each.name: each.window for each in layout.ends} == rows
    # K of layer 2, which attends fully, lies where vLLM has it
    assert made.pool.first.data_ptr() == held["layers.2.of"].data_ptr()


@pytest.mark.parametrize("pp", [1, 2])
def test_layers_are_those_of_the_caches(monkeypatch: pytest.MonkeyPatch, pp: int) -> None:
    monkeypatch.setattr(windows, "named_pool", lambda *_: None)
    made = windows.geometry_of_windows(memory(1), kinds(), Shards(HEADS, 8, 1, pp), dtype="uint8", opaque="")
    assert (made.layout.layers, made.unit) == (7, 1)


def test_a_layer_in_no_group_is_refused_by_name() -> None:
    tensors = memory(1) | {"layers.9.of": torch.zeros(BLOCKS, HEADS, BLOCK, ROW, dtype=torch.uint8)}
    with pytest.raises(GeometryError, match=r"tensor 'layers.9.of' is in no cache"):
        windows.geometry_of_windows(tensors, kinds(), Shards(HEADS, 0), dtype="uint8", opaque="vllm-cpu")

"""A draft of vLLM between scripted instances: its layers come with the model's, over the same blocks."""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from support import fake_vllm
from support.engine_pair import EnginePair
from support.fake_vllm import BLOCK, PLACE, STAGE, FakeEngine, Role

from kvproto.adapters.geometry import Shards
from kvproto.errors import ArgumentError
from kvproto.io.transports.fabric import Fabric
from kvproto.io.transports.memory import MemoryTransport
from kvproto.layout.caches import CachePart

fake_vllm.install()

from kvproto.adapters.vllm import connector, drafts, ranks

#: layers of the model, KV heads of it and of its draft, bytes of a row of either, and tokens that it looks ahead
LAYERS, HEADS, DRAFT_HEADS, ROW, DRAFT_ROW, AHEAD, BLOCKS = 2, 4, 2, 16, 8, 3, 40
EXTRA = {"chunk_tokens": 2 * BLOCK, "ttl": 3.0, "ring_bytes": 1 << 20}
NAMES = map(str, itertools.count())
#: by method of speculation: the names of the draft's two layers
DRAFTED = {"draft_model": ("draft_model.0.of", "draft_model.1.of"), "eagle": ("layers.2.of", "layers.3.of")}
MODEL = "layers.0.of", "layers.1.of"


class MLAAttentionSpec(SimpleNamespace): ...


class MambaSpec(SimpleNamespace): ...


class SlidingWindowSpec(SimpleNamespace): ...


def memory(tp: int, method: str) -> dict[str, torch.Tensor]:
    """A worker's cache, [blocks, heads, tokens, content]; with more ranks than heads each has one."""
    draft = max(1, DRAFT_HEADS // tp), DRAFT_ROW
    forms = dict.fromkeys(MODEL, (HEADS // tp, ROW)) | dict.fromkeys(DRAFTED[method], draft)
    return {
        name: torch.randint(0, 256, (BLOCKS, heads, BLOCK, width), dtype=torch.uint8)
        for name, (heads, width) in forms.items()
    }  # fmt: skip


def row(width: int, *place: Any) -> torch.Tensor:
    """Return the row that is computed of (request, layer, head, token)."""
    bits = torch.Generator().manual_seed(hash(place) % (1 << 40))
    return torch.randint(0, 256, (width,), dtype=torch.uint8, generator=bits)


class Drafts(EnginePair):
    """A prefill and a decode instance, and a router."""

    def __init__(self, method: str, prefill: int, decode: int) -> None:
        self.method, self.tp = method, {"kv_producer": prefill, "kv_consumer": decode}
        self.caches: dict[tuple[str, int], dict[str, torch.Tensor]] = {}
        self.prefill, self.decode = self.engine("kv_producer"), self.engine("kv_consumer")
        cards = {(0, rank): worker.get_handshake_metadata() for rank, worker in enumerate(self.prefill.workers)}
        self.prefill.connector.set_xfer_handshake_metadata_pp_aware(cards)
        self.decode.landed = self.landed

    def engine(self, role: str) -> FakeEngine:
        tp = self.tp[role]

        def make(kind: Role, rank: int) -> Any:
            PLACE[0] = rank
            made = connector.KVProtoConnector(config(role, tp, self.method), kind, None)
            if kind is Role.WORKER:
                self.caches[role, rank] = memory(tp, self.method)
                made.register_kv_caches(self.caches[role, rank])
            return made

        return FakeEngine(make, tp, BLOCKS, chunk=2 * BLOCK, lookahead=AHEAD)

    def ask(self, tokens: int) -> str:
        name, room = next(NAMES), secrets.randbits(63)
        theirs = {"do_remote_prefill": True, "room": room, "card": self.prefill.connector.card}
        self.decode.add(f"{name}/D", tokens, theirs)
        self.prefill.add(f"{name}/P", tokens, {"do_remote_decode": True, "room": room})
        return name

    def rows(self, role: str, blocks: list[int], first: int, upto: int) -> Iterator[Any]:
        """Yield (row, layer, head of the model or the draft, token) of all ranks."""
        tp = self.tp[role]
        for rank in range(tp):
            for layer, cache in self.caches[role, rank].items():
                heads, of = cache.shape[1], HEADS if layer in MODEL else DRAFT_HEADS
                for token, head in itertools.product(range(first, upto), range(heads)):
                    yield cache[blocks[token // BLOCK], head, token % BLOCK], layer, rank * of // tp + head, token

    def compute(self, name: str, first: int, upto: int, blocks: list[int]) -> None:
        """The forwards of the model and of its draft."""
        for part, *place in self.rows("kv_producer", blocks, first, upto):
            part.copy_(row(part.shape[0], name.split("/", maxsplit=1)[0], *place))

    def landed(self, name: str, blocks: list[int]) -> None:
        """Every row of both is what the prefill ranks computed."""
        for part, *place in self.rows("kv_consumer", blocks, 0, self.decode.requests[name].num_prompt_tokens):
            assert torch.equal(part, row(part.shape[0], name.split("/", maxsplit=1)[0], *place)), place


def config(role: str, tp: int, method: str = "eagle") -> Any:
    """A configuration with a draft, cut as the model is."""
    made = fake_vllm.config(role, tp, EXTRA, role, layers=LAYERS)
    draft = SimpleNamespace(get_total_num_kv_heads=lambda: DRAFT_HEADS)
    one = SimpleNamespace(tensor_parallel_size=tp)
    made.speculative_config = SimpleNamespace(method=method, draft_model_config=draft, draft_parallel_config=one)
    return made


@pytest.fixture(scope="module", autouse=True)
def _fabric() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(connector, "check", lambda: None)
        fabric = Fabric(auto=True)
        patch.setattr(ranks, "NixlTransport", lambda: MemoryTransport(fabric))
        yield
        STAGE[0] = PLACE[0] = 0


@pytest.mark.parametrize(
    ("method", "prefill", "decode"), [("draft_model", 1, 2), ("eagle", 2, 1), ("eagle", 1, 4), ("draft_model", 1, 1)]
)
def test_the_draft_s_kv_comes_with_the_model_s(method: str, prefill: int, decode: int) -> None:
    both = Drafts(method, prefill, decode)
    try:
        for name in [both.ask(tokens) for tokens in (1, BLOCK - AHEAD, BLOCK, 2 * BLOCK + 1, 21)]:
            both.carried(name)
        both.until(lambda: all(len(engine.free) == BLOCKS for engine in (both.prefill, both.decode)))
    finally:
        both.prefill.close()
        both.decode.close()


def test_without_arranged_blocks_a_draft_is_a_cache_of_tokens_with_heads_of_its_own() -> None:
    made = drafts.geometry_of_draft(
        memory(2, "draft_model"), LAYERS, DRAFT_HEADS, Shards(HEADS, LAYERS, 2, rank=1), dtype="uint8", opaque=""
    )
    kv, draft = made.layout.named
    assert (kv.name, kv.layers, *kv.parts) == ("kv", (0, 1), CachePart("kv", HEADS, ROW))
    assert (draft.name, draft.layers, *draft.parts) == ("draft", (2, 3), CachePart("kv", DRAFT_HEADS, DRAFT_ROW))
    assert (made.layout.page_size, made.layout.layers, made.unit) == (BLOCK, 4, 1)


def test_arranged_blocks_of_a_draft_have_a_type_of_their_own() -> None:
    made = drafts.geometry_of_draft(
        memory(1, "eagle"), LAYERS, DRAFT_HEADS, Shards(HEADS, LAYERS), dtype="uint8", opaque="amx"
    )
    assert {cache.dtype for cache in made.layout.named} == {f"uint8/amx{BLOCK}"}
    assert (made.layout.page_size, made.unit) == (1, BLOCK)


@pytest.mark.parametrize("spec", [MambaSpec(mamba_type="GDN_ATTN"), SlidingWindowSpec(sliding_window=9)])
def test_a_draft_beside_state_or_windows_is_refused(spec: Any) -> None:
    group = [SimpleNamespace(layer_names=list(MODEL), kv_cache_spec=SimpleNamespace()),
             SimpleNamespace(layer_names=["layers.9"], kv_cache_spec=spec)]  # fmt: skip
    with pytest.raises(ArgumentError, match="a draft beside latents, an index, windows, recurrent state"):
        ranks.make_worker(config("kv_producer", 1), memory(1, "eagle"), SimpleNamespace(kv_cache_groups=group))


def test_a_model_without_speculation_or_with_a_draft_that_keeps_nothing_has_no_draft() -> None:
    made = fake_vllm.config("kv_producer", 1, EXTRA, "one")
    assert drafts.draft_heads(made) == 0
    made.speculative_config = SimpleNamespace(draft_model_config=None)
    assert drafts.draft_heads(made) == 0

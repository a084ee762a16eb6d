"""vLLM's models with sliding attention between scripted instances: windows come into their blocks.

The layers of all groups lie over the same bytes, as vLLM has them; what a rank holds is counted here by hand.
"""

from __future__ import annotations

import itertools
import secrets
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from support import fake_vllm
from support.fake_vllm import BLOCK, PLACE, FakeEngine, Role

from kvproto.adapters import request_parties
from kvproto.adapters.geometry import GeometryError
from kvproto.adapters.request_events import Timing
from kvproto.errors import ArgumentError
from kvproto.fsm.timing import Timer
from kvproto.io.transports.fabric import Fabric
from kvproto.io.transports.memory import MemoryTransport

fake_vllm.install()

from kvproto.adapters.vllm import connector, ranks, windows

BLOCKS, TTL, HEADS, ROW = 120, 3.0, 4, 64
#: layers that attend fully, and by group those with a window, and how long it is; layer 6 has no neighbour in its group
FULL, LOCAL = (2, 5), (((0, 3), 9), ((1, 4), 9), ((6,), 14))
EXTRA = {"chunk_tokens": 2 * BLOCK, "ttl": TTL, "ring_bytes": 1 << 20, "digests": True}
NAMES = map(str, itertools.count())


class FullAttentionSpec(SimpleNamespace): ...


class SlidingWindowSpec(SimpleNamespace): ...


class MambaSpec(SimpleNamespace): ...


def kinds(*more: Any, local: Any = LOCAL) -> Any:
    windowed = ((layers, SlidingWindowSpec(sliding_window=n)) for layers, n in local)
    groups = [(FULL, FullAttentionSpec()), *windowed, *more]
    return SimpleNamespace(kv_cache_groups=[
        SimpleNamespace(layer_names=[f"layers.{layer}.of" for layer in layers], kv_cache_spec=spec)
        for layers, spec in groups
    ])  # fmt: skip


def memory(tp: int) -> dict[str, torch.Tensor]:
    """A worker's cache: one buffer of two regions, in which the layers of all groups lie."""
    buffer = torch.randint(0, 256, (2, BLOCKS, HEADS // tp * BLOCK * ROW), dtype=torch.uint8)
    return {
        f"layers.{layer}.of": buffer[at].view(BLOCKS, HEADS // tp, BLOCK, ROW)
        for layers in (FULL, *(layers for layers, _ in LOCAL)) for at, layer in enumerate(layers)
    }  # fmt: skip


def row(name: str, layer: int, head: int, token: int) -> torch.Tensor:
    bits = torch.Generator().manual_seed(hash((name, layer, head, token)) % (1 << 40))
    return torch.randint(0, 256, (ROW,), dtype=torch.uint8, generator=bits)


class Windows:
    """A prefill and a decode instance, and a router."""

    def __init__(self, prefill: int, decode: int) -> None:
        self.tp = {"kv_producer": prefill, "kv_consumer": decode}
        self.caches: dict[tuple[str, int], dict[str, torch.Tensor]] = {}
        self.prefill, self.decode = self.engine("kv_producer"), self.engine("kv_consumer")
        cards = {(0, rank): worker.get_handshake_metadata() for rank, worker in enumerate(self.prefill.workers)}
        self.prefill.connector.set_xfer_handshake_metadata_pp_aware(cards)
        self.decode.landed = self.landed

    def engine(self, role: str) -> FakeEngine:
        tp = self.tp[role]

        def make(kind: Role, rank: int) -> Any:
            PLACE[0] = rank
            made = connector.KVProtoConnector(fake_vllm.config(role, tp, EXTRA, role), kind, kinds())
            if kind is Role.WORKER:
                self.caches[role, rank] = memory(tp)
                made.register_kv_caches(self.caches[role, rank])
            return made

        return FakeEngine(make, tp, BLOCKS, chunk=2 * BLOCK, windows=tuple(n for _, n in LOCAL))

    def ask(self, tokens: int) -> str:
        name, room = next(NAMES), secrets.randbits(63)
        theirs = {"do_remote_prefill": True, "room": room, "card": self.prefill.connector.card}
        self.decode.add(f"{name}/D", tokens, theirs)
        self.prefill.add(f"{name}/P", tokens, {"do_remote_decode": True, "room": room})
        return name

    def places(self, tables: Any, blocks: list[int], first: int, upto: int, *, seen: bool) -> Iterator[Any]:
        """Yield (layer, token, block) of these tokens; `seen`: only those that the next token looks back at."""
        for layer, token in itertools.product(FULL, range(first, upto)):
            yield layer, token, blocks[token // BLOCK]
        for (layers, window), table in zip(LOCAL, tables, strict=True):
            begin = max(first, upto - window + 1) if seen else first
            for layer, token in itertools.product(layers, range(begin, upto)):
                yield layer, token, table[token // BLOCK]

    def compute(self, name: str, first: int, upto: int, blocks: list[int]) -> None:
        request, tp, plain = self.prefill.requests[name], self.tp["kv_producer"], name.split("/", maxsplit=1)[0]
        for rank in range(tp):
            for layer, token, block in self.places(request.windows, blocks, first, upto, seen=False):
                for head in range(HEADS // tp):
                    to = self.caches["kv_producer", rank][f"layers.{layer}.of"][block, head, token % BLOCK]
                    to.copy_(row(plain, layer, rank * HEADS // tp + head, token))

    def landed(self, name: str, blocks: list[int]) -> None:
        """Every row that the last token looks back at is what the prefill ranks computed."""
        request, tp, plain = self.decode.requests[name], self.tp["kv_consumer"], name.split("/", maxsplit=1)[0]
        tokens = request.num_prompt_tokens - 1
        for rank in range(tp):
            for layer, token, block in self.places(request.windows, blocks, 0, tokens, seen=True):
                assert block, (layer, token)
                for head in range(HEADS // tp):
                    found = self.caches["kv_consumer", rank][f"layers.{layer}.of"][block, head, token % BLOCK]
                    assert torch.equal(found, row(plain, layer, rank * HEADS // tp + head, token)), (layer, token)

    def until(self, done: Callable[[], bool], seconds: float = 60.0) -> None:
        end = time.monotonic() + seconds
        while not done():
            self.prefill.step(self.compute)
            self.decode.step()
            time.sleep(1e-3)
            assert time.monotonic() < end

    def carried(self, name: str) -> None:
        self.until(lambda: f"{name}/D" in self.decode.resumed)
        assert self.decode.resumed[f"{name}/D"] is False

    def quiet(self) -> bool:
        return all(not engine.requests and len(engine.free) == BLOCKS - 1 for engine in (self.prefill, self.decode))


@pytest.fixture(scope="module", autouse=True)
def _fabric() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(connector, "check", lambda: None)
        patch.setattr(request_parties, "Timing", lambda: Timing(renew=Timer(TTL / 6)))
        fabric = Fabric(auto=True)
        patch.setattr(ranks, "NixlTransport", lambda: MemoryTransport(fabric))
        yield


@pytest.fixture(scope="module", params=[(1, 2), (2, 1)], ids=["1 to 2", "2 to 1"])
def both(request: Any) -> Iterator[Windows]:
    made = Windows(*request.param)
    yield made
    made.prefill.close()
    made.decode.close()


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


def test_what_the_decode_instance_has_of_a_window_is_not_written_again(both: Windows) -> None:
    """The blocks of a prefix are others', too."""
    geometry = both.decode.workers[0].worker.geometry
    tables = (0, 0, 13, 14, 15, 16), (0, 0, 23, 24, 25, 26), (0, 32, 33, 34, 35, 36)
    short, long = geometry.windows[0], geometry.windows[2]
    spans = {end.end.name: end.end.window for end in geometry.pool.ends}
    found = geometry.window(tables, 6, have=5)
    assert found == {short: [([0] * 9 + table)[-spans[short]:] for table in ([16], [26])],
                     long: ([0] * 9 + [36])[-spans[long]:]}  # fmt: skip
    whole = geometry.window(tables, 6)
    wanted = [list(table)[-spans[name] :] for name, table in zip(geometry.windows, tables, strict=True)]
    assert whole == {short: wanted[:2], long: wanted[2]}


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
    made = windows.geometry_of_windows(held, kinds(), HEADS, 2, 1, dtype="uint8", opaque=opaque)
    layout = made.layout
    assert (made.unit, layout.page_size, layout.layers, layout.tp) == (unit, size, 7, 2)
    assert {each.dtype for each in layout.named} == {dtype}
    rows = {f"window{window}": windows.blocks_of(window, unit) for window in (9, 14)}
    assert {each.name: each.window for each in layout.ends} == rows
    # K of layer 2, which attends fully, lies where vLLM has it
    assert made.pool.first.data_ptr() == held["layers.2.of"].data_ptr()


def test_a_layer_in_no_group_is_refused_by_name() -> None:
    tensors = memory(1) | {"layers.9.of": torch.zeros(BLOCKS, HEADS, BLOCK, ROW, dtype=torch.uint8)}
    with pytest.raises(GeometryError, match=r"tensor 'layers.9.of' is in no cache"):
        windows.geometry_of_windows(tensors, kinds(), HEADS, 1, 0, dtype="uint8", opaque="vllm-cpu")

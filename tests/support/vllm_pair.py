"""vLLM pair: scripted instances of vLLM, prefill and decode, of any ranks and stages."""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import pytest
import torch

from kvproto.adapters import request_parties
from kvproto.adapters.request_events import Timing
from kvproto.fsm.timing import Timer
from kvproto.io.transports.fabric import Fabric
from kvproto.io.transports.memory import MemoryTransport
from support import fake_vllm
from support.engine_pair import EnginePair
from support.fake_vllm import BLOCK, PLACE, STAGE, Exchange, FakeEngine, Role

fake_vllm.install()

from kvproto.adapters.vllm import connector, ranks, stages

TTL = 3.0
EXTRA = {"chunk_tokens": 2 * BLOCK, "ttl": TTL, "ring_bytes": 1 << 20}
NAMES, EXCHANGE = map(str, itertools.count()), Exchange()
#: ranks of tensor parallelism, and stages
Shape = tuple[int, int]


@contextmanager
def on_a_fabric(cut: Callable[[int, int], tuple[int, int]] | None = None) -> Iterator[None]:
    """Have connectors move bytes in memory; `cut`: the layers (first, end) of (stage, stages)."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(connector, "check", lambda: None)
        patch.setattr(request_parties, "Timing", lambda: Timing(renew=Timer(TTL / 6)))
        fabric = Fabric(auto=True)
        patch.setattr(ranks, "NixlTransport", lambda: MemoryTransport(fabric))
        if cut is not None:
            patch.setattr(stages, "exchange", EXCHANGE)
            patch.setattr(ranks, "get_pp_indices", lambda _, stage, stages: cut(stage, stages))
        yield
        STAGE[0] = PLACE[0] = 0


def row_of_bytes(name: str, layer: int, head: int, token: int, *, size: int) -> torch.Tensor:
    """The row of KV that a forward computes."""
    bits = torch.Generator().manual_seed(hash((name.split("/", maxsplit=1)[0], layer, head, token)) % (1 << 40))
    return torch.randint(0, 256, (size,), dtype=torch.uint8, generator=bits)


class VllmPair(EnginePair):
    """Both instances, and a router between them; a subclass has their caches."""

    blocks: ClassVar[int]
    layers: ClassVar[int]
    #: of the connector, and of the scripted engine
    extra: ClassVar[dict[str, Any]] = EXTRA
    scripted: ClassVar[dict[str, Any]] = {}

    def __init__(self, prefill: Shape, decode: Shape) -> None:
        self.cut = {"kv_producer": prefill, "kv_consumer": decode}
        self.caches: dict[tuple[str, int], Any] = {}
        self.prefill, self.decode = self.engine("kv_producer"), self.engine("kv_consumer")
        told = [
            (divmod(rank, prefill[0]), each.get_handshake_metadata()) for rank, each in enumerate(self.prefill.workers)
        ]
        self.prefill.connector.set_xfer_handshake_metadata_pp_aware(dict(reversed(told)))
        self.decode.landed = self.landed

    def kinds(self, tp: int, stage: int, stages: int) -> Any:
        """vLLM's KVCacheConfig of a rank; None: of full attention alone, which nobody asks for."""

    def memory(self, tp: int, stage: int, stages: int) -> dict[str, torch.Tensor]:
        """Make the caches of a rank."""
        raise NotImplementedError

    def landed(self, name: str, blocks: list[int]) -> None:
        """Compare what has landed with what was computed."""
        raise NotImplementedError

    def engine(self, role: str) -> FakeEngine:
        tp, pp = self.cut[role]

        def make(kind: Role, rank: int) -> Any:
            STAGE[0], PLACE[0] = divmod(rank, tp)
            config = fake_vllm.config(role, tp, self.extra, role, pp=pp, layers=self.layers)
            made = connector.KVProtoConnector(config, kind, self.kinds(tp, STAGE[0], pp))
            if kind is Role.WORKER:
                self.caches[role, rank] = self.memory(tp, STAGE[0], pp)
                made.register_kv_caches(self.caches[role, rank])
            return made

        if pp > 1:
            EXCHANGE.ask(make, tp, pp)
        return FakeEngine(make, tp * pp, self.blocks, chunk=2 * BLOCK, stages=pp, **self.scripted)

    def ask(self, tokens: int, *, hit: int = 0, prefill: bool = True) -> str:
        """A request at both instances; the decode instance has `hit` of its tokens cached."""
        name, room = next(NAMES), secrets.randbits(63)
        self.decode.hits[f"{name}/D"] = hit
        theirs = {"do_remote_prefill": True, "room": room, "card": self.prefill.connector.card}
        self.decode.add(f"{name}/D", tokens, theirs)
        if prefill:
            self.prefill.add(f"{name}/P", tokens, {"do_remote_decode": True, "room": room})
        return name

    def close(self) -> None:
        self.prefill.close()
        self.decode.close()

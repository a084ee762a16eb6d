"""Engine groups: two groups with pools as engines make them, and one room over real endpoints.

The fabric is in memory and moves real bytes; afterwards every byte of every decode rank's memory is compared with what
it was before and the model's KV in its place.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from math import lcm
from typing import Self

import torch

from kvproto.adapters.geometry import Shards
from kvproto.data.staging_buffers import Kind
from kvproto.endpoint.decode_endpoint import DecodeEndpoint
from kvproto.endpoint.prefill_endpoint import PrefillEndpoint
from kvproto.io.transports.base import Transport
from kvproto.io.transports.fabric import Fabric
from kvproto.io.transports.memory import MemoryTransport
from kvproto.room import Outcome, Room
from kvproto.settings import Settings
from kvproto.verify.testing.access import inside
from kvproto.verify.testing.pair import TICK_S
from support.engine_pools import HEADS, LAYERS, Cache, Form, fill, make, memory_of, table, truth

ROOM, SETTINGS = Room(1), Settings(ring_bytes=1 << 20, slots=2)


@dataclass(frozen=True)
class Cut:
    """A group: its form, how its layers and heads are cut, and the tokens of its blocks."""

    form: Form
    tp: int = 1
    stages: tuple[int, ...] = ()
    size: int = 4
    heads: int = HEADS

    def caches(self, seed: int, device: str) -> list[Cache]:
        """Return the cache of each rank."""
        stages = self.stages or (LAYERS,)
        shards = [Shards(self.heads, LAYERS, self.tp, len(stages), self.stages, rank)
                  for rank in range(self.tp * len(stages))]  # fmt: skip
        return [make(self.form, each, self.size, stages[each.rank // self.tp], seed + each.rank, device)
                for each in shards]  # fmt: skip


class Groups:
    """A prefill and a decode group, connected."""

    def __init__(
        self, prefill: Cut, decode: Cut, *, settings: Settings = SETTINGS, theirs: Settings | None = None,
        device: str = "cpu", staging: Kind = "device", fabric: Fabric | None = None,
        transport: Callable[[Fabric], Transport] = MemoryTransport,
    ) -> None:  # fmt: skip
        fabric = fabric or Fabric(auto=True)
        self.ours, self.theirs = prefill.caches(100, device), decode.caches(200, device)
        sides = [[each.geometry() for each in caches] for caches in (self.ours, self.theirs)]
        self.geometry = sides[0][0]
        chunk_tokens = 2 * lcm(*(side[0].layout.page_size for side in sides))
        self.prefills = [
            PrefillEndpoint(each.layout, rank, each.pool, transport(fabric), chunk_tokens=chunk_tokens,
                            settings=settings,
                            staging=staging)
            for rank, each in enumerate(sides[0])
        ]  # fmt: skip
        self.decodes = [
            DecodeEndpoint(each.layout, rank, each.pool, transport(fabric), chunk_tokens=chunk_tokens,
                           settings=theirs or settings, staging=staging)
            for rank, each in enumerate(sides[1])
        ]  # fmt: skip

    def connect(self, *, start: bool = False) -> Self:
        """Every link is up, with `start` by loops on threads of their own; LinkError if one is refused."""
        self._started = start
        for each in (*self.prefills, *self.decodes) if start else ():
            each.start()
        for decode in self.decodes:
            decode.connect(inside(self.prefills[0]).rank.layout, [each.address for each in self.prefills])
        self.pump(lambda: all(each.ready() for each in self.decodes))
        return self

    def pump(self, done: Callable[[], bool], seconds: float = 60.0) -> None:
        """Poll all until `done()`; AssertionError with what rooms wait for."""
        end = time.monotonic() + seconds
        while not done():
            if self._started or sum(each.poll() for each in (*self.prefills, *self.decodes)) == 0:
                time.sleep(TICK_S)  # kernels are compiled on a thread that needs the interpreter, too
            assert time.monotonic() < end, [each.explain(ROOM) for each in (*self.prefills, *self.decodes)]

    def move(
        self, tokens: int, prefix: int = 0, *, spoil: Callable[[Cache], None] | None = None,
        beside: Callable[[Cache], None] | None = None,
    ) -> list[Outcome]:  # fmt: skip
        """Transfer one room; return the outcomes on the decode ranks.  `right` says which have exact bytes.

        `spoil` is done to the first prefill rank's cache before it is read, `beside` to the first decode rank's after.
        """
        kv = truth(tokens)
        pages = [table(tokens, caches[0].size, seed) for seed, caches in enumerate((self.ours, self.theirs))]
        for cache in self.ours:
            fill(cache, kv, pages[0], range(tokens))
        if spoil is not None:
            spoil(self.ours[0])
        units, had = self.geometry.units(tokens, whole=True), self.geometry.units(prefix)
        before = [memory_of(cache) for cache in self.theirs]
        for decode in self.decodes:
            decode.open(ROOM, units, pages[1], prefix=had)
        for prefill in self.prefills:
            prefill.open(ROOM, units, pages[0])
            prefill.prefetch(ROOM)
            prefill.produced(ROOM, units)
            prefill.aux(ROOM, b"")
        outcomes: list[Outcome] = []

        def over() -> bool:
            outcomes.extend(outcome for each in self.decodes for outcome in each.finished())
            return len(outcomes) == len(self.decodes)

        self.pump(over)
        if beside is not None:
            beside(self.theirs[0])
        after = [memory_of(cache) for cache in self.theirs]
        for cache, memory in zip(self.theirs, before, strict=True):
            for whole, kept in zip(cache.whole, memory, strict=True):
                whole.view(torch.int32).copy_(kept)
            fill(cache, kv, pages[1], range(prefix, tokens))
        self.right = [
            all(torch.equal(one, other) for one, other in zip(memory_of(cache), memory, strict=True))
            for cache, memory in zip(self.theirs, after, strict=True)
        ]
        return outcomes

    def counts(self) -> Counter[str]:
        """Return the counts of the prefill ranks."""
        total: Counter[str] = Counter()
        for each in self.prefills:
            total.update(inside(each).data.stats)
        return total

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for each in (*self.prefills, *self.decodes):
            each.close()

"""Cache calls: chunks of models with several caches through the kernels, as endpoints call them.

A row is one chunk of a room: gathered by the first prefill rank for the first decode rank, or scattered by that one
from all of its writers.  All caches of the chunk go in one launch (`kvproto.data.chunk_launch`).  Pages, slots and
windows are drawn at random; every byte is compared with plain indexing before a row is timed.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from kvproto.data.chunk_launch import Staged, bind_chunk
from kvproto.data.room_entry import RoomEntry
from kvproto.data.staging_buffers import Parts
from kvproto.endpoint.last_rows import prepare_ends
from kvproto.io.kernels.base import Kernels, Side
from kvproto.io.kernels.cache_pool import CachePool
from kvproto.io.kernels.torch import TorchKernels
from kvproto.lab.bench.kernel_work import SPARE, device_times, host_times
from kvproto.lab.bench.pools import MARKER, random_bytes
from kvproto.layout.caches import END, WINDOW, Cache, CachePart
from kvproto.layout.cut import Cut, chunks, cut_at
from kvproto.layout.plan import Plan
from kvproto.layout.sharding import Layout
from kvproto.verify.testing.pools import tensors_of

#: tokens of a chunk at most, slots of a pool, and calls of which the host's time is a median
CHUNK, SLOTS, CALLS = 8192, 6, 200


class CacheShape(NamedTuple):
    """A room of a model: its caches, who sends to whom, and its tokens."""

    name: str
    caches: tuple[Cache, ...]
    layers: int
    pair: tuple[int, int]
    tokens: int = CHUNK
    page: int = 64
    #: a cache whose parts lie one behind the other in each page of one tensor, as the keys and scales of an index
    woven: str = ""

    @property
    def plan(self) -> Plan:
        ours, theirs = (
            Layout.of_caches(self.caches, layers=self.layers, page_size=self.page, tp=tp) for tp in self.pair
        )
        return Plan(ours, theirs, CHUNK)

    @property
    def cuts(self) -> list[Cut]:
        """The chunks of the room."""
        plan = self.plan
        about = self.tokens, 0, CHUNK, 1, plan.state_groups
        return [cut_at(k, *about, plan.joint_tokens) for k in range(chunks(*about, plan.joint_tokens))]


def heads(units: int, row: int) -> tuple[CachePart, ...]:
    return CachePart("k", units, row), CachePart("v", units, row)


#: of Qwen3.5-397B: each fourth layer attends fully, by two heads in fp8
FULL = tuple(range(3, 60, 4))
DELTA = tuple(CachePart(name, units, 128 * 3 * 2) for name, units in (("q", 16), ("k", 16), ("v", 64)))
QWEN = (
    Cache("full", heads(2, 256), FULL),
    Cache("gdn", (*DELTA, CachePart("ssm", 64, 128 * 128 * 4)), tuple({*range(60)} - {*FULL}), travels=END),
)
#: of DeepSeek-V3.2 in fp8: a latent with its scales, and an index with a scale a token
LATENT = Cache("latent", (CachePart("kv", 1, 656),))
INDEX = Cache("index", (CachePart("key", 1, 128), CachePart("scale", 1, 4)))
#: of gpt-oss-120b
OSS = (
    Cache("full", heads(8, 128), tuple(range(1, 36, 2))),
    Cache("local", heads(8, 128), tuple(range(0, 36, 2)), travels=WINDOW, window=128),
)
SHAPES = (
    CacheShape("Qwen3.5-397B", QWEN, 60, (4, 1), 1000),
    CacheShape("Qwen3.5-397B", QWEN, 60, (4, 1)),
    CacheShape("DeepSeek-V3.2", (LATENT, INDEX), 61, (1, 1), woven="index"),
    CacheShape("gpt-oss-120b", OSS, 36, (4, 1)),
    CacheShape("gpt-oss-120b", OSS, 36, (1, 4)),
    CacheShape("index rows of 132 bytes", (Cache("index", (CachePart("row", 1, 132),)),), 61, (1, 1)),
)


def random_caches(shape: CacheShape, layout: Layout, pages: int, device: torch.device) -> CachePool:
    """The first rank's pool, of random bytes."""
    parts, tensors = dict[str, list[torch.Tensor]](), dict[str, torch.Tensor]()
    every = ((each, kind) for each in (layout, *layout.ends) for kind in each.kinds)
    for each, kind in every:
        units, layers = each.units_of(kind, 0)[1], each.rows_of(kind, 0)[1]
        held = SLOTS if kind.at_end and not each.window else pages
        form = held, each.page_size, units, kind.row
        woven, views = kind.cache == shape.woven, parts.setdefault(kind.name, [])
        for at in range(layers):
            if woven:
                row = sum(part.row_bytes for cache in shape.caches if cache.name == kind.cache for part in cache.parts)
                whole = tensors.setdefault(f"{kind.cache} {at}", _random(held * each.page_size * row, device))
                before = each.page_size * _before(shape, kind.cache, kind.part)
                strides = each.page_size * row, units * kind.row, kind.row, 1
                views.append(whole.as_strided(form, strides, before))
            else:
                count = held * each.page_size * units * kind.row
                views.append(tensors.setdefault(f"{kind.name} {at}", _random(count, device)).view(form))
    return CachePool(layout, 0, parts, tensors)


def _before(shape: CacheShape, cache: str, part: str) -> int:
    parts = next(each.parts for each in shape.caches if each.name == cache)
    return sum(each.row_bytes for each in parts[: [each.name for each in parts].index(part)])


def _random(nbytes: int, device: torch.device) -> torch.Tensor:
    return random_bytes(-(-nbytes // 8) * 8, device=device)[:nbytes]


@dataclass(slots=True)
class CacheCall:
    """One chunk's call, ready to be made again and again."""

    side: Side
    pool: CachePool
    entry: RoomEntry
    cut: Cut
    parts: list[Staged]
    buffer: torch.Tensor
    staged: Parts

    @property
    def nbytes(self) -> int:
        return sum(part.nbytes for part, _ in self.parts)

    def prepare(self, kernels: Kernels) -> None:
        """Prepare its kernels, as a link does."""
        blocks = [block for part, _ in self.parts for block in part.blocks(self.cut)]
        tokens, ends = ([block.share for block in blocks if block.at_end is at_end] for at_end in (False, True))
        if tokens:
            kernels.prepare(self.pool, self.side, tokens)
        if ends:
            prepare_ends(kernels, self.side, self.pool, iter([ends]), tokens)

    def run(self, kernels: Kernels) -> Any:
        return bind_chunk(kernels, self.side, self.pool, self.entry, self.cut, self.parts, self.staged)(None, None)

    def check(self, kernels: Kernels) -> bool:
        """Whether the kernels do what plain indexing does, and touch nothing else."""
        wanted, found = self._left_by(TorchKernels()), self._left_by(kernels)
        return all(torch.equal(one, other) for one, other in zip(wanted, found, strict=True))

    def _left_by(self, kernels: Kernels) -> list[torch.Tensor]:
        written = [self.buffer] if self.side == "gather" else tensors_of(self.pool)
        for tensor in written:
            tensor.fill_(MARKER)
        ticket = self.run(kernels)
        while not ticket.done():
            pass
        return [tensor.clone() for tensor in written]


def make_call(shape: CacheShape, side: Side, cut: Cut, device: torch.device) -> CacheCall:
    plan = shape.plan
    layout = plan.prefill if side == "gather" else plan.decode
    used = -(-shape.tokens // shape.page)
    pool = random_caches(shape, layout, int(used * SPARE) + 3, device)
    table = torch.randperm(pool.pages, device=device)[:used]
    entry = RoomEntry(shape.tokens, table, table.cpu().numpy(), used)
    for end in pool.ends:
        rows = end.first_row(shape.tokens) + end.end.last_rows(shape.tokens)
        count = -(-rows // end.page_size) if end.end.window else 1
        mine = torch.randperm(end.pages, device=device)[:count]
        entry.ends += (tuple(mine.tolist()),)
        entry.end_tables += (mine if end.end.window else None,)
    writers = (0,) if side == "gather" else plan.fan_in(0, cut)
    owed = [plan.part(writer, 0, cut) for writer in writers]
    parts = [(part, 0 if side == "gather" else part.offset) for part in owed]
    buffer = _random(max(first + part.nbytes for part, first in parts), device)
    return CacheCall(side, pool, entry, cut, parts, buffer, Parts(buffer))


def measure_caches(shape: CacheShape, kernels: Kernels, repeats: int) -> Iterator[dict[str, Any]]:
    """Yield a row for each direction of each chunk of the room."""
    sides: tuple[Side, ...] = ("gather", "scatter")
    for side in sides:
        for cut in shape.cuts:
            call = make_call(shape, side, cut, torch.device("cuda"))
            call.prepare(kernels)
            right, (source, target) = call.check(kernels), (torch.empty_like(call.buffer) for _ in range(2))
            copy, kernel = device_times([lambda: target.copy_(source), lambda: call.run(kernels)], repeats)  # noqa: B023  # used at once
            yield {
                "what": side, "model": shape.name, "pair": "->".join(map(str, shape.pair)), "tokens": cut.tokens,
                "state": cut.state, "parts": len(call.parts), "bytes": call.nbytes, "ratio": copy / kernel,
                "copy_gbs": 2e-9 * call.nbytes / copy, "kernel_gbs": 2e-9 * call.nbytes / kernel,
                "host_us": 1e6 * statistics.median(host_times(lambda: call.run(kernels), CALLS)), "right": right,  # noqa: B023
            }  # fmt: skip

"""Caches: rates of one launch for all parts of named caches, beside a launch a part and a copy.

A row is one model's caches, or its state, at one direction: the first writer's share of the first reader, in random
distinct pages (state: in one of two slots).
`one` is the launch that an endpoint makes for it; `each` is what pools of one kind need, a launch for every part.  The
figure is the copy's time on the device over the launch's; copy and launches take turns.  Every row is checked against
plain indexing before it is timed.

The host's time of a call is measured apart, since at 1,000 tokens it is more than the device's.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import torch

from kvproto.arguments import positive, several
from kvproto.io.kernels.base import Kernels, Pool, Side
from kvproto.io.kernels.cache_pool import CachePool
from kvproto.io.kernels.torch import TorchKernels
from kvproto.lab.bench.kernel_work import SPARE, device_times
from kvproto.lab.bench.pools import random_bytes
from kvproto.lab.bench.results import Course, command_line
from kvproto.layout.caches import END, Cache, CachePart
from kvproto.layout.cut import Cut
from kvproto.layout.plan import Plan, Share
from kvproto.layout.sharding import Layout


@dataclass(frozen=True)
class Model:
    """A model's caches, and the tensor-parallel sizes between which they move."""

    name: str
    layers: int
    caches: tuple[Cache, ...]
    tp: tuple[int, int]
    page: int = 64

    @property
    def state(self) -> bool:
        """Whether it is a model's state, whose pages are slots of one token."""
        return self.caches[0].travels == END

    def plan(self) -> Plan:
        def layout(tp: int) -> Layout:
            return Layout.of_caches(self.caches, layers=self.layers, page_size=self.page, tp=tp)

        return Plan(layout(self.tp[0]), layout(self.tp[1]), self.page)


def heads(units: int, row: int) -> tuple[CachePart, ...]:
    return CachePart("k", units, row), CachePart("v", units, row)


#: the cache whose parts share the pages of one tensor
INDEX = "index"
MLA, SPARSE_KEYS = CachePart("latent", 1, 656), (CachePart("key", 1, 128), CachePart("scale", 1, 4))
SPARSE = Cache("mla", (MLA,)), Cache(INDEX, SPARSE_KEYS)
SCALED = (*heads(8, 64), CachePart("k scale", 8, 8), CachePart("v scale", 8, 8))
#: a convolution of q, k and v over four taps, and the heads of the recurrence; x, B and C of one group
DELTA = tuple(CachePart(name, units, 128 * 3 * 2) for name, units in (("q", 16), ("k", 16), ("v", 64)))
GDN = Cache("gdn", (*DELTA, CachePart("ssm", 64, 128 * 128 * 4)), travels=END)
MAMBA = (CachePart("x", 128, 64 * 3 * 2), CachePart("B", 1, 128 * 3 * 2), CachePart("C", 1, 128 * 3 * 2))
SSM = Cache("mamba2", (*MAMBA, CachePart("ssm", 128, 64 * 128 * 4)), travels=END)
#: layers of other models between those that a cache has are left out: they have caches that do not travel by token
MODELS = (
    Model("DeepSeek-V3.2: latent 656, key 128, scale 4", 61, SPARSE, (1, 1)),
    Model("the same, a replica of eight", 61, SPARSE, (8, 1)),
    Model("Qwen3.5-397B, K and V of 15 layers, 4 to 1", 15, (Cache("full", heads(2, 256)),), (4, 1)),
    Model("Llama-3-70B, 4 to 1", 80, (Cache("kv", heads(8, 256)),), (4, 1), 16),
    Model("gpt-oss-120b, K and V of 18 layers, 4 to 1", 18, (Cache("full", heads(8, 128)),), (4, 1), 16),
    Model("values of four bits with scales, 4 to 1", 61, (Cache("kv", SCALED),), (4, 1), 16),
    Model("Qwen3.5-397B, state of 45 layers, 4 to 1", 45, (GDN,), (4, 1), 1),
    Model("Granite-4-H-Small, state of 36 layers, 4 to 1", 36, (SSM,), (4, 1), 1),
    Model("target and a draft of other heads, 2 to 1", 60,
          (Cache("kv", heads(8, 256), tuple(range(59))), Cache("draft", heads(4, 192), (59,))), (2, 1), 16),
)  # fmt: skip


class CacheCall:
    """One share of a model in one direction, ready to be moved in one launch, or in one for each part."""

    def __init__(self, model: Model, side: Side, tokens: int) -> None:
        plan = model.plan()
        self.side, self.tokens, self.share = side, tokens, plan.duties(0)[0]
        layout = plan.prefill if side == "gather" else plan.decode
        used = -(-tokens // model.page)
        self.pool = random_caches(layout, int(used * SPARE) + 1)
        self.table = torch.randperm(self.pool.pages, device="cuda")[:used]
        self.nbytes = plan.part_bytes(self.share, Cut(0, tokens))
        self.staged = random_bytes(-(-self.nbytes // 8) * 8)[: self.nbytes]
        self.apart, at = list[tuple[Pool, Share, torch.Tensor]](), 0
        for number, (kind, tensors) in enumerate(zip(layout.kinds, self.pool.kinds, strict=True)):
            piece = self.share.piece(number)
            size = piece.units * piece.layers * kind.row * tokens
            if size:
                alone = Share(0, 0, piece.src_unit, piece.dst_unit, piece.units, piece.src_layer, piece.dst_layer,
                              piece.layers)  # fmt: skip
                self.apart.append((Pool(tensors, [], layout.order), alone, self.staged[at : at + size]))
                at += size

    def one(self, kernels: Kernels) -> None:
        self._move(kernels, self.pool, self.share, self.staged)

    def each(self, kernels: Kernels) -> None:
        for pool, share, staged in self.apart:
            self._move(kernels, pool, share, staged)

    def _move(self, kernels: Kernels, pool: Pool, share: Share, staged: torch.Tensor) -> None:
        cell = pool, self.table, 0, self.tokens
        if self.side == "gather":
            kernels.gather(*cell, share, staged)
        else:
            kernels.scatter(*cell, [(share, staged)])

    def right(self, kernels: Kernels) -> bool:
        """Whether the launch does what plain indexing does: the staged bytes, or every byte of the pool."""
        found = []
        for some in (TorchKernels(), kernels):
            if self.side == "gather":
                self.staged.fill_(0xA5)
                self.one(some)
                found.append([self.staged.clone()])
            else:
                for tensors in self.pool.kinds:
                    for tensor in tensors:
                        tensor.fill_(0xA5)
                self.one(some)
                found.append([tensor.clone() for tensors in self.pool.kinds for tensor in tensors])
        return all(map(torch.equal, *found))


def random_caches(layout: Layout, pages: int) -> CachePool:
    """Make the first rank's pool of random bytes; a page of an index has its keys before its scales."""
    parts: dict[str, list[torch.Tensor]] = {kind.name: [] for kind in layout.kinds}
    tensors: dict[str, torch.Tensor] = {}
    for cache in layout.named:
        kinds = [kind for kind in layout.kinds if kind.cache == cache.name]
        shapes = [(layout.page_size, layout.units_of(kind, 0)[1], kind.row) for kind in kinds]
        sizes = [page * units * row for page, units, row in shapes]
        for layer in range(len(kinds[0].layers)):
            for some in [range(len(kinds))] if cache.name == INDEX else [[at] for at in range(len(kinds))]:
                block = tensors[f"{cache.name} {layer} {some[0]}"] = random_bytes(pages, sum(sizes[at] for at in some))
                begin = 0
                for at in sorted(some, key=lambda at: -sizes[at]):
                    view = block[:, begin : begin + sizes[at]].view(pages, *shapes[at])
                    parts[kinds[at].name].append(view)
                    begin += sizes[at]
    return CachePool(layout, 0, parts, tensors)


def host_us(call: Callable[[], Any], calls: int) -> float:
    """Microseconds until a call returns, the median."""
    spent = []
    for turn in range(calls):
        begin = time.perf_counter()
        call()
        spent.append(time.perf_counter() - begin)
        if turn % 16 == 15:
            torch.cuda.synchronize()
    return 1e6 * statistics.median(spent)


def measure(model: Model, side: Side, tokens: int, kernels: Kernels, repeats: int) -> dict[str, Any]:
    """One row."""
    tokens = 1 if model.state else tokens
    work = CacheCall(model, side, tokens)
    right = work.right(kernels)
    source, target = (random_bytes(-(-work.nbytes // 8) * 8) for _ in range(2))
    copy, one, each = device_times(
        [lambda: target.copy_(source), lambda: work.one(kernels), lambda: work.each(kernels)], repeats
    )
    return {
        "what": side, "model": model.name, "tokens": tokens, "bytes": work.nbytes, "launches": len(work.apart),
        "copy_us": 1e6 * copy, "one": copy / one, "each": copy / each,
        "one_host_us": host_us(lambda: work.one(kernels), 20 * repeats),
        "each_host_us": host_us(lambda: work.each(kernels), 20 * repeats), "right": right,
    }  # fmt: skip


def told(row: dict[str, Any]) -> str:
    """A row as soon as it is measured."""
    what = f"{row['what']} {row['model']}, {row['tokens']} tokens, {row['bytes'] / 2**20:.1f} MiB"
    host = f"host us {row['one_host_us']:.0f}, {row['each_host_us']:.0f}"
    return f"{what}: {row['one']:.3f} of the copy, {row['launches']} launches {row['each']:.3f}; {host}"


def main(argv: Sequence[str] | None = None) -> int:
    """Print the rows; 1 if any was wrong, 2 if there is no GPU."""
    parser = command_line("caches", __doc__)
    parser.add_argument("--tokens", type=several(positive), default=[1000, 8192], metavar="LIST",
                        help="tokens of a chunk (default 1000,8192)")  # fmt: skip
    parser.add_argument("--repeats", type=positive, default=15, help="timed calls of each, in turns (default 15)")
    options = parser.parse_args(argv)
    if not torch.cuda.is_available():
        print("This benchmark needs a CUDA GPU, and torch sees none here.", file=sys.stderr)
        return 2
    from kvproto.io.kernels.triton import TritonKernels

    course, kernels, found = Course("caches", argv, options), TritonKernels(), list[dict[str, Any]]()
    sides: tuple[Side, ...] = ("gather", "scatter")
    every, once = product(MODELS, options.tokens, sides), options.tokens[0]
    cases = [(model, tokens, side) for model, tokens, side in every if tokens == once or not model.state]
    for model, tokens, side in course.cases(cases):
        found.append(measure(model, side, tokens, kernels, options.repeats))
        course.keep({"caches": found}, told(found[-1]))
        torch.cuda.empty_cache()
    course.end({"caches": found})
    return 0 if all(row["right"] for row in found) else 1


if __name__ == "__main__":
    raise SystemExit(main())

"""Page digests: digests of what a rank's pages hold of some tokens, alike for every TP and page size.

They are those of `kernels.digest`, made by a gather into scratch memory, of all layers and heads of the rank.  Digests
of disjoint ranges add up, so the scratch is small however many tokens there are.
"""

from __future__ import annotations

from collections import Counter
from copy import copy
from typing import Any

import torch

from kvproto.io.kernels.base import Kernels, Pool
from kvproto.io.kernels.digest import new_table, read_table
from kvproto.io.kernels.digesting import DigestingKernels, read_back
from kvproto.layout.plan import plan_between
from kvproto.layout.sharding import Layout

#: bytes that are gathered at a time
SCRATCH = 64 << 20


def page_digests(
    kernels: Kernels, layout: Layout, index: int, pool: Pool, pages: Any, first: int, upto: int
) -> dict[str, str]:  # fmt: skip
    """Return {"layer/head" or "layer/unit/cache.part": digest in hex} of tokens `first` .. `upto - 1`.

    Waits for the device.  `kernels` gather for nobody else meanwhile; `pages`: the room's, from its first token on.
    """
    pool = copy(pool)
    pool.forget_cuts()  # the loop's kernels keep theirs in the pool's own
    digesting = DigestingKernels(kernels, layout, index)
    # Between two groups of this layout a rank's share is all that it holds; of replicas any one may be the writer.
    shares = tuple(read_back(share) for share in plan_between(layout, layout, layout.page_size).writers(index))
    table = torch.as_tensor(pages, dtype=torch.int64, device=pool.device)
    sums = Counter[str]()
    for share in shares:
        width = pool.part_bytes(share, 1)
        step = max(1, SCRATCH // width // layout.page_size) * layout.page_size
        out = torch.empty(width * min(step, upto - first), dtype=torch.uint8, device=pool.device)
        for begin in range(first, upto, step):
            tokens = min(step, upto - begin)
            made = new_table((share,), pool.device)
            kernels.gather_parts(pool, table, begin, tokens, ((share, out[: width * tokens]),), digest=made)
            for (_, *place), number in zip(digesting.places("gather", begin, (share,)), read_table(made), strict=True):
                sums["/".join(map(str, place))] += number
    return {place: f"{number & (1 << 64) - 1:016x}" for place, number in sums.items()}

"""Pools of noise, and what an endpoint still holds: how a pair is filled and judged."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from kvproto.endpoint.endpoint import Endpoint
from kvproto.io.kernels.base import Pool
from kvproto.io.kernels.cache_pool import CachePool
from kvproto.layout.sharding import Layout
from kvproto.verify.testing.access import inside


def noise(layout: Layout, rank: int, pages: int, seed: int) -> Pool:
    """A rank's pool of so many pages: what equal seeds give to equal (page, token, head, layer) is equal.

    Of named caches only the pool of one rank is so.
    """
    if layout.named:
        return _noise_of_caches(layout, rank, pages, seed)
    first, heads = layout.heads_of(rank)
    start, layers = layout.layers_of(rank)

    def tensor(layer: int, dim: int, kind: int) -> torch.Tensor:
        bits = torch.Generator().manual_seed(seed << 20 | layer << 2 | kind)
        shape = (pages * layout.page_size, layout.heads, dim * layout.itemsize)
        whole = torch.randint(0, 256, shape, dtype=torch.uint8, generator=bits)
        mine = whole[:, first : first + heads].reshape(pages, layout.page_size, heads, dim * layout.itemsize)
        mine = mine.contiguous().view({1: torch.uint8, 2: torch.bfloat16, 4: torch.float32}[layout.itemsize])
        return mine if layout.order == "NHD" else mine.transpose(1, 2).contiguous()

    own = range(start, start + layers)
    values = [tensor(layer, layout.v_dim, 1) for layer in own] if layout.v_dim else []
    return Pool([tensor(layer, layout.k_dim, 0) for layer in own], values, layout.order, layout.page_size)


def pages_at_end(layout: Layout, pages: int) -> int:
    """Slots of state, or pages of a window (as this layout of `ends` says), beside so many pages."""
    return pages if layout.window else max(2, pages // 8)


def empty_caches(
    layout: Layout, rank: int, pages: int, slots: int = 0, device: torch.device | str = "cpu"
) -> CachePool:  # fmt: skip
    """A rank's pool of named caches, of whatever bytes; `slots`: of each at the end (0: `pages_at_end`).

    A part of state is one tensor of all layers, as in SGLang; other parts have one for each layer."""
    parts = dict[str, list[torch.Tensor]]()
    for each, held in ((layout, pages), *((end, slots or pages_at_end(end, pages)) for end in layout.ends)):
        for kind in each.kinds:
            inner = (each.page_size, each.units_of(kind, rank)[1])
            shape = held, *(inner if each.order == "NHD" else inner[::-1]), kind.row
            layers = each.rows_of(kind, rank)[1]
            if each is layout or each.window:
                parts[kind.name] = [torch.empty(shape, dtype=torch.uint8, device=device) for _ in range(layers)]
            else:
                parts[kind.name] = [*torch.empty((layers, *shape), dtype=torch.uint8, device=device)]
    tensors = {f"{name} {at}": view for name, views in parts.items() for at, view in enumerate(views)}
    return CachePool(layout, rank, parts, tensors)


def tensors_of(pool: Pool) -> list[torch.Tensor]:
    """Every tensor of the pool by kind and layer, those of its state last."""
    return [tensor for tensors in pool.every for tensor in tensors]


def _noise_of_caches(layout: Layout, rank: int, pages: int, seed: int) -> CachePool:
    pool = empty_caches(layout, rank, pages)
    bits = torch.Generator().manual_seed(seed << 20 | rank)
    for tensor in tensors_of(pool):
        tensor.copy_(torch.randint(0, 256, tensor.shape, dtype=torch.uint8, generator=bits))
    return pool


def tokens_of(pool: Pool, pages: list[int]) -> list[torch.Tensor]:
    """Each tensor of the pool as [token, head, byte], over these pages in this order."""
    found = []
    for tensor in (*pool.k, *pool.v):
        rows = tensor[pages] if pool.order == "NHD" else tensor[pages].transpose(1, 2)
        found.append(rows.contiguous().view(torch.uint8).reshape(len(pages) * pool.page_size, pool.heads, -1))
    return found


def whole_model(layout: Layout) -> Layout:
    return Layout(
        layers=layout.layers, heads=layout.heads, k_dim=layout.k_dim, v_dim=layout.v_dim, itemsize=layout.itemsize,
        dtype=layout.dtype, page_size=layout.page_size, tp=1, order=layout.order,
    )  # fmt: skip


def left_over(endpoint: Endpoint) -> list[str]:
    """Return the endpoint's holdings of rooms although all of its rooms are over."""
    rank, _, entries, data = inside(endpoint)
    writes = getattr(data, "writes", None)
    holds = {
        "rooms": rank.rooms, "entries": entries, "sends": getattr(rank, "sends", None),
        "slots": getattr(rank, "slot_of", None), "slot queue": getattr(rank, "slot_queue", None),
        "grants": getattr(rank, "grants", None), "space queue": getattr(rank, "space_queue", None),
        "regions": getattr(rank, "chunk_of", None), "gathers": getattr(data, "gathers", None),
        "writes": writes, "unposted": getattr(writes, "unposted", None), "doubts": getattr(writes, "doubtful", None),
        "rank's writes": rank.writes, "scatters": getattr(data, "scatters", None),
        "ring": getattr(getattr(rank, "ring", None), "live", None),
    }  # fmt: skip
    free = getattr(rank, "free_slots", None)
    if free is not None and len(free) != rank.settings.slots:
        holds["missing slots"] = rank.settings.slots - len(free)
    # what an iterable has is taken at once: the loop may go on meanwhile, on a thread of its own
    told = {name: list(it) if isinstance(it, Iterable) else it for name, it in holds.items() if it}
    return [f"{type(endpoint).__name__} {rank.index}: {name}: {it}" for name, it in told.items()]

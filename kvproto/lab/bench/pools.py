"""Pools and bytes that benchmarks move, and how they are compared.

A pool that is written to is filled with a marker first: a byte that was never written is seen, and so is one that had
no business being written.
"""

from __future__ import annotations

import torch

from kvproto.io.kernels.base import Pool
from kvproto.layout.sharding import Layout

MARKER = 0xA5


def seeded_bytes(shape: tuple[int, ...], seed: int, device: torch.device) -> torch.Tensor:
    """Random bytes, the same in every process that asks with this seed on such a device."""
    source = torch.Generator(device).manual_seed(seed)
    return torch.randint(0, 256, shape, dtype=torch.uint8, generator=source, device=device)


def random_bytes(*shape: int, device: torch.device | str = "cuda") -> torch.Tensor:
    """Random bytes, made eight at a time."""
    made = torch.empty(shape, dtype=torch.uint8, device=device)
    made.view(torch.int64).random_()
    return made


def empty_pool(layout: Layout, index: int, pages: int, device: torch.device | str, *, packed: bool = False) -> Pool:
    """A rank's pool, of whatever bytes; `packed`: all layers of a page, K and V, lie in one block."""
    heads, layers = layout.heads_of(index)[1], layout.layers_of(index)[1]
    inner = (layout.page_size, heads) if layout.order == "NHD" else (heads, layout.page_size)
    dtype = getattr(torch, layout.dtype)

    if packed:
        sides = 2 if layout.v_dim else 1
        whole = torch.empty((pages, layers, sides, *inner, layout.k_dim), dtype=dtype, device=device)
        k, v = ([whole[:, layer, side] for layer in range(layers)] if side < sides else [] for side in (0, 1))
        return Pool(k, v, layout.order, layout.page_size)

    def tensors(dim: int) -> list[torch.Tensor]:
        return [torch.empty((pages, *inner, dim), dtype=dtype, device=device) for _ in range(layers if dim else 0)]

    return Pool(tensors(layout.k_dim), tensors(layout.v_dim), layout.order, layout.page_size)


def random_pool(layout: Layout, pages: int) -> Pool:
    """The first rank's pool of random bytes, on the GPU."""
    pool = empty_pool(layout, 0, pages, "cuda")
    for tensor in pool.k + pool.v:
        tensor.view(torch.int64).random_()
    return pool


def mark(pool: Pool) -> None:
    for tensor in pool.k + pool.v:
        tensor.view(torch.uint8).fill_(MARKER)


def marked_twin(pool: Pool) -> Pool:
    """Fill a pool with the marker; another one like it."""
    mark(pool)
    return Pool([t.clone() for t in pool.k], [t.clone() for t in pool.v], pool.order, pool.page_size)


def same(one: Pool, other: Pool) -> bool:
    pairs = zip(one.k + one.v, other.k + other.v, strict=True)
    return all(torch.equal(a.view(torch.uint8), b.view(torch.uint8)) for a, b in pairs)

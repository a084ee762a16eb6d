"""What both endpoints are made of, and what is looked at when they are made and when a room is opened."""

from __future__ import annotations

import operator
import os
import time
from typing import Any

from kvproto.engine.device_streams import DeviceStreams
from kvproto.engine.room_entry import RoomEntry, as_table, need_pages
from kvproto.errors import ArgumentError
from kvproto.io.control.control import Control
from kvproto.io.kernels.base import Kernels, Pool
from kvproto.layout.plan import Plan
from kvproto.layout.sharding import Layout
from kvproto.protocol.codec import MAX_FRAME


def new_incarnation() -> int:
    """A number (u48) higher than in any earlier life of this rank: milliseconds since 2020, and the process."""
    milliseconds = time.time_ns() // 1_000_000 - 1_577_836_800_000
    return (milliseconds & (1 << 40) - 1) << 8 | os.getpid() & 0xFF


def pick_kernels(pool: Pool) -> Kernels:
    """Triton on a GPU, torch on the CPU."""
    if pool.device.type == "cuda":
        from kvproto.io.kernels.triton import TritonKernels

        return TritonKernels()
    from kvproto.io.kernels.torch import TorchKernels

    return TorchKernels()


def check_pool(layout: Layout, index: int, pool: Pool, grid: int) -> None:
    """ArgumentError unless the pool is this rank's share of the layout, dense, and the grid is whole pages of it."""
    _, heads = layout.heads_of(index)
    _, layers = layout.layers_of(index)
    told = (layers, heads, layout.k_dim, layout.v_dim, layout.page_size, layout.itemsize, layout.order)
    dims = pool.k[0].shape[3], pool.v[0].shape[3] if pool.v else 0
    found = (pool.layers, pool.heads, *dims, pool.page_size, pool.itemsize, pool.order)
    if told != found:
        names = "(layers, heads, K dim, V dim, page size, element bytes, order)"
        raise ArgumentError(f"the layout gives rank {index} {names} = {told}, the pool has {found}")
    for name, tensors in zip("KV", pool.kinds, strict=False):
        if not tensors[0].is_contiguous():  # all layers are alike
            strides = f"{name} tensors {tuple(tensors[0].shape)} with strides {tensors[0].stride()}"
            raise ArgumentError(f"{strides} are views of something larger: page to page, pages are written as a whole; "
                             "give dense tensors (kernels alone, without an endpoint, take such views)")  # fmt: skip
    Plan(layout, layout, grid)  # refuses a grid by name


def need_room(layout: Layout, tokens: int, pages: Any, pool: Pool, lane: DeviceStreams) -> RoomEntry:
    """An entry with the page table on the device and on the host; ArgumentError names what is wrong with it."""
    tokens, host = operator.index(tokens), as_table(pages)
    if tokens < 1:
        raise ArgumentError(f"a room of {tokens} tokens: a prompt has at least one")
    need_pages(layout, tokens, host, pool.pages)
    table, placed = lane.place(host)
    return RoomEntry(tokens, table, host, placed=placed)


def make_control(bind: str | None) -> Control:
    """A control plane with the codec's bound of a frame."""
    return Control(bind, max_frame=MAX_FRAME)

"""Host pool: pages for KV in this host's memory beside a rank's pool, and the way up from there.

A decode engine that has no free pages takes a room's KV into host pages, so that the prefill engine gets its own pages
back, and moves it up when the request is admitted (docs/design/host_pages.md).  The host pool is a pool like any other:
an endpoint of its own serves it.  On a GPU it is page-locked, and peers on this host can map it.

The move is one launch over the bus: a kernel of the pool's device reads the host's memory.  The bus bounds it, so few
multiprocessors do it, and a forward beside it keeps the others.
"""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
import torch

from kvproto.call_arguments import checked
from kvproto.data.room_entry import HostPages, as_table
from kvproto.endpoint.validation import pick_kernels
from kvproto.errors import ArgumentError
from kvproto.io.kernels.base import Kernels, Pool, Ticket
from kvproto.io.kernels.cache_pool import ANY_PAGE
from kvproto.io.kernels.crossing import Crossing, Rows
from kvproto.io.kernels.current_device import use_device
from kvproto.io.kernels.host_buffer import HostBuffer
from kvproto.io.kernels.pool import AXES, ByteGeometry

#: percent of the multiprocessors that fill the bus
PERCENT = 10


class HostPool:
    """As many host pages as are asked for, of a pool's form, and the copy into its pages.

    They are page-locked as long as this object lives, so it outlives the endpoint that serves them.
    """

    @checked
    def __init__(self, above: Pool, pages: int, kernels: Kernels | None = None) -> None:
        """Allocate the pages, and compile the copy.

        Args:
            above: the pool whose form the pages have, and into which they are moved
            pages: host pages
            kernels: default: the pool's own

        Raises:
            ArgumentError: the pool names its caches, no page is asked for, or the kernels have no such copy
            OSError: the host has not so much memory

        """
        if above.of is not None:
            raise ArgumentError("host pages are of pools of K and V: this pool names its caches")
        pages = operator.index(pages)
        if not 1 <= pages < ANY_PAGE:
            raise ArgumentError(f"{pages} host pages: at least one, and fewer than {ANY_PAGE}")
        self.above, shapes = above, [_shape(each, above.order, pages) for kind in above.kinds for each in kind]
        sizes = [int(np.prod(shape)) * above.itemsize for shape in shapes]
        with use_device(above.gpu):
            self._buffer = HostBuffer(sum(sizes), page_locked=above.gpu >= 0)
        ends = np.cumsum([0, *sizes])
        views = [
            self._buffer.bytes[begin:end].view(above.dtype).view(shape)
            for begin, end, shape in zip(ends[:-1].tolist(), ends[1:].tolist(), shapes, strict=True)
        ]
        #: the host pages as a pool, for an endpoint of its own
        self.pool = Pool(views[: above.layers], views[above.layers :], above.order)
        kernels = kernels or pick_kernels(above)
        copy = kernels.cross(above, _crossings(self.pool, above), lambda: PERCENT)
        if copy is None:
            raise ArgumentError(f"{type(kernels).__name__} has no copy from host pages into a pool on {above.device}")
        self._copy = copy

    @checked
    def lift(self, taken: Any, pages: Any, tokens: int, *, stream: Any = None) -> Ticket:
        """Copy the KV of `tokens` tokens from host pages into pages of the pool; returns before it is there.

        The host pages may be used again, and the pool's be read, when the ticket is `done`, or on the stream behind it.

        Args:
            taken: host page ids in token order, which a released room has filled
            pages: page ids of the pool, in the same order
            tokens: length of the prompt; of the last page no later token is copied
            stream: on a GPU, the stream (None: the current one)

        Raises:
            ArgumentError: pages are missing, or not of their pool

        """
        tokens = operator.index(tokens)  # numpy's unsigned numbers have no negative
        near, far = _need(self.pool, taken, tokens, "host page"), _need(self.above, pages, tokens, "page")
        gpu, device = self.above.gpu, self.above.device
        with use_device(gpu):
            stream = torch.cuda.current_stream(device) if gpu >= 0 and stream is None else stream
            with torch.cuda.stream(stream):  # the tables are of this stream, so they live as long as its launches
                table = torch.from_numpy(near).to(device)
                theirs = torch.from_numpy(far.astype("<u4").view(np.uint8)).to(device)
                return self._copy.bind(table, theirs, 0, tokens)(stream, None)


def _shape(tensor: torch.Tensor, order: str, pages: int) -> tuple[int, ...]:
    shape = list(tensor.shape)
    shape[AXES[order][0]] = pages
    return tuple(shape)


def _crossings(below: Pool, above: Pool) -> list[Crossing]:
    """Return the planes of both pools, layer by layer."""
    return [
        Crossing(
            here.row, below.heads, _rows(here, below.page_size), _rows(there, above.page_size),
            tuple((a.data_ptr(), b.data_ptr()) for a, b in zip(ours, theirs, strict=True)),
        )
        for ours, theirs, here, there in zip(below.kinds, above.kinds, below.grains, above.grains, strict=True)
    ]  # fmt: skip


def _rows(grain: ByteGeometry, page_size: int) -> Rows:
    return Rows(grain.page, grain.token, grain.head, page_size)


def _need(pool: Pool, pages: Any, tokens: int, what: str) -> HostPages:
    """Return the page ids; ArgumentError: too few, or one that is not of the pool."""
    table, needed = as_table(pages), -(-tokens // pool.page_size)
    if tokens < 1 or len(table) < needed:
        raise ArgumentError(f"{tokens} tokens need {needed} {what}s of {pool.page_size}, the table has {len(table)}")
    table = table[:needed]
    for page in (int(table.min()), int(table.max())):
        if not 0 <= page < pool.pages:
            raise ArgumentError(f"{what} {page} of {pool.pages}: they are 0 .. {pool.pages - 1}")
    return table

"""Engine pages: whole pages go into a peer's mapped pool by the device's copy engines.

Where a page is one run of bytes on both sides, or a few long ones, as in pools whose pages hold all layers, no kernel
is needed: the driver takes a batch of copies, and the copy engines carry it at the rate of the link.  A forward beside
them keeps all of its multiprocessors.  A copy costs the host 0.7 us, so pieces of `LEAST` bytes or more go that way,
and shorter ones by the kernel (`across`), which takes any piece.  A batch begins to move when all of it is queued,
hence batches of `TOGETHER` copies.  Rows of a slot of state that lie evenly spaced are one copy (`page_stacks`).

On two H200s 1 GiB in pieces of 2 MiB takes 2.78 ms, in pieces of 512 KiB 2.85, in pieces of 256 KiB 2.92, of which the
host is busy for 0.36, 1.42 and 2.73; as one copy 2.72, by the kernel 2.91.  In one batch it takes 3.03, 3.87 and 5.00.

The copies are addressed when they are launched, not before: pages may come, or be replaced, in between.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from kvproto.io.kernels.base import Events
from kvproto.io.kernels.crossing import Crossing, Rows
from kvproto.io.kernels.current_device import use_device
from kvproto.io.kernels.page_stacks import PageRun, StackCopy, device_stacks
from kvproto.io.kernels.pool import KernelError
from kvproto.io.ticket import Ticket
from kvproto.io.transports.device_maps import cuda_driver

#: bytes of the shortest piece that the copy engines are given
LEAST = 512 << 10
#: copies of a batch
TOGETHER = 32
#: CU_MEMCPY_SRC_ACCESS_ORDER_STREAM: a copy reads its source when the stream comes to it
_IN_ORDER = 1

PageIds = npt.NDArray[Any]
#: those of a room on this side, or its slots of state
NearPages = PageIds | tuple[int, ...]
#: addresses there and here, and bytes, of so many copies
Copies = npt.NDArray[np.uint64]
#: queues the copies [first, end) of such rows on a raw stream; returns the driver's code, 0 if all went well
Queue = Callable[[Copies, int, int, int], int]


def page_runs(crossings: Sequence[Crossing]) -> list[PageRun]:
    """Return the runs of bytes that a page is on both sides; none: pages differ, or rows lie apart."""
    runs = list[PageRun]()
    for crossing in crossings:
        near, far, width = crossing.ours, crossing.theirs, crossing.heads * crossing.row
        if _form(near) != _form(far) or not _dense(near, crossing.heads, crossing.row):
            return []
        nbytes = near.page_size * width
        runs += [PageRun(here, there, nbytes, near.page, far.page) for here, there in crossing.planes]
    joined = list[PageRun]()
    for run in sorted(runs, key=lambda each: each.here):
        last = joined[-1] if joined else None
        if last is not None and (run.here, run.there, run.step, run.far_step) == (
            last.here + last.nbytes, last.there + last.nbytes, last.step, last.far_step,
        ):  # fmt: skip
            joined[-1] = PageRun(last.here, last.there, last.nbytes + run.nbytes, last.step, last.far_step)
        else:
            joined.append(run)
    return joined


def _form(rows: Rows) -> tuple[int, int, int]:
    return rows.page_size, rows.token, rows.head


def _dense(rows: Rows, heads: int, row: int) -> bool:
    """Whether these heads of all tokens of a page are one run of bytes, whichever of the two comes first."""
    by_token = rows.token == heads * row or rows.page_size == 1
    by_head = rows.head == rows.page_size * row and rows.token == row
    return (by_token and (rows.head == row or heads == 1)) or by_head


class EnginePages:
    """The copies of one part's whole pages."""

    def __init__(self, place: int, runs: Sequence[PageRun], queue: Queue, stacks: Sequence[StackCopy] = ()) -> None:
        """`place`: the number of this rank's device; `stacks`: of slots of state, beside the runs."""
        self._place, self._queue, self._events = place, queue, Events()
        self.stacks = tuple(stacks)
        columns = ([getattr(run, name) for run in runs] for name in ("here", "there", "nbytes", "step", "far_step"))
        self._here, self._there, self._nbytes, self._step, self._far_step = (
            np.array(column, np.int64)[:, None] for column in columns
        )
        #: the copies of page 0 to page 0, and the steps to the next page there and here
        self._first = np.ascontiguousarray(np.concatenate((self._there, self._here, self._nbytes), 1).T)
        self._steps = np.ascontiguousarray(np.concatenate((self._far_step, self._step, 0 * self._nbytes), 1).T)
        #: bytes of a page
        self.page_bytes = sum(run.nbytes for run in runs) + sum(stack.nbytes for stack in stacks)
        #: whether pages that follow one another on both sides are one copy
        self._joins = all(run.nbytes == run.step == run.far_step for run in runs)

    def launch(self, near: NearPages, far: PageIds, stream: Any) -> Ticket:
        """Queue the copies from these pages here to those there.

        KernelError: the driver refused, perhaps after it has taken some.
        """
        with use_device(self._place):
            for stack in self.stacks:
                _need_success(stack(near[0], int(far[0]), stream.cuda_stream))
            if len(self._nbytes):
                copies = self.copies(near, far)
                count = copies.shape[1]
                for at in range(0, count, TOGETHER):
                    _need_success(self._queue(copies, at, min(at + TOGETHER, count), stream.cuda_stream))
            return self._events.ticket(stream)

    def copies(self, near: NearPages, far: PageIds) -> Copies:
        """Return three rows, one behind the other: where the copies go, where they begin, how long they are."""
        if len(near) == 1:  # as a slot of state is
            copies: Copies = (self._first + self._steps * np.array([[int(far[0])], [near[0]], [0]])).view(np.uint64)
            return copies
        near, far = np.asarray(near), far.astype(np.int64)  # a peer's are u32, of which differences wrap around
        starts = np.arange(len(near))
        if self._joins:
            starts = np.concatenate(([0], np.flatnonzero((np.diff(near) != 1) | (np.diff(far) != 1)) + 1))
        pages = np.diff(starts, append=len(near))
        ours = self._here + near[starts] * self._step
        theirs = self._there + far[starts] * self._far_step
        nbytes = np.broadcast_to(self._nbytes * pages, ours.shape)
        # Page by page: neighbouring runs of one page are neighbours in time.
        return np.stack([each.T.ravel() for each in (theirs, ours, nbytes)]).astype(np.uint64)


def _need_success(failed: int) -> None:
    if failed:
        raise KernelError(f"the driver does not copy pages (CUresult {failed})")


def engine_pages(crossings: Sequence[Crossing], place: int, *, slots: bool = False) -> EnginePages | None:
    """Return the copies of these planes by engines; None: short pieces, or a driver without batches.

    `place`: the number of the device; -1, the CPU, has none. `slots`: each launch is of one slot of state.
    """
    queue = _driver_queue() if place >= 0 else None
    runs = page_runs(crossings) if queue is not None else []
    stacked, alone = device_stacks(runs, place) if slots and runs else ([], runs)
    if queue is None or not runs or min((run.nbytes for run in alone), default=LEAST) < LEAST:
        return None
    return EnginePages(place, alone, queue, stacked)


class _Attributes(ctypes.Structure):
    """CUmemcpyAttributes; places are seen from the addresses, so none is hinted at."""

    _fields_ = (("order", ctypes.c_int), ("hints", ctypes.c_int * 4), ("flags", ctypes.c_uint))


@lru_cache(maxsize=1)
def _driver_queue() -> Queue | None:
    """Return the driver's batches of copies, as CUDA 13 or as 12.8 has them; None: it has none."""
    cuda = cuda_driver()
    newer, older = (getattr(cuda, f"cuMemcpyBatchAsync{version}", None) for version in ("_v2", ""))
    if newer is None and older is None:
        return None
    attributes, zero, one = _Attributes(order=_IN_ORDER), ctypes.c_size_t(0), ctypes.c_size_t(1)
    fault = () if newer is not None else (ctypes.byref(ctypes.c_size_t()),)
    about = ctypes.byref(attributes), ctypes.byref(zero), one, *fault
    call: Any = newer or older

    def queue(copies: Copies, first: int, end: int, stream: int) -> int:
        # The rows lie one behind the other; the driver has read them when it returns.
        begin, row = copies.ctypes.data + copies.itemsize * first, copies.strides[0]
        columns = (ctypes.c_void_p(begin), ctypes.c_void_p(begin + row), ctypes.c_void_p(begin + 2 * row))
        return int(call(*columns, ctypes.c_size_t(end - first), *about, ctypes.c_void_p(stream)))

    return queue

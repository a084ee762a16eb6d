"""Page stacks: runs of a page that lie evenly spaced, as one copy of the device's copy engines.

A state's rows of all layers often are views of one tensor: each layer's row lies as far behind the one before it, on
both sides.  The driver copies such rows as the slices of a box, at the rate of one run of the same bytes.  On two H200s
45 rows of 1 MiB take 132 us as a stack, 135 as a batch of copies and 132 as one run, of which the host is busy for 10,
70 and 10.  Short rows cost it as little, but engines that four processes share turn to the next one less often: with
the rows of a convolution as stacks of their own the state of 64 rooms took 36.5 ms, with a kernel for them 35.4.

The driver refuses a box that reaches beyond an allocation, so rows are stacked within one.  A box whose slices lie 2
GiB apart or more would take twice as long: slices are then as many lines high as there are slots between two layers.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

import msgspec

from kvproto.io.transports.device_maps import allocation, cuda_driver, on_device

#: rows that are worth a stack, and their bytes: a kernel beside it carries shorter ones
LEAST_ROWS, LEAST_BYTES = 8, 4 << 20
#: rows behind a first one that may be its second
_NEAR = 8
#: bytes between two lines of a box that the driver copies at the full rate, at most
MOST_PITCH = (1 << 31) - 1
#: CU_MEMORYTYPE_UNIFIED
_UNIFIED = 4


class PageRun(msgspec.Struct, frozen=True):
    """A run of bytes of every page: its addresses in page 0 on both sides, and the steps of pages."""

    here: int
    there: int
    nbytes: int
    step: int
    far_step: int

    def moved(self, rows: int, near: int, far: int) -> PageRun:
        """Return the run that lies so many rows behind it."""
        return PageRun(self.here + rows * near, self.there + rows * far, self.nbytes, self.step, self.far_step)


class PageStack(msgspec.Struct, frozen=True):
    """Evenly spaced runs of every page: the first, their number, and from one to the next on both sides."""

    first: PageRun
    rows: int
    near: int
    far: int


def stacks(runs: Sequence[PageRun], end: Callable[[int], int]) -> tuple[list[PageStack], list[PageRun]]:
    """Return the stacks that these runs are, and the runs that are left.

    `end` returns the address where the allocation ends in which an address lies; 0: it is not known."""
    left, found, alone = dict.fromkeys(sorted(runs, key=lambda run: (run.here, run.there))), list[PageStack](), []
    while left:
        first = next(iter(left))
        ends = end(first.here), end(first.there)
        candidates = (_stack(first, second, left, ends) for second in islice(left, 1, 1 + _NEAR))
        best = max(candidates, key=lambda stack: stack.rows, default=PageStack(first, 1, 0, 0))
        if best.rows < LEAST_ROWS or best.rows * first.nbytes < LEAST_BYTES:
            alone.append(first)
            del left[first]
            continue
        found.append(best)
        for at in range(best.rows):
            del left[first.moved(at, best.near, best.far)]
    return found, alone


def _stack(first: PageRun, second: PageRun, left: dict[PageRun, None], ends: tuple[int, int]) -> PageStack:
    near, far, rows = second.here - first.here, second.there - first.there, 1
    if near >= first.nbytes and far >= first.nbytes:
        while (each := first.moved(rows, near, far)) in left and _before(each, *ends):
            rows += 1
    return PageStack(first, rows, near, far)


def _before(run: PageRun, end: int, far_end: int) -> bool:
    return run.here + run.nbytes <= end and run.there + run.nbytes <= far_end


class _Box(ctypes.Structure):
    """CUDA_MEMCPY3D, in the driver's order: where the slices are on either side, and how large they are."""

    _fields_ = (
        *((f"{side}_{name}", kind) for side in ("src", "dst") for name, kind in (
            ("x", ctypes.c_size_t), ("y", ctypes.c_size_t), ("z", ctypes.c_size_t), ("level", ctypes.c_size_t),
            ("kind", ctypes.c_int), ("host", ctypes.c_void_p), ("device", ctypes.c_uint64), ("array", ctypes.c_void_p),
            ("reserved", ctypes.c_void_p), ("pitch", ctypes.c_size_t), ("height", ctypes.c_size_t),
        )),
        ("width", ctypes.c_size_t), ("lines", ctypes.c_size_t), ("slices", ctypes.c_size_t),
    )  # fmt: skip


class StackCopy:
    """The copies of one stack, from any page to any other."""

    def __init__(self, stack: PageStack, copy: Callable[[Any, Any], int]) -> None:
        """`copy` is the driver's."""
        first, self._copy = stack.first, copy
        self.nbytes = stack.rows * first.nbytes
        self._here, self._there, self._step, self._far_step = first.here, first.there, first.step, first.far_step
        near, far = _lines(stack.near, first.step), _lines(stack.far, first.far_step)
        self._box = _Box(
            src_kind=_UNIFIED, src_pitch=near[0], src_height=near[1],
            dst_kind=_UNIFIED, dst_pitch=far[0], dst_height=far[1],
            width=first.nbytes, lines=1, slices=stack.rows,
        )  # fmt: skip

    def __call__(self, near: int, far: int, stream: int) -> int:
        """Queue the copy of page `near` here to page `far` there; return the driver's code, 0: all is well."""
        box = self._box  # the driver has read it when it returns
        box.src_device = self._here + near * self._step
        box.dst_device = self._there + far * self._far_step
        return self._copy(ctypes.byref(box), ctypes.c_void_p(stream))


def _lines(apart: int, step: int) -> tuple[int, int]:
    """Return the bytes of a line of a box, and its lines, where slices lie so far apart and pages a step."""
    if apart > MOST_PITCH and 0 < step <= MOST_PITCH and not apart % step:
        return step, apart // step
    return apart, 1


def device_stacks(runs: Sequence[PageRun], place: int) -> tuple[list[StackCopy], list[PageRun]]:
    """Return the stacks of these runs on this device, made ready, and the runs that are left."""
    driver = cuda_driver()
    copy = getattr(driver, "cuMemcpy3DAsync_v2", None)
    if copy is None:
        return [], [*runs]
    with on_device(driver, place) as there:
        found, left = stacks(runs, lambda address: sum(allocation(driver, address) or ()) if there else 0)
    return [StackCopy(stack, copy) for stack in found], left

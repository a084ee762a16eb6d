"""The current CUDA device of a thread: the rank's while the rank works, the caller's before and after.

CUDA keeps one current device a thread, and a new thread begins with device 0. Kernels are loaded for it, launched on
it, and memory is page-locked for it. torch's own calls follow the device of the tensor or stream that they are given.
Triton's launches and the driver's calls do not: they take whatever is current.

So there is a boundary. A thread that belongs to a rank (the loop's own one, the helpers) makes the pool's device its
current one once and keeps it. A thread of the caller's has it while a call of the endpoint or of the kernels runs.
Within the boundary nobody has to think of devices. `use_device` costs one look where the device is current already.

A device that the process has not used is not touched: torch's own context manager puts such a device back without
making a context there, which would take half a gigabyte of its memory.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import torch

SAME: AbstractContextManager[object] = nullcontext()
#: the current device's index, at a fifth of what `torch.cuda.current_device` costs
current_device: Callable[[], int] = getattr(torch._C, "_cuda_getDevice", torch.cuda.current_device)  # noqa: SLF001


def use_device(place: int) -> AbstractContextManager[object]:
    """Make device `place` the calling thread's current one for a block; -1, the CPU, changes nothing."""
    if place < 0 or current_device() == place:
        return SAME
    return torch.cuda.device(place)


def keep_device(place: int) -> None:
    """Make device `place` the current one of a thread that belongs to the rank, until the thread ends."""
    if place >= 0:
        torch.cuda.set_device(place)

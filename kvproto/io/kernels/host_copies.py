"""Copies between a device and page-locked memory that cost the host little.

A chunk's first copy can begin no sooner than the host has queued it, and torch's way to do that (two slices, a stream
made current, `copy_`) takes about 25 us: half of what pinned staging of 64 MiB loses to a plain copy. The driver's own
call takes 2. It needs what is the case on a thread that has launched a kernel before: the device's context is current.
Where it is not, or there is no such library, torch does the copy, and the next one finds the context.

Nothing keeps memory for a copy that is queued this way: whoever asks for it does, until it is over.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import torch

LIBRARY = "libcuda.so.1"


@cache
def _driver() -> Any:
    """Return the driver's asynchronous copy, which finds the direction itself; None: no driver."""
    try:
        call = ctypes.CDLL(LIBRARY).cuMemcpyAsync
    except (OSError, AttributeError):
        return None
    call.argtypes = (ctypes.c_uint64, ctypes.c_uint64, ctypes.c_size_t, ctypes.c_void_p)
    call.restype = ctypes.c_int
    return call


def copy_bytes(to: torch.Tensor, source: torch.Tensor, first: int, last: int, stream: Any) -> None:
    """Queue a copy of bytes [first, last) of one uint8 tensor to the same place of another."""
    call, place = _driver(), max(to.get_device(), source.get_device())
    here = call is not None and torch.cuda.current_device() == place
    if here and call(to.data_ptr() + first, source.data_ptr() + first, last - first, stream.cuda_stream) == 0:
        return
    with torch.cuda.stream(stream):
        to[first:last].copy_(source[first:last], non_blocking=True)

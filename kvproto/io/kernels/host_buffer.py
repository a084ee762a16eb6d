"""A host buffer that copy engines read and write at full speed, and that peers on this host can map.

Page-locked, if there is a device: the driver is told of memory that is there already, since what it hands out by itself
no other process can map.  It is told again before the memory goes.
"""

from __future__ import annotations

from typing import Any

import torch

from kvproto.io.kernels.current_device import current_device, use_device
from kvproto.io.transports.host_memory import SharedMemory, Twin


class HostBuffer:
    """`nbytes` of zeros, `bytes` (uint8); they are shared and page-locked as long as this object lives.

    They are locked for the device that is current now. `twin`: as many bytes on a device, which have what is here
    before a transport reads it, and live as long.
    Raises OSError where there is no such memory, and torch's error if it cannot be locked.
    """

    def __init__(self, nbytes: int, *, page_locked: bool, twin: torch.Tensor | None = None) -> None:
        self._memory, self._locked = SharedMemory(nbytes), False
        self.bytes = torch.frombuffer(self._memory.view, dtype=torch.uint8)
        if page_locked:
            torch.cuda.check_error(_driver().cudaHostRegister(self.bytes.data_ptr(), nbytes, 0))
            self._locked, self._place = True, current_device()
        if twin is not None:
            self._memory.twin = Twin(twin.get_device(), twin.data_ptr())

    def __del__(self) -> None:
        if getattr(self, "_locked", False):
            with use_device(self._place):  # the collector may call this on any thread
                _driver().cudaHostUnregister(self.bytes.data_ptr())


def _driver() -> Any:
    return torch.cuda.cudart()  # type: ignore[no-untyped-call]

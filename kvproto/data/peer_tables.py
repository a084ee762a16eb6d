"""Peer tables: the pages that peers have named, on this rank's device.

Every store into a peer's pages has a table of their numbers, of some bytes, that is read once.  A tensor for each would
cost the host more than the launch: an allocation, an event, and three streams that its memory has to be kept for.  So
tables lie one behind the other in a block, which is allocated, and kept for the streams that read it, as one; a full
block gives way to a new one, and goes when the last launch that reads it is over.

The driver has read the host's bytes when a copy returns, though they are not page-locked, because they are few: more
than `MOST` go by `DeviceStreams.place`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import torch

from kvproto.io.kernels.current_device import use_device
from kvproto.io.kernels.pool import KernelError

#: bytes of a block; of a table, at most; and what each begins at a multiple of
BLOCK, MOST, ALIGN = 1 << 18, 1 << 15, 16


class PeerTables:
    """The tables of one rank; of the loop's thread."""

    def __init__(self, driver: Any, device: torch.device, stream: Any, readers: Sequence[Any]) -> None:
        """`stream` copies them there, `readers` are the streams of launches that read them."""
        self._copy: Any = driver.cuMemcpyHtoDAsync_v2
        self._copy.argtypes = (ctypes.c_uint64, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_void_p)
        self._device, self._stream, self._readers = device, stream, readers
        self._place = -1 if device.type == "cpu" else device.index or 0
        self._block, self._address, self._used = torch.empty(0, dtype=torch.uint8), 0, BLOCK

    def place(self, pages: bytes) -> torch.Tensor:
        """Return these bytes, `MOST` at most, on the device, once the stream has come so far.

        KernelError: the driver refuses the copy.  What the allocator raises: there is no memory for a block.
        """
        first, nbytes = self._used, len(pages)
        if first + nbytes > BLOCK:
            self._renew()
            first = 0
        with use_device(self._place):
            failed = self._copy(self._address + first, pages, nbytes, self._stream.cuda_stream)
        if failed:
            raise KernelError(f"the driver does not copy a page table (CUresult {failed})")
        self._used = -(-(first + nbytes) // ALIGN) * ALIGN
        return self._block[first : first + nbytes]

    def _renew(self) -> None:
        with torch.cuda.stream(self._stream):  # what the allocator gives is ordered by this stream
            block = torch.empty(BLOCK, dtype=torch.uint8, device=self._device)
        for reader in self._readers:
            block.record_stream(reader)
        self._block, self._address = block, block.data_ptr()

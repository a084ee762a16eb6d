"""Held forward: a forward that is over when the benchmark says so.

Engines report a room when they launch its forward, with an event of the forward's end, and the endpoint does before
that end what it can.  A forward of real work ends at a moment that a host learns late, and not precisely.  So this one
is a stream of the device that waits for a word of host memory, and the clock runs from the moment at which the host
writes that word.  It takes no multiprocessor, and the KV is in the pages already.
"""

from __future__ import annotations

import argparse
import ctypes
from typing import Any

import torch

from kvproto.data.device_streams import new_stream
from kvproto.io.kernels.current_device import use_device
from kvproto.io.transports.device_maps import cuda_driver

#: CU_STREAM_WAIT_VALUE_GEQ
_AT_LEAST = 0


class HeldForward:
    """The forwards of one device, one after the other; of one thread."""

    def __init__(self, device: torch.device) -> None:
        self._index, self._stream = device.index or 0, new_stream(device)
        self._memory = torch.zeros(1, dtype=torch.int32).pin_memory()
        #: the number of the last forward that is over, as the device reads it
        self._word = ctypes.c_int32.from_address(self._memory.data_ptr())
        self._number = 0

    def begin(self) -> Any:
        """Launch a forward; return the event of its end.  RuntimeError: the driver cannot wait for a word."""
        self._number += 1
        wait: Any = getattr(cuda_driver(), "cuStreamWaitValue32_v2", None)
        stream, word = ctypes.c_void_p(self._stream.cuda_stream), ctypes.c_uint64(self._memory.data_ptr())
        with use_device(self._index):
            if wait is None or wait(stream, word, ctypes.c_uint32(self._number), _AT_LEAST):
                raise RuntimeError("this device's driver cannot wait for a word of host memory: leave out --forward")
            event: Any = torch.cuda.Event()  # type: ignore[no-untyped-call]
            event.record(self._stream)
        return event

    def end(self) -> None:
        """The forward is over."""
        self._word.value = self._number


def add_forward(parser: argparse.ArgumentParser) -> None:
    """Add the option that has rooms reported as their forward is launched."""
    parser.add_argument("--forward", action="store_true", help="report rooms when their forward is launched, as both "
                        "adapters do, and not when it is over")  # fmt: skip


def need_device_to_wait(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """End with an error of the command line where it is wanted without a device."""
    if options.forward and options.cpu:
        parser.error("--forward: it is a stream of a device that waits for it; leave out --cpu")

"""Held calls: short calls of the CUDA driver that do not give the interpreter's lock away.

However short a call is, if it gives the lock away, a thread that never sleeps, such as an engine's scheduler, takes it
and keeps it for a switch interval (`own_thread.SWITCH_S`).  torch's queries of events and streams give it away, and a
pass of the loop makes several.  On a loop's own thread the calls here keep it; they take a microsecond and never wait.
"""

from __future__ import annotations

import ctypes
from functools import lru_cache
from typing import Any

import torch

from kvproto.io.control.poller import keeps_lock

#: the driver's answers: it has passed, it has not
PASSED, NOT_YET = 0, 600


def passed(event: Any) -> bool:
    """Whether a CUDA event has passed; one of another kind, or at fault, is asked by its own `query`."""
    if keeps_lock() and type(event) is torch.cuda.Event and (driver := _driver()) is not None:
        code = driver.cuEventQuery(event.cuda_event)
        if code in (PASSED, NOT_YET):
            return bool(code == PASSED)
    return bool(event.query())


def drained(stream: Any) -> bool:
    """Whether all that is queued on a CUDA stream is over, likewise."""
    if keeps_lock() and type(stream) is torch.cuda.Stream and (driver := _driver()) is not None:
        code = driver.cuStreamQuery(stream.cuda_stream)
        if code in (PASSED, NOT_YET):
            return bool(code == PASSED)
    return bool(stream.query())


@lru_cache(maxsize=1)
def _driver() -> Any:
    """The CUDA driver's library, called with the lock held; None: there is none."""
    try:
        driver = ctypes.PyDLL("libcuda.so.1")
        driver.cuEventQuery.argtypes = driver.cuStreamQuery.argtypes = [ctypes.c_void_p]
    except (OSError, AttributeError):
        return None
    return driver

"""Compiled kernels: made for one device, launched without Triton's look at each argument.

A launch takes a dozen integers and hands them to the compiled kernel by itself. Triton's own launch path would look
at each argument again to find the kernel it found last time, which costs more than everything else in a call.

A compiled kernel is loaded into the context of one device, and cannot be launched on another. Triton keeps what it
has compiled by device, so nothing is kept here: whoever compiles names the device, and holds the launcher beside
memory of that device.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import Any

import triton

from kvproto.io.kernels.current_device import use_device
from kvproto.io.kernels.tile import move

INTERPRETED = not isinstance(move, triton.runtime.JITFunction)
#: Triton hands the same kernel to two threads that ask at once: to the second one half loaded, without its function
COMPILING = Lock()

Launcher = Callable[..., None]
"""Takes the grid's three sizes, the raw stream and the kernel's run-time arguments, one after the other."""


def compile_kernel(place: int, function: Any, arguments: int, constants: tuple[Any, ...], warps: int) -> Launcher:
    """Compile `function` for these constants on device `place`; it takes so many run-time `arguments`."""
    if INTERPRETED:
        return lambda x, y, z, _, *given: function[x, y, z](*given, *constants, num_warps=warps)
    with COMPILING, use_device(place):
        kernel = function.warmup(*[0] * arguments, *constants, grid=(1, 1, 1), num_warps=warps)
        # `run` loads the kernel, which sets `function`: in this order
        run, compiled, packed = kernel.run, kernel.function, kernel.packed_metadata

    def launch(x: int, y: int, z: int, stream: int, *given: int) -> None:
        run(x, y, z, stream, compiled, packed, None, None, None, *given, *constants)

    return launch

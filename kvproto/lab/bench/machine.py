"""Machine: the description of a machine for the head of a table of results."""

from __future__ import annotations

import os
import platform
import re
import timeit
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any


@cache
def machine() -> dict[str, Any]:
    """GPUs, processor cores, how fast Python is here, and the versions of what matters."""
    try:
        import torch
    except ImportError:  # the core does without
        return _host()
    gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return {"gpus": gpus, **_host(), "torch": str(torch.__version__), "cuda": torch.version.cuda, "driver": _driver()}


def _host() -> dict[str, Any]:
    return {
        "cores": os.cpu_count(), "python": platform.python_version(), "python_ns": python_ns(),
        **{name: _version(name) for name in ("triton", "nixl-cu13", "pyzmq", "msgspec")},
    }  # fmt: skip


def python_ns() -> float:
    """Return nanoseconds of a loop's turn that adds a square: the interpreter's speed on this host now.

    Hosts of one kind differ in it by more than two, and with it all that is Python in a figure.
    """
    turns = 2000
    took = timeit.repeat("for each in range(turns): total += each * each", "total = 0", repeat=25, number=1,
                         globals={"turns": turns})  # fmt: skip
    return round(1e9 * min(took) / turns, 1)


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _driver() -> str | None:
    try:
        with Path("/proc/driver/nvidia/version").open(encoding="ascii") as file:
            found = re.search(r"\s(\d+(?:\.\d+)+)\s", file.readline())
    except OSError:
        return None
    return found[1] if found else None

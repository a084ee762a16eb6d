"""NIXL load: the wheel that fits is imported, and the environment it reads is set before it starts.

Where no InfiniBand device exists, UCX's ib module makes the process crash at interpreter exit, after everything went
well. It is switched off then, unless `UCX_MODULES` is set.
"""

from __future__ import annotations

import importlib
import importlib.util
import logging
import os
import sys
from pathlib import Path
from typing import Any

from .base import BackendUnavailable

_INFINIBAND = Path("/sys/class/infiniband")
_NVIDIA = Path("/dev/nvidiactl")


def load() -> tuple[Any, Any]:
    """NIXL's API and bindings, with the environment it reads at start set first."""
    if "NIXL_LOG_LEVEL" not in os.environ:  # its INFO lines go to stdout
        os.environ["NIXL_LOG_LEVEL"] = "WARN"
        logging.getLogger("nixl").setLevel(logging.WARNING)  # it may have been imported before
    if not _INFINIBAND.is_dir() or not any(_INFINIBAND.iterdir()):
        os.environ.setdefault("UCX_MODULES", "^ib")
    package = _package()
    try:
        return importlib.import_module(f"{package}._api"), importlib.import_module(f"{package}._bindings")
    except ImportError as error:
        raise BackendUnavailable(f"NIXL cannot be imported ({error}): pip install 'kvproto[nixl]'") from error


def _package() -> str:
    """Return the package of the NIXL wheel for this machine.

    `nixl` picks the wheel of this machine's CUDA. Without a device any wheel works, and importing `nixl` would load
    torch only to find no device.
    """
    wheels = ("nixl_cu13", "nixl_cu12")
    meta_first = "nixl" in sys.modules or _NVIDIA.exists()
    order = ("nixl", *wheels) if meta_first else (*wheels, "nixl")
    return next((name for name in order if importlib.util.find_spec(name) is not None), "nixl")

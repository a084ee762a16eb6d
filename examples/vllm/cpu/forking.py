"""Forking: on a CPU vLLM's processes are forked of the one that serves.

vLLM spawns them on a CPU, so each imports vLLM anew, and on two cores that takes longer than most of what an instance
is asked afterwards.  Here the process that serves imports once what engines and workers run.

A worker that has got a message looks for the next one without a pause for a second, and only then sleeps until one
comes.  Where instances have more workers than there are cores, each takes that second from the others: here it is a
thousandth of one, less than a step takes, so a worker sleeps between two steps.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

PLATFORM = "vllm.platforms.cpu"
#: modules that an instance's processes import
IMPORTED = "vllm.v1.engine.core", "vllm.v1.worker.cpu_worker", "vllm.v1.executor.multiproc_executor"


class Forking:
    """Finds the module of vLLM's CPU, and alters it once it has run."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Return the module's spec, with a loader that alters it; None: another module."""
        spec = PathFinder.find_spec(name, path, target) if name == PLATFORM else None
        if spec is None or spec.loader is None:
            return None
        run: Any = spec.loader.exec_module

        def run_and_alter(module: ModuleType) -> None:
            run(module)
            patch(module)

        spec.loader.exec_module = run_and_alter  # type: ignore[method-assign]
        return spec


#: seconds for which a worker looks for its next message before it sleeps, and milliseconds after which it looks again:
#: the call that wakes it gets lost at times (vLLM keeps one of them at most), and it would sleep for 5 s
SPINS_S, LOOKS_MS = 0.001, 20


def patch(module: ModuleType) -> None:
    """Have an engine's processes forked, and its workers sleep."""
    platform: Any = vars(module)["CpuPlatform"]
    adapt = platform.check_and_update_config

    def adapted(config: Any) -> None:
        adapt(config)
        os.environ["VLLM_WORKER_MULTIPROC_METHOD"] = "fork"  # it has just set "spawn"
        for name in IMPORTED:
            import_module(name)
        condition: Any = vars(import_module("vllm.distributed.device_communicators.shm_broadcast"))["SpinCondition"]
        condition.__init__.__defaults__ = (SPINS_S,)
        condition.wait = looking(condition.wait)

    platform.check_and_update_config = staticmethod(adapted)


def looking(wait: Callable[..., None]) -> Callable[..., None]:
    """Bound a worker's wait for its next message by `LOOKS_MS`: who waits looks anew each time."""
    return lambda condition, timeout_ms=None: wait(condition, min(timeout_ms or LOOKS_MS, LOOKS_MS))


def install() -> None:
    """Alter it where it is imported from now on."""
    if Forking not in sys.meta_path:
        sys.meta_path.insert(0, Forking)

"""Forking: on a CPU SGLang's schedulers and detokenizers are forked of the process that serves.

SGLang spawns them, since a process that has used a GPU cannot be forked; each then imports SGLang and all of its models
anew, which on two cores takes longer than most of what an instance is asked afterwards.  Here the process that serves
imports all of that once.
"""

from __future__ import annotations

import importlib
import multiprocessing
from types import ModuleType
from typing import Any

#: modules that schedulers and detokenizers import, with all models
IMPORTED = "managers.scheduler", "managers.detokenizer_manager", "disaggregation.decode", "models.registry"
SETTING = "_set_envs_and_config"


def patch(module: ModuleType) -> None:
    """Have an engine's processes forked."""
    adapt: Any = vars(module)[SETTING]

    def adapted(*args: Any, **named: Any) -> None:
        adapt(*args, **named)
        multiprocessing.set_start_method("fork", force=True)  # it has just set "spawn"
        for name in IMPORTED:
            importlib.import_module(f"sglang.srt.{name}")

    vars(module)[SETTING] = adapted


PATCHES = {"sglang.srt.entrypoints.engine": patch}

"""Idle: on a CPU a scheduler that has nothing to compute sleeps a millisecond before its next turn.

While any request waits for its KV, SGLang's schedulers turn without a pause, and ranks of one instance tell each other
so in every turn.  On two cores that time is taken from the ranks that compute what is waited for.
"""

from __future__ import annotations

import time
from types import ModuleType
from typing import Any

PAUSE_S = 1e-3


def patch(module: ModuleType) -> None:
    """Have a scheduler's turns without a batch end with a pause."""
    scheduler: Any = vars(module)["Scheduler"]
    on_idle = scheduler.on_idle

    def paused(self: Any) -> None:
        on_idle(self)
        time.sleep(PAUSE_S)

    scheduler.on_idle = paused


PATCHES = {"sglang.srt.managers.scheduler": patch}

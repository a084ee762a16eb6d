"""Compiling: the decode instance compiles for a minute while KV comes to it, and no room fails.

An engine compiles in the thread that also runs its forwards and kvproto's hooks, when a shape or an adapter is new: no
step takes place meanwhile, and Python's lock is held for most of the time.  The endpoint's own thread has to go on.
Here each decode rank has PyTorch compile functions, one after the other and none from a cache, between two steps.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import msgspec

from examples.vllm import model
from examples.vllm.setting import LONG, Found, Scenario, Setting, found_of

#: seconds of compiling; prompts that come meanwhile
COMPILES_S, COMING = 60.0, (2, 3, 4, LONG)
#: seconds in which a rank takes the order up, far fewer than a decode instance waits for a prompt
TAKEN_UP_S = 0.5
#: a file in the folder of records: each rank compiles once when it is there
ORDER = "compile"


def compile_for(seconds: float) -> int:
    """Compile functions until so many seconds have passed; return how many."""
    import torch
    from torch._inductor import config

    config.force_disable_caches, config.compile_threads = True, 1
    end, made = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        torch.compiler.reset()
        made += 1
        torch.compile(lambda x: (x.sin() @ x.cos().T).softmax(-1).sum())(torch.ones(made + 1, 16))
    return made


class Compiler:
    """A rank's answer to the order."""

    def __init__(self, folder: Path) -> None:
        self.order, self.done = folder / ORDER, 0.0

    def wanted(self) -> bool:
        """Whether there is an order that this rank has not carried out."""
        try:
            given = self.order.stat().st_mtime
        except FileNotFoundError:
            return False
        self.done, before = given, self.done
        return given != before


async def decode_compiles(s: Setting) -> Found:
    """Decode compiles for a minute, while four prompts that it awaits are computed and come."""
    handed, loads = [s.prefill.hand_over() for _ in COMING], s.decode.recorded("Load")
    waiting = [
        asyncio.create_task(s.decode.ask(s.prompts[at], model.ANSWER, theirs))
        for at, (_, theirs) in zip(COMING, handed, strict=True)
    ]
    await s.decode.until("Load", loads + len(COMING) - 1)
    (s.out / ORDER).touch()
    begun = time.perf_counter()  # ranks take it up in one step or in two: no event of the first rank is waited for
    await asyncio.sleep(TAKEN_UP_S)
    asked = [s.prefill.ask(s.prompts[at], 1, ours) for at, (ours, _) in zip(COMING, handed, strict=True)]
    firsts = await asyncio.gather(*asked)
    computed = time.perf_counter() - begun
    answers = await asyncio.gather(*waiting)
    (s.out / ORDER).unlink()
    carried = [(then, 1e3 * (then.first - first.over)) for first, then in zip(firsts, answers, strict=True)]
    came = min(each.first for each in answers) - begun
    note = f"prefill has answered {computed:.1f} s after decode began to compile, decode after {came:.0f} s"
    late = ("nothing came while it compiled",) if computed > COMPILES_S / 2 or came < COMPILES_S else ()
    return msgspec.structs.replace(found_of(s, [*COMING], carried), note=note, faults=late)


COMPILING: dict[str, Scenario] = {"decode compiles": decode_compiles}
